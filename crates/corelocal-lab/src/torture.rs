//! Disturbs critical sections at every instruction, in the machine code that runs.
//!
//! A breakpoint stops a thread at one instruction of a section. There it is disturbed: by a signal whose handler
//! performs the same operation, a move to another cpu, a rival on its own cpu, a fork, or the loss of its
//! registration. Then it continues. It must have been aborted if and only if the instruction lies inside the section,
//! and the observations of all threads must be explainable by a sequence of their operations. Every combination
//! (section, instruction, disturbance), called a *triple*, is tried.
//!
//! ```text
//!   workload/        operations on containers, each with its sequential model
//!   program.rs       the sections of the running program, and which of them are alike
//!   victim.rs        the process that is disturbed: one target thread, one rival
//!   machine/         what the processor has for it: breakpoints, registers, instructions
//!   tracee.rs        ptrace: breakpoints, registers, words
//!   session.rs       a victim under control: how to reach a section, where it stores
//!   attack.rs        one triple
//!   history.rs       can the observations be explained?
//!   run.rs           all triples, and whether any section was missed
//!   storm.rs         the same disturbances at random, at full speed, without ptrace
//! ```
//!
//! Invariants:
//! - The victim runs the same executable file as its tracer, so the addresses of code differ by one constant.
//! - A section that no workload reaches fails the run.
//! - A victim never outlives the run.

mod machine;
mod registration;
mod report;
mod select;
pub mod storm;
mod workload;

/// Chooses items by whether threads of this processor can be disturbed.
macro_rules! by_processor {
    (with { $($with:item)* } without { $($without:item)* }) => {
        $(
            #[cfg(all(
                any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
                target_os = "linux"
            ))]
            $with
        )*
        $(
            #[cfg(not(all(
                any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
                target_os = "linux"
            )))]
            $without
        )*
    };
}

by_processor! {
    with {
        mod attack;
        mod history;
        mod program;
        mod run;
        mod session;
        mod tracee;
        mod victim;

        pub use victim::victim;
    }
    without {
        #[path = "torture/unsupported.rs"]
        mod run;

        pub use run::victim;
    }
}

use std::fmt;
use std::process::Command;

pub use report::{Coverage, Excluded, Place, Report, Row, Section, Tried, Unreached, Verdict};
pub use run::run;
pub use select::{Disturbance, Selection, Share};
pub use workload::{Content, Model, Operands, Workload, library};

/// The parameters of a run.
pub struct Plan<'a> {
    /// The operations. The victim must be given the same list.
    pub workloads: &'a [Workload],
    /// Starts this same executable so that it calls [`victim()`]. Its standard input and output are used by the run.
    pub victim: &'a dyn Fn() -> Command,
    /// Sections that need not be reached.
    pub excluded: &'a [Exclusion],
    /// The triples to try.
    pub selection: &'a Selection,
    /// The share of these triples.
    pub share: Share,
}

/// Sections of a program that are not disturbed.
#[derive(Clone, Copy, Debug)]
pub struct Exclusion {
    /// The prefix of the names of the functions that contain them.
    pub function: &'static str,
    /// The reason.
    pub reason: &'static str,
}

/// The reason why no triple could be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// This machine, container or setting does not allow it; the reason is a sentence.
    Unable(String),
    /// The selection matches nothing. A sentence.
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

/// Returns the cpus that the calling thread may use.
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

/// Confines a thread to some cpus. Best effort: the thread may have ended.
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
