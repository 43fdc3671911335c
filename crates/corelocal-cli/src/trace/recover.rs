//! `corelocal trace recover`: a new file with all that is whole in a damaged one, or in one that a killed process has left.
//!
//! Whole buffers, and the whole records of others, are copied as they are: no event is changed.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use corelocal_support::file;
use corelocal_support::output::{path_line, remark};

use super::args::RecoverArgs;
use super::{UNREADABLE, open, tell_problems};

/// Runs the command.
pub fn run(args: &RecoverArgs) -> anyhow::Result<ExitCode> {
    let Some(recording) = open(&args.file) else { return Ok(ExitCode::from(UNREADABLE)) };
    let to = args.output.clone().unwrap_or_else(|| {
        let mut name = args.file.clone().into_os_string();
        name.push(".recovered");
        PathBuf::from(name)
    });
    let mut events = recording.events();
    let count = events.by_ref().count();
    let name = path_line(&to);
    let written = file::write_with(&to, |to| {
        let mut to = BufWriter::new(to);
        recording.write_whole(&mut to)?;
        to.flush()
    });
    written.with_context(|| format!("cannot write {name}"))?;
    remark(format_args!("wrote {name}: {count} events\n"));
    Ok(tell_problems(&args.file, &recording, &events))
}
