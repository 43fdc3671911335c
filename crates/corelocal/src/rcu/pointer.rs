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

use super::domain::{Domain, Guard};
use super::global::GLOBAL;
use crate::primitive::global::{AtomicPtr, Ordering};

/// What [`Rcu`] can hold: `Box<T>`, `Arc<T>`, or an `Option` of one of them.
///
/// # Safety
/// - `into_raw` and `from_raw` convert a value into a pointer and back, and nothing but `from_raw` or `borrow` uses the
///   pointer.
/// - `borrow` returns a reference that is valid as long as the value is not dropped.
pub unsafe trait Pointer: Sized {
    /// What it points to.
    type Target;
    /// A reference to that; an `Option` of one for an `Option`.
    type Ref<'g>: Copy
    where
        Self: 'g;

    /// The value as a pointer.
    fn into_raw(this: Self) -> *mut Self::Target;

    /// The value of a pointer.
    ///
    /// # Safety
    /// - `at` is a result of `into_raw`, used once.
    unsafe fn from_raw(at: *mut Self::Target) -> Self;

    /// A reference to what the value of a pointer points to.
    ///
    /// # Safety
    /// - `at` is a result of `into_raw`, whose value is not dropped during `'g`.
    unsafe fn borrow<'g>(at: *mut Self::Target) -> Self::Ref<'g>
    where
        Self: 'g;

    /// The pointer of which this is the reference.
    fn as_raw<'g>(this: Self::Ref<'g>) -> *mut Self::Target
    where
        Self: 'g;

    /// The bytes that are freed when the value is dropped, as far as its type tells.
    fn bytes(at: *mut Self::Target) -> usize;
}

/// A value that can be cloned from the pointer: an `Arc`.
///
/// # Safety
/// - `clone_raw` makes another value, and leaves the pointer's as it was.
pub unsafe trait Shared: Pointer {
    /// Another value with the same target.
    ///
    /// # Safety
    /// - `at` is a result of `into_raw`, whose value is not dropped during the call.
    unsafe fn clone_raw(at: *mut Self::Target) -> Self;
}

/// The pointers that are never null.
macro_rules! plain {
    ($($pointer:ident)+) => {
        $(
            // SAFETY: the conversions of the standard library, in both directions.
            unsafe impl<T> Pointer for $pointer<T> {
                type Target = T;
                type Ref<'g>
                    = &'g T
                where
                    T: 'g;

                #[inline(always)]
                fn into_raw(this: Self) -> *mut T {
                    $pointer::into_raw(this) as *mut T
                }

                unsafe fn from_raw(at: *mut T) -> Self {
                    // SAFETY: the caller guarantees a result of `into_raw`, used once.
                    unsafe { $pointer::from_raw(at) }
                }

                #[inline(always)]
                unsafe fn borrow<'g>(at: *mut T) -> &'g T
                where
                    T: 'g,
                {
                    // SAFETY: the caller guarantees a value that lives for `'g`.
                    unsafe { &*at }
                }

                fn as_raw<'g>(this: &'g T) -> *mut T
                where
                    T: 'g,
                {
                    ptr::from_ref(this).cast_mut()
                }

                fn bytes(_at: *mut T) -> usize {
                    size_of::<T>()
                }
            }

            // SAFETY: the standard library guarantees it.
            unsafe impl<T> NeverNull for $pointer<T> {}
        )+
    };
}

plain!(Box Arc);

/// A pointer of which an `Option` can be held: null is its `None`.
///
/// # Safety
/// - `into_raw` returns no null pointer.
pub unsafe trait NeverNull: Pointer {}

// SAFETY: the pointer's own, or null for `None`.
unsafe impl<P: NeverNull> Pointer for Option<P> {
    type Target = P::Target;
    type Ref<'g>
        = Option<P::Ref<'g>>
    where
        P: 'g;

    #[inline(always)]
    fn into_raw(this: Self) -> *mut P::Target {
        this.map_or(ptr::null_mut(), P::into_raw)
    }

