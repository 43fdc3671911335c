//! A try-lock that a fork does not leave held for ever.
//!
//! Consumers of a slot exclude each other by it. Nobody waits for it, so a signal handler may try it
//! while its own thread holds it. A child that was forked while another thread held it would find it
//! held by nobody: so the word says who holds it, and since which fork.
//!
//! ```text
//!   63               16 15            0
//!   thread              generation          0: free
//! ```
//!
//! The generation is the number of forks from the program's first process down to this one. Its word is
//! in a page that fork wipes (`MADV_WIPEONFORK`, Linux 4.14); whoever first looks after a fork writes
//! the next number. A child of `vfork` shares the page, as it shares the locks.
//!
//! # Invariants
//! 1. One thread of a process holds the lock at a time, and what it did happens before what the next
//!    one does.
//! 2. A lock is recovered only from a thread that is not here: one of an earlier generation, and not the
//!    one that forked, for this thread is that one or the child of it. What the lock protects may then
//!    be as any store of the holder left it.
//!
//! A signal handler that forks between two instructions of a holder, and whose child starts threads
//! before the handler returns, breaks the second half of invariant 2; POSIX allows that child to call
//! async-signal-safe functions only.

use crate::primitive::atomic::{AtomicU64, Ordering};

const FREE: u64 = 0;

/// See the module's text. All bytes 0 is a free one.
pub(in crate::percpu) struct TryLock {
    holder: AtomicU64,
}

/// The lock, held until this is dropped.
pub(in crate::percpu) struct Locked<'a> {
    lock: &'a TryLock,
    /// It was taken from a thread that a fork left behind.
    pub(in crate::percpu) recovered: bool,
}

impl TryLock {
    #[cfg(loom)]
    pub(in crate::percpu) fn new() -> Self {
        TryLock { holder: AtomicU64::new(FREE) }
    }

    /// The lock, if nobody has it. Async-signal-safe.
    #[inline]
    pub(in crate::percpu) fn try_lock(&self) -> Option<Locked<'_>> {
        let me = identity::of_this_thread();
        // Acquire: partner is the Release in `drop`.
        match self.holder.compare_exchange(FREE, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Locked { lock: self, recovered: false }),
            Err(holder) => self.recover(holder, me),
        }
    }

    /// Whether somebody who is here seems to hold it.
    pub(in crate::percpu) fn is_held(&self) -> bool {
        // Acquire: partner is the Release in `drop`; who sees it free sees what the last one did.
        match self.holder.load(Ordering::Acquire) {
            FREE => false,
            holder => !identity::is_gone(holder, identity::of_this_thread()),
        }
    }

    #[cold]
    fn recover(&self, holder: u64, me: u64) -> Option<Locked<'_>> {
        if !identity::is_gone(holder, me) {
            return None;
        }
        // Acquire: of the fork, which copied all that the holder had done; threads of the child were
        // started after it.
        let taken = self.holder.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(Locked { lock: self, recovered: true })
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: partner is the Acquire of the next one that locks.
        self.lock.holder.store(FREE, Ordering::Release);
    }
}

/// Nobody forks in a model.
#[cfg(loom)]
mod identity {
    pub(super) fn of_this_thread() -> u64 {
        1
    }

    pub(super) fn is_gone(_holder: u64, _me: u64) -> bool {
        false
    }
}

#[cfg(not(loom))]
mod identity {
    use crate::primitive::global::{AtomicPtr, AtomicU32, Ordering};
    use crate::sys::pages;

    const GENERATION_BITS: u32 = 16;
    const GENERATIONS: u32 = 1 << GENERATION_BITS;

    /// Who the calling thread is, as a holder. Never 0.
    #[inline]
    pub(super) fn of_this_thread() -> u64 {
        // SAFETY: no preconditions. The thread pointer, in every libc: a load.
        let thread = unsafe { libc::pthread_self() } as u64;
        thread << GENERATION_BITS | u64::from(generation())
    }

