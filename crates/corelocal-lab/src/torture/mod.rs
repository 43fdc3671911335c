//! Critical sections disturbed at every instruction, in the machine code that runs.
//!
//! A breakpoint stops a thread at one instruction of a section. There it is disturbed: a signal
//! whose handler does the same, another cpu, a rival on its own cpu, a fork, the loss of its
//! registration. Then it goes on, and must have been aborted if and only if the instruction lies
//! inside the section; what it and the others saw must be explainable by doing the operations one
//! after the other. Every (section, instruction, disturbance) is tried: the *triples*.
//!
//! ```text
//!   workload/        operations on containers, each with its sequential model
//!   program.rs       the sections of the running program, and which are alike
//!   victim.rs        the process that is disturbed: one target thread, one rival
//!   tracee.rs        ptrace: breakpoints, registers, words
//!   session.rs       a victim under control: how to reach a section, where it stores
//!   attack.rs        one triple
//!   history.rs       can what was seen be explained?
//!   run.rs           all triples, and whether any section was forgotten
//!   storm.rs         the same disturbances at random, at full speed, without ptrace
//! ```
//!
//! Invariants:
//! - The victim runs the same executable file as the one who disturbs it, so that code found here
//!   is code found there, moved by one constant distance.
//! - A section that no workload reaches fails the run.
//! - A victim never outlives the run.

mod registration;
mod report;
mod select;
pub mod storm;
mod workload;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod attack;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod history;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod program;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod run;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod session;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tracee;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod victim;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[path = "unsupported.rs"]
mod run;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
use run as victim;

use std::fmt;
use std::process::Command;

pub use report::{Coverage, Excluded, Place, Report, Row, Section, Tried, Unreached, Verdict};
pub use run::run;
pub use select::{Disturbance, Selection, Share};
pub use victim::victim;
pub use workload::{Content, Model, Operands, Workload, library};

/// What to disturb, and how to start the process that is disturbed.
pub struct Plan<'a> {
    /// The operations. The victim must be given the same list.
    pub workloads: &'a [Workload],
    /// Starts this same executable so that it calls [`victim()`]. Its standard input and output are
    /// taken.
    pub victim: &'a dyn Fn() -> Command,
    /// Sections that need not be reached.
    pub excluded: &'a [Exclusion],
    /// The triples to try.
    pub selection: &'a Selection,
    /// Which of these.
    pub share: Share,
}

/// Sections of a program that are not to be disturbed.
#[derive(Clone, Copy, Debug)]
pub struct Exclusion {
    /// How the names of the functions they are in begin.
    pub function: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// Why nothing could be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// This machine, container or setting does not allow it. A sentence.
    Unable(String),
    /// The selection names nothing there is. A sentence.
    Selection(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Unable(sentence) | Obstacle::Selection(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for Obstacle {}

/// The cpus the calling thread may use.
fn allowed_cpus() -> Vec<usize> {
    // SAFETY: all-zero bytes are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for a set of this size.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: the number is below the size of the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Confines a thread to some cpus. Best effort: a thread that has ended needs none.
fn confine(thread: libc::pid_t, cpus: &[usize]) {
    // SAFETY: all-zero bytes are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        // SAFETY: cpus come from `allowed_cpus`, whose set has this size.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: a valid set.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &set) };
}
