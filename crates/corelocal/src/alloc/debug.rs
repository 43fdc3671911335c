//! Debugging modes: counting, checking, guarding and profiling, as `CORELOCAL_MALLOC` asks for.
//!
//! The mode is decided before the first object is cached on a core, and holds for the whole process and its forked
//! children. Hot paths contain nothing for it, see `front.rs`. All modes but `check` use `instrumented.rs`.
//!
//! ```text
//!   stats, stats:json, stats-signal:N,
//!   count                 counts allocations and frees, for statistics
//!   check                 surrounds all objects with canaries and checks them (`check.rs`)
//!   guard, guard:N        puts one object in N on pages of its own (`guard.rs`)
//!   profile, profile:…    samples objects with the stacks that allocated them (`profile/`)
//! ```
//! `nodes:no` and `resident:SIZE` are applied here, too (`nodes.rs`, `release.rs`). Words are separated by commas.
//! Words that nothing knows are reported on standard error (`sys/words.rs`); those of the preloaded library are known, too.
//!
//! # Invariants
//! 1. `WISHES` changes from `UNREAD` to its final value once.

use core::sync::atomic::{AtomicU32, Ordering};

use super::class::CLASSES;
use super::range::{GUARDED, Range, kind_of};
use super::sampling::{Lot, Odds};
use super::spans::Place;
use super::{check, front, guard, instrumented, nodes, profile, release};
use crate::sys::environment;
use crate::sys::words::{Variable, signal};

/// The modes of the process.
#[derive(Clone, Copy)]
pub(super) struct Wishes(u32);

const READ: u32 = 1;
/// Counts allocations and frees.
const COUNT: u32 = 2;
/// Checks all objects.
const CHECK: u32 = 4;
/// Guards some objects.
const GUARD: u32 = 8;
/// Samples objects.
const PROFILE: u32 = 1 << 8;

const UNREAD: u32 = 0;
static WISHES: AtomicU32 = AtomicU32::new(UNREAD);

impl Wishes {
    /// Whether any mode is on.
    #[inline]
    pub(super) fn is_any(self) -> bool {
        self.0 != READ
    }

    fn has(self, wish: u32) -> bool {
        self.0 & wish != 0
    }

    /// The probabilities with which objects are selected.
    fn odds(self) -> Odds {
        let guard = if self.has(GUARD) { Some(guard::rate()) } else { None };
        Odds { guard, rate: profile::rate() }
    }
}

/// The modes of the process; `None` until it has an environment: the dynamic linker allocates before libc is
/// initialised.
#[inline]
pub(super) fn wishes() -> Option<Wishes> {
    // Acquire: partner is the Release in `read`. All threads that race read the same.
    match WISHES.load(Ordering::Acquire) {
        UNREAD => read(),
        known => Some(Wishes(known)),
    }
}

/// All words, here and in the preloaded library (`corelocal-malloc/src/options.rs`).
static VARIABLE: Variable = Variable::new(
    c"CORELOCAL_MALLOC",
    &[
        "check",
        "count",
        "guard",
        "guard:N",
        "profile",
        "profile:PREFIX",
        "profile-rate:BYTES",
        "profile-signal:SIGNAL",
        "nodes:no",
        "nodes:N",
        "pressure:no",
        "resident:BYTES",
        "background:yes",
        "background:no",
        "background:children",
        "hugepages:no",
        "stats",
        "stats:json",
        "stats-signal:SIGNAL",
        "tally:PREFIX",
    ],
);

/// Returns `true` for a word whose name takes a value, and that has a right one.
fn has_value_of_its_name(word: &[u8]) -> bool {
    let Some(at) = word.iter().position(|byte| *byte == b':') else { return false };
    match (&word[..at], &word[at + 1..]) {
        (b"guard", _) => guard::rate_of(word).is_some(),
        (b"nodes", _) => nodes::wish_of(word).is_some(),
        (b"profile-rate" | b"resident", value) => bytes(value).is_some(),
        (b"profile-signal" | b"stats-signal", value) => signal(value).is_some(),
        (b"profile" | b"tally", value) => !value.is_empty(),
        _ => false,
    }
}

#[cold]
fn read() -> Option<Wishes> {
    if !environment::is_there() {
        return None;
    }
    // SAFETY: the value is used before anything can change the environment.
    let value = unsafe { environment::variable(c"CORELOCAL_MALLOC") };
    // A set-uid program (AT_SECURE) ignores its environment, which another user may have written.
    let value = value.filter(|_| !environment::is_foreign()).unwrap_or_default();
    VARIABLE.report(value.to_bytes(), has_value_of_its_name);
    let words = value.to_bytes().split(|byte| *byte == b',');
    let wishes = Wishes(words.clone().map(wish_of).fold(READ, |wishes, wish| wishes | wish));
    // Checking and profiling exclude each other: both determine an object's place.
    let wishes = if wishes.has(CHECK) { Wishes(wishes.0 & !PROFILE) } else { wishes };
    words.clone().for_each(nodes::configure);
    words.clone().for_each(release::configure);
    words.clone().filter_map(guard::rate_of).for_each(guard::set_rate);
    if wishes.has(CHECK) {
        check::begin();
    }
    if wishes.has(PROFILE) {
        profile::begin(words);
    }
    // Release: partner is the Acquire in `wishes`; the modes are initialised.
    WISHES.store(wishes.0, Ordering::Release);
    Some(wishes)
}

fn wish_of(word: &[u8]) -> u32 {
    match word {
        b"stats" | b"stats:json" | b"count" => COUNT,
        b"check" => CHECK,
        // The numbers are printed when a signal arrives.
        word if word.starts_with(b"stats-signal:") => COUNT,
        _ if guard::rate_of(word).is_some() => GUARD,
        word if profile::configure(word) => PROFILE,
        _ => 0,
    }
}

