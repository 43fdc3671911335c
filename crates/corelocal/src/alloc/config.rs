//! What the process asks for in `CORELOCAL_MALLOC`: read once, and values from then on.
//!
//! It is decided before the first object is cached on a core, and holds for the whole process and its forked children.
//!
//! ```text
//!   stats, stats:json     writes statistics when the program ends (`reports.rs`), and counts for them
//!   stats-signal:N        writes them at this signal
//!   profile-signal:N      writes a profile at this signal
//!   count                 counts allocations and frees, for statistics
//!   check                 surrounds all objects with canaries and checks them (`debug/check.rs`)
//!   guard, guard:N        puts one object in N on pages of its own (`debug/guard.rs`)
//!   profile, profile:…    samples objects with the stacks that allocated them (`debug/profile/`)
//!   nodes:…               how many NUMA nodes there are (`page_heap/nodes.rs`)
//!   resident:SIZE         the target for the heap (`background/target.rs`)
//!   pressure:no           memory pressure is not watched (`page_heap/pressure.rs`)
//!   background:…          which processes get a background thread (`background/by_itself.rs`)
//!   hugepages:no          that thread makes no huge pages
//! ```
//! Words are separated by commas. Those that nothing knows are reported on standard error (`sys/process/words.rs`);
//! `tally` of the preloaded library is known, too.
//!
//! # Invariants
//! 1. `MODES` changes from `UNREAD` once, and after that only by the start and the end of a profile
//!    ([`start_profile`], [`stop_profile`]). All other values are stored before it.
//! 2. Until then every other value says that nothing was asked for.

mod background;
mod reports;

pub(super) use background::Background;
pub(super) use reports::Reports;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::layout::chunk::CHUNK;
use super::layout::range::Range;
use crate::sys::process::environment;
use crate::sys::process::words::{Variable, signal};
use crate::sys::process_id;

/// The modes of the process, in which objects are treated specially.
#[derive(Clone, Copy)]
pub(super) struct Modes(pub(super) u32);

const READ: u32 = 1;
/// Counts allocations and frees.
const COUNT: u32 = 2;
/// Checks all objects.
const CHECK: u32 = 4;
/// Guards some objects.
const GUARD: u32 = 8;
/// Samples objects.
const PROFILE: u32 = 1 << 8;
/// Has sampled objects, of which some may be in use.
const PROFILED: u32 = 1 << 9;
/// The environment asked for the profile.
const ASKED_FOR_PROFILE: u32 = 1 << 10;

const ALL_OF_PROFILE: u32 = PROFILE | PROFILED | ASKED_FOR_PROFILE;

const UNREAD: u32 = 0;
pub(super) static MODES: AtomicU32 = AtomicU32::new(UNREAD);

/// One allocation in this many is guarded.
pub(super) static GUARD_RATE: AtomicU32 = AtomicU32::new(DEFAULT_GUARD_RATE);
const DEFAULT_GUARD_RATE: u32 = 5000;
/// The number of nodes; 0 for the machine's.
static NODES: AtomicU32 = AtomicU32::new(0);
/// The target in bytes; 0 for none.
pub(super) static RESIDENT: AtomicUsize = AtomicUsize::new(0);
pub(super) static IS_PRESSURE_IGNORED: AtomicBool = AtomicBool::new(false);
pub(super) static IS_WITHOUT_HUGE_PAGES: AtomicBool = AtomicBool::new(false);
/// A [`Reports`].
static REPORTS: AtomicU32 = AtomicU32::new(0);
/// A [`Background`].
pub(super) static BACKGROUND: AtomicU8 = AtomicU8::new(Background::Several as u8);
/// One byte in this many is sampled; 0 without a profile.
pub(super) static PROFILE_RATE: AtomicU64 = AtomicU64::new(0);
const DEFAULT_PROFILE_RATE: u64 = 512 << 10;
/// The start of the names of profiles, ended by a zero.
static PROFILE_PREFIX: [AtomicU8; PREFIX_BYTES] = [const { AtomicU8::new(0) }; PREFIX_BYTES];
pub(super) const PREFIX_BYTES: usize = 512;
/// The process that read the variable, if it has a profile: its number differs in a forked child.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The chunks in use when the variable was read, in checking mode.
static EARLY_CHUNKS: AtomicUsize = AtomicUsize::new(UNSET);
const UNSET: usize = usize::MAX;

