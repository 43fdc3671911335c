//! `CORELOCAL_MALLOC` in the environment: words separated by commas.
//!
//! ```text
//!   stats                 prints statistics to stderr when the program ends
//!   stats:json            the same as JSON
//!   stats-signal:N        prints them also on this signal; counts from the start
//!   profile-signal:N      writes a heap profile on this signal, too
//!   tally:PREFIX          writes a file with cache statistics when the program ends (`cache_stats.rs`)
//! ```
//! Words that begin with `profile` (except `profile-signal`), `guard`, `nodes`, `pressure`, `background`, `hugepages` or
//! `resident`, and `check` and `count`, belong to the library (`corelocal::alloc`), which also counts for `stats`. If two signals are given
//! for one purpose, the first counts. Unknown words are reported by the library; a set-uid program ignores the variable.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use corelocal::sys::without_libc;

/// The options.
#[derive(Clone, Copy)]
pub(crate) struct Options(u32);

const READ: u32 = 1;
const STATS: u32 = 2;
const JSON: u32 = 4;
/// Bit positions of the signal numbers, of 8 bits each.
const PROFILE_SIGNAL: u32 = 16;
const STATS_SIGNAL: u32 = 24;

impl Options {
    /// Returns the options, read once.
    pub(crate) fn get() -> Options {
        static OPTIONS: AtomicU32 = AtomicU32::new(0);
        // Relaxed: all threads that race read the same.
        match OPTIONS.load(Ordering::Relaxed) {
            0 => {
                let options = read() | READ;
                OPTIONS.store(options, Ordering::Relaxed);
                Options(options)
            }
            known => Options(known),
        }
    }

    pub(crate) fn stats(self) -> bool {
        self.0 & (STATS | JSON) != 0
    }

    pub(crate) fn json(self) -> bool {
        self.0 & JSON != 0
    }

    /// Returns the signal that asks for a profile.
    pub(crate) fn profile_signal(self) -> Option<c_int> {
        self.signal(PROFILE_SIGNAL)
    }

    /// Returns the signal that asks for statistics.
    pub(crate) fn stats_signal(self) -> Option<c_int> {
        self.signal(STATS_SIGNAL)
    }

    fn signal(self, at: u32) -> Option<c_int> {
        Some((self.0 >> at & 0xff) as c_int).filter(|signal| *signal > 0)
    }
}

/// Returns the words; to be used at once.
pub(crate) fn words() -> impl Iterator<Item = &'static [u8]> {
    // SAFETY: used before anything can change the environment.
    let value = unsafe { without_libc::variable(c"CORELOCAL_MALLOC") };
    let value = value.filter(|_| !without_libc::is_foreign()).unwrap_or_default();
    value.to_bytes().split(|byte| *byte == b',')
}

fn read() -> u32 {
    words().fold(0, |options, word| {
        let signal = |name: &[u8], at: u32| {
            let number = word.strip_prefix(name).and_then(without_libc::signal);
            // OR-ing two signal numbers yields a third; the first is kept.
            number
                .filter(|_| Options(options).signal(at).is_none())
                .map(|number| (number as u32) << at)
        };
        options
            | match word {
                b"stats" => STATS,
                b"stats:json" => JSON,
                _ => signal(b"profile-signal:", PROFILE_SIGNAL)
                    .or_else(|| signal(b"stats-signal:", STATS_SIGNAL))
                    .unwrap_or(0),
            }
    })
}
