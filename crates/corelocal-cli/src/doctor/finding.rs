//! What `doctor` says of one path.

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// How a path is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As fast as it gets.
    Active,
    /// Something slower stands in for it.
    Degraded,
    /// This kernel is older than it; nothing is slower than on any kernel of its age.
    Absent,
}

impl State {
    /// Length of the longest word.
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

/// One path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name.
    pub path: &'static str,
    /// How it is doing.
    pub state: State,
    /// What corelocal uses here.
    pub used: String,
    /// What kernel, libc and machine offer.
    pub offered: String,
    /// Why it is not more.
    pub why: Option<String>,
    /// What to do about it.
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