/// Parses a number of bytes, with an optional suffix K, M or G.
pub(super) fn bytes(text: &[u8]) -> Option<u64> {
    let (digits, shift) = match text {
        [digits @ .., b'k' | b'K'] => (digits, 10),
        [digits @ .., b'm' | b'M'] => (digits, 20),
        [digits @ .., b'g' | b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    let number: u64 = core::str::from_utf8(digits).ok()?.parse().ok()?;
    number.checked_mul(1 << shift).filter(|bytes| (1..1 << 40).contains(bytes))
}

/// Whether one of these modes is known to be on.
#[inline]
fn is_known(wish: u32) -> bool {
    // Acquire: partner is the Release in `read`.
    WISHES.load(Ordering::Acquire) & wish != 0
}

/// Whether the process is in checking mode.
#[cold]
pub(super) fn is_checked() -> bool {
    wishes().is_some_and(|wishes| wishes.has(CHECK))
}

/// Whether checking mode is known to be on. It is, in that mode, once any object was allocated.
#[inline]
pub(super) fn is_known_to_check() -> bool {
    is_known(CHECK)
}

/// Whether an object that grows may get more than was asked for. Not in the modes that note the size of an object: a
/// profile would count the room, and an overflow into it would not be found.
pub(super) fn may_have_room() -> bool {
    !is_known(CHECK | GUARD | PROFILE)
}

/// Whether allocations are counted, and whether frees are counted one by one.
pub(super) fn counts() -> (bool, bool) {
    let wishes = wishes().unwrap_or(Wishes(READ));
    (wishes.has(COUNT | GUARD | PROFILE), wishes.has(CHECK))
}

/// Whether an object's exact end is checked. Its usable size is then the size asked for, not that of its class.
#[inline]
pub(super) fn is_exact(object: *mut u8) -> bool {
    is_known(CHECK | GUARD) && (is_known(CHECK) || is_guarded(object))
}

/// The exact size of an object of a class, in checking mode.
#[inline]
pub(super) fn exact_size(object: *mut u8) -> Option<usize> {
    if is_known(CHECK) { check::size_of(object) } else { None }
}

fn is_guarded(object: *mut u8) -> bool {
    kind_of(object) == Some(usize::from(GUARDED))
}

/// Puts a batch of objects into the order in which they will be allocated.
pub(super) fn arrange(batch: &mut [u64]) {
    if is_known(CHECK) {
        check::shuffle(batch);
    }
}

/// Allocates an object of a class when a mode is on; `None` when out of memory.
pub(super) fn allocate(wishes: Wishes, place: Place, align: usize, size: usize) -> Option<u64> {
    match wishes.has(CHECK) {
        true => allocate_checked(wishes, place.range, align, size),
        false => instrumented::allocate(wishes.odds(), place, align, size),
    }
}

fn allocate_checked(wishes: Wishes, range: Range, align: usize, size: usize) -> Option<u64> {
    if wishes.odds().at_once(size) == Lot::Guarded {
        if let Some(object) = guard::allocate(range, align, size) {
            return Some(object as u64);
        }
    }
    let Some(place) = check::place(range, align, size) else {
        return check::allocate_large(range, align, size, false).map(|(at, _)| at as u64);
    };
    if wishes.has(COUNT) {
        front::count_pop(place.class);
    }
    check::allocate(place, size)
}

/// Frees any object when a mode is on; `size` as in `front.rs`.
pub(super) fn deallocate(wishes: Wishes, range: Range, object: *mut u8, size: usize) {
    if is_guarded(object) {
        return guard::deallocate(object, size);
    }
    let Some(class) = kind_of(object).filter(|kind| (1..=CLASSES).contains(kind)) else {
        if wishes.has(CHECK) {
            return check::deallocate_other(range, object, size);
        }
        if wishes.has(PROFILE) {
            profile::forget(range, object);
        }
        return super::deallocate_other(object);
    };
    let place = Place::new(range, class);
    if !wishes.has(CHECK) {
        return front::push_or_spill(place, object as u64);
    }
    if wishes.has(COUNT) {
        front::count_push(class);
    }
    check::deallocate(place, object as usize, size);
}

/// To be called after a large object was made or resized.
pub(super) fn large_made(range: Range, object: *mut u8, size: usize) {
    if let Some(wishes) = wishes().filter(|wishes| wishes.has(PROFILE)) {
        let is_sampled = wishes.odds().without_guard().at_once(size) == Lot::Sampled;
        profile::large_made(range, object, size, is_sampled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes() {
        for (text, number) in [
            (&b"1"[..], Some(1)),
            (b"512K", Some(512 << 10)),
            (b"3m", Some(3 << 20)),
            (b"1G", Some(1 << 30)),
            (b"", None),
            (b"K", None),
            (b"0", None),
            (b"-1", None),
            (b"99999999999999999999", None),
            (b"9999G", None),
            (b"1.5M", None),
        ] {
            assert_eq!(bytes(text), number, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn words() {
        let words: [(&[u8], u32); 13] = [
            (b"", 0),
            (b"stats", COUNT),
            (b"stats:json", COUNT),
            (b"stats-signal:USR1", COUNT),
            (b"count", COUNT),
            (b"background:no", 0),
            (b"check", CHECK),
            (b"guard", GUARD),
            (b"guard:7", GUARD),
            (b"guard:0", 0),
            (b"guard:x", 0),
            (b"profile", PROFILE),
            (b"profile-rate:1", 0),
        ];
        for (word, wish) in words {
            assert_eq!(wish_of(word), wish, "{}", word.escape_ascii());
        }
    }
}