const R: Ordering = Ordering::Relaxed;

impl Modes {
    /// Returns `true` if any mode is on in which new objects are treated specially.
    #[inline]
    pub(super) fn is_any(self) -> bool {
        self.0 & (COUNT | CHECK | GUARD | PROFILE) != 0
    }

    /// Returns `true` if objects that are freed may have been treated specially.
    #[inline]
    pub(super) fn is_or_was_any(self) -> bool {
        self.0 != READ
    }

    /// Returns `true` if objects are sampled, or were.
    pub(super) fn has_profiled(self) -> bool {
        self.0 & PROFILED != 0
    }

    /// Returns `true` if allocations and frees are counted on request.
    pub(super) fn counts(self) -> bool {
        self.0 & COUNT != 0
    }

    /// Returns `true` if allocations are counted, on request or because another mode needs it.
    pub(super) fn counts_allocations(self) -> bool {
        self.0 & (COUNT | GUARD | PROFILE) != 0
    }

    /// Returns `true` if all objects are checked.
    pub(super) fn checks(self) -> bool {
        self.0 & CHECK != 0
    }

    /// Returns `true` if some objects are guarded.
    pub(super) fn guards(self) -> bool {
        self.0 & GUARD != 0
    }

    /// Returns `true` if objects are sampled.
    pub(super) fn profiles(self) -> bool {
        self.0 & PROFILE != 0
    }
}

/// Returns the modes of the process; `None` until it has an environment: the dynamic linker allocates before libc is
/// initialised.
#[inline]
pub(super) fn modes() -> Option<Modes> {
    // Acquire: partner is the Release in `read`. All threads that race read the same.
    match MODES.load(Ordering::Acquire) {
        UNREAD => read(),
        known => Some(Modes(known)),
    }
}

/// Returns `true` if one of these modes is known to be on.
#[inline]
fn is_known(modes: u32) -> bool {
    // Acquire: partner is the Release in `read`.
    MODES.load(Ordering::Acquire) & modes != 0
}

/// Returns `true` if the process is in checking mode.
#[cold]
pub(super) fn is_checked() -> bool {
    modes().is_some_and(Modes::checks)
}

/// Returns `true` if checking mode is known to be on. It is, in that mode, once any object was allocated.
#[inline]
pub(super) fn is_known_to_check() -> bool {
    is_known(CHECK)
}

/// Returns `true` if a mode is known to be on in which the exact end of some objects is checked.
#[inline]
pub(super) fn is_known_to_check_or_guard() -> bool {
    is_known(CHECK | GUARD)
}

/// Returns `true` if an object that grows may get more than was asked for. Not in the modes that note the size of an
/// object: a profile would count the room, and an overflow into it would not be found.
pub(super) fn may_have_room() -> bool {
    !is_known(CHECK | GUARD | PROFILE)
}

/// Returns in how many allocations one is guarded, if any is.
pub(super) fn guard_rate() -> u32 {
    GUARD_RATE.load(R)
}

/// Returns the number of nodes that was asked for; 0 for the machine's.
pub(super) fn nodes() -> u32 {
    NODES.load(R)
}

/// Returns the target in bytes that was asked for.
pub(super) fn resident() -> Option<usize> {
    Some(RESIDENT.load(R)).filter(|target| *target > 0)
}

/// Returns `true` if memory pressure is not to be watched.
pub(super) fn is_pressure_ignored() -> bool {
    IS_PRESSURE_IGNORED.load(R)
}

/// Returns the reports that were asked for.
pub(super) fn reports() -> Reports {
    Reports(REPORTS.load(R))
}

