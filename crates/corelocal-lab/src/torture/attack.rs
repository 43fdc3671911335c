//! One triple: run to an instruction, stop, disturb, continue, check.
//!
//! Conditions that must hold:
//! 1. A thread stopped inside a section is aborted: it continues at the abort handler, or a signal handler finds it
//!    there. A thread stopped before or after the section continues where it was. If it reaches a commit later, and
//!    is stopped there, it is aborted as well, since the section is announced again.
//! 2. The observations of target, rival, handler and child can be explained (`history.rs`).
//! 3. A section indexed by cpu number stores to the slot of the cpu that the thread is on. One indexed by concurrency
//!    id stores to no slot that was taken from its id.
//! 4. A thread without a registration reaches no section's commit.

use std::ops::ControlFlow;

use super::history::{self, Away};
use super::program::{Code, Step};
use super::select::Disturbance;
use super::session::Session;
use super::tracee::{Lost, Stop};
use super::victim::{self, Reaction, SIGNAL, Word, Words};
use super::workload::Workload;

/// A random preemption may keep the target from reaching an instruction, or abort it at another one. It does not
/// happen this many times in a row.
const ATTEMPTS: usize = 20;

/// The same for a place that the target has reached before: on a slow machine the kernel may abort it many times
/// before it gets there.
const PATIENCE: usize = 500;

/// A section as a workload reaches it.
pub struct Place<'a> {
    /// The workload and its number.
    pub workload: &'a Workload,
    pub number: usize,
    /// The sections that the workload passes.
    pub way: &'a [&'a Code],
    /// The index of this section among them.
    pub index: usize,
    /// The known places of the workload's stores.
    pub stores: &'a Stores,
}

/// The places where a workload's sections stored when they were not disturbed.
#[derive(Clone, Debug, Default)]
pub struct Stores {
    /// The place on the cpu to which the target is moved, if the cpu alone determines it.
    pub by_cpu: Option<u64>,
    /// The places on all cpus, if slots can be taken away.
    pub by_id: Vec<u64>,
}

/// The outcome of a triple.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    NotReached,
    /// The disturbance is refused on this machine.
    Refused,
    Failed(String),
}

