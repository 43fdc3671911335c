//! A value that readers copy, without a guard.
//!
//! # Data flow
//! `load` → the critical section `load`, which loads the pointer to the current version and its words. `store` → a new
//! version, an exchange of the pointer, one membarrier(2) that aborts every reader between the two loads, and the old
//! version is freed. A thread that cannot run sections, or whose section was aborted too often, reads under a guard of
//! a domain of this module's own, and writers wait for such guards, too. They last for a few loads.
//!
//! # Invariants
//! 1. `at` is null before the first store; then `initial` is current. Otherwise it is the address of a [`Version`], and
//!    GUARDED if membarrier's RSEQ command is refused. Sections take neither null nor GUARDED.
//! 2. A version never changes. It is freed after the membarrier and a grace period. If either is refused it stays
//!    allocated.
//! 3. Whether the command is refused is found out once in a process and its children. So a version that is GUARDED has
//!    never been read by a section, nor has one before it.
//! 4. `serial` is unique. A version that is current, with the serial of a version that was read, is that version: under a
//!    guard it stays so until an exchange.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr;
use core::time::Duration;
use std::boxed::Box;

use super::domain::Domain;
use crate::primitive::global::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::rseq::{self, Exit};
use crate::sys::{self, membarrier};

/// The longest value, in words.
const WORDS: usize = 8;
/// The bit that marks a guarded pointer: programs have no addresses with it, since it belongs to the kernel's half.
const GUARDED: usize = if cfg!(target_pointer_width = "64") { 1 << (usize::BITS - 1) } else { 0 };

/// The time for which a store waits for readers under guards. Then it defers the freeing of the old version.
const PATIENCE: Duration = Duration::from_millis(10);

/// The domain of readers without critical sections.
static GUARDS: Domain = Domain::named("RcuCopy");

/// One version: a value, and zeros after it.
#[repr(C, align(64))]
struct Version {
    words: [MaybeUninit<u64>; WORDS],
    serial: u64,
}

/// A value of up to 64 bytes that is read all the time, by copying it, and replaced now and then.
///
/// A load takes about as long as two plain loads: it has no guard, no count, no atomic instruction and no fence. A
/// store allocates, calls `membarrier(2)` twice or more, which takes microseconds, and frees the old version at once.
/// So there is never more than one version, whatever readers do.
///
/// ```
/// use corelocal::rcu::RcuCopy;
///
/// #[derive(Clone, Copy)]
/// struct Limits { requests: u32, bytes: u64 }
///
/// static LIMITS: RcuCopy<Limits> = RcuCopy::new(Limits { requests: 100, bytes: 1 << 20 });
///
/// let Limits { requests, bytes } = LIMITS.load(); // both of the same version
/// LIMITS.store(Limits { requests: 2 * requests, bytes });
/// assert_eq!(LIMITS.load().requests, 200);
/// ```
///
/// Values of more than 64 bytes do not compile:
///
/// ```compile_fail
/// use corelocal::rcu::RcuCopy;
///
/// let copy = RcuCopy::new([0u64; 9]);
/// ```
///
/// # Where it may be used
/// [`load`](RcuCopy::load) works in every thread, in signal handlers, before `main` and at thread exit. Stores are not
/// for signal handlers. In a child of `vfork` use [`load_by_guard`](RcuCopy::load_by_guard): the kernel does not abort
/// sections there.
///
/// Threads that cannot run critical sections (old kernels, seccomp, valgrind, processors without sections) read under
/// a guard, which takes nanoseconds, or tens of them where guards count by atomics. So do all threads where
/// `membarrier(2)` is refused, or lacks its RSEQ command (before Linux 5.10).
///
/// # Memory
/// Its own size, and after the first store 128 bytes.
///
/// # Memory ordering
/// A load sees everything that happened before the store of the version that it returns.
#[repr(C)]
pub struct RcuCopy<T> {
    at: AtomicPtr<Version>,
    initial: T,
    /// Makes the type invariant in `T`, since stores take `&self`, and not `Sync` by itself.
    content: PhantomData<Cell<T>>,
}

// SAFETY: threads get copies of values that others made, and no references.
unsafe impl<T: Send> Sync for RcuCopy<T> {}

