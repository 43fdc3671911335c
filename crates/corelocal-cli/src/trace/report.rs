//! `corelocal trace report`: a recording as one page.

mod page;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;

use corelocal_support::output::{path_line, remark};
use corelocal_support::process::signals;
use corelocal_support::user_file;

use self::summary::Summary;
use super::{UNREADABLE, open, tell_problems};
use crate::progress::spinner;
use crate::trace::args::TraceReportArgs;

/// After so many events the progress is shown.
const STEP: u64 = 1 << 14;

/// Runs the command.
pub fn run(args: &TraceReportArgs) -> anyhow::Result<ExitCode> {
    let Some(recording) = open(&args.file) else { return Ok(ExitCode::from(UNREADABLE)) };
    let to = args.output.clone().unwrap_or_else(|| {
        let mut name = args.file.clone().into_os_string();
        name.push(".html");
        PathBuf::from(name)
    });
    let bar = spinner();
    let mut count = 0_u64;
    let (summary, events) = Summary::of(&recording, &mut || {
        count += 1;
        if count % STEP == 0 {
            bar.set_message(format!("{count} events, in two passes"));
            bar.tick();
        }
        !signals::came()
    });
    bar.finish_and_clear();
    let page = page::page(&recording, &summary, &path_line(&args.file));
    let name = path_line(&to);
    user_file::write(&to, page).map_err(anyhow::Error::msg)?;
    remark(format_args!("wrote {name}: open it in a browser\n"));
    Ok(tell_problems(&args.file, &recording, &events))
}
