//! Typed storage with a value for each core.
//!
//! # Data flow
//! `get` → offset of this thread's slot, read in place → the slot's value, if it exists. This takes five loads (cpu
//! or id, its place in the table, the table's entry, the base, the state) and no critical section, since a shared
//! reference excludes no other thread. At first use the value is made on the thread's stack and copied into the slot.
//! Threads without a slot use a shared slot's value in the same way. If there is no memory, they use one inside the
//! object.
//!
//! # Invariants
//! 1. A value is made before a shard is claimed for it. So an initialiser may panic or call `get` of the same object.
//! 2. A shard that another thread is filling is passed over. A thread waits only for the last one, inside the object.
//! 3. Values stay where they are until an owner of the whole object takes them.
//! 4. A value is on the stack once, in the frame of `make`. Functions below get its address. A `T` may be as long as
//!    a core's shard, and stacks are not much longer.

mod iter;

use core::fmt;

use super::machinery::lazy_block::Owned;
use super::once_slot::{Filled, OnceSlot, drop_each};
use super::remote::Walk;
use super::shard::Shard;
use crate::cid::{Cid, SlotIndex};
pub use iter::{IntoIter, Iter, IterMut};

/// A `T` for each core that uses it.
///
/// The function given to [`new`](PerCpu::new) makes the value when a core first asks for it. Other threads may use
/// the value that [`get`] returns at the same time: those that run on this core next, and those that iterate over all
/// values. So `T` must be usable from several threads, like an atomic or a lock. The gain is that contention is rare.
/// For exclusive access use [`Lock`](super::Lock).
///
/// `I` chooses what indexes the slots. The default is right unless the number of the cpu matters.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use corelocal::percpu::PerCpu;
///
/// #[derive(Default)]
/// struct Traffic {
///     packets: AtomicU64,
///     bytes: AtomicU64,
/// }
///
/// static TRAFFIC: PerCpu<Traffic> = PerCpu::new(Traffic::default);
///
/// let here = TRAFFIC.get();
/// here.packets.fetch_add(1, Ordering::Relaxed);
/// here.bytes.fetch_add(1500, Ordering::Relaxed);
///
/// let bytes = TRAFFIC.fold(0, |sum, traffic| sum + traffic.bytes.load(Ordering::Relaxed));
/// assert_eq!(bytes, 1500);
/// ```
///
/// # The initialiser
/// It may run more often than values are needed: if two threads come first to one core, both make a value, and one is
/// dropped. If it panics the object is unchanged, and the next caller tries again. It may use the same object only if
/// that recursion ends: while it runs there is no value yet.
///
/// # Where it may be used
/// In any thread, registered or not, and in the child after `fork`, which has copies of all values. A signal handler
/// may call [`try_get`](PerCpu::try_get) if the initialiser is async-signal-safe, and [`get`](PerCpu::get) if the
/// value exists already.
///
/// # Memory
/// On each core used, the size of `T` and of a word, rounded up to a power of two; in the object, the size of `T` and
/// a few words. While a value is made, its size on the stack of the thread that makes it, or twice that in a build
/// without optimization. The values of two cores never share a cache line. A `T` of more than 1 MiB or with an
/// alignment above 4096 does not compile.
///
/// # Memory ordering
/// What the initialiser wrote happens before every access to the value. Otherwise `T` orders its own accesses.
///
/// A `T` that threads may not share, or that another thread may not drop, does not compile:
///
/// ```compile_fail,E0277
/// static CELLS: corelocal::percpu::PerCpu<std::cell::Cell<u32>> =
///     corelocal::percpu::PerCpu::new(|| std::cell::Cell::new(0));
/// ```
///
/// ```compile_fail,E0277
/// let guards: corelocal::percpu::PerCpu<std::sync::MutexGuard<'static, u32>>;
/// ```
///
/// [`get`]: PerCpu::get
pub struct PerCpu<T: Send + Sync + 'static, I: SlotIndex = Cid> {
    slots: Owned<OnceSlot<T>, I>,
    inside: OnceSlot<T>,
    init: fn() -> T,
}

/// This core has no value: see [`PerCpu::try_get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no value for this core: no memory for it, or others are just putting it there")
    }
}

impl core::error::Error for Unavailable {}