impl<T: UnwindSafe> UnwindSafe for RcuCopy<T> {}
impl<T: UnwindSafe> RefUnwindSafe for RcuCopy<T> {}

impl<T: Copy> RcuCopy<T> {
    /// Creates a pointer to this version. Until the first store, a load takes a few nanoseconds more.
    pub const fn new(initial: T) -> RcuCopy<T> {
        const {
            assert!(size_of::<T>() <= 8 * WORDS, "RcuCopy: a value has at most 64 bytes");
            assert!(align_of::<T>() <= 64);
        }
        RcuCopy { at: AtomicPtr::new(ptr::null_mut()), initial, content: PhantomData }
    }

    /// Returns a copy of the current version.
    ///
    /// Wait-free. Async-signal-safe.
    #[inline(always)]
    pub fn load(&self) -> T {
        match size_of::<T>() {
            0..=8 => self.load_words::<1>(),
            9..=16 => self.load_words::<2>(),
            17..=32 => self.load_words::<4>(),
            _ => self.load_words::<WORDS>(),
        }
    }

    #[inline(always)]
    fn load_words<const N: usize>(&self) -> T {
        let (exit, words) = self.section::<N>();
        if exit.is_straight() {
            // SAFETY: the words of a version, which begin with a `T`.
            return unsafe { value(&words) };
        }
        self.load_otherwise::<N>(exit)
    }

    #[inline(always)]
    fn section<const N: usize>(&self) -> rseq::Loaded<N> {
        // SAFETY: the thread's area; a positive word is the address of a version, of 8 words aligned to 64 bytes, which
        // is freed after the fence only. (1, 2)
        unsafe { rseq::load(sys::rseq::area(), (&raw const self.at).cast()) }
    }

    #[cold]
    #[inline(never)]
    fn load_otherwise<const N: usize>(&self, first: Exit) -> T {
        // Relaxed: what is current before the first store was never stored. (1)
        if self.at.load(Ordering::Relaxed).is_null() {
            return self.initial;
        }
        let prepare = || sys::rseq::register_this_thread().is_ok();
        // Not with the words, so that those of the fast path stay in registers.
        let first = (first, [MaybeUninit::uninit(); N]);
        match rseq::retry(first, prepare, || self.section::<N>()) {
            // SAFETY: as in `load_words`.
            Some((exit, words)) if exit.is_straight() => unsafe { value(&words) },
            _ => {
                let _guard = GUARDS.read();
                self.look().1
            }
        }
    }

    /// Does what [`load`](Self::load) does, by other means: a guard, atomics and full barriers. For children of
    /// `vfork`.
    ///
    /// Lock-free, tens of nanoseconds. Async-signal-safe.
    pub fn load_by_guard(&self) -> T {
        let _guard = GUARDS.read_by_atomics();
        self.look().1
    }

    /// Returns the current version, and its value. The caller has a guard.
    fn look(&self) -> (*mut Version, T) {
        // Acquire: partner is the Release of the exchange that stored it.
        let at = self.at.load(Ordering::Acquire);
        if at.is_null() {
            return (at, self.initial);
        }
        // SAFETY: a version, which is not freed while there is a guard. (2)
        (at, unsafe { value(&(*untagged(at)).words) })
    }

    /// Makes this the current version, and frees the old one.
    ///
    /// Microseconds: two `membarrier(2)` or more. It waits for readers under a guard only, for 10 ms at most; then the
    /// old version is freed later. If the kernel refuses `membarrier(2)` since the first store, old versions stay
    /// allocated.
    pub fn store(&self, new: T) {
        self.swap(new);
    }

    /// Makes this the current version, and returns the old one. Like [`store`](Self::store).
    pub fn swap(&self, new: T) -> T {
        let new = tagged(Box::into_raw(Box::new(Version::new(new))));
        // Release: partner is the Acquire of loads. Acquire: for the old version.
        let old = self.at.swap(new, Ordering::AcqRel);
        // SAFETY: this thread has replaced it. (2)
        unsafe { self.retired(old) }
    }

