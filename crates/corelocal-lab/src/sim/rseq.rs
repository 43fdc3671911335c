//! Restartable sequences: threads run critical sections, instruction by instruction, and the kernel restarts them.
//!
//! ```text
//!   thread                                kernel
//!   arms: rseq_cs = descriptor            preemption, signal, membarrier: is the instruction pointer within the
//!   runs the section                      section that rseq_cs names? clear rseq_cs, go on at the abort handler
//!   commits, or leaves                    before a return to user space: cpu_id and mm_cid of this cpu
//! ```
//! The code is that of finished programs, as [`crate::check`] decodes it; `cpu.rs` runs it.
//!
//! # Rules
//! 1. A section that commits is atomic: run again from its beginning, alone, just before its commit, it would do the
//!    same. So all that it has read is still so.
//! 2. What an aborted section has stored is declared to be invisible until the commit.
//! 3. A word that a section has prepared is not overwritten before its commit.
//!
//! A store from another cpu that no fence follows yet may or may not have been seen.
//!
//! Sources: kernel/rseq.c, include/linux/rseq_entry.h (6.19), include/uapi/linux/rseq.h, kernel/sched/membarrier.c.

mod cpu;
pub mod descriptor;
mod entries;
mod memory;
pub(super) mod process;
pub mod registration;
mod setup;
mod steps;

use std::borrow::Cow;
use std::sync::Arc;

pub use cpu::Registers;
pub use entries::entries;

use super::{Costs, Label, Model, Step};
use crate::check::code::Code;
use cpu::Memory;
use setup::Setup;

/// The offset of the rseq area from the thread pointer.
const AREA: u64 = 0x100;

/// Threads that run one section, and a kernel.
#[derive(Clone, Debug)]
pub struct Sections {
    code: Arc<Code>,
    setup: Setup,
    /// The actions of the second thread. If there are none, it runs the section, too.
    remote: Vec<Remote>,
    kernel: Kernel,
    /// The number of times that the kernel may do each action.
    budget: Budget,
    /// Whether the first thread stores to `cpu_id_start`, as one malloc did.
    writes_cpu_id_start: bool,
}

/// A kernel's implementation of restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Version 2 of the ABI (7.0): ids are written when they change, and read-only fields are checked.
    pub is_v2: bool,
    /// A planted fault, as of arm64 in 6.19: no restart after a preemption on the same cpu.
    pub only_when_moved: bool,
    /// A planted fault: no restart by membarrier.
    pub no_fence: bool,
    /// A planted fault: no restart before a signal's handler.
    pub not_for_signals: bool,
    /// Ids are not written after a migration. A planted fault.
    pub stale_ids: bool,
}

/// A correct kernel.
pub const KERNEL: Kernel = Kernel {
    is_v2: false,
    only_when_moved: false,
    no_fence: false,
    not_for_signals: false,
    stale_ids: false,
};

/// A step of a thread that does not use sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remote {
    Store(u64, u64),
    /// membarrier(PRIVATE_EXPEDITED_RSEQ).
    Fence,
}

/// The actions that the kernel may still perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    preemptions: u8,
    migrations: u8,
    signals: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    /// The thread is about to announce its section.
    #[default]
    Before,
    Within,
    Done,
    /// Killed by the kernel.
    Killed,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    phase: Phase,
    registers: Registers,
    /// `rseq_cs` is armed.
    is_armed: bool,
    /// The ids in its area, and those that the kernel wrote last.
    cpu_id_start: u8,
    cpu_id: u8,
    mm_cid: u8,
    written: u8,
    cpu: u8,
    runs: bool,
    aborted: bool,
    /// The stores before the commit: each word's index, its old and its new value.
    prepared: Vec<(usize, u64, u64)>,
    /// Whether it stored something visible before the commit.
    shows: bool,
    /// The number of the remote step.
    at: u8,
    /// Whether it has written to `cpu_id_start`.
    wrote: bool,
}

/// Threads and memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    threads: [Thread; 2],
    words: Vec<u64>,
    left: Budget,
    /// Remote stores that no fence follows: the word's index, and its old value.
    unfenced: Vec<(usize, u64)>,
}

/// The end of a section that ran alone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    /// The address after the section, or of the exit.
    target: u64,
    instructions: usize,
    registers: Registers,
}

/// A thread's view: the memory and its own area.
struct View<'v> {
    words: &'v mut [u64],
    ids: [u8; 3],
    stores: Vec<(usize, u64, u64)>,
}

impl Memory for View<'_> {
    fn load(&self, address: u64, thread: bool) -> Result<u64, String> {
        if thread {
            let [start, cpu, mm_cid] = self.ids.map(u64::from);
            return match address.wrapping_sub(AREA) {
                0 => Ok(start | cpu << 32),
                24 => Ok(mm_cid),
                other => Err(format!("reads field {other} of its rseq area")),
            };
        }
        let index = memory::index(address)
            .ok_or_else(|| format!("reads {address:#x}, which no operand names"))?;
        Ok(self.words[index])
    }

    fn store(&mut self, address: u64, thread: bool, word: u64) -> Result<(), String> {
        let index = memory::index(address).filter(|_| !thread);
        let index = index.ok_or_else(|| format!("writes {address:#x}, which no operand names"))?;
        self.stores.push((index, self.words[index], word));
        self.words[index] = word;
        Ok(())
    }
}

/// Runs a section alone, under this id.
fn alone(code: &Code, registers: &Registers, words: &mut [u64], id: u8) -> Result<End, String> {
    let mut registers = registers.clone();
    let mut view = View { words, ids: [id; 3], stores: Vec::new() };
    for instructions in 1..1000 {
        let of = code.instructions.get(&registers.ip).ok_or("the section runs into other code")?;
        cpu::run(of, &mut registers, &mut view)?;
        if !(code.start..code.end).contains(&registers.ip) {
            return Ok(End { target: registers.ip, instructions, registers });
        }
    }
    Err("the section does not end".into())
}

