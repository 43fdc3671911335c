//! A pointer to the current version of some data.
//!
//! Invariants:
//! 1. The word is null or the pointer of a `P` that this owns. It is replaced by an exchange, and then belongs to the
//!    thread that made it, which drops it after a grace period.
//! 2. A reader loads the word under a guard of this domain, and its reference ends with that guard. So the `P` that it
//!    refers to is not dropped while the reference exists.

use core::fmt;
use core::marker::PhantomData;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr;
use std::boxed::Box;
use std::sync::Arc;

use super::kinds::{NeverNull, Pointer, Shared};
use crate::primitive::global::{AtomicPtr, Ordering};
use crate::rcu::domain::Domain;
use crate::rcu::error::Error;
use crate::rcu::global::GLOBAL;
use crate::rcu::guard::Guard;
use crate::rcu::survivors;

/// A pointer to the current version of some data, which readers load under a [`Guard`].
///
/// `P` is `Box<T>` or `Arc<T>`, or an `Option` of one. The methods have the names of the crate arc-swap. Replaced
/// versions are dropped after a grace period, by [`Domain::defer`].
///
/// ```
/// use corelocal::rcu::{self, Rcu};
///
/// struct Limits { requests: u32 }
/// let limits = Rcu::new(Box::new(Limits { requests: 100 }));
///
/// let guard = rcu::read();
/// let now = limits.load(&guard);
/// limits.store(Box::new(Limits { requests: 200 }));
/// assert_eq!(now.requests, 100); // still there: the guard protects it
/// assert_eq!(limits.load(&guard).requests, 200);
/// ```
///
/// A static: without a version at first, or as a [`LazyRcu`](super::LazyRcu) whose first version is made at its first
/// use.
///
/// ```
/// use std::sync::Arc;
/// use corelocal::rcu::{self, Rcu};
///
/// static BACKUP: Rcu<Option<Arc<String>>> = Rcu::none();
///
/// assert_eq!(BACKUP.load(&rcu::read()), None);
/// ```
///
/// # Memory ordering
/// A reader that loads a version sees everything that happened before it was stored.
pub struct Rcu<P: Pointer> {
    pub(super) at: AtomicPtr<P::Target>,
    domain: &'static Domain,
    owned: PhantomData<P>,
}

// SAFETY: an exchange moves a `P` to another thread, and threads share references to the target.
unsafe impl<P: Pointer + Send> Sync for Rcu<P> where P::Target: Send + Sync {}
// SAFETY: it owns a `P`.
unsafe impl<P: Pointer + Send> Send for Rcu<P> where P::Target: Send + Sync {}
impl<P: Pointer> UnwindSafe for Rcu<P> where P::Target: RefUnwindSafe {}
impl<P: Pointer> RefUnwindSafe for Rcu<P> where P::Target: RefUnwindSafe {}

/// The error of [`Rcu::compare_and_swap`]: another version was current than the expected one.
pub struct NotCurrent<'g, P: Pointer + 'g> {
    /// The version that is current.
    pub current: P::Ref<'g>,
    /// The new version, which was not stored.
    pub new: P,
}

impl<P: Pointer> fmt::Debug for NotCurrent<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotCurrent").finish_non_exhaustive()
    }
}

impl<P: Pointer> Rcu<P> {
    /// Creates a pointer to this version, for guards of the global domain.
    pub fn new(first: P) -> Rcu<P> {
        Rcu::new_in(first, &GLOBAL)
    }

    /// Creates a pointer to this version, for guards of this domain.
    pub fn new_in(first: P, domain: &'static Domain) -> Rcu<P> {
        Rcu { at: AtomicPtr::new(P::into_raw(first)), domain, owned: PhantomData }
    }

    /// Creates a pointer to a version of this value.
    pub fn from_pointee(value: P::Target) -> Rcu<P>
    where
        P: From<P::Target>,
    {
        Rcu::new(P::from(value))
    }

    /// Returns the domain whose guards protect it.
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// Returns the current version itself.
    pub fn into_inner(self) -> P {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: the pointer of a `P` that this owned (1), and does not drop. References borrow this, so there are
        // none.
        unsafe { P::from_raw(this.at.load(Ordering::Relaxed)) }
    }

