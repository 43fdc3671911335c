//! The progress of work whose end is not known, on standard error.

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a bar that turns, with a message; nothing is shown unless it is a terminal.
pub fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("  {spinner} {wide_msg}");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}
