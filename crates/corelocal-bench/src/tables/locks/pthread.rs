//! The locks of libc, of every kind.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;

use anyhow::ensure;

use crate::tables::checked::{Made, Subject, agree};

/// The kinds of libc's mutexes.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A mutex for all processes that map it.
    Shared,
    /// Tells of its owner's death.
    Robust,
    /// Lends the owner its waiters' priority.
    Pi,
}

/// Turns behind such a lock, as a contestant.
pub fn turns(kinds: &[Kind]) -> Made {
    let made = Arc::new(Turns {
        lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
        number: UnsafeCell::new(0),
    });
    let mut attributes = MaybeUninit::uninit();
    let at = attributes.as_mut_ptr();
    // SAFETY: initialised first; the lock is not in use.
    let failed = unsafe {
        let mut failed = libc::pthread_mutexattr_init(at);
        for kind in kinds {
            failed |= match kind {
                Kind::Shared => {
                    libc::pthread_mutexattr_setpshared(at, libc::PTHREAD_PROCESS_SHARED)
                }
                Kind::Robust => libc::pthread_mutexattr_setrobust(at, libc::PTHREAD_MUTEX_ROBUST),
                Kind::Pi => libc::pthread_mutexattr_setprotocol(at, libc::PTHREAD_PRIO_INHERIT),
            };
        }
        failed | libc::pthread_mutex_init(made.lock.get(), at)
    };
    ensure!(failed == 0, "this libc has no such lock");
    Ok(made)
}

struct Turns {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    number: UnsafeCell<u64>,
}

// SAFETY: the lock is made for it, and the number is used by its owner alone.
unsafe impl Send for Turns {}
// SAFETY: the lock is for use by several threads, and only its owner uses the number.
unsafe impl Sync for Turns {}

impl Turns {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        // SAFETY: an initialised lock at a fixed address, unlocked by the thread that locked it; in between the
        // number is this thread's.
        unsafe {
            libc::pthread_mutex_lock(self.lock.get());
            let result = f(&mut *self.number.get());
            libc::pthread_mutex_unlock(self.lock.get());
            result
        }
    }
}

impl Subject for Turns {
    fn work(&self, _: usize, operations: u64) {
        for _ in 0..operations {
            self.with(|number| *number += 1);
        }
    }

    fn check(&self, asked: u64) -> anyhow::Result<()> {
        agree(asked, self.with(|number| *number))
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        // SAFETY: it is no longer used.
        unsafe { libc::pthread_mutex_destroy(self.lock.get()) };
    }
}
