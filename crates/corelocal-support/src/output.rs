//! Speaking to the reader: standard output and standard error, which can close or be full at any
//! time. `println!` panics then.
//!
//! Invariants:
//! - Nothing here panics.
//! - Colour is dropped where the output is no terminal or `NO_COLOR` is set, kept where
//!   `CLICOLOR_FORCE` asks for it.
//! - Names and paths may be another user's. No control character of theirs reaches the terminal, which would obey it:
//!   it is written as JSON has it (`\u001b`), so that JSON stays what it was. Lines and our own styles remain.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anstyle::{AnsiColor, Style};

const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Printed when the stacks of a program have no source lines.
pub const NO_LINES: &str = "no source lines and no inlined functions are known: the program has no line tables. Build it with \
     `CARGO_PROFILE_RELEASE_DEBUG=line-tables-only cargo build --release`, or in C and C++ with -g1";

/// Prints `text`, its control characters visible.
///
/// # Errors
/// What `write(2)` answered.
pub fn print(text: impl Display) -> io::Result<()> {
    let text = text.to_string();
    let mut out = anstream::stdout().lock();
    out.write_all(visible(&text).as_bytes())?;
    out.flush()
}

/// Prints the whole output of a command, and returns its exit code. A closed pipe is not an error: `head`, for
/// example, closes it when it has read enough.
///
/// # Errors
/// A sentence, when standard output cannot be written for another reason.
pub fn finish(text: impl Display, code: ExitCode) -> anyhow::Result<ExitCode> {
    match print(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => anyhow::bail!(unwritable(&error)),
        _ => Ok(code),
    }
}

/// Returns what to tell when standard output failed.
pub fn unwritable(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}; redirect it elsewhere")
}

/// Prints an error. Where standard error fails too, the exit code is all there is to tell.
pub fn complain(sentence: impl Display) {
    remark(format_args!("{ERROR}error:{ERROR:#} {sentence}\n"));
}

/// Removes colours from a text, and writes control characters but line feeds out, as files have them.
pub fn plain(text: &str) -> String {
    visible(&anstream::adapter::strip_str(text).to_string()).into_owned()
}

/// Prints to standard error what is not worth failing for.
pub fn remark(text: impl Display) {
    let text = text.to_string();
    // Where standard error fails, nothing more can be done.
    let _ = anstream::stderr().lock().write_all(visible(&text).as_bytes());
}

/// Returns a name that a file or another process gave, without what would end its line.
pub fn one_line(name: String) -> String {
    if is_plain(&name) {
        return name;
    }
    let mut out = String::with_capacity(name.len());
    for letter in name.chars() {
        if is_control(letter) || matches!(letter, '\n' | '\t') {
            push_visible(&mut out, letter);
        } else {
            out.push(letter);
        }
    }
    out
}

/// Returns a path that another process gave, likewise.
pub fn path_line(path: &Path) -> String {
    one_line(path.display().to_string())
}

/// Does what [`one_line`] does, of a text that others share; it stays shared where nothing is to be changed.
pub fn shared_line(name: &Arc<str>) -> Arc<str> {
    if is_plain(name) { name.clone() } else { one_line(name.to_string()).into() }
}

fn is_plain(name: &str) -> bool {
    !name.contains(|letter| is_control(letter) || matches!(letter, '\n' | '\t'))
}

/// Returns the text with its control characters as JSON writes them, but for lines, tabs and styles like ours.
fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_control) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let len = match style_len(from) {
            Some(len) => {
                out.push_str(&from[..len]);
                len
            }
            None => {
                let letter = from.chars().next().unwrap_or_default();
                push_visible(&mut out, letter);
                letter.len_utf8()
            }
        };
        rest = &from[len..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn push_visible(out: &mut String, letter: char) {
    // All of them are below 0x10000, where JSON needs one number.
    let _ = write!(out, "\\u{:04x}", u32::from(letter));
}

/// Returns what a terminal obeys, or what changes the order in which it shows text.
fn is_control(letter: char) -> bool {
    let is_order = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2066}'..='\u{2069}');
    letter.is_control() && !matches!(letter, '\n' | '\t') || is_order
}

/// Returns how long the sequence is that `text` begins with, if it is one that our styles and tables are made of: bold,
/// dim, a colour that can be seen, and their ends.
fn style_len(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\x1b[")?;
    let codes = &codes[..codes.find('m')?];
    let is_ours = match codes.strip_prefix("38;5;") {
        Some(colour) => matches!(colour.parse(), Ok(1..=15_u8)),
        // Tables end a style without a code where the environment wants no colours.
        None => codes.is_empty() || matches!(codes.parse(), Ok(0_u8 | 1 | 2 | 22 | 31..=37 | 39)),
    };
    is_ours.then_some("\x1b[m".len() + codes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_names_are_visible() {
        for (text, expected) in [
            ("a\tb\n", "a\tb\n"),
            ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
            ("\x1b[2J\x1b[8mhidden\r", "\\u001b[2J\\u001b[8mhidden\\u000d"),
            ("\u{9b}2J \x7f \u{202e}txt", "\\u009b2J \\u007f \\u202etxt"),
            ("\u{61c}\u{200e}\u{200f}\u{2069}", "\\u061c\\u200e\\u200f\\u2069"),
            ("\x1b[38;5;16m\x1b[1;5m\x1b[", "\\u001b[38;5;16m\\u001b[1;5m\\u001b["),
        ] {
            assert_eq!(visible(text), expected);
            // As JSON it is what it was.
            let json = visible(&serde_json::to_string(text).unwrap()).into_owned();
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
        assert_eq!(one_line("a\nb\tc\x1b".to_owned()), "a\\u000ab\\u0009c\\u001b");
        assert_eq!(one_line("plain ä".to_owned()), "plain ä");
    }

    #[test]
    fn our_own_styles_remain() {
        use comfy_table::{Attribute, Cell, Table};
        let colours = [AnsiColor::Red, AnsiColor::Green, AnsiColor::Yellow, AnsiColor::Blue];
        let more = [AnsiColor::Magenta, AnsiColor::Cyan, AnsiColor::White];
        let styles = colours.into_iter().chain(more).map(|colour| colour.on_default().bold());
        for style in styles.chain([Style::new().dimmed(), Style::new().bold()]) {
            let text = format!("{style}text{style:#}\n");
            assert_eq!(visible(&text), text, "{:?}", style.get_fg_color());
        }
        let cell =
            |text| Cell::new(text).add_attribute(Attribute::Bold).fg(comfy_table::Color::Green);
        let mut table = Table::new();
        table.enforce_styling();
        table.add_row([cell("ours"), Cell::new("dim").add_attribute(Attribute::Dim)]);
        let text = table.to_string();
        assert_eq!(visible(&text), text);
    }
}
