//! A model by name, and what a search and a simulation tell of it.

use std::borrow::Cow;
use std::ops::ControlFlow;

use serde::Serialize;

use super::explore::{Limits, Outcome, Progress, explore};
use super::preemptions::Bounded;
use super::random::{Advance, Simulation};
use super::schedule::Schedule;
use super::{Costs, Model, Step};

/// A model by name.
pub struct Entry {
    /// `protocol/variant`.
    pub name: Cow<'static, str>,
    /// The description in one line.
    pub about: Cow<'static, str>,
    /// A part of the failure's message that a planted fault leads to. `None` for a correct model.
    pub fault: Option<&'static str>,
    /// The model.
    pub case: Box<dyn Case>,
}

/// The options of a search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The bound on states.
    pub limits: Limits,
    /// The bound on preemptions, if any.
    pub preemptions: Option<u8>,
}

/// The result of a search, with the schedule of the failure.
#[derive(Clone, Debug)]
pub struct Found {
    /// The outcome and extent of the search.
    pub outcome: Outcome,
    /// The schedule that leads to the failure.
    pub schedule: Option<Schedule>,
}

/// The result of a random simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Simulated {
    /// Steps taken, over all runs.
    pub steps: u64,
    /// The number of times that the model came to its end and began again.
    pub runs: u64,
    /// The costs of the steps.
    pub costs: Costs,
    /// A number made of all steps: the same for the same seed.
    pub trace: u64,
    /// The schedule that led to a failure.
    pub failure: Option<Schedule>,
}

/// A model, without its types.
pub trait Case {
    /// Searches all states, or those within a bound.
    fn explore(
        &self,
        options: Options,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Found;

    /// Takes this many steps at random, or fewer if it is over by then. A model that ends begins again.
    fn simulate(&self, seed: u64, steps: u64, is_over: &dyn Fn() -> bool) -> Simulated;
}

impl<M: Model + Clone> Case for M {
    fn explore(
        &self,
        options: Options,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Found {
        match options.preemptions {
            None => found(self, options.limits, watch),
            Some(preemptions) => {
                found(&Bounded { model: self.clone(), preemptions }, options.limits, watch)
            }
        }
    }

    fn simulate(&self, seed: u64, steps: u64, is_over: &dyn Fn() -> bool) -> Simulated {
        /// The number of steps between two checks of the time limit.
        const TURN: u64 = 1 << 16;
        let mut simulated =
            Simulated { steps, runs: 0, costs: Costs::default(), trace: 0, failure: None };
        let mut simulation = Simulation::new(self, seed);
        let mut path: Vec<Step> = Vec::new();
        for taken in 0..steps {
            if taken % TURN == 0 && is_over() {
                simulated.steps = taken;
                break;
            }
            match simulation.advance() {
                Advance::Stepped(step) => {
                    let word =
                        u64::from_le_bytes([step.actor, step.what, step.with, 1, 0, 0, 0, 0]);
                    simulated.trace =
                        (simulated.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5);
                    if path.len() <= LONGEST_SCHEDULE {
                        path.push(step);
                    }
                }
                Advance::Ended => {
                    if let Err(message) = self.at_rest(&simulation.state) {
                        simulated.steps = taken;
                        simulated.failure = Some(failure(self, &path, message));
                        break;
                    }
                    simulation.restart();
                    simulated.runs += 1;
                    path.clear();
                }
                Advance::Failed(step, message) => {
                    simulated.steps = taken + 1;
                    path.push(step);
                    simulated.failure = Some(failure(self, &path, message));
                    break;
                }
            }
        }
        simulated.costs = simulation.costs;
        simulated
    }
}

/// A failure after more steps than this is reported without its schedule.
const LONGEST_SCHEDULE: usize = 100_000;

/// Returns the schedule of these steps, of which there are all if they are not too many.
fn failure<M: Model>(model: &M, path: &[Step], message: String) -> Schedule {
    let path = if path.len() > LONGEST_SCHEDULE { &[] } else { path };
    Schedule { message: Some(message), ..Schedule::of(model, path) }
}

fn found<M: Model>(
    model: &M,
    limits: Limits,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Found {
    let outcome = explore(model, limits, watch);
    let schedule = outcome.failure.as_ref().map(|failure| Schedule::of_failure(model, failure));
    Found { outcome, schedule }
}

impl Entry {
    /// Creates a model, and what it is.
    pub(super) fn new(
        name: impl Into<Cow<'static, str>>,
        about: impl Into<Cow<'static, str>>,
        fault: Option<&'static str>,
        case: impl Case + 'static,
    ) -> Entry {
        Entry { name: name.into(), about: about.into(), fault, case: Box::new(case) }
    }
}
