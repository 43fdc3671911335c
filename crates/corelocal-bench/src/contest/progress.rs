//! Progress of a run: a bar on a terminal, else a line every ten seconds.
//!
//! Invariant: it writes only when a table says that it has advanced, which is between two rounds.

use std::io::{self, IsTerminal as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use corelocal_support::output;

/// The time between two lines of progress.
const PAUSE: Duration = Duration::from_secs(10);

/// The progress of one table, which is one of several.
pub struct Progress {
    bar: ProgressBar,
    /// `table 3 of 27`
    place: String,
    has_terminal: bool,
}

impl Progress {
    /// Creates one on standard error.
    pub fn new(place: String) -> Self {
        let style = ProgressStyle::with_template("  {bar:24} {percent:>3}%  {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::no_length().with_style(style);
        Self { bar, place, has_terminal: io::stderr().is_terminal() }
    }

    /// Begins anew, with so many steps.
    pub fn begin(&self, steps: u64) {
        self.bar.reset();
        self.bar.set_length(steps);
    }

    /// Shows what is measured now.
    pub fn set_message(&self, message: impl Into<String>) {
        self.bar.set_message(message.into());
        self.say();
    }

    /// Shows that so many steps are done.
    pub fn set_position(&self, steps: u64) {
        self.bar.set_position(steps);
        self.say();
    }

    /// Shows that one more step is done.
    pub fn advance(&self) {
        self.bar.inc(1);
        self.say();
    }

    /// Shows that the table is done.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self) {
        if self.has_terminal || self.place.is_empty() {
            return;
        }
        // Of all tables.
        static LAST: Mutex<Option<Instant>> = Mutex::new(None);
        let Ok(mut last) = LAST.lock() else { return };
        let now = Instant::now();
        if now.duration_since(*last.get_or_insert(now)) < PAUSE {
            return;
        }
        *last = Some(now);
        output::remark(format_args!("{}\n", self.line()));
    }

    fn line(&self) -> String {
        let share = match self.bar.length() {
            Some(steps) if steps > 0 => {
                format!("{} %, ", 100 * self.bar.position().min(steps) / steps)
            }
            _ => String::new(),
        };
        format!("{}: {share}{}", self.place, self.bar.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_table_the_share_and_what_is_measured() {
        let progress = Progress::new("table 3 of 27".to_owned());
        assert_eq!(progress.line(), "table 3 of 27: ");
        progress.begin(8);
        progress.set_message("Counter, 4 threads");
        progress.set_position(2);
        assert_eq!(progress.line(), "table 3 of 27: 25 %, Counter, 4 threads");
        progress.finish();
    }
}