// `Step::what`.
const GO_ON: u8 = 0;
const PREEMPT: u8 = 1;
const RUN: u8 = 2;
const SIGNAL: u8 = 3;

impl Model for Sections {
    type State = State;

    fn actors(&self) -> Vec<Cow<'static, str>> {
        vec!["T0".into(), if self.remote.is_empty() { "T1".into() } else { "remote".into() }]
    }

    fn initial(&self) -> State {
        let thread = |cpu| Thread {
            phase: Phase::Before,
            registers: Registers::default(),
            is_armed: false,
            cpu_id_start: cpu,
            cpu_id: cpu,
            mm_cid: cpu,
            written: cpu,
            cpu,
            runs: true,
            aborted: false,
            prepared: Vec::new(),
            shows: false,
            at: 0,
            wrote: false,
        };
        State {
            threads: [thread(0), thread(1)],
            words: self.setup.words.clone(),
            left: self.budget,
            unfenced: Vec::new(),
        }
    }

    fn steps_of(&self, state: &State, actor: u8, steps: &mut Vec<Step>) {
        let number = usize::from(actor);
        let thread = &state.threads[number];
        if matches!(thread.phase, Phase::Done | Phase::Killed) {
            return;
        }
        if !thread.runs {
            for cpu in 0..memory::IDS as u8 {
                let is_free = !state.threads.iter().any(|other| {
                    other.runs
                        && other.cpu == cpu
                        && !matches!(other.phase, Phase::Done | Phase::Killed)
                });
                if is_free && (cpu == thread.cpu || state.left.migrations > 0) {
                    steps.push(Step::may(actor, RUN).with(cpu));
                }
            }
            return;
        }
        steps.push(Step::must(actor, GO_ON));
        if self.is_remote(number) {
            return;
        }
        if state.left.preemptions > 0 {
            steps.push(Step::may(actor, PREEMPT));
        }
        if state.left.signals > 0 && thread.phase == Phase::Within {
            steps.push(Step::may(actor, SIGNAL));
        }
    }

    fn take(&self, state: &mut State, step: Step, costs: &mut Costs) -> Result<(), String> {
        let number = usize::from(step.actor);
        match step.what {
            GO_ON if self.is_remote(number) => self.remote(state, number),
            GO_ON => {
                costs.units += u64::from(state.threads[number].phase == Phase::Before);
                self.go_on(state, number)
            }
            PREEMPT => {
                state.left.preemptions -= 1;
                state.threads[number].runs = false;
                Ok(())
            }
            RUN => {
                let thread = &mut state.threads[number];
                let moves = thread.cpu != step.with;
                state.left.migrations -= u8::from(moves);
                (thread.cpu, thread.runs) = (step.with, true);
                if moves || !self.kernel.only_when_moved {
                    self.restart(thread)?;
                }
                self.update_ids(thread);
                Ok(())
            }
            _ => {
                state.left.signals -= 1;
                self.signal(state, number)
            }
        }
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        match state.threads.iter().position(|thread| thread.phase == Phase::Killed) {
            Some(number) => Err(format!(
                "the kernel kills T{number}: it has written to a field that is read-only"
            )),
            None => Ok(()),
        }
    }

    fn label(&self, state: &State, step: Step) -> Label {
        let number = usize::from(step.actor);
        let thread = &state.threads[number];
        match step.what {
            PREEMPT => Label::new("__schedule", "all", "is preempted"),
            RUN => {
                let kernel = if self.kernel.is_v2 { "6.19 and later" } else { "4.18 to 6.18" };
                let restarts = thread.is_armed && self.is_within(thread);
                let then = if restarts { ", and is restarted if it was in a section" } else { "" };
                Label::new(
                    "rseq_handle_notify_resume",
                    kernel,
                    format!("runs on cpu {}{then}", step.with),
                )
            }
            SIGNAL => Label::new(
                "rseq_signal_deliver",
                "4.18 and later",
                "gets a signal, whose handler runs the section",
            ),
            _ if self.is_remote(number) => match self.remote[usize::from(thread.at)] {
                Remote::Store(address, word) => {
                    Label::new("program", "", format!("{} = {word:#x}", memory::name(address)))
                }
                Remote::Fence => Label::new(
                    "membarrier_private_expedited",
                    "5.10 and later",
                    "restarts all sections",
                )
                .to(0),
            },
            _ if thread.phase == Phase::Before => {
                let text = if self.writes_cpu_id_start && number == 0 && !thread.wrote {
                    "writes to cpu_id_start"
                } else {
                    "arms: rseq_cs = descriptor"
                };
                Label::new("program", "", text)
            }
            _ => {
                let of = self.code.instructions.get(&thread.registers.ip);
                let text = of.map_or(String::new(), |of| of.text(|target| format!("{target:#x}")));
                let place = if self.is_within(thread) { "section" } else { "exit" };
                Label::new(place, "", text)
            }
        }
    }

    fn summary(&self, state: &State) -> String {
        let first = self.initial().words;
        let changed =
            state.words.iter().zip(&first).enumerate().filter(|(_, (now, first))| now != first);
        let words = changed.map(|(index, (now, _))| {
            format!("{} = {now:#x}", memory::name(memory::address(index)))
        });
        let words = words.collect::<Vec<_>>().join(", ");
        let place = |thread: &Thread| {
            if thread.runs { format!("cpu {}", thread.cpu) } else { "off".into() }
        };
        format!("{}, {}; {words}", place(&state.threads[0]), place(&state.threads[1]))
    }
}