    /// Whether `holder` is a thread that a fork left behind, as seen by `me`.
    pub(super) fn is_gone(holder: u64, me: u64) -> bool {
        let earlier = holder as u32 % GENERATIONS != me as u32 % GENERATIONS;
        earlier && holder >> GENERATION_BITS != me >> GENERATION_BITS
    }

    /// The word in the page that fork wipes.
    static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
    /// At least the generation of this process, but right after a fork.
    static LAST: AtomicU32 = AtomicU32::new(0);

    #[inline]
    fn generation() -> u32 {
        // Acquire: partner is the Release in `page`.
        let page = PAGE.load(Ordering::Acquire);
        // SAFETY: zeroed pages that are never unmapped, if not null.
        match unsafe { page.as_ref() }.map_or(0, |word| word.load(Ordering::Relaxed)) {
            0 => next_generation(),
            known => known,
        }
    }

    #[cold]
    fn next_generation() -> u32 {
        // Without the page all processes are of the first generation, and nothing is recovered.
        let Some(word) = page() else { return 1 };
        let next = (LAST.load(Ordering::Relaxed) + 1) % GENERATIONS;
        let next = next.max(1);
        // Before the word is set: a fork in between must find it.
        LAST.store(next, Ordering::Release);
        // Release and Acquire: partners of each other; who comes too late sees the winner's number.
        match word.compare_exchange(0, next, Ordering::Release, Ordering::Acquire) {
            Ok(_) => next,
            Err(first) => first,
        }
    }

    fn page() -> Option<&'static AtomicU32> {
        let mut page = PAGE.load(Ordering::Acquire);
        if page.is_null() {
            let len = size_of::<AtomicU32>();
            let fresh = pages::map(len)?;
            // SAFETY: pages just mapped, all zero.
            if unsafe { pages::advise(fresh, len, libc::MADV_WIPEONFORK) }.is_err() {
                // SAFETY: nobody else saw it.
                unsafe { pages::unmap(fresh, len) };
                return None;
            }
            // Release: partner is the Acquire here and in `generation`.
            page = match PAGE.compare_exchange(
                core::ptr::null_mut(),
                fresh.cast(),
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => fresh.cast(),
                Err(winner) => {
                    // SAFETY: nobody else saw it.
                    unsafe { pages::unmap(fresh, len) };
                    winner
                }
            };
        }
        // SAFETY: mapped, zeroed, never unmapped.
        unsafe { page.as_ref() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn lock() -> TryLock {
        TryLock { holder: AtomicU64::new(FREE) }
    }

    #[test]
    fn one_holder_at_a_time() {
        let lock = lock();
        let held = lock.try_lock().expect("free");
        assert!(!held.recovered && lock.is_held());
        assert!(lock.try_lock().is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock().is_none()));
        });
        drop(held);
        assert!(!lock.is_held() && lock.try_lock().is_some());
    }

    /// Runs `body` in a forked child; whether it said so.
    fn in_child(body: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child makes system calls and atomic accesses.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = body();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = -1;
        // SAFETY: the child is ours, `status` writable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status == 0
    }

    #[test]
    fn a_child_recovers_what_another_thread_held() {
        let lock = lock();
        let (to_holder, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let lock = &lock;
            let (held, holds) = std::sync::mpsc::channel();
            scope.spawn(move || {
                let _held = lock.try_lock().expect("free");
                held.send(()).unwrap();
                let _ = wait.recv();
            });
            holds.recv().unwrap();
            assert!(in_child(|| {
                let was_held = lock.is_held();
                let recovered = lock.try_lock().is_some_and(|held| held.recovered);
                !was_held && recovered && lock.try_lock().is_some_and(|held| !held.recovered)
            }));
            assert!(lock.try_lock().is_none());
            drop(to_holder);
        });
    }

    #[test]
    fn a_child_keeps_what_its_thread_held() {
        let lock = lock();
        let held = lock.try_lock().expect("free");
        assert!(in_child(|| lock.try_lock().is_none()));
        // A child of the child, too.
        assert!(in_child(|| in_child(|| lock.try_lock().is_none())));
        drop(held);
    }
}
