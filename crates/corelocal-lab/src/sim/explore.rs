//! The explorer: takes every step in every state, breadth first, so that the first failure has the shortest schedule.
//!
//! ```text
//!   states   each distinct state once, in the order of discovery (a state's number)
//!   from     for each: the number of the state before it, and the step between them
//!   retries  the steps that are no progress, for the search for livelocks
//! ```
//! # Invariants
//! 1. States before `next` have had all their steps taken. So the search is complete when `next` reaches the end.
//! 2. `from` leads to the initial state: a state is discovered from one with a smaller number.

use std::ops::ControlFlow;

use indexmap::IndexSet;
use serde::Serialize;

use super::{Costs, Kind, Model, Step, livelock, number_of_actors, steps};

type Hasher = foldhash::fast::FixedState;

/// The limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of states, which are kept in memory.
    pub states: usize,
    /// Whether symmetric states count as one.
    pub symmetry: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { states: 20_000_000, symmetry: true }
    }
}

/// The progress of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Distinct states.
    pub states: usize,
    /// States that have yet to be looked at.
    pub waiting: usize,
    /// Steps taken.
    pub steps: u64,
    /// The length of the longest of all shortest schedules so far.
    pub depth: u32,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The extent of the search.
    pub progress: Progress,
    /// Whether that is everything.
    pub scope: Scope,
    /// The first rule that does not hold.
    pub failure: Option<Failure>,
}

/// The extent at which a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Scope {
    /// All states that can be reached were seen.
    Complete,
    /// The search ended at a failure.
    Failed,
    /// The caller stopped it.
    Stopped,
    /// There are more states than [`Limits::states`].
    Full,
}

/// A rule that does not hold, and the shortest schedule that breaks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of the broken rule.
    pub kind: FailureKind,
    /// The message: what is wrong.
    pub message: String,
    /// The steps from the initial state.
    pub path: Vec<Step>,
    /// The steps that repeat for ever after those of the path.
    pub cycle: Vec<Step>,
    /// Whether actors and tasks are numbered anew after each step, as [`Model::representative`] does.
    pub is_renamed: bool,
}

/// The kinds of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FailureKind {
    /// A step broke a rule, or led to a state that does.
    Violation,
    /// No actor goes on, and one of them waits.
    Stuck,
    /// Actors go round in a circle without progress.
    Livelock,
}

/// The number of states between two reports of progress.
const REPORT_EVERY: usize = 1 << 14;

/// Searches all states of the model.
///
/// `watch` gets the progress now and then, and can stop the search.
pub fn explore<M: Model>(
    model: &M,
    limits: Limits,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Outcome {
    let outcome = Search::new(model, limits).run(watch);
    if outcome.failure.is_none() || !limits.symmetry {
        return outcome;
    }
    // A schedule in which actors keep their names, which symmetry does not.
    let plain = Search::new(model, Limits { symmetry: false, ..limits }).run(watch);
    match plain.failure {
        Some(failure) => Outcome { failure: Some(failure), ..outcome },
        None => outcome,
    }
}

pub(super) struct Search<'m, M: Model> {
    pub(super) model: &'m M,
    limits: Limits,
    pub(super) actors: u8,
    pub(super) states: IndexSet<M::State, Hasher>,
    from: Vec<(u32, Step)>,
    depth: Vec<u16>,
    /// Steps of kind `Retry`, between the numbers of two states.
    pub(super) retries: Vec<(u32, u32, Step)>,
    taken: u64,
}

impl<'m, M: Model> Search<'m, M> {
    fn new(model: &'m M, limits: Limits) -> Self {
        let mut search = Search {
            model,
            limits,
            actors: number_of_actors(model),
            states: IndexSet::with_hasher(Hasher::default()),
            from: vec![(0, Step::must(0, 0))],
            depth: vec![0],
            retries: Vec::new(),
            taken: 0,
        };
        search.states.insert(search.representative(model.initial()));
        search
    }

    fn representative(&self, state: M::State) -> M::State {
        if self.limits.symmetry { self.model.representative(state) } else { state }
    }