impl<T: Send + Sync + 'static, I: SlotIndex> PerCpu<T, I> {
    const_fn! {
        /// Creates an object without values. `init` makes one for each core that asks.
        pub const fn new(init: fn() -> T) -> Self {
            PerCpu { slots: Owned::new(), inside: OnceSlot::new(), init }
        }
    }

    /// Returns the value of the core that this thread runs on, made now if it does not exist.
    ///
    /// It is a hint: when it is used the thread may be on another core, and another thread on this one. Where the
    /// kernel provides no memory for slots all threads get one value inside the object.
    ///
    /// A nanosecond or two. At first use, the initialiser's time and microseconds for the slot.
    ///
    /// # Panics
    /// If the initialiser panics. The object stays usable.
    #[inline]
    pub fn get(&self) -> &T {
        let near = self.slots.near();
        match near.and_then(OnceSlot::get) {
            Some(value) => value,
            None => self.get_cold(near),
        }
    }

    /// Does what [`get`](PerCpu::get) does, but never returns the value that all threads share.
    ///
    /// Never waits. Async-signal-safe if the initialiser is.
    ///
    /// # Errors
    /// - The kernel provides no memory for slots.
    /// - Other threads are just storing both this core's value and the one to fall back to, and a signal handler
    ///   cannot wait for them.
    ///
    /// # Panics
    /// If the initialiser panics. The object stays usable.
    #[inline]
    pub fn try_get(&self) -> Result<&T, Unavailable> {
        let near = self.slots.near();
        match near.and_then(OnceSlot::get) {
            Some(value) => Ok(value),
            None => self.make(near, false).ok_or(Unavailable),
        }
    }

    #[cold]
    fn get_cold(&self, near: Option<&'static OnceSlot<T>>) -> &T {
        loop {
            // Runs at most once: with `inside` a place is always found.
            if let Some(value) = self.make(near, true) {
                return value;
            }
        }
    }

    /// Makes a value and stores it near, in a shared slot if another thread fills the near one (invariant 2), or
    /// `inside`. `None` if neither is available.
    ///
    /// The value is moved once, from this function's frame into the slot (invariant 4).
    #[cold]
    #[inline(never)]
    fn make(&self, near: Option<&'static OnceSlot<T>>, inside: bool) -> Option<&T> {
        if near.is_none() {
            match inside {
                true => {
                    if let Some(value) = self.inside.get() {
                        return Some(value);
                    }
                }
                false => return None,
            }
        }
        let candidate = (self.init)();
        // SAFETY: the candidate is forgotten below if it was moved.
        match unsafe { self.place(near, &raw const candidate, inside) } {
            Filled::Moved(value) => {
                core::mem::forget(candidate);
                Some(value)
            }
            Filled::Before(value) => Some(value),
            Filled::Busy => None,
        }
    }

    /// Stores the candidate. [`Filled::Busy`] if no place is available.
    ///
    /// # Safety
    /// - As [`OnceSlot::fill`].
    unsafe fn place(
        &self,
        near: Option<&'static OnceSlot<T>>,
        candidate: *const T,
        inside: bool,
    ) -> Filled<'_, T> {
        if let Some(near) = near {
            let shared = || self.slots.share();
            for slot in [Some(near)].into_iter().chain(core::iter::once_with(shared)).flatten() {
                // SAFETY: the caller keeps the conditions of `OnceSlot::fill`.
                match unsafe { slot.fill(candidate) } {
                    Filled::Busy => {}
                    filled => return filled,
                }
            }
        }
        match inside {
            // SAFETY: the caller keeps the conditions of `OnceSlot::fill`.
            true => unsafe { self.inside.fill_patiently(candidate) },
            false => Filled::Busy,
        }
    }

    /// Returns the value of this slot (see [`crate::cid`]), if it exists.
    ///
    /// ```
    /// use corelocal::percpu::PerCpu;
    ///
    /// let names: PerCpu<String> = PerCpu::new(|| String::from("here"));
    /// assert_eq!(names.get_slot(0), None);
    /// ```
    pub fn get_slot(&self, slot: u32) -> Option<&T> {
        self.slots.slot(slot)?.get()
    }

    /// Returns all existing values, each once. Values made meanwhile may be included.
    ///
    /// Linear in the slots in use, each of which costs a cache miss.
    pub fn iter(&self) -> Iter<'_, T, I> {
        Iter::new(self)
    }

    /// Returns all existing values, with their shards.
    ///
    /// ```
    /// use corelocal::percpu::PerCpu;
    ///
    /// let names: PerCpu<String> = PerCpu::new(|| String::from("here"));
    /// names.get();
    /// for (part, name) in names.shards() {
    ///     println!("{part:?}: {name}");
    /// }
    /// # assert_eq!(names.shards().count(), 1);
    /// ```
    pub fn shards(&self) -> impl Iterator<Item = (Shard, &T)> {
        let mut iter = self.iter();
        core::iter::from_fn(move || iter.next_part())
    }

    /// Folds all existing values into one.
    pub fn fold<A>(&self, first: A, f: impl FnMut(A, &T) -> A) -> A {
        self.iter().fold(first, f)
    }

    /// Returns all existing values, mutably.
    ///
    /// ```
    /// use corelocal::percpu::PerCpu;
    ///
    /// let mut names: PerCpu<String> = PerCpu::default();
    /// names.get();
    /// names.iter_mut().for_each(|name| name.push('!'));
    /// assert_eq!(names.get(), "!");
    /// ```
    pub fn iter_mut(&mut self) -> IterMut<'_, T, I> {
        IterMut::new(self)
    }
}

