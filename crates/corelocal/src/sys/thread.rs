//! What the library keeps of a thread beyond its rseq area: a lease, and what happens at its end.
//!
//! A lease is a small number that few threads share, for those that have no id to go by: threads
//! without a registration spread over the leases, so that their atomics do not all meet in one line.
//! The number with the fewest holders is given, and comes back when the thread ends.
//!
//! Invariants:
//! - A lease is a hint: what it leads to is shared, and used by atomics or under a lock. So it may
//!   be given twice, or be lost by a thread that libc does not let us see the end of.
//! - Everything here is async-signal-safe; nothing allocates.

#[cfg(all(feature = "std", not(loom)))]
pub(crate) mod count;
#[cfg(not(loom))]
pub(crate) mod id;
pub(crate) mod owner_tag;
pub(crate) mod robust_list;
#[cfg(not(loom))]
pub(crate) mod serial;
#[cfg(feature = "std")]
pub(crate) mod signals;
pub(crate) mod stack;

use super::arch::{self, own_words::FALLBACKS, own_words::LEASE};
use super::rseq;
use crate::primitive::global::{AtomicU32, AtomicU64, Ordering};

/// The maximum number of leases.
pub(crate) const LEASES: u32 = 64;

/// The number of holders of each lease.
static HOLDERS: [AtomicU32; LEASES as usize] = [const { AtomicU32::new(0) }; LEASES as usize];

/// The fallbacks that threads had counted, and had not added to the total, when they ended.
pub(crate) static LATE_FALLBACKS: AtomicU64 = AtomicU64::new(0);

/// Returns the calling thread's lease below `bound`, which is the same at every call and at least 1.
#[cold]
pub(crate) fn lease(bound: u32) -> u32 {
    let bound = bound.min(LEASES);
    let Some(word) = arch::own_word(LEASE) else {
        return super::current_cpu().map_or(0, |cpu| cpu % bound);
    };
    match word.load(Ordering::Relaxed) {
        0 => {}
        held => return (held - 1).min(bound - 1),
    }
    // Relaxed: a balance, not a lock; two threads that come at once may choose the same.
    let holders = |lease: &u32| HOLDERS[*lease as usize].load(Ordering::Relaxed);
    let lease = (0..bound).min_by_key(holders).unwrap_or(0);
    match word.compare_exchange(0, lease + 1, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            HOLDERS[lease as usize].fetch_add(1, Ordering::Relaxed);
            at_exit();
            lease
        }
        // A signal handler took one meanwhile.
        Err(held) => (held - 1).min(bound - 1),
    }
}

/// Returns the calling thread's lease if it has one, otherwise 0: for statistics, which are spread in the same way.
pub(crate) fn lease_held() -> u32 {
    arch::own_word(LEASE).map_or(0, |word| word.load(Ordering::Relaxed).saturating_sub(1))
}

/// Returns the calling thread's lease below `bound`, if it has one.
#[inline(always)]
pub(crate) fn known_lease(bound: u32) -> Option<u32> {
    let held = arch::own_word(LEASE)?.load(Ordering::Relaxed);
    (held > 0).then(|| (held - 1).min(bound - 1))
}

/// Counts a fallback of the calling thread in a word of its own, without a locked instruction, which would double what
/// a fallback costs. Hands `f` what has been counted, each time that it is [`AT_ONCE`].
#[inline(always)]
pub(crate) fn count_fallback(f: impl FnOnce(u64)) {
    let Some(word) = arch::own_word(FALLBACKS) else { return f(1) };
    // Relaxed: of this thread alone. One that a signal handler counts in between may be missed.
    let counted = word.load(Ordering::Relaxed) + 1;
    if counted < AT_ONCE {
        word.store(counted, Ordering::Relaxed);
    } else {
        word.store(0, Ordering::Relaxed);
        f(counted.into());
    }
}

/// The number of fallbacks that a thread counts before it adds them to the total: see [`count_fallback`].
const AT_ONCE: u32 = 256;

fn give_lease_back() {
    if let Some(word) = arch::own_word(FALLBACKS) {
        LATE_FALLBACKS.fetch_add(word.swap(0, Ordering::Relaxed).into(), Ordering::Relaxed);
    }
    let Some(word) = arch::own_word(LEASE) else { return };
    match word.swap(0, Ordering::Relaxed) {
        0 => {}
        held => {
            HOLDERS[held as usize - 1].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Arranges that libc lets us clean up when the calling thread ends.
///
/// The kernel would drop a registration itself, later in the exit; a thread that libc lets go
/// earlier (a custom stack freed by its owner, say) must not be written to in between. A key past
/// glibc's first block of 32 would make `pthread_setspecific` allocate, which cannot be done here
/// (signal handlers, malloc): then the kernel's own way has to do, and a lease is not given back.
pub(super) fn at_exit() {
    const KEYS_WITHOUT_ALLOCATION: u32 = 32;
    const NONE: u32 = u32::MAX;
    static KEY: AtomicU32 = AtomicU32::new(NONE);

    // A later TLS destructor may register or lease once more: libc then calls this again.
    extern "C" fn clean_up(_: *mut libc::c_void) {
        rseq::unregister_own();
        give_lease_back();
    }

    // Relaxed: the key is a number; libc orders what belongs to it.
    let mut key = KEY.load(Ordering::Relaxed);
    if key == NONE {
        let mut fresh: libc::pthread_key_t = 0;
        // SAFETY: a valid place for the key, a destructor that lives as long as the program.
        if unsafe { libc::pthread_key_create(&mut fresh, Some(clean_up)) } != 0 {
            return;
        }
        key = match KEY.compare_exchange(NONE, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            Err(winner) => {
                // SAFETY: made above, never used.
                unsafe { libc::pthread_key_delete(fresh) };
                winner
            }
        };
    }
    if key < KEYS_WITHOUT_ALLOCATION {
        // SAFETY: a live key; any non-null value makes the destructor run.
        unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::scaled::scaled;

    #[test]
    fn a_thread_keeps_its_lease() {
        let held = lease(8);
        assert!(held < 8);
        for _ in 0..3 {
            assert_eq!(lease(8), held);
        }
        assert_eq!(lease(1), 0);
    }

    #[test]
    fn leases_come_back() {
        if arch::own_word(LEASE).is_none() {
            return;
        }
        let holders = || HOLDERS.iter().map(|holders| holders.load(Ordering::Relaxed)).sum::<u32>();
        // Other tests' threads hold some too; far fewer than this.
        for _ in 0..scaled(1000) {
            std::thread::spawn(|| lease(4)).join().unwrap();
        }
        assert!(holders() < 500, "{}", holders());
    }
}
