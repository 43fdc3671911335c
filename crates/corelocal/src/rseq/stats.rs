//! Statistics of critical sections that did not commit at the first attempt. Counted on cold paths only. Where no
//! section can run, every operation takes the cold path, and counts without a line that all threads write.

use crate::primitive::global::{AtomicU64, Ordering};
use crate::sys;

static ABORTS: AtomicU64 = AtomicU64::new(0);

/// Two cache lines, since the processor fetches lines in pairs.
#[repr(align(128))]
struct Line(AtomicU64);

/// One line for each lease. Where no section runs every operation counts here, so a single line would be contended by
/// all threads.
static FALLBACKS: [Line; sys::thread::LEASES as usize] =
    [const { Line(AtomicU64::new(0)) }; sys::thread::LEASES as usize];

/// Totals of this process since its start; see [`stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sections that the kernel aborted. Each was followed by another attempt.
    pub aborts: u64,
    /// Operations that used atomics instead: the thread could not be registered, or every attempt was aborted. Up to
    /// 255 for each living thread are not yet included.
    pub fallbacks: u64,
    /// Threads that this library has registered. 0 where libc does it.
    pub registrations: u64,
}

/// Reads the totals of this process.
///
/// A few aborts a second per busy thread are normal: one for each preemption or signal that hits
/// a section. Fallbacks that keep growing mean that fast paths are off; `corelocal doctor` says
/// why. The three words are read one after the other, not as a snapshot.
///
/// ```
/// let before = corelocal::rseq::stats();
/// // … run the workload …
/// let after = corelocal::rseq::stats();
/// println!("{} aborts", after.aborts - before.aborts);
/// ```
pub fn stats() -> Stats {
    // Relaxed: statistics, ordered with nothing.
    Stats {
        aborts: ABORTS.load(Ordering::Relaxed),
        fallbacks: FALLBACKS.iter().map(|line| line.0.load(Ordering::Relaxed)).sum::<u64>()
            + sys::thread::LATE_FALLBACKS.load(Ordering::Relaxed),
        registrations: sys::rseq::registrations(),
    }
}

pub(super) fn count_abort() {
    ABORTS.fetch_add(1, Ordering::Relaxed);
}

/// Counts a fallback of a thread that will have many.
#[inline(always)]
pub(crate) fn count_fallback_of_many() {
    sys::thread::count_fallback(count_fallbacks);
}

pub(super) fn count_fallback() {
    count_fallbacks(1);
}

#[cold]
fn count_fallbacks(count: u64) {
    let line = &FALLBACKS[sys::thread::lease_held() as usize % FALLBACKS.len()];
    line.0.fetch_add(count, Ordering::Relaxed);
}
