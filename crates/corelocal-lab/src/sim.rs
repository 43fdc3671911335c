//! Executable models of the kernel's halves of four protocols, and an explorer of all their interleavings.
//!
//! A model is a state and the steps that are possible in it. Each step is atomic, and is named after the kernel
//! function that it stands for. The [explorer](explore) takes every step in every state; the
//! [random simulator](random) takes one at a time. Both run the same code of the model.
//!
//! | model | of |
//! |---|---|
//! | [`cid`] | concurrency ids: how each kernel version gives running threads small numbers |
//! | [`futex`] | waits and wakes on words, through the kernel's hash table |
//! | [`pvclock`] | the clock pages that KVM writes for its guests, and the guests' readers |
//! | [`rseq`] | critical sections of finished programs, and how the kernel restarts them |
//!
//! # Invariants
//! 1. A model is a function: the same state and step give the same next state, in every build.
//! 2. This module has no unsafe code, reads no clock and makes no system call. Its callers measure time and stop it.
//! 3. States are compared whole, not by a hash, so a "complete" result means that every state was seen.

#![forbid(unsafe_code)]

pub mod case;
pub mod catalogue;
pub mod cid;
pub mod diagram;
pub mod explore;
pub mod futex;
mod livelock;
pub mod plan;
pub mod preemptions;
pub mod pvclock;
pub mod random;
pub mod rseq;
pub mod schedule;

use std::borrow::Cow;
use std::hash::Hash;

use serde::Serialize;

/// A protocol: actors that take atomic steps on a common state.
pub trait Model {
    /// Everything that the future depends on.
    type State: Clone + Eq + Hash;

    /// Returns the names of the actors, which take the steps: threads, cpus, the host.
    fn actors(&self) -> Vec<Cow<'static, str>>;

    /// Returns the state before the first step.
    fn initial(&self) -> Self::State;

    /// Appends the steps that this actor may take now.
    fn steps_of(&self, state: &Self::State, actor: u8, steps: &mut Vec<Step>);

    /// Takes a step that `steps_of` named. `Err` says what rule the step broke.
    fn take(&self, state: &mut Self::State, step: Step, costs: &mut Costs) -> Result<(), String>;

    /// Describes a step that is about to be taken.
    fn label(&self, state: &Self::State, step: Step) -> Label;

    /// Returns the state in a few words, for diagrams.
    fn summary(&self, state: &Self::State) -> String;

    /// Checks what holds in every state. `Err` says what does not.
    fn invariant(&self, state: &Self::State) -> Result<(), String> {
        _ = state;
        Ok(())
    }

    /// Checks a state in which no actor [must](Kind::Must) take a step. `Err` says which one waits for ever.
    fn at_rest(&self, state: &Self::State) -> Result<(), String> {
        _ = state;
        Ok(())
    }

    /// Returns the one of all symmetric states that stands for them: the least, with interchangeable actors sorted.
    fn representative(&self, state: Self::State) -> Self::State {
        state
    }
}

/// An atomic step of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The number of the actor that takes it.
    pub actor: u8,
    /// Whether the actor goes on by itself.
    pub kind: Kind,
    /// The operation, in the model's own numbers.
    pub what: u8,
    /// The operand: a task, a cpu, a page.
    pub with: u8,
}

/// Whether an actor goes on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The actor takes this step sooner or later: a program does not stop between two instructions.
    Must,
    /// The actor may never take it: a signal, a migration, the next system call.
    May,
    /// The actor looks again for something that has not happened. It is no progress.
    Retry,
}

impl Step {
    /// Returns a step that the actor takes sooner or later.
    pub fn must(actor: u8, what: u8) -> Step {
        Step { actor, kind: Kind::Must, what, with: 0 }
    }

    /// Returns a step that the actor may never take.
    pub fn may(actor: u8, what: u8) -> Step {
        Step { actor, kind: Kind::May, what, with: 0 }
    }

    /// Returns a step that is no progress.
    pub fn retry(actor: u8, what: u8) -> Step {
        Step { actor, kind: Kind::Retry, what, with: 0 }
    }

    /// Does the step to this task, cpu or page.
    pub fn with(self, with: u8) -> Step {
        Step { with, ..self }
    }
}

/// The costs of the steps of a simulation, in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// The number of atomic read-modify-write operations outside of locks.
    pub atomics: u64,
    /// Locks taken.
    pub locks: u64,
    /// Units of work: context switches, system calls, reads of a clock.
    pub units: u64,
}

/// A step in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    /// The kernel function that the step belongs to, or the program's own.
    pub function: &'static str,
    /// The kernels that have it; empty for programs.
    pub versions: &'static str,
    /// The text of what happens.
    pub text: String,
    /// The actor that the step affects.
    pub to: Option<u8>,
}

impl Label {
    /// Creates a step that affects no other actor.
    pub fn new(function: &'static str, versions: &'static str, text: impl Into<String>) -> Label {
        Label { function, versions, text: text.into(), to: None }
    }

    /// Returns the step, which affects this actor.
    pub fn to(self, actor: u8) -> Label {
        Label { to: Some(actor), ..self }
    }
}

/// Appends all steps that are possible in a state, actor by actor.
fn steps<M: Model>(model: &M, actors: u8, state: &M::State, steps: &mut Vec<Step>) {
    steps.clear();
    (0..actors).for_each(|actor| model.steps_of(state, actor, steps));
}

fn number_of_actors<M: Model>(model: &M) -> u8 {
    model.actors().len().try_into().expect("a model has at most 255 actors")
}
