//! `corelocal clock`: which back-ends the clock has here, what they cost, whether they agree with the
//! vDSO, and how far they drift; or, with `--file`, what a published clock says.
//!
//! ```text
//!   observer.rs   one back-end in a process of its own: first look, then samples
//!   watch.rs      the observers' parent: their samples become series
//!   chart.rs      the series on the terminal, while they come in
//!   text.rs       the table, JSON and CSV;  html.rs  the page with a plot
//!   file.rs       a published page
//! ```

pub mod args;
pub mod chart;
pub mod file;
mod html;
mod observer;
mod text;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

pub use observer::{SUBCOMMAND, run as observe};

use corelocal_support::machine;
use corelocal_support::output::{self, complain, path_line};
use corelocal_support::process::signals;
use corelocal_support::{console, user_file};

use self::chart::Chart;
use self::text::Answer;
use self::watch::{BACKENDS, Watch};
use args::ClockArgs;

/// The approximate number of samples of each clock, whatever the time.
const SAMPLES: u32 = 2000;

/// Runs the command.
pub fn run(args: &ClockArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.file {
        return file::show(path, args.json);
    }
    if args.csv.is_some() && args.csv == args.html {
        complain("--csv and --html name the same file; give them different ones");
        return Ok(ExitCode::from(2));
    }
    signals::note();
    let every = (args.watch / SAMPLES).clamp(Duration::from_millis(50), Duration::from_secs(10));
    let mut watch = Watch::new();
    let observed = BACKENDS
        .into_iter()
        .take_while(|_| !signals::came())
        .map(|backend| watch.observe(backend, args.watch, every))
        .collect::<Vec<_>>();
    let problem = watch.observe_others(args.watch, every).err();
    let mut chart = Chart::new(args.watch.as_secs_f64(), console::width());
    let (series, watched) = watch.watch(args.watch, |all, now| chart.draw(all, now));

    let answer = Answer::new(machine::clocksource(), &observed, &series, watched);
    let mut code = ExitCode::SUCCESS;
    let mut notes = String::new();
    let csv = args.csv.as_ref().map(|path| (path, Ok(text::csv(&series))));
    let page = args.html.as_ref().map(|path| (path, html::page(&answer, &series)));
    for (path, content) in csv.into_iter().chain(page) {
        let content = content.map_err(|error| format!("{error:#}"));
        match content.and_then(|content| user_file::write(path, &content)) {
            Ok(()) => notes.push_str(&format!("wrote {}\n", path_line(path))),
            Err(problem) => {
                complain(problem);
                code = ExitCode::FAILURE;
            }
        }
    }
    if let Some(problem) = problem {
        complain(format_args!("other clocks were not watched: {problem:#}"));
        code = ExitCode::FAILURE;
    }
    if args.json {
        return output::finish(serde_json::to_string_pretty(&answer)? + "\n", code);
    }
    output::finish(text::table(&answer, console::width()) + &notes, code)
}