    fn run(mut self, watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Outcome {
        if let Err(message) = self.model.invariant(&self.states[0]) {
            return self.failed(0, FailureKind::Violation, 0, None, message);
        }
        let mut next = 0;
        let mut possible = Vec::new();
        while let Some(state) = self.states.get_index(next) {
            let state = state.clone();
            steps(self.model, self.actors, &state, &mut possible);
            if possible.iter().all(|step| step.kind == Kind::May) {
                if let Err(message) = self.model.at_rest(&state) {
                    return self.failed(next, FailureKind::Stuck, next, None, message);
                }
            }
            for &step in &possible {
                // A step that changes nothing: the shortest of all livelocks.
                if step.kind == Kind::Retry && self.is_for_ever(&state, step, &possible) {
                    return self.livelock(next, next, vec![step]);
                }
                if let Err(message) = self.take(next, &state, step) {
                    return self.failed(next, FailureKind::Violation, next, Some(step), message);
                }
            }
            next += 1;
            if self.states.len() > self.limits.states {
                return self.without_violation(next, Scope::Full);
            }
            if next % REPORT_EVERY == 0 && watch(&self.progress(next)).is_break() {
                return self.without_violation(next, Scope::Stopped);
            }
        }
        self.without_violation(next, Scope::Complete)
    }

    fn without_violation(&self, next: usize, scope: Scope) -> Outcome {
        match livelock::find(self) {
            Some((number, cycle)) => self.livelock(next, number, cycle),
            None => self.ended(next, scope),
        }
    }

    /// Returns `true` if the step leads to the same state, in which no other actor goes on.
    fn is_for_ever(&self, state: &M::State, step: Step, possible: &[Step]) -> bool {
        let goes_on = |other: &Step| other.actor != step.actor && other.kind == Kind::Must;
        if possible.iter().any(goes_on) {
            return false;
        }
        let mut after = state.clone();
        self.model.take(&mut after, step, &mut Costs::default()).is_ok() && after == *state
    }

    fn livelock(&self, next: usize, number: usize, cycle: Vec<Step>) -> Outcome {
        let actors = self.model.actors();
        let mut names: Vec<_> =
            cycle.iter().map(|step| &*actors[usize::from(step.actor)]).collect();
        names.sort_unstable();
        names.dedup();
        let message = format!("without progress for ever: {}", names.join(", "));
        let mut outcome = self.failed(next, FailureKind::Livelock, number, None, message);
        if let Some(failure) = &mut outcome.failure {
            failure.cycle = cycle;
        }
        outcome
    }

    /// Takes the step, and enters the state that it leads to.
    fn take(&mut self, number: usize, state: &M::State, step: Step) -> Result<(), String> {
        let mut after = state.clone();
        self.taken += 1;
        self.model.take(&mut after, step, &mut Costs::default())?;
        let (to, is_new) = self.states.insert_full(self.representative(after));
        if is_new {
            self.from.push((number as u32, step));
            self.depth.push(self.depth[number].saturating_add(1));
            self.model.invariant(&self.states[to])?;
        }
        if step.kind == Kind::Retry {
            self.retries.push((number as u32, to as u32, step));
        }
        Ok(())
    }

    fn progress(&self, next: usize) -> Progress {
        Progress {
            states: self.states.len(),
            waiting: self.states.len() - next,
            steps: self.taken,
            depth: self.depth.last().copied().unwrap_or_default().into(),
        }
    }

    fn ended(&self, next: usize, scope: Scope) -> Outcome {
        Outcome { progress: self.progress(next), scope, failure: None }
    }

    fn failed(
        &self,
        next: usize,
        kind: FailureKind,
        number: usize,
        last: Option<Step>,
        message: String,
    ) -> Outcome {
        let mut path = self.path(number);
        path.extend(last);
        let is_renamed = self.limits.symmetry;
        let failure = Failure { kind, message, path, cycle: Vec::new(), is_renamed };
        Outcome { failure: Some(failure), ..self.ended(next, Scope::Failed) }
    }

    /// Returns the steps from the initial state.
    fn path(&self, mut number: usize) -> Vec<Step> {
        let mut path = Vec::new();
        while number != 0 {
            let (before, step) = self.from[number];
            path.push(step);
            number = before as usize;
        }
        path.reverse();
        path
    }
}
