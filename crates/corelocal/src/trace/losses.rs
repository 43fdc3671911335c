//! Losses as events of the recording, so that each reader sees them where they happened.
//!
//! `corelocal::lost` is recorded in the first buffer that is begun after events were lost: how many, and for how long.
//! `corelocal::overwritten` is never recorded: a reader makes it from the header.
//!
//! # Invariant
//! 1. Each loss is told by one record: what the header counts as told only grows, and each step belongs to one record.

use core::sync::atomic::Ordering;

use super::append::append_event;
use super::buffer::Buffer;
use super::format::{FieldType, Type, header};
use super::memory::Recording;
use super::own_sites::{LOST, OVERWRITTEN};
use crate::clock;

const NUMBER: FieldType = FieldType { of: Type::U64, is_array: false };

/// Registers both sites.
pub(super) fn register() {
    for (site, fields) in [
        (&LOST, [("events", NUMBER), ("for_ns", NUMBER)]),
        (&OVERWRITTEN, [("buffers", NUMBER), ("bytes", NUMBER)]),
    ] {
        if site.is_new() {
            site.register(&fields);
        }
    }
}

/// Appends what was lost since the last such record, if anything was, to a buffer that was just begun.
pub(super) fn tell(recording: &Recording, buffer: &Buffer) {
    let lost = recording.word(header::LOST).load(Ordering::Relaxed);
    // Relaxed: a hint, and then a step that one thread takes. (1)
    if recording.word(header::TOLD).load(Ordering::Relaxed) >= lost {
        return;
    }
    let told = recording.word(header::TOLD).fetch_max(lost, Ordering::Relaxed);
    let (Some(events), Some(number)) = (lost.checked_sub(told), LOST.any_number()) else { return };
    let since = recording.word(header::LOST_SINCE).swap(0, Ordering::Relaxed);
    let lasted = if since == 0 { 0 } else { clock::monotonic().saturating_sub(since) };
    if events > 0 {
        append_event(buffer, number, &[events, lasted]);
    }
}