    /// Makes `change` of the current version the current one. It is called again if another thread was faster.
    pub fn rcu(&self, mut change: impl FnMut(T) -> T) {
        let mut fresh = Box::new(Version::new(self.initial));
        loop {
            let guard = GUARDS.read();
            let (before, value) = self.look();
            let serial = serial(before);
            drop(guard);
            *fresh = Version::new(change(value));
            let guard = GUARDS.read();
            // Acquire: as in `look`.
            let is_current =
                self.at.load(Ordering::Acquire) == before && self::serial(before) == serial;
            if !is_current {
                continue;
            }
            let new = tagged(&raw mut *fresh);
            // Order: as in `swap`. If the address is the same, so is the version. (4)
            let swapped =
                self.at.compare_exchange(before, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            drop(guard);
            if swapped {
                let _ = Box::into_raw(fresh);
                // SAFETY: this thread has replaced it. (2)
                unsafe { self.retired(before) };
                return;
            }
        }
    }

    /// Frees a version, and returns its value.
    ///
    /// # Safety
    /// - The caller has replaced it.
    unsafe fn retired(&self, old: *mut Version) -> T {
        if old.is_null() {
            return self.initial;
        }
        // SAFETY: only this thread frees it.
        let value = unsafe { value(&(*untagged(old)).words) };
        // The order of the exchange and the barriers is that of x86-64's locked instructions, which are full barriers,
        // and of membarrier, which begins with one.
        let is_fenced = old.addr() & GUARDED != 0 || membarrier::private_expedited_rseq().is_ok();
        if is_fenced {
            // No section is between the loads of the pointer and of its words: those from before the fence were
            // aborted, or have ended. So only threads with guards may have found it. (2)
            let old = Retired(untagged(old));
            if GUARDS.synchronize_timeout(PATIENCE).is_err() {
                GUARDS.defer_bytes(size_of::<Version>(), move || drop(old));
            }
        }
        value
    }
}

impl Version {
    fn new<T: Copy>(value: T) -> Version {
        let serial = {
            static LAST: AtomicU64 = AtomicU64::new(0);
            LAST.fetch_add(1, Ordering::Relaxed) + 1
        };
        let mut words = [MaybeUninit::new(0); WORDS];
        // SAFETY: long enough, as `RcuCopy::new` asserts.
        unsafe { words.as_mut_ptr().cast::<T>().write_unaligned(value) };
        Version { words, serial }
    }
}

/// A version that no section reads any more. Dropped, it is freed.
struct Retired(*mut Version);

// SAFETY: it stands for a box of plain words.
unsafe impl Send for Retired {}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, once, after a grace period.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// # Safety
/// - The words begin with a `T`, or are as many as a `T` has.
#[inline(always)]
unsafe fn value<T: Copy, const N: usize>(words: &[MaybeUninit<u64>; N]) -> T {
    // SAFETY: the caller guarantees a `T`.
    unsafe { words.as_ptr().cast::<T>().read_unaligned() }
}

/// Returns the serial of a version; 0 for none. The caller has a guard since it has loaded it.
fn serial(at: *mut Version) -> u64 {
    // SAFETY: null, or a version, which is not freed while there is a guard. (2)
    unsafe { untagged(at).as_ref() }.map_or(0, |version| version.serial)
}

/// Returns the word for a version.
fn tagged(at: *mut Version) -> *mut Version {
    /// 0 before the command was tried, 1 if it works, 2 if it is refused. (3)
    static IS_REFUSED: AtomicU32 = AtomicU32::new(0);
    if IS_REFUSED.load(Ordering::Relaxed) == 0 {
        let now = if membarrier::private_expedited_rseq().is_ok() { 1 } else { 2 };
        // Relaxed: the number is all there is to see.
        let _ = IS_REFUSED.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }
    let is_refused = IS_REFUSED.load(Ordering::Relaxed) == 2;
    if is_refused { at.map_addr(|at| at | GUARDED) } else { at }
}

fn untagged(at: *mut Version) -> *mut Version {
    at.map_addr(|at| at & !GUARDED)
}

impl<T> Drop for RcuCopy<T> {
    fn drop(&mut self) {
        let at = untagged(*self.at.get_mut());
        if !at.is_null() {
            // SAFETY: the current version, which no other thread uses: this is exclusive.
            drop(unsafe { Box::from_raw(at) });
        }
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for RcuCopy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuCopy").field(&self.load()).finish()
    }
}

#[cfg(test)]
mod tests;
