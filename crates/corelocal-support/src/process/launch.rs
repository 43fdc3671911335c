//! A program that is started to be looked at, and waited for.
//!
//! Invariants:
//! - A signal that asks this process to end is passed on to the program, and the program is waited for: what it leaves is
//!   read afterwards. What a key of the terminal sends comes to the program by itself.
//! - The program is over when it has ended, not its other processes.
//!
//! `corelocal run` waits in its own way: it measures, so it sleeps in wait4(2) and takes the program's resources.

use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::ending::Ending;
use super::signals;
use crate::output::path_line;

/// The sleep between two looks.
const TURN: Duration = Duration::from_millis(20);

/// Starts a program.
///
/// # Errors
/// There is no such program, or it cannot be run.
pub fn start(command: &mut Command, hint: &str) -> anyhow::Result<Child> {
    command.spawn().with_context(|| {
        let program = path_line(command.get_program().as_ref());
        format!("cannot run {program}; name a program, with its path if it is not in PATH{hint}")
    })
}

/// Actions while a program runs.
pub trait Look {
    /// Looks now and then, and before its status is taken.
    fn look(&mut self, program: &Child);
    /// Acts before it is asked to end.
    fn before_end(&mut self, _: &mut Child) {}
}

impl<F: FnMut(&Child)> Look for F {
    fn look(&mut self, program: &Child) {
        self(program);
    }
}

/// Waits until the program has ended. It is asked to at `end`, and when this process is.
pub fn wait(
    child: &mut Child,
    end: Option<Instant>,
    looks: &mut dyn Look,
) -> anyhow::Result<ExitStatus> {
    let began = Instant::now();
    let mut ending: Option<Ending> = None;
    loop {
        looks.look(child);
        if let Some(status) = child.try_wait().context("cannot wait for the program")? {
            return Ok(status);
        }
        let is_over = end.is_some_and(|end| Instant::now() >= end);
        if let Some(ending) = &mut ending {
            ending.insist(child);
        } else if is_over || signals::came_for_us() {
            looks.before_end(child);
            // If it has ended meanwhile, its number is not its own any more.
            if matches!(child.try_wait(), Ok(None)) {
                ending = Some(Ending::ask(child, is_over));
            }
            continue;
        }
        // Many programs are short.
        thread::sleep(if began.elapsed() < TURN * 5 { TURN / 20 } else { TURN });
    }
}
