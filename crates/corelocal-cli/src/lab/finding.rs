//! What `explore` found about one model.

use corelocal_lab::sim::explore::{FailureKind, Progress, Scope};
use corelocal_lab::sim::schedule::Schedule;
use serde::Serialize;

/// The result of exploring a model.
#[derive(Serialize)]
pub struct Finding {
    pub model: String,
    pub about: String,
    /// Whether a fault is planted.
    pub is_faulty: bool,
    /// "complete, N states", or what else the search covers.
    pub covers: String,
    #[serde(flatten)]
    pub progress: Progress,
    pub scope: Scope,
    /// Whether all states were seen, without a bound on preemptions.
    pub is_everything: bool,
    pub seconds: f64,
    pub failure: Option<FailureKind>,
    pub schedule: Option<Schedule>,
    /// Whether the result is the one that the list states.
    pub is_as_listed: bool,
}

impl Finding {
    /// Returns `true` if it is not as listed, and a longer search would not change that.
    pub fn is_wrong(&self) -> bool {
        !self.is_as_listed && (self.failure.is_some() || self.is_everything)
    }

    /// Returns what was found, in words.
    pub fn result(&self) -> String {
        let message = self.schedule.as_ref().and_then(|schedule| schedule.message.as_deref());
        match (message, self.is_faulty) {
            (Some(message), true) if self.is_as_listed => format!("fault found: {message}"),
            (Some(message), _) => format!("wrong: {message}"),
            (None, _)
                if !self.is_everything && (self.is_faulty || self.scope != Scope::Complete) =>
            {
                "nothing wrong so far".into()
            }
            (None, false) => "holds".into(),
            (None, true) => "the planted fault was not found".into(),
        }
    }
}
