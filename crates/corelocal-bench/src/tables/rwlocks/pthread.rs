//! The read-write lock of libc, of every kind.
//!
//! Invariant: its memory does not move once it is initialised.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use anyhow::ensure;

use super::kinds::{Pair, ReadWrite};

/// The attributes of a lock.
pub trait Kind: Send + Sync + 'static {
    /// 0, unless libc does not know of it.
    fn tell(attributes: *mut libc::pthread_rwlockattr_t) -> libc::c_int;
}

/// Readers come in while writers wait: what libc does unless told otherwise.
pub enum Readers {}

impl Kind for Readers {
    fn tell(_: *mut libc::pthread_rwlockattr_t) -> libc::c_int {
        0
    }
}

/// Readers wait while writers do.
pub enum Writers {}

impl Kind for Writers {
    #[cfg(target_env = "gnu")]
    fn tell(attributes: *mut libc::pthread_rwlockattr_t) -> libc::c_int {
        /// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`. (`PTHREAD_RWLOCK_PREFER_WRITER_NP` has no effect.)
        const PREFER_WRITER: libc::c_int = 2;
        // SAFETY: initialised attributes, from the caller.
        unsafe { libc::pthread_rwlockattr_setkind_np(attributes, PREFER_WRITER) }
    }

    #[cfg(not(target_env = "gnu"))]
    fn tell(_: *mut libc::pthread_rwlockattr_t) -> libc::c_int {
        libc::ENOTSUP
    }
}

/// A lock for all processes that map it.
pub enum Shared {}

impl Kind for Shared {
    fn tell(attributes: *mut libc::pthread_rwlockattr_t) -> libc::c_int {
        // SAFETY: initialised attributes, from the caller.
        unsafe { libc::pthread_rwlockattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) }
    }
}

/// A lock that prefers [`Readers`].
pub type PrefersReaders = Pthread<Readers>;
/// A lock that prefers [`Writers`].
pub type PrefersWriters = Pthread<Writers>;
/// A lock that is [`Shared`].
pub type OfProcesses = Pthread<Shared>;

/// Two numbers behind a lock of libc.
pub struct Pthread<K> {
    behind: Box<Behind>,
    kind: PhantomData<K>,
}

struct Behind {
    lock: UnsafeCell<libc::pthread_rwlock_t>,
    pair: UnsafeCell<Pair>,
}

// SAFETY: the lock is made for it; the numbers are used under it.
unsafe impl<K> Send for Pthread<K> {}
// SAFETY: the lock is for use by several threads; the numbers are used under it.
unsafe impl<K> Sync for Pthread<K> {}

impl<K: Kind> ReadWrite for Pthread<K> {
    fn new() -> anyhow::Result<Self> {
        let behind = Box::new(Behind {
            lock: UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER),
            pair: UnsafeCell::default(),
        });
        let mut attributes = MaybeUninit::uninit();
        let at = attributes.as_mut_ptr();
        // SAFETY: initialised first; the lock is not in use.
        let failed = unsafe {
            let failed = libc::pthread_rwlockattr_init(at) | K::tell(at);
            failed | libc::pthread_rwlock_init(behind.lock.get(), at)
        };
        ensure!(failed == 0, "this libc has no such lock");
        Ok(Pthread { behind, kind: PhantomData })
    }

    #[inline]
    fn read<R>(&self, f: impl FnOnce(&Pair) -> R) -> R {
        // SAFETY: an initialised lock at a fixed address, unlocked by the thread that locked it; in between the
        // numbers do not change.
        unsafe {
            libc::pthread_rwlock_rdlock(self.behind.lock.get());
            let result = f(&*self.behind.pair.get());
            libc::pthread_rwlock_unlock(self.behind.lock.get());
            result
        }
    }

    #[inline]
    fn write(&self, f: impl FnOnce(&mut Pair)) {
        // SAFETY: an initialised lock at a fixed address, unlocked by the thread that locked it; until then this
        // thread has exclusive access to the numbers.
        unsafe {
            libc::pthread_rwlock_wrlock(self.behind.lock.get());
            f(&mut *self.behind.pair.get());
            libc::pthread_rwlock_unlock(self.behind.lock.get());
        }
    }
}

impl<K> Drop for Pthread<K> {
    fn drop(&mut self) {
        // SAFETY: it is no longer used.
        unsafe { libc::pthread_rwlock_destroy(self.behind.lock.get()) };
    }
}
