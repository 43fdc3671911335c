//! The recording of this process, made now in a forked child that is to have one.

use super::memory::Recording;
use super::{options, site};

/// Returns the recording. A forked child makes its own, if its parent's options say so; else all its sites are switched off.
pub(super) fn here() -> Option<Recording> {
    let recording = Recording::here().or_else(Recording::make_in_child);
    if recording.is_none() && !options::are_for_children() {
        site::all().for_each(|site| site.switch(0));
    }
    recording
}
