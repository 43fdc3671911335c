//! The reports that `CORELOCAL_MALLOC` asks for.
//!
//! Invariant: of two signals for one purpose the first counts.

use core::ffi::c_int;

use crate::sys::process::words::signal;

/// The reports that were asked for.
#[derive(Clone, Copy)]
pub(in crate::alloc) struct Reports(pub(super) u32);

const STATS: u32 = 1;
const JSON: u32 = 2;
/// Bit positions of the signal numbers, of 8 bits each.
const PROFILE_SIGNAL: u32 = 16;
const STATS_SIGNAL: u32 = 24;

impl Reports {
    /// Returns `true` if any was asked for, profiles at the end apart.
    pub(in crate::alloc) fn is_any(self) -> bool {
        self.0 != 0
    }

    /// Returns `true` if statistics are to be written at the end.
    pub(in crate::alloc) fn is_stats(self) -> bool {
        self.0 & (STATS | JSON) != 0
    }

    /// Returns `true` if statistics are to be JSON.
    pub(in crate::alloc) fn is_json(self) -> bool {
        self.0 & JSON != 0
    }

    /// Returns the signal that asks for a profile.
    pub(in crate::alloc) fn profile_signal(self) -> Option<c_int> {
        self.signal(PROFILE_SIGNAL)
    }

    /// Returns the signal that asks for statistics.
    pub(in crate::alloc) fn stats_signal(self) -> Option<c_int> {
        self.signal(STATS_SIGNAL)
    }

    fn signal(self, at: u32) -> Option<c_int> {
        Some((self.0 >> at & 0xff) as c_int).filter(|signal| *signal > 0)
    }

    /// Returns these, and the one of a word.
    pub(super) fn and(self, word: &[u8]) -> Reports {
        let signal = |name: &[u8], at: u32| {
            let number = word.strip_prefix(name).and_then(signal);
            number.filter(|_| self.signal(at).is_none()).map(|number| (number as u32) << at)
        };
        let more = match word {
            b"stats" => STATS,
            b"stats:json" => JSON,
            _ => signal(b"profile-signal:", PROFILE_SIGNAL)
                .or_else(|| signal(b"stats-signal:", STATS_SIGNAL))
                .unwrap_or(0),
        };
        Reports(self.0 | more)
    }
}
