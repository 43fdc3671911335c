//! A cache of objects that are expensive to make: take one, use it, put it back.
//!
//! # Data flow
//! `get` → pop from the core's stack; `put` → push onto it. A thread that finds the stack empty makes a new object,
//! and one that finds it full drops one. Both happen outside of critical sections.
//!
//! # Invariant
//! An object is either in the stack, or held by one caller or guard.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::push_error::PushError;
use super::stack::Stack;
use crate::cid::{self, Busy, Cid, Revocable, SlotIndex};

/// Up to `CAPACITY` idle objects for each core: free buffers, parsers, connections.
///
/// An object that is put back on one core is next used by a thread on the same core, while it is still in that core's
/// cache. Taking and putting back cost a few nanoseconds at any number of threads, for objects of a word; box larger
/// ones. The pool never makes objects on its own initiative. It drops them only in [`put`](Pool::put),
/// [`clear`](Pool::clear) and [`trim`](Pool::trim), and when it is dropped.
///
/// ```
/// use corelocal::percpu::Pool;
///
/// static BUFFERS: Pool<Box<[u8; 65536]>> = Pool::new(|| Box::new([0; 65536]));
///
/// {
///     let mut buffer = BUFFERS.lend();
///     buffer[0] = 1;
/// } // goes back
/// assert_eq!(BUFFERS.len(), 1);
/// ```
///
/// Objects travel between threads, so they must be [`Send`]:
///
/// ```compile_fail,E0277
/// use corelocal::percpu::Pool;
///
/// static POOL: Pool<std::rc::Rc<()>> = Pool::new(Default::default); // `Rc<()>` cannot be sent between threads safely
/// ```
///
/// # Where it may be used
/// Like [`Stack`]: [`try_get`](Pool::try_get) and [`try_put`](Pool::try_put) are async-signal-safe. The others are if
/// making and dropping an object is. The child after `fork` has copies of all idle objects.
///
/// # Memory, memory ordering
/// Like [`Stack`]. An object's last use before it was put back happens before its next use.
pub struct Pool<T: Send + 'static, const CAPACITY: usize = 64, I: SlotIndex = Cid> {
    idle: Stack<T, CAPACITY, I>,
    make: fn() -> T,
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Pool<T, CAPACITY, I> {
    const_fn! {
        /// Creates a pool without objects. `make` makes one when [`get`](Pool::get) finds none.
        pub const fn new(make: fn() -> T) -> Self {
            Pool { idle: Stack::new(), make }
        }
    }

    /// Takes an idle object of this core, the one put back last, or makes a new one.
    ///
    /// Constant time, apart from the maker, which runs outside of critical sections and may do anything.
    ///
    /// # Panics
    /// If the maker panics. The pool stays usable.
    #[inline]
    pub fn get(&self) -> T {
        self.try_get().unwrap_or_else(self.make)
    }

    /// Takes an idle object of this core, the one put back last.
    ///
    /// `None` if there is none. Constant time; see [`Stack::pop`]. Async-signal-safe.
    #[inline]
    pub fn try_get(&self) -> Option<T> {
        self.idle.pop()
    }

    /// Does what [`get`](Pool::get) does. Returns a guard that puts the object back when it is dropped.
    ///
    /// # Panics
    /// As [`get`](Pool::get).
    #[inline]
    pub fn lend(&self) -> Pooled<'_, T, CAPACITY, I> {
        self.adopt(self.get())
    }

    /// Wraps an object of any origin in a guard that puts it back when it is dropped.
    #[inline]
    pub fn adopt(&self, object: T) -> Pooled<'_, T, CAPACITY, I> {
        Pooled { pool: self, object: ManuallyDrop::new(object) }
    }

    /// Puts an object back, or drops it if this core has enough of them.
    ///
    /// Constant time, apart from the drop, which runs outside of critical sections.
    #[inline]
    pub fn put(&self, object: T) {
        drop(self.try_put(object));
    }

    /// Puts an object back.
    ///
    /// Constant time. Async-signal-safe.
    ///
    /// # Errors
    /// Returns the object if this core has enough of them.
    #[inline]
    pub fn try_put(&self, object: T) -> Result<(), PushError<T>> {
        self.idle.push(object)
    }

    /// Returns the approximate number of idle objects, on all cores. Linear in the ids in use.
    pub fn len(&self) -> usize {
        self.idle.len()
    }

    /// Returns `true` if there seem to be no idle objects.
    pub fn is_empty(&self) -> bool {
        self.idle.is_empty()
    }

    /// Returns the maximum number of idle objects on a core.
    pub const fn capacity(&self) -> usize {
        CAPACITY
    }
}

