//! Where a report goes: never between what a program that was run for it has written.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use crate::output;

/// The destination of a report.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Standard output: the report is the command's answer.
    Output,
    /// Standard error: standard output belongs to a program that was run.
    Error,
    /// This file.
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