/// Creates an object whose values are `T::default()`.
impl<T: Default + Send + Sync + 'static, I: SlotIndex> Default for PerCpu<T, I> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: fmt::Debug + Send + Sync + 'static, I: SlotIndex> fmt::Debug for PerCpu<T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.shards()).finish()
    }
}

impl<T: Send + Sync + 'static, I: SlotIndex> Drop for PerCpu<T, I> {
    fn drop(&mut self) {
        if core::mem::needs_drop::<T>() {
            let mut walk = Walk::new();
            drop_each(|| {
                let Some((_, slot)) = walk.next(&self.slots, &self.inside) else { return false };
                // SAFETY: `&mut self` is exclusive access to all parts.
                unsafe { slot.drop_in_place() };
                true
            });
        }
    }
}

impl<T: Send + Sync + 'static, I: SlotIndex> PerCpu<T, I> {
    fn take_next(&mut self, walk: &mut Walk) -> Option<T> {
        while let Some((_, slot)) = walk.next(&self.slots, &self.inside) {
            // SAFETY: `&mut self` is exclusive access to all parts.
            if let Some(value) = unsafe { slot.take() } {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    #[test]
    fn what_happens_while_others_fill() {
        static FILLED: OnceSlot<String> = OnceSlot::new();
        FILLED.claim();
        let names: PerCpu<String> = PerCpu::new(|| String::from("name"));
        // The shared slot is used, and used again.
        let first: *const String = names.get_cold(Some(&FILLED));
        assert_eq!(first, names.make(Some(&FILLED), false).unwrap() as *const String);
        assert_eq!(
            names.shards().filter(|(shard, _)| matches!(shard, Shard::Shared(_))).count(),
            1
        );
        // Then the one inside.
        let others: PerCpu<String> = PerCpu::new(|| String::from("other"));
        others.slots.share().expect("memory").claim();
        assert!(others.make(Some(&FILLED), false).is_none());
        assert_eq!(others.get_cold(Some(&FILLED)), "other");
        assert_eq!(others.shards().next(), Some((Shard::Inline, &String::from("other"))));
    }

    #[test]
    fn without_memory_there_is_one() {
        let names: PerCpu<String> = PerCpu::new(|| String::from("name"));
        let first: *const String = names.get_cold(None);
        assert_eq!(first, names.get_cold(None) as *const String);
        assert!(names.make(None, false).is_none());
        assert_eq!(names.shards().collect::<Vec<_>>(), [(Shard::Inline, &String::from("name"))]);
        names.get();
        assert_eq!(names.iter().count(), 2);
        assert!(format!("{names:?}").contains("Inline"), "{names:?}");
        assert_eq!(names.into_iter().count(), 2);
    }

    #[test]
    fn any_type() {
        #[repr(align(256))]
        struct Wide(#[allow(dead_code, reason = "for its size")] u8);
        let wide: PerCpu<Wide> = PerCpu::new(|| Wide(1));
        assert_eq!(core::ptr::from_ref(wide.get()) as usize % 256, 0);
        assert_eq!(core::ptr::from_ref(wide.get_cold(None)) as usize % 256, 0);
        let nothing: PerCpu<()> = PerCpu::default();
        nothing.get();
        assert_eq!(nothing.iter().count(), 1);
        let long: PerCpu<[u64; 1000]> = PerCpu::new(|| [7; 1000]);
        assert_eq!(long.get()[999], 7);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitive::atomic::{AtomicU32, Ordering};
    use loom::sync::Arc;
    use loom::thread;

    /// Two threads come first: both get a value, and no addition is lost.
    #[test]
    fn loom_two_first_uses() {
        loom::model(|| {
            let sums = Arc::new(PerCpu::<AtomicU32, Cid>::new(|| AtomicU32::new(0)));
            let other = sums.clone();
            let thread = thread::spawn(move || {
                other.get().fetch_add(1, Ordering::Relaxed);
            });
            sums.get().fetch_add(2, Ordering::Relaxed);
            thread.join().unwrap();
            assert_eq!(sums.fold(0, |sum, n| sum + n.load(Ordering::Relaxed)), 3);
        });
    }
}
