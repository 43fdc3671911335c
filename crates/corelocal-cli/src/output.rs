//! Speaking to the reader: standard output and standard error, which can close or be full at any
//! time. `println!` panics then.
//!
//! Invariants:
//! - Nothing here panics.
//! - Colour is dropped where the output is no terminal or `NO_COLOR` is set, kept where
//!   `CLICOLOR_FORCE` asks for it.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Prints `text` as it is.
///
/// # Errors
/// What `write(2)` answered.
pub fn print(text: impl Display) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    write!(out, "{text}")?;
    out.flush()
}

/// Prints all that a command has to say, and gives back its exit code. A reader who has left, as
/// `head` does, has seen what he wanted.
///
/// # Errors
/// A sentence, when standard output cannot be written for another reason.
pub fn finish(text: impl Display, code: ExitCode) -> anyhow::Result<ExitCode> {
    match print(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => anyhow::bail!(unwritable(&error)),
        _ => Ok(code),
    }
}

/// What to tell when standard output failed.
pub fn unwritable(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}; send it to another place")
}

/// Prints an error. Where standard error fails too, the exit code is all there is to tell.
pub fn complain(sentence: impl Display) {
    let _ = writeln!(anstream::stderr().lock(), "{ERROR}error:{ERROR:#} {sentence}");
}