impl Place<'_> {
    fn code(&self) -> &Code {
        self.way[self.index]
    }

    /// Tries one triple. At the end the target is at its rendezvous. `is_reachable`: it has been at the instruction
    /// before.
    ///
    /// # Errors
    /// The victim is lost. This is a failure of the triple, and a new victim is needed.
    pub fn attack(
        &self,
        session: &mut Session,
        step: &Step,
        disturbance: Disturbance,
        is_reachable: bool,
    ) -> Result<Outcome, Lost> {
        let patience = |outcome: &Outcome| match outcome {
            Outcome::NotReached if is_reachable => PATIENCE,
            _ => ATTEMPTS,
        };
        let (mut outcome, mut attempts) = (Outcome::NotReached, 0);
        while attempts < patience(&outcome) {
            attempts += 1;
            outcome = match self.attempt(session, step, disturbance)? {
                ControlFlow::Break(outcome) => return Ok(outcome),
                ControlFlow::Continue(outcome) => outcome,
            };
        }
        Ok(outcome)
    }

    /// Makes one attempt. `Continue` with an outcome that may be due to chance.
    fn attempt(
        &self,
        session: &mut Session,
        step: &Step,
        disturbance: Disturbance,
    ) -> Result<ControlFlow<Outcome, Outcome>, Lost> {
        if !self.approach(session, step)? {
            return Ok(ControlFlow::Continue(Outcome::NotReached));
        }
        let signal = disturb(session, disturbance)?;
        let Some(signal) = signal else {
            session.tracee.resume(0)?;
            while session.tracee.wait()? != Stop::Rendezvous {}
            session.end()?;
            return Ok(ControlFlow::Break(Outcome::Refused));
        };
        let watched = self.watch(session, step, disturbance)?;
        session.tracee.resume(signal)?;
        let inside = self.code().contains(step.address);
        let mut events = self.follow(session, watched, inside)?;
        if disturbance == Disturbance::Revoke {
            session.order_rival(victim::GIVE_BACK)?;
        }
        session.end()?;
        session.place(0);

        if signal != 0 {
            let at = session.here(session.read(Word::Interrupted)?);
            events.aborted = at == self.code().abort;
            let here = events.aborted || at == step.address;
            events.require(here, "the signal found it at another instruction");
        }
        events.require(events.aborted || !inside, "it was not aborted");
        if let Some(complaint) = self.explain(session, disturbance)? {
            return Ok(ControlFlow::Break(Outcome::Failed(complaint)));
        }
        let by_chance = events.aborted && !inside;
        events.require(!by_chance, "it was aborted outside of the section");
        Ok(match events.complaint {
            None => ControlFlow::Break(Outcome::Ok),
            Some(complaint) if by_chance => {
                ControlFlow::Continue(Outcome::Failed(complaint.into()))
            }
            Some(complaint) => ControlFlow::Break(Outcome::Failed(complaint.into())),
        })
    }

    /// Runs the target to the instruction. False if it does not get there.
    fn approach(&self, session: &mut Session, step: &Step) -> Result<bool, Lost> {
        session.begin(self.number)?;
        let stops = self.way[..self.index].iter().map(|section| section.start);
        for address in stops.chain([step.address]) {
            session.tracee.plant(address)?;
            session.tracee.resume(0)?;
            if session.tracee.wait()? == Stop::Rendezvous {
                session.end()?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sets the breakpoints that show which path the target takes from here.
    fn watch(
        &self,
        session: &mut Session,
        step: &Step,
        disturbance: Disturbance,
    ) -> Result<Watched, Lost> {
        let code = self.code();
        match disturbance {
            // Handler and child run through the same code, and report what they saw.
            Disturbance::Signal | Disturbance::Fork => return Ok(Watched::Nothing),
            Disturbance::Unregister => {
                for section in self.way {
                    session.tracee.plant(section.commit_at)?;
                }
                return Ok(Watched::Commits);
            }
            Disturbance::Stop
            | Disturbance::Migrate
            | Disturbance::Conflict
            | Disturbance::Revoke => {}
        }
        session.tracee.plant(code.abort)?;
        if disturbance == Disturbance::Stop {
            for section in self.way {
                session.tracee.plant(section.commit_at)?;
            }
            return Ok(Watched::AbortsAndCommits);
        }
        let Stores { by_cpu, by_id } = self.stores;
        let moved = disturbance == Disturbance::Migrate && by_cpu.is_some();
        let revoked = disturbance == Disturbance::Revoke && !by_id.is_empty();
        let wrong = match (moved, revoked) {
            (true, _) => Some(WRONG_CPU),
            (_, true) => Some(WRONG_SLOT),
            _ => None,
        };
        if wrong.is_some() && step.address != code.end {
            for section in self.way {
                session.tracee.plant(section.end)?;
            }
        }
        Ok(Watched::Aborts(wrong))
    }

    /// Follows the target to the rendezvous after its operation.
    fn follow(
        &self,
        session: &mut Session,
        watched: Watched,
        inside: bool,
    ) -> Result<Events, Lost> {
        let mut events = Events::default();
        let (mut first, mut due) = (true, None);
        while let Stop::Breakpoint(at) = session.tracee.wait()? {
            let commit = self.way.iter().find(|section| section.commit_at == at);
            if let Some(abort) = due.take() {
                events.require(at == abort, NOT_AGAIN);
            } else if let (Watched::Commits, Some(_)) = (watched, commit) {
                let complaint = "it came to a commit without a registration";
                events.require(session.is_registered()?, complaint);
            } else if let Some(section) = commit {
                session.tracee.plant(section.abort)?;
                due = Some(section.abort);
            } else if at == self.code().abort {
                // A later abort is a random preemption, and harmless.
                events.aborted |= first || !inside;
            } else if let Some(stored) = session.stored(at, self.way)? {
                let Stores { by_cpu, by_id } = self.stores;
                match watched {
                    Watched::Aborts(Some(WRONG_CPU)) => {
                        events.require(by_cpu.is_none_or(|slot| slot == stored), WRONG_CPU);
                    }
                    Watched::Aborts(Some(WRONG_SLOT)) => {
                        events.require(!by_id.contains(&stored), WRONG_SLOT);
                    }
                    _ => {}
                }
            }
            first = false;
            session.tracee.resume(0)?;
        }
        events.require(due.is_none(), NOT_AGAIN);
        Ok(events)
    }

    /// Returns what is wrong with the observations.
    fn explain(&self, session: &Session, disturbance: Disturbance) -> Result<Option<String>, Lost> {
        let (model, operands) = (&self.workload.model, session.operands()?);
        // The kernel may change a thread's concurrency id at any time.
        let by_id = !self.workload.by_cpu;
        let moves = matches!(disturbance, Disturbance::Migrate | Disturbance::Unregister);
        let away = Away { target: by_id || moves, other: by_id };
        if disturbance == Disturbance::Fork {
            match session.read(Word::ChildStatus)? {
                0 => {}
                status => return Ok(Some(format!("the child ended with status {status:#x}"))),
            }
            let of_child = session.seen(Words::ChildSeen, true)?;
            if let Some(complaint) = history::complaint(model, operands, &of_child, away) {
                return Ok(Some(format!("in the child, {complaint}")));
            }
        }
        let with_other = matches!(disturbance, Disturbance::Signal | Disturbance::Conflict);
        let seen = session.seen(Words::Seen, with_other)?;
        Ok(history::complaint(model, operands, &seen, away))
    }
}

/// The breakpoints that are set while the target continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Nothing,
    /// The thread stops at the abort handler; also after the commits, if the text says what is wrong with a store.
    Aborts(Option<&'static str>),
    /// The thread stops at the abort handler and at the commits.
    AbortsAndCommits,
    /// The thread stops at the commits.
    Commits,
}

const WRONG_CPU: &str = "it stored to the slot of a cpu that it was not on";
const WRONG_SLOT: &str = "it stored to a slot that was taken from its id";
const NOT_AGAIN: &str = "when it was stopped again, at a commit, it was not aborted";

#[derive(Default)]
struct Events {
    /// The target went to the abort handler; from inside the section, at once.
    aborted: bool,
    /// The first violation.
    complaint: Option<&'static str>,
}

impl Events {
    fn require(&mut self, holds: bool, complaint: &'static str) {
        if !holds {
            self.complaint.get_or_insert(complaint);
        }
    }
}

/// Disturbs the target while it is stopped. Returns the signal to be sent, or `None` if the disturbance is refused
/// here.
fn disturb(session: &mut Session, disturbance: Disturbance) -> Result<Option<libc::c_int>, Lost> {
    let reaction = match disturbance {
        Disturbance::Stop => return Ok(Some(0)),
        Disturbance::Migrate => {
            session.place(1);
            return Ok(Some(0));
        }
        Disturbance::Conflict => return Ok(session.order_rival(victim::OPERATE)?.then_some(0)),
        Disturbance::Revoke => return Ok(session.order_rival(victim::REVOKE)?.then_some(0)),
        Disturbance::Signal => Reaction::Operate,
        Disturbance::Fork => Reaction::Fork,
        Disturbance::Unregister => Reaction::Unregister,
    };
    session.write(Word::Reaction, reaction as i64)?;
    Ok(Some(SIGNAL))
}