    unsafe fn from_raw(at: *mut P::Target) -> Self {
        // SAFETY: not null, so a value's, as the caller guarantees.
        (!at.is_null()).then(|| unsafe { P::from_raw(at) })
    }

    #[inline(always)]
    unsafe fn borrow<'g>(at: *mut P::Target) -> Option<P::Ref<'g>>
    where
        P: 'g,
    {
        // SAFETY: not null, so a value's, as the caller guarantees.
        (!at.is_null()).then(|| unsafe { P::borrow(at) })
    }

    fn as_raw<'g>(this: Option<P::Ref<'g>>) -> *mut P::Target
    where
        P: 'g,
    {
        this.map_or(ptr::null_mut(), P::as_raw)
    }

    fn bytes(at: *mut P::Target) -> usize {
        if at.is_null() { 0 } else { P::bytes(at) }
    }
}

// SAFETY: the count grows by 1 for the new value.
unsafe impl<T> Shared for Arc<T> {
    unsafe fn clone_raw(at: *mut T) -> Self {
        // SAFETY: the caller guarantees an `Arc`'s pointer, and that its value stays during the call.
        unsafe {
            Arc::increment_strong_count(at);
            Arc::from_raw(at)
        }
    }
}

// SAFETY: that of the value, if there is one.
unsafe impl<P: Shared + NeverNull> Shared for Option<P> {
    unsafe fn clone_raw(at: *mut P::Target) -> Self {
        // SAFETY: not null, so a value's, as the caller guarantees.
        (!at.is_null()).then(|| unsafe { P::clone_raw(at) })
    }
}

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
/// # Memory ordering
/// A reader that loads a version sees everything that happened before it was stored.
pub struct Rcu<P: Pointer> {
    at: AtomicPtr<P::Target>,
    domain: &'static Domain,
    owned: PhantomData<P>,
}

// SAFETY: an exchange moves a `P` to another thread, and threads share references to the target.
unsafe impl<P: Pointer + Send> Sync for Rcu<P> where P::Target: Send + Sync {}
// SAFETY: it owns a `P`.
unsafe impl<P: Pointer + Send> Send for Rcu<P> where P::Target: Send + Sync {}
impl<P: Pointer> UnwindSafe for Rcu<P> where P::Target: RefUnwindSafe {}
impl<P: Pointer> RefUnwindSafe for Rcu<P> where P::Target: RefUnwindSafe {}

/// What [`Rcu::compare_and_swap`] found in place of the expected version.
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
    /// A pointer to this version, for guards of the global domain.
    pub fn new(first: P) -> Rcu<P> {
        Rcu::new_in(first, &GLOBAL)
    }

    /// A pointer to this version, for guards of this domain.
    pub fn new_in(first: P, domain: &'static Domain) -> Rcu<P> {
        Rcu { at: AtomicPtr::new(P::into_raw(first)), domain, owned: PhantomData }
    }

    /// The domain whose guards protect it.
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// The current version, valid as long as the guard.
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

    /// The current version, as a value of its own.
    pub fn load_full(&self) -> P
    where
        P: Shared,
    {
        let _guard = self.domain.read();
        // Acquire: as in `load`.
        // SAFETY: as in `load`.
        unsafe { P::clone_raw(self.at.load(Ordering::Acquire)) }
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

    /// Makes `change` of the current version the current one. It is called again if another thread was faster.
    pub fn rcu(&self, mut change: impl for<'g> FnMut(P::Ref<'g>) -> P) {
        let guard = self.domain.read();
        let mut current = self.load(&guard);
        let old = loop {
            match self.exchange_if(current, change(current)) {
                Ok(old) => break old,
                // SAFETY: the current version's pointer, which the guard protects (2).
                Err((found, _)) => current = unsafe { P::borrow(found) },
            }
        };
        // Without the guard, so that it waits at the hard limit.
        drop(guard);
        self.retire(old);
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

/// A version that is current no more. Dropped, it is freed.
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