    /// Returns the current version, valid as long as the guard.
    ///
    /// Wait-free: two loads.
    ///
    /// # Panics
    /// If the guard is of another domain.
    #[inline(always)]
    pub fn load<'g>(&'g self, guard: &'g Guard) -> P::Ref<'g> {
        self.check(guard);
        // Acquire: partner is the Release of the exchange that stored it.
        // SAFETY: a `P`'s pointer (1), which is not dropped while the guard is there (2), nor while this is borrowed.
        unsafe { P::borrow(self.at.load(Ordering::Acquire)) }
    }

    /// Returns the current version as a value of its own.
    pub fn load_full(&self) -> P
    where
        P: Shared,
    {
        self.load_with_address().1
    }

    /// Returns the current version as a value of its own, and its address.
    pub(super) fn load_with_address(&self) -> (usize, P)
    where
        P: Shared,
    {
        let _guard = self.domain.read();
        // Acquire: partner is the Release of the exchange that stored it.
        let at = self.at.load(Ordering::Acquire);
        // SAFETY: a `P`'s pointer (1), which is not dropped while the guard is there (2).
        (at.addr(), unsafe { P::clone_raw(at) })
    }

    #[inline(always)]
    fn check(&self, guard: &Guard) {
        if !ptr::eq(guard.domain(), self.domain) {
            Self::wrong_domain();
        }
    }

    #[cold]
    #[inline(never)]
    fn wrong_domain() -> ! {
        panic!(
            "the guard is of another domain than this Rcu: begin it with the read of the Rcu's own domain(), since \
             grace periods of one domain do not wait for guards of another"
        )
    }
}

impl<P: Pointer + Send + 'static> Rcu<P>
where
    P::Target: Send + Sync,
{
    /// Makes this the current version. The old one is dropped after a grace period.
    ///
    /// At the hard limit for deferred memory it waits: see [`Domain::set_limits`].
    pub fn store(&self, new: P) {
        self.retire(self.exchange(new));
    }

    /// Makes this the current version, and returns the old one. What the pointer owned of it is dropped after a grace
    /// period.
    pub fn swap(&self, new: P) -> P
    where
        P: Shared,
    {
        let old = self.exchange(new);
        // SAFETY: the pointer of a `P` that this thread owns now (1), and drops below.
        let copy = unsafe { P::clone_raw(old) };
        self.retire(old);
        copy
    }

    /// Makes `new` the current version if `current`, loaded under this guard, still is. Returns `current`, which is
    /// dropped after a grace period.
    ///
    /// It never waits, also at the hard limit, since the caller has a guard.
    ///
    /// # Errors
    /// Another version is current.
    ///
    /// # Panics
    /// If the guard is of another domain.
    pub fn compare_and_swap<'g>(
        &'g self,
        current: P::Ref<'g>,
        new: P,
        guard: &'g Guard,
    ) -> Result<P::Ref<'g>, NotCurrent<'g, P>> {
        self.check(guard);
        match self.exchange_if(current, new) {
            Ok(old) => {
                self.retire(old);
                Ok(current)
            }
            // SAFETY: `found` is the current version's, which the guard protects (2).
            Err((found, new)) => Err(NotCurrent { current: unsafe { P::borrow(found) }, new }),
        }
    }

    /// Makes this the current version, waits for a grace period, and returns the old version itself, also a `Box`.
    ///
    /// # Errors
    /// [`Error::UnderGuard`] if the calling thread has a guard, for which it would wait for ever, and the errors of
    /// [`Domain::synchronize`]. In these cases the new version is current all the same, and the old one is dropped
    /// after a grace period, as by [`store`](Self::store).
    pub fn swap_synchronized(&self, new: P) -> Result<P, Error> {
        let domain = self.domain;
        let old = self.exchange(new);
        let waited = if survivors::of_this_thread() > 0 {
            Err(Error::UnderGuard)
        } else {
            domain.synchronize()
        };
        match waited {
            // SAFETY: the pointer of a `P` that this thread owns (1); after a grace period no reader has it.
            Ok(()) => Ok(unsafe { P::from_raw(old) }),
            Err(error) => {
                self.retire(old);
                Err(error)
            }
        }
    }

    /// Makes `change` of the current version the current one. It is called again if another thread was faster.
    pub fn rcu(&self, mut change: impl for<'g> FnMut(P::Ref<'g>) -> P) {
        let change = |current: P::Ref<'_>| Ok::<P, core::convert::Infallible>(change(current));
        let Ok(()) = self.try_rcu(change);
    }

    /// Does what [`rcu`](Self::rcu) does, with a function that may fail.
    ///
    /// # Errors
    /// That of `change`: the current version stays.
    pub fn try_rcu<E>(
        &self,
        mut change: impl for<'g> FnMut(P::Ref<'g>) -> Result<P, E>,
    ) -> Result<(), E> {
        let guard = self.domain.read();
        let mut current = self.load(&guard);
        let old = loop {
            match self.exchange_if(current, change(current)?) {
                Ok(old) => break old,
                // SAFETY: the current version's pointer, which the guard protects (2).
                Err((found, _)) => current = unsafe { P::borrow(found) },
            }
        };
        // Without the guard, so that it waits at the hard limit.
        drop(guard);
        self.retire(old);
        Ok(())
    }

    /// Makes `new` the current version if `current` is. Returns the old one's pointer, or the current one's and `new`.
    fn exchange_if(
        &self,
        current: P::Ref<'_>,
        new: P,
    ) -> Result<*mut P::Target, (*mut P::Target, P)> {
        let (old, new) = (P::as_raw(current), P::into_raw(new));
        // Release: partner is the Acquire of loads. Acquire: for the version that is found.
        let exchanged = self.at.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: the new version is the caller's again.
        exchanged.map_err(|found| (found, unsafe { P::from_raw(new) }))
    }

    fn exchange(&self, new: P) -> *mut P::Target {
        // Release: partner is the Acquire of loads. Acquire: the old version is dropped by this thread's order.
        self.at.swap(P::into_raw(new), Ordering::AcqRel)
    }

    /// Drops an old version after a grace period.
    fn retire(&self, old: *mut P::Target) {
        let old = Old::<P>(old);
        self.domain.defer_bytes(P::bytes(old.0), move || drop(old));
    }
}

