//! `corelocal trace export`: a recording in another format.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use corelocal_trace::{Recording, chrome};

use super::{UNREADABLE, open, tell_problems};
use crate::cli::{ExportArgs, Format};
use crate::output;
use crate::report::file;

/// The command.
pub fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let Some(recording) = open(&args.file) else { return Ok(ExitCode::from(UNREADABLE)) };
    let to = args.output.clone().unwrap_or_else(|| {
        let mut name = args.file.clone().into_os_string();
        name.push(".json");
        PathBuf::from(name)
    });
    let name = output::path_line(&to);
    let events = file::write_with(&to, |to| {
        let mut to = BufWriter::new(to);
        let events = write(&recording, args.to, &mut to)?;
        to.flush()?;
        Ok(events)
    });
    let events = events.with_context(|| format!("cannot write {name}"))?;
    output::remark(format_args!("wrote {name}: open it in ui.perfetto.dev\n"));
    Ok(tell_problems(&args.file, &recording, &events))
}

fn write<'r>(
    recording: &'r Recording,
    format: Format,
    to: &mut dyn std::io::Write,
) -> std::io::Result<corelocal_trace::Events<'r>> {
    match format {
        Format::ChromeJson => chrome::write(recording, to),
    }
}
