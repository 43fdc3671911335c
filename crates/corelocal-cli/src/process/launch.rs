//! A program that is started to be looked at, and waited for.
//!
//! Invariants:
//! - A signal that asks this process to end is passed on to the program, and the program is waited for: what it leaves is
//!   read afterwards. What a key of the terminal sends comes to the program by itself.
//! - The program is over when it has ended, not its other processes.

use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::ending::Ending;
use super::{ignored_signals, signals};
use crate::output::path_line;

/// How long it sleeps between looks.
const TURN: Duration = Duration::from_millis(20);

/// Starts a program.
///
/// # Errors
/// There is no such program, or it cannot be run.
pub(crate) fn start(command: &mut Command, hint: &str) -> anyhow::Result<Child> {
    ignored_signals::give_to(command);
    command.spawn().with_context(|| {
        let program = path_line(command.get_program().as_ref());
        format!("cannot run {program}; name a program, with its path if it is not in PATH{hint}")
    })
}

/// Waits until the program has ended. It is asked to at `end`, and when this process is. `look` is called now and then.
pub(crate) fn wait(
    child: &mut Child,
    end: Option<Instant>,
    look: &mut dyn FnMut(),
) -> anyhow::Result<ExitStatus> {
    let mut ending: Option<Ending> = None;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the program")? {
            return Ok(status);
        }
        look();
        let is_over = end.is_some_and(|end| Instant::now() >= end);
        match &mut ending {
            Some(ending) => ending.insist(child),
            None if is_over => ending = Some(Ending::ask(child, true)),
            None if signals::came_for_us() => ending = Some(Ending::ask(child, false)),
            None => {}
        }
        thread::sleep(TURN);
    }
}