/// A version that is no longer current. Dropping this frees it.
struct Old<P: Pointer>(*mut P::Target);

// SAFETY: it stands for a `P`.
unsafe impl<P: Pointer + Send> Send for Old<P> {}

impl<P: Pointer> Drop for Old<P> {
    fn drop(&mut self) {
        // SAFETY: the pointer of a `P` that `Rcu` owned, from an exchange, once.
        drop(unsafe { P::from_raw(self.0) });
    }
}

impl<P: Pointer> Drop for Rcu<P> {
    fn drop(&mut self) {
        // SAFETY: the pointer of a `P` that this owns (1). References borrow this, so there are none.
        drop(unsafe { P::from_raw(*self.at.get_mut()) });
    }
}

impl<P: NeverNull> Rcu<Option<P>> {
    /// Creates a pointer without a version, for guards of the global domain. For statics.
    pub const fn none() -> Self {
        Rcu::none_in(&GLOBAL)
    }

    /// Creates a pointer without a version, for guards of this domain. For statics.
    pub const fn none_in(domain: &'static Domain) -> Self {
        Rcu { at: AtomicPtr::new(ptr::null_mut()), domain, owned: PhantomData }
    }
}

impl<T> Rcu<Box<T>> {
    /// Returns the current version, which no other thread can use.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: the pointer of a box that this owns (1). References borrow this, so there are none.
        unsafe { &mut **self.at.get_mut() }
    }
}

impl<T> Rcu<Arc<T>> {
    /// Returns the current version; `None` if there are other `Arc`s of it.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: the pointer of an `Arc` that this owns (1), and keeps: it is not dropped.
        let mut version =
            core::mem::ManuallyDrop::new(unsafe { Arc::from_raw(*self.at.get_mut()) });
        let value = Arc::get_mut(&mut version).map(ptr::from_mut);
        // SAFETY: the only `Arc`, which stays while this is borrowed.
        value.map(|value| unsafe { &mut *value })
    }
}

impl<P: Pointer + Default> Default for Rcu<P> {
    fn default() -> Rcu<P> {
        Rcu::new(P::default())
    }
}

impl<P: Pointer> From<P> for Rcu<P> {
    fn from(first: P) -> Rcu<P> {
        Rcu::new(first)
    }
}

impl<P: Pointer> fmt::Debug for Rcu<P>
where
    P::Target: fmt::Debug,
    for<'g> P::Ref<'g>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = self.domain.read();
        f.debug_tuple("Rcu").field(&self.load(&guard)).finish()
    }
}
