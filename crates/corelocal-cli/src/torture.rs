//! `corelocal torture`: the library's critical sections disturbed at every instruction, or at random
//! and at full speed with `--for`.
//!
//! Exit codes: 0 nothing wrong; 1 a violation, or a section that was forgotten; 2 the command line is
//! wrong; 3 it cannot be tried here (ptrace refused, no critical sections).
//!
//! Invariants:
//! - What is disturbed is this same program in another process, called by a hidden subcommand.
//! - Progress is drawn on standard error, and only when that is a terminal.

pub mod args;
mod matrix;
mod storm;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use corelocal_lab::torture::storm::Totals;
use corelocal_lab::torture::{self, Exclusion, Obstacle, Plan, Report, Verdict};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use args::{TortureArgs, VictimArgs};
use corelocal_support::console;
use corelocal_support::output::{self, complain};

/// The hidden subcommand.
pub const VICTIM: &str = "__torture-victim";

const UNABLE: u8 = 3;

const EXCLUDED: [Exclusion; 2] = [
    Exclusion { function: "corelocal_c_", reason: "the contestant in C of the benchmark tables" },
    Exclusion {
        function: "corelocal::sys::rseq::kernel::trial::",
        reason: "the trial of kernels, which changes nothing",
    },
];

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const OK: Style = AnsiColor::Green.on_default();
const FAIL: Style = AnsiColor::Red.on_default().bold();
const SKIPPED: Style = AnsiColor::Yellow.on_default();

/// Runs the command.
pub fn run(args: &TortureArgs) -> anyhow::Result<ExitCode> {
    match args.time {
        Some(time) => storm::rage(time, args.json),
        None => enumerate(args),
    }
}

/// Runs the process that is disturbed.
pub fn victim(args: &VictimArgs) -> anyhow::Result<ExitCode> {
    // SAFETY: this option takes a signal number and touches no memory of ours. It is best effort:
    // without it the process ends when its input or its time does.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let Some(millis) = args.storm else {
        torture::victim(&torture::library());
        return Ok(ExitCode::SUCCESS);
    };
    let tell = &mut |totals: &Totals| {
        if let Ok(line) = serde_json::to_string(totals) {
            let _ = output::print(format_args!("{line}\n"));
        }
    };
    torture::storm::rage(Duration::from_millis(millis), args.seed, tell);
    Ok(ExitCode::SUCCESS)
}

fn victim_command() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context(
        "cannot find this program's own file, which is needed for a child process; is /proc mounted?",
    )?;
    let mut command = Command::new(program);
    command.arg(VICTIM);
    Ok(command)
}

/// The output of `--json`.
#[derive(Serialize)]
struct Answer<'a> {
    version: &'static str,
    triples: usize,
    ok: usize,
    failed: usize,
    not_reached: usize,
    skipped: usize,
    seconds: f64,
    #[serde(flatten)]
    report: &'a Report,
}

impl Answer<'_> {
    fn new(report: &Report, seconds: f64) -> Answer<'_> {
        Answer {
            version: env!("CARGO_PKG_VERSION"),
            triples: report.count(|_| true),
            ok: report.count(|verdict| *verdict == Verdict::Ok),
            failed: report.count(|verdict| matches!(verdict, Verdict::Failed(_))),
            not_reached: report.count(|verdict| *verdict == Verdict::NotReached),
            skipped: report.count(|verdict| matches!(verdict, Verdict::Skipped(_))),
            seconds,
            report,
        }
    }
}

/// Tries every instruction and every disturbance.
fn enumerate(args: &TortureArgs) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let (workloads, command) = (torture::library(), victim_command()?);
    let victim = || {
        let mut fresh = Command::new(command.get_program());
        fresh.args(command.get_args());
        fresh
    };
    let bar = bar();
    let plan = Plan {
        workloads: &workloads,
        victim: &victim,
        excluded: &EXCLUDED,
        selection: &args.only,
        share: args.share,
    };
    let report = torture::run(&plan, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        bar.set_message("triples");
    });
    bar.finish_and_clear();
    let report = match report {
        Ok(report) => report,
        Err(obstacle) => {
            complain(&obstacle);
            return Ok(ExitCode::from(match obstacle {
                Obstacle::Selection(_) => 2,
                Obstacle::Unable(_) => UNABLE,
            }));
        }
    };
    let code = if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let answer = Answer::new(&report, began.elapsed().as_secs_f64());
    if args.json {
        return output::finish(serde_json::to_string_pretty(&answer)? + "\n", code);
    }
    output::finish(matrix::text(&answer, console::width()), code)
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("  {bar:24} {percent:>3}%  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length().with_style(style)
}
