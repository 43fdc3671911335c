//! A try-lock that a fork does not leave locked for ever.
//!
//! Consumers of a slot exclude each other by it, and so do trims. No thread waits for it, so a signal handler may try
//! it while its own thread holds it. If a child is forked while another thread holds it, it would stay locked in the
//! child. So the word records its owner (`sys/forks.rs`), and the child takes it over from one that is gone.
//!
//! # Invariants
//! 1. One thread of a process holds the lock at a time, and its accesses happen before those of the next owner.
//! 2. A lock is taken over only from a thread that is gone. The protected data may then be in the state after any of
//!    that owner's stores.

use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::sys::forks::Identity;

const FREE: u64 = 0;

/// A lock that is never waited for: see the module's text. All bytes 0 is a free one.
pub(crate) struct TryLock {
    holder: AtomicU64,
}

/// The lock, held until this is dropped.
pub(crate) struct Locked<'a> {
    lock: &'a TryLock,
    /// Whether the lock was taken over from a thread that a fork left behind.
    pub(crate) recovered: bool,
}

impl TryLock {
    const_fn! {
        pub(crate) const fn new() -> Self {
            TryLock { holder: AtomicU64::new(FREE) }
        }
    }

    /// Takes the lock if it is free. Async-signal-safe.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        let me = Identity::of_this_thread();
        // Acquire: partner is the Release in `drop`.
        match self.holder.compare_exchange(FREE, me.number(), Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => Some(Locked { lock: self, recovered: false }),
            Err(holder) => self.recover(holder, me),
        }
    }

    /// Returns `true` if a thread that is not gone seems to hold it.
    #[cfg(test)]
    pub(crate) fn is_held(&self) -> bool {
        // Acquire: partner is the Release in `drop`. A thread that sees the lock free sees what the last owner did.
        match self.holder.load(Ordering::Acquire) {
            FREE => false,
            holder => !Identity::of_number(holder).is_gone(Identity::of_this_thread()),
        }
    }

    /// Returns `true` if the calling thread holds it: a signal handler asks that interrupted the holder, say.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn is_mine(&self) -> bool {
        // Relaxed: what the thread itself stored, or something else. In a child that the holder's handler forked it is
        // of an earlier generation.
        let (holder, me) = (self.holder.load(Ordering::Relaxed), Identity::of_this_thread());
        let holder = Identity::of_number(holder);
        holder.is_alike(me) && !holder.is_gone(me)
    }

    /// Does what `holder` does, of a free lock.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn lock_as(&self, holder: Identity) -> Locked<'_> {
        self.holder.store(holder.number(), Ordering::Relaxed);
        Locked { lock: self, recovered: false }
    }

    #[cold]
    fn recover(&self, holder: u64, me: Identity) -> Option<Locked<'_>> {
        if !Identity::of_number(holder).is_gone(me) {
            return None;
        }
        // Acquire: of the fork, which copied all that the holder had done; threads of the child were
        // started after it.
        let (mine, success) = (me.number(), Ordering::Acquire);
        let taken = self.holder.compare_exchange(holder, mine, success, Ordering::Relaxed);
        // Constructed only after success: its drop would otherwise unlock another owner's lock.
        taken.is_ok().then(|| Locked { lock: self, recovered: true })
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: partner is the Acquire of the next one that locks.
        self.lock.holder.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::forks::tests::in_child;

    #[test]
    fn one_holder_at_a_time() {
        let lock = TryLock::new();
        let held = lock.try_lock().expect("free");
        assert!(!held.recovered && lock.is_held());
        assert!(lock.try_lock().is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock().is_none()));
        });
        drop(held);
        assert!(!lock.is_held() && lock.try_lock().is_some());
    }

    #[test]
    fn a_child_recovers_what_another_thread_held() {
        let lock = TryLock::new();
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

    /// Two threads of a child find the orphaned lock. The second one leaves it to the first.
    #[test]
    fn one_of_two_recovers() {
        let lock = TryLock::new();
        let held = lock.try_lock().expect("free");
        let (gone, me) = (Identity::gone().number(), Identity::of_this_thread());
        assert!(lock.recover(gone, me).is_none());
        assert!(lock.is_held() && lock.try_lock().is_none());
        drop(held);
    }

    #[test]
    fn a_child_keeps_what_its_thread_held() {
        let lock = TryLock::new();
        let held = lock.try_lock().expect("free");
        assert!(in_child(|| lock.try_lock().is_none()));
        // A child of the child, too.
        assert!(in_child(|| in_child(|| lock.try_lock().is_none())));
        drop(held);
    }
}

#[cfg(all(test, loom))]
mod loom;
