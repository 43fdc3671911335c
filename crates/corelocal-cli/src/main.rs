//! `corelocal`: what this machine's kernel fast paths are, what they cost, and what they save.
//!
//! Exit codes: 0 done; 1 done, but with a complaint (`doctor --strict` on degraded paths, an output
//! that could not be written, a fault that `check`, `torture` or `lab` found, a clock that is not to be
//! believed or cannot be published); 2 the command line is wrong;
//! 3 `check` or `heap` could not read a file or a process, `torture` cannot be tried here, or `locks` cannot look at the
//! process, `lab` did not see all states, `trace` left out parts of a damaged file. `locks` and `heap` give back the exit code of the program that they ran; `run` too, or ends by the
//! signal that ended the program. `run` and `heap` give 125 to 127 as env(1) does.

mod check;
mod child;
mod cli;
mod clock;
mod doctor;
mod heap;
mod kept;
mod lab;
mod locks;
mod progress;
mod run;
mod shipped;
mod torture;
mod trace;

use std::process::ExitCode;

use clap::Parser;
use corelocal_support::{mallocs, output, process};

fn main() -> ExitCode {
    process::signals::keep_exit_statuses();
    process::signals::survive_long_files();
    let result = match cli::Cli::parse().command {
        cli::Command::Doctor(args) => doctor::run(&args),
        #[cfg(feature = "report")]
        cli::Command::Report(args) => corelocal_bench::report(&args, doctor::paths),
        #[cfg(feature = "report")]
        cli::Command::Bench(args) => corelocal_bench::bench(&args, doctor::paths),
        cli::Command::Check(args) => check::run(&args),
        cli::Command::Torture(args) => torture::run(&args),
        cli::Command::Clock(args) => clock::run(&args),
        cli::Command::Lab(args) => lab::run(&args),
        cli::Command::Locks(args) => locks::run(&args),
        cli::Command::Heap(args) => heap::run(&args),
        cli::Command::Clockd(args) => corelocal_clockd::run(&args),
        cli::Command::Run(args) => run::run(&args),
        cli::Command::MallocPath => mallocs::print_path(),
        cli::Command::Trace(args) => trace::run(&args),
        cli::Command::Completions(args) => shipped::completions(&args),
        cli::Command::ManPages(args) => shipped::man_pages(&args),
        cli::Command::ClockObserver(args) => clock::observe(&args),
        cli::Command::Victim(args) => torture::victim(&args),
        cli::Command::Child(args) => child::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            output::complain(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
