//! A bound on preemptions, for models with too many interleavings: most faults need two or three.
//!
//! Source: Madanlal Musuvathi, Shaz Qadeer, "Iterative Context Bounding for Systematic Testing of Multithreaded
//! Programs", PLDI 2007.

use std::borrow::Cow;

use super::{Costs, Kind, Label, Model, Step};

/// The model, with schedules that leave an actor at most so many times while it can go on.
///
/// An actor that only looks again, or may stop for ever, is left without being counted.
#[derive(Clone, Debug)]
pub struct Bounded<M> {
    /// The model.
    pub model: M,
    /// The bound.
    pub preemptions: u8,
}

/// A state of the model, and the schedule's share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<S> {
    inner: S,
    /// The actor that took the last step, if it can go on.
    running: Option<u8>,
    preemptions: u8,
}

impl<M: Model> Bounded<M> {
    fn goes_on(&self, state: &M::State, actor: u8) -> bool {
        let mut steps = Vec::new();
        self.model.steps_of(state, actor, &mut steps);
        steps.iter().any(|step| step.kind == Kind::Must)
    }
}

impl<M: Model> Model for Bounded<M> {
    type State = State<M::State>;

    fn actors(&self) -> Vec<Cow<'static, str>> {
        self.model.actors()
    }

    fn initial(&self) -> Self::State {
        State { inner: self.model.initial(), running: None, preemptions: 0 }
    }

    fn steps_of(&self, state: &Self::State, actor: u8, steps: &mut Vec<Step>) {
        let preempts = state.running.is_some_and(|running| running != actor);
        if !preempts || state.preemptions < self.preemptions {
            self.model.steps_of(&state.inner, actor, steps);
        }
    }

    fn take(&self, state: &mut Self::State, step: Step, costs: &mut Costs) -> Result<(), String> {
        state.preemptions += u8::from(state.running.is_some_and(|running| running != step.actor));
        self.model.take(&mut state.inner, step, costs)?;
        state.running = self.goes_on(&state.inner, step.actor).then_some(step.actor);
        Ok(())
    }

    fn label(&self, state: &Self::State, step: Step) -> Label {
        self.model.label(&state.inner, step)
    }

    fn summary(&self, state: &Self::State) -> String {
        self.model.summary(&state.inner)
    }

    fn invariant(&self, state: &Self::State) -> Result<(), String> {
        self.model.invariant(&state.inner)
    }

    fn at_rest(&self, state: &Self::State) -> Result<(), String> {
        self.model.at_rest(&state.inner)
    }
}