/// Returns which processes get a background thread.
pub(super) fn background() -> Background {
    Background::ALL[usize::from(BACKGROUND.load(R))]
}

/// Returns `true` if the background thread may make huge pages.
pub(super) fn makes_huge_pages() -> bool {
    !IS_WITHOUT_HUGE_PAGES.load(R)
}

/// Returns `true` if objects are sampled now.
pub(super) fn is_profiling() -> bool {
    // Relaxed: callers order it.
    MODES.load(R) & PROFILE != 0
}

/// Returns `true` if the environment asked for a profile.
pub(super) fn is_profile_asked() -> bool {
    is_known(ASKED_FOR_PROFILE)
}

/// Begins to sample one byte in `rate`, in a process whose modes are known. Returns the rate that counts: that of the first
/// profile.
pub(super) fn start_profile(rate: u64) -> u64 {
    let rate = match PROFILE_RATE.compare_exchange(0, rate.clamp(1, MOST_BYTES), R, R) {
        Ok(_) => rate.clamp(1, MOST_BYTES),
        Err(first) => first,
    };
    let _ = PROCESS.compare_exchange(0, process_id(), R, R);
    // Release: partner is the Acquire in `modes`; the rate is stored, and `FRONT` is empty.
    MODES.fetch_or(PROFILE | PROFILED, Ordering::Release);
    rate
}

/// Ends the sampling.
pub(super) fn stop_profile() {
    MODES.fetch_and(!PROFILE, Ordering::Release);
}

/// Returns in how many bytes one is sampled, if there is a profile.
pub(super) fn profile_rate() -> Option<u64> {
    Some(PROFILE_RATE.load(R)).filter(|rate| *rate > 0)
}

/// Copies the start of the names of profiles, and returns its length; 0 if none was asked for.
pub(super) fn profile_prefix(to: &mut [u8; PREFIX_BYTES]) -> usize {
    let bytes = PROFILE_PREFIX.iter().map(|byte| byte.load(R)).take_while(|byte| *byte != 0);
    to.iter_mut().zip(bytes).map(|(to, byte)| *to = byte).count()
}

/// Returns `true` in a forked child of the process that started the profile.
pub(super) fn is_forked_child() -> bool {
    PROCESS.load(R) != process_id()
}

/// Returns how many chunks were in use when the variable was read: objects there may be older than checking mode. 0 in
/// other modes.
pub(super) fn early_chunks() -> usize {
    match EARLY_CHUNKS.load(R) {
        UNSET => 0,
        chunks => chunks,
    }
}

/// All words. `tally` is the preloaded library's alone (`corelocal-malloc/src/cache_stats.rs`).
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

#[cold]
fn read() -> Option<Modes> {
    if !environment::is_there() {
        return None;
    }
    // SAFETY: the value is used before anything can change the environment.
    let value = unsafe { environment::variable(c"CORELOCAL_MALLOC") };
    // A set-uid program (AT_SECURE) ignores its environment, which another user may have written.
    let value = value.filter(|_| !environment::is_foreign()).unwrap_or_default();
    VARIABLE.report(value.to_bytes(), has_value_of_its_name);
    let words = value.to_bytes().split(|byte| *byte == b',');
    let modes = Modes(words.clone().map(mode_of).fold(READ, |modes, mode| modes | mode));
    // Checking and profiling exclude each other: both determine an object's place.
    let modes = if modes.checks() { Modes(modes.0 & !ALL_OF_PROFILE) } else { modes };
    words.clone().for_each(note);
    REPORTS.store(words.clone().fold(Reports(0), Reports::and).0, R);
    if modes.profiles() {
        let rate = words.clone().find_map(|word| bytes(word.strip_prefix(b"profile-rate:")?));
        PROCESS.store(process_id(), R);
        PROFILE_RATE.store(rate.unwrap_or(DEFAULT_PROFILE_RATE), R);
    }
    if modes.checks() {
        let used = Range::get().map_or(0, |range| range.high_water() / CHUNK);
        // The first thread's value counts; later threads would see more chunks.
        let _ = EARLY_CHUNKS.compare_exchange(UNSET, used, R, R);
    }
    // Release: partner is the Acquire in `modes`; the values above are stored.
    MODES.store(modes.0, Ordering::Release);
    Some(modes)
}