/// Access to other cores, for slots that can be frozen.
impl<T: Send + 'static, const CAPACITY: usize, I: Revocable> Pool<T, CAPACITY, I> {
    /// Drops all idle objects, including those of other cores. Returns their number.
    ///
    /// Costs as much as [`Stack::drain_all`], and the drops. Not for signal handlers.
    ///
    /// # Errors
    /// [`Busy`]: some slot could not be frozen. The objects of all others have been dropped.
    ///
    /// ```
    /// use corelocal::percpu::Pool;
    ///
    /// let pool: Pool<Vec<u8>> = Pool::default();
    /// pool.put(Vec::with_capacity(100));
    /// assert_eq!(pool.clear(), Ok(1));
    /// ```
    pub fn clear(&self) -> Result<usize, Busy> {
        self.idle.drain_all(drop)
    }

    /// Drops idle objects that are unlikely to be used: those in slots beyond the number of cpus that the calling
    /// thread may run on, and those of threads without critical sections. Returns their number.
    ///
    /// For a process that was confined to fewer cpus meanwhile. Costs as much as [`clear`](Pool::clear).
    ///
    /// # Errors
    /// As [`clear`](Pool::clear).
    pub fn trim(&self) -> Result<usize, Busy> {
        self.idle.drain_from(cid::spare::<I>(), drop)
    }
}

/// Creates a pool of `T::default()` objects.
impl<T: Default + Send + 'static, const CAPACITY: usize, I: SlotIndex> Default
    for Pool<T, CAPACITY, I>
{
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> fmt::Debug for Pool<T, CAPACITY, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.len()).field("capacity", &CAPACITY).finish()
    }
}

/// An object from a [`Pool`], which is put back when this is dropped, in its state at that time.
///
/// This also holds for a drop by a panic: [take the object out](Pooled::detach) while it may be left half changed.
#[must_use = "the object goes back to the pool at once"]
pub struct Pooled<'a, T: Send + 'static, const CAPACITY: usize = 64, I: SlotIndex = Cid> {
    pool: &'a Pool<T, CAPACITY, I>,
    /// Invariant: it holds an object, until `detach` or `drop` takes it.
    object: ManuallyDrop<T>,
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Pooled<'_, T, CAPACITY, I> {
    /// Takes the object out for good, so that it is not put back.
    ///
    /// An associated function, so that it does not hide a method of the object.
    #[inline]
    pub fn detach(this: Self) -> T {
        let mut this = ManuallyDrop::new(this);
        // SAFETY: the field holds an object by its invariant, and `drop` will not run.
        unsafe { ManuallyDrop::take(&mut this.object) }
    }
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Drop for Pooled<'_, T, CAPACITY, I> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the field holds an object by its invariant, and is not accessed after a drop.
        self.pool.put(unsafe { ManuallyDrop::take(&mut self.object) });
    }
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Deref for Pooled<'_, T, CAPACITY, I> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> DerefMut
    for Pooled<'_, T, CAPACITY, I>
{
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.object
    }
}

impl<T: Send + fmt::Debug + 'static, const CAPACITY: usize, I: SlotIndex> fmt::Debug
    for Pooled<'_, T, CAPACITY, I>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pooled").field(&**self).finish()
    }
}
