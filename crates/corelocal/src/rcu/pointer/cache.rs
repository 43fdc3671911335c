//! A copy of the current version that a thread keeps, and reads without a guard.
//!
//! Invariant: `version` is a value of the version at `at`. So the version is not freed, and no later one has its
//! address: if the pointer's word is `at`, the version is current.

use core::fmt;
use core::ops::Deref;

use super::kinds::Shared;
use super::rcu::Rcu;
use crate::primitive::global::Ordering;

/// A copy of the current version for repeated reads, without a guard: one load and a comparison while nothing is
/// stored.
///
/// Like arc-swap's type of that name. `A` refers to an [`Rcu`]: a reference, or an `Arc`. The cache keeps its version
/// alive until its next [`load`](Cache::load), so one that is not used retains an old version.
///
/// ```
/// use std::sync::Arc;
/// use corelocal::rcu::{Cache, LazyRcu};
///
/// static LIMIT: LazyRcu<Arc<u32>> = LazyRcu::new(|| Arc::new(100));
///
/// let mut limit = Cache::new(&*LIMIT); // one for each thread
/// assert_eq!(**limit.load(), 100);
/// LIMIT.store(Arc::new(200));
/// assert_eq!(**limit.load(), 200);
/// ```
///
/// # Memory ordering
/// As for [`Rcu::load`].
#[derive(Clone)]
pub struct Cache<A, P> {
    rcu: A,
    version: P,
    /// The address of the version.
    at: usize,
}

impl<A: Deref<Target = Rcu<P>>, P: Shared> Cache<A, P> {
    /// Creates a cache with the current version.
    pub fn new(rcu: A) -> Cache<A, P> {
        let (at, version) = rcu.load_with_address();
        Cache { rcu, version, at }
    }

    /// Returns the current version.
    ///
    /// Wait-free, unless it has changed: then a guard, and a count of the `Arc`.
    #[inline]
    pub fn load(&mut self) -> &P {
        // Relaxed: if it is the address of `version`, that was loaded before.
        if self.rcu.at.load(Ordering::Relaxed).addr() != self.at {
            self.refresh();
        }
        &self.version
    }

    #[cold]
    #[inline(never)]
    fn refresh(&mut self) {
        (self.at, self.version) = self.rcu.load_with_address();
    }

    /// Returns the pointer.
    pub fn rcu(&self) -> &A {
        &self.rcu
    }
}

impl<A, P> fmt::Debug for Cache<A, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}