/// Notes the value that a word has, besides a mode.
fn note(word: &[u8]) {
    if word == b"pressure:no" {
        IS_PRESSURE_IGNORED.store(true, R);
    }
    if word == b"hugepages:no" {
        IS_WITHOUT_HUGE_PAGES.store(true, R);
    }
    if let Some(background) = Background::of_word(word) {
        BACKGROUND.fetch_max(background as u8, R);
    }
    if let Some(rate) = guard_rate_of(word) {
        GUARD_RATE.store(rate, R);
    }
    if let Some(nodes) = nodes_of(word) {
        NODES.store(nodes, R);
    }
    let target = word.strip_prefix(b"resident:").and_then(bytes);
    if let Some(target) = target.and_then(|target| usize::try_from(target).ok()) {
        RESIDENT.store(target, R);
    }
    if let Some(prefix) = word.strip_prefix(b"profile:") {
        // One that is too long is cut; its folder then usually does not exist, and the first dump fails.
        for (byte, given) in PROFILE_PREFIX.iter().zip(prefix).take(PREFIX_BYTES - 1) {
            byte.store(*given, R);
        }
    }
}

/// Returns the mode that a word asks for; 0 for none.
fn mode_of(word: &[u8]) -> u32 {
    match word {
        b"stats" | b"stats:json" | b"count" => COUNT,
        b"check" => CHECK,
        b"profile" => ALL_OF_PROFILE,
        // The numbers are printed when a signal arrives.
        word if word.starts_with(b"stats-signal:") => COUNT,
        word if word.starts_with(b"profile:") => ALL_OF_PROFILE,
        word if guard_rate_of(word).is_some() => GUARD,
        _ => 0,
    }
}

/// Returns the rate that `guard` or `guard:N` asks for.
fn guard_rate_of(word: &[u8]) -> Option<u32> {
    let rate = match word.strip_prefix(b"guard")? {
        b"" => return Some(DEFAULT_GUARD_RATE),
        rate => core::str::from_utf8(rate.strip_prefix(b":")?).ok()?,
    };
    rate.parse().ok().filter(|rate| *rate > 0)
}

/// Returns the number of nodes that `nodes:no`, or `nodes:N` for tests, asks for.
fn nodes_of(word: &[u8]) -> Option<u32> {
    match word.strip_prefix(b"nodes:")? {
        b"no" => Some(1),
        [digit @ b'2'..=b'8'] => Some(u32::from(digit - b'0')),
        _ => None,
    }
}

/// Returns `true` for a word whose name takes a value, and that has a right one.
fn has_value_of_its_name(word: &[u8]) -> bool {
    let Some(at) = word.iter().position(|byte| *byte == b':') else { return false };
    match (&word[..at], &word[at + 1..]) {
        (b"guard", _) => guard_rate_of(word).is_some(),
        (b"nodes", _) => nodes_of(word).is_some(),
        (b"profile-rate" | b"resident", value) => bytes(value).is_some(),
        (b"profile-signal" | b"stats-signal", value) => signal(value).is_some(),
        (b"profile" | b"tally", value) => !value.is_empty(),
        _ => false,
    }
}

/// The largest number of bytes that a word may have.
const MOST_BYTES: u64 = (1 << 40) - 1;

/// Parses a number of bytes, with an optional suffix K, M or G.
fn bytes(text: &[u8]) -> Option<u64> {
    let (digits, shift) = match text {
        [digits @ .., b'k' | b'K'] => (digits, 10),
        [digits @ .., b'm' | b'M'] => (digits, 20),
        [digits @ .., b'g' | b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    let number: u64 = core::str::from_utf8(digits).ok()?.parse().ok()?;
    number.checked_mul(1 << shift).filter(|bytes| (1..=MOST_BYTES).contains(bytes))
}

#[cfg(test)]
mod tests;
