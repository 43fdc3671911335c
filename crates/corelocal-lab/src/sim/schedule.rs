//! A schedule in words: the steps of a path, each with the state after it.

use serde::Serialize;

use super::explore::Failure;
use super::{Costs, Label, Model, Step};

/// One line of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The number of the actor.
    pub actor: u8,
    /// The action of the step.
    pub label: Label,
    /// The state after the step.
    pub summary: String,
}

/// A schedule that can be drawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// The names of the actors.
    pub actors: Vec<String>,
    /// The state before the first step.
    pub start: String,
    /// The steps, in order.
    pub lines: Vec<Line>,
    /// The number of lines at the end that repeat for ever.
    pub repeating: usize,
    /// The failure after the last step.
    pub message: Option<String>,
}

impl Schedule {
    /// Returns the schedule of a failure.
    pub fn of_failure<M: Model>(model: &M, failure: &Failure) -> Schedule {
        let mut schedule =
            Schedule::new(model, failure.path.iter().chain(&failure.cycle), failure.is_renamed);
        schedule.repeating = failure.cycle.len();
        schedule.message = Some(failure.message.clone());
        schedule
    }

    /// Returns the schedule of these steps from the initial state.
    pub fn of<'s, M: Model>(model: &M, steps: impl IntoIterator<Item = &'s Step>) -> Schedule {
        Schedule::new(model, steps, false)
    }

    fn new<'s, M: Model>(
        model: &M,
        steps: impl IntoIterator<Item = &'s Step>,
        is_renamed: bool,
    ) -> Schedule {
        let initial = model.initial();
        let mut state = if is_renamed { model.representative(initial) } else { initial };
        let start = model.summary(&state);
        let take = |&step: &Step| {
            let label = model.label(&state, step);
            let failed = model.take(&mut state, step, &mut Costs::default()).err();
            if is_renamed {
                state = model.representative(state.clone());
            }
            Line {
                actor: step.actor,
                label,
                summary: failed.unwrap_or_else(|| model.summary(&state)),
            }
        };
        let lines = steps.into_iter().map(take).collect();
        let actors = model.actors().into_iter().map(Into::into).collect();
        Schedule { actors, start, lines, repeating: 0, message: None }
    }
}
