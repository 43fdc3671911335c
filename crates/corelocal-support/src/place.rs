//! Where a report goes: never between what a program that was run for it has written.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use crate::output;

/// Where a report goes.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// To standard output: it is the answer of the command.
    Output,
    /// To standard error: standard output is that of a program that was run.
    Error,
    /// To this file.
    File(&'a Path),
}

impl<'a> Place<'a> {
    /// Returns the place of a report on a program that was run, or on something that was there. JSON goes to standard output:
    /// the program does not have that then.
    pub fn of(file: Option<&'a Path>, is_of_program: bool, is_json: bool) -> Place<'a> {
        match file {
            Some(file) => Place::File(file),
            None if is_of_program && !is_json => Place::Error,
            None => Place::Output,
        }
    }
}

/// Writes a whole report, and returns the exit code of the command.
///
/// # Errors
/// A sentence, when it cannot be written.
pub fn report(place: Place<'_>, text: impl Display, code: ExitCode) -> anyhow::Result<ExitCode> {
    match place {
        Place::Output => return output::finish(text, code),
        Place::Error => output::remark(text),
        Place::File(path) => {
            crate::user_file::write(path, output::plain(&text.to_string()))
                .map_err(anyhow::Error::msg)?;
            output::remark(format_args!("wrote {}\n", output::path_line(path)));
        }
    }
    Ok(code)
}
