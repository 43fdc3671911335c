//! A lazily initialised value: its initialiser runs once, when the value is first needed.
//!
//! # Invariants
//! 1. The cell holds the initialiser exactly while no run has begun, and the value exactly while `once` is complete.
//!    In between, and after a run that did not complete, it holds neither.
//! 2. Only the holder of a claim of `begin_first`, of which there is one in the life of the object, moves the
//!    initialiser out and writes the value. A fork copies the object: each process then has one claim for its own
//!    copy.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::panic::{RefUnwindSafe, UnwindSafe};

use super::{Begin, NotFirst, Once};
use crate::primitive::cell::UnsafeCell;

/// A value that is initialised when it is first needed, by the thread that needs it.
///
/// ```
/// use corelocal::sync::LazyLock;
///
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..10).map(|n| n * n).collect());
///
/// assert_eq!(SQUARES[3], 9);
/// ```
///
/// The initialiser runs once, so it may be `FnOnce` and consume what it captured:
///
/// ```
/// use corelocal::sync::LazyLock;
///
/// let words = vec!["one", "two"];
/// let text = LazyLock::new(move || words.into_iter().map(str::to_owned).collect::<Vec<String>>());
/// assert_eq!(*text, ["one", "two"]);
/// ```
///
/// # Poison
/// If the initialiser panics, the value is poisoned: every later use panics.
///
/// # After fork
/// - If no thread had begun to initialise the value, the child initialises its own.
/// - If another thread of the parent was initialising it, the initialiser is gone with that thread and cannot run
///   again: every use in the child panics. To avoid that, force the value before the fork, or use a
///   [`OnceLock`](crate::sync::OnceLock), where each call brings an initialiser.
/// - If the thread that called fork was initialising it, it continues in the child.
///
/// In case of doubt the initialising thread counts as present, and the child waits for it, as described for
/// [`Mutex`](crate::sync::Mutex#after-fork).
///
/// # Memory ordering
/// What the initialiser did happens before everything that follows a call that returns the value.
pub struct LazyLock<T, F = fn() -> T> {
    once: Once,
    cell: UnsafeCell<Cell<T, F>>,
}

/// `once` tells which field is valid (invariant 1).
union Cell<T, F> {
    init: ManuallyDrop<F>,
    value: ManuallyDrop<T>,
}

// SAFETY: any thread may get `&T`, and one thread may initialise the value that another drops; `F` is used by one
// thread, to which it is moved.
unsafe impl<T: Send + Sync, F: Send> Sync for LazyLock<T, F> {}

// SAFETY: it owns a `T` or an `F`.
unsafe impl<T: Send, F: Send> Send for LazyLock<T, F> {}

impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

// A panic of the initialiser is reported by each later use.
impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}

impl<T, F> LazyLock<T, F> {
    /// # Safety
    /// - The value is initialised.
    #[inline(always)]
    unsafe fn value(&self) -> &T {
        // SAFETY: the value is initialised, and is not written while `self` is shared (invariant 2).
        self.cell.with(|cell| unsafe { &*(*cell).value })
    }
}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    const_fn! {
        /// Creates a value that is not initialised yet.
        pub const fn new(init: F) -> Self {
            let cell = Cell { init: ManuallyDrop::new(init) };
            LazyLock { once: Once::new(), cell: UnsafeCell::new(cell) }
        }
    }

    /// Returns the value, which is initialised now if necessary. Waits while another thread initialises it.
    ///
    /// # Panics
    /// If the initialiser panics, or did so before; if it uses the value itself; and in a forked child, if another
    /// thread of the parent was initialising the value at the [fork](#after-fork).
    #[inline]
    pub fn force(this: &Self) -> &T {
        if !this.once.is_completed() {
            this.make();
        }
        // SAFETY: invariant 1.
        unsafe { this.value() }
    }

    /// Returns the value, if it is initialised.
    #[inline]
    pub fn get(this: &Self) -> Option<&T> {
        // SAFETY: invariant 1.
        this.once.is_completed().then(|| unsafe { this.value() })
    }

    /// Returns the value, if it is initialised.
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        this.once.is_completed_mut().then(|| {
            // SAFETY: invariant 1; `this` is exclusive.
            this.cell.with_mut(|cell| unsafe { &mut *(*cell).value })
        })
    }

    /// Returns the value, which is initialised now if necessary.
    ///
    /// # Panics
    /// As [`force`](Self::force).
    pub fn force_mut(this: &mut Self) -> &mut T {
        Self::force(this);
        match Self::get_mut(this) {
            Some(value) => value,
            None => unreachable!("it was made just now"),
        }
    }

    /// Initialises the value, or waits until another thread has done so.
    #[cold]
    fn make(&self) {
        match self.once.begin_first() {
            Ok(Begin::Done) => (),
            Ok(Begin::Run(claim)) => {
                // SAFETY: the initialiser is in the cell, and is moved out once (invariants 1 and 2).
                let init =
                    self.cell.with_mut(|cell| unsafe { ManuallyDrop::take(&mut (*cell).init) });
                // If it panics, the claim is dropped: the run did not complete.
                let value = ManuallyDrop::new(init());
                // SAFETY: by the holder of the claim (invariant 2).
                self.cell.with_mut(|cell| unsafe { cell.write(Cell { value }) });
                claim.finish();
            }
            Err(NotFirst::CutShort) => {
                panic!("a lazy value is poisoned: its initialiser panicked, and does not run again")
            }
            Err(NotFirst::Gone) => panic!(
                "a lazy value was being made by another thread when the process was forked, and its initialiser cannot run \
                 again in the child: force the value before the fork, or take a `OnceLock`"
            ),
        }
    }
}

impl<T, F> Drop for LazyLock<T, F> {
    fn drop(&mut self) {
        if self.once.is_completed_mut() {
            // SAFETY: invariant 1; nothing is used after this.
            self.cell.with_mut(|cell| unsafe { ManuallyDrop::drop(&mut (*cell).value) });
        } else if self.once.is_new_mut() {
            // SAFETY: invariant 1; nothing is used after this.
            self.cell.with_mut(|cell| unsafe { ManuallyDrop::drop(&mut (*cell).init) });
        }
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        Self::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("LazyLock");
        // SAFETY: invariant 1.
        match self.once.is_completed().then(|| unsafe { self.value() }) {
            Some(value) => tuple.field(value).finish(),
            None => tuple.field(&format_args!("<not made>")).finish(),
        }
    }
}
