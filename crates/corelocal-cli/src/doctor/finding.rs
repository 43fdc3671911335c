//! What `doctor` says of one path.

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// The state of a fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The path is in use.
    Active,
    /// A slower fallback is in use.
    Degraded,
    /// The kernel is too old for the path.
    Absent,
}

impl State {
    /// The length of the longest word for a state.
    pub const LONGEST: usize = "degraded".len();

    /// Returns the state as a word.
    pub fn word(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Degraded => "degraded",
            State::Absent => "absent",
        }
    }

    /// Returns its colour.
    pub fn style(self) -> Style {
        match self {
            State::Active => AnsiColor::Green.on_default(),
            State::Degraded => AnsiColor::Yellow.on_default().bold(),
            State::Absent => Style::new().dimmed(),
        }
    }
}

/// A fast path and its state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The path's name.
    pub path: &'static str,
    /// The path's state.
    pub state: State,
    /// The mechanism that corelocal uses here.
    pub used: String,
    /// The mechanisms that kernel, libc and machine offer.
    pub offered: String,
    /// The reason why no better mechanism is in use.
    pub why: Option<String>,
    /// The remedy.
    pub remedy: Option<String>,
}

impl Finding {
    /// Creates a path that is as fast as it gets.
    pub fn new(path: &'static str, used: impl Into<String>, offered: impl Into<String>) -> Finding {
        Finding {
            path,
            state: State::Active,
            used: used.into(),
            offered: offered.into(),
            why: None,
            remedy: None,
        }
    }

    /// Makes it one that is not, and says why.
    pub fn but(self, state: State, why: impl Into<String>, remedy: Option<&str>) -> Finding {
        Finding { state, why: Some(why.into()), remedy: remedy.map(str::to_owned), ..self }
    }
}
