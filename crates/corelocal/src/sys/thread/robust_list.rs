//! The robust list: a thread's locks, which the kernel walks when the thread ends at any instruction.
//!
//! A thread has one such list. libc has it already, for its own robust mutexes. So this library's locks are entries
//! of the same list, in libc's format: glibc and musl link in both directions, and removing an entry writes to its
//! neighbours of either kind.
//!
//! ```text
//!   head:  list -> next -> next -> list          an entry is the address of its `next`; bit 0 of such a
//!          futex_offset                          pointer says that the lock inherits priority
//!          pending                               prev lies right before next
//! ```
//!
//! The lock's word lies `futex_offset` bytes from the entry, the same for all entries. So this library's locks have
//! libc's layout: the word 32 bytes before the entry (glibc), or 28 (musl). Processes that share memory must use the
//! same kind of libc, or at most one kind of robust mutexes.
//!
//! A thread publishes the lock that it is about to lock or unlock as `pending`, for the moments in which the word and
//! the list disagree.
//!
//! # The longest list
//! The kernel walks the first [`MOST`] entries, and leaves the locks after them as they are: the oldest ones. So this
//! library does not take a lock if the list has that many. Libc's locks are in the same list and count too, but libc
//! takes its own without counting. The list is counted again after as many locks as half of the remaining room. So
//! all of this library's locks are within the kernel's reach, as long as libc does not fill the other half in that
//! time.
//!
//! # Invariants
//! 1. The kernel may find any store to be the last one. Compiler fences keep the stores in order. Fences of the cpu
//!    are not needed, since it is the thread itself that dies. All these fences are partners of each other.
//! 2. Only the thread itself walks and changes its list. The links of an entry in shared memory are meaningless to
//!    others, and written again by the next owner.
//! 3. An entry is in its owner's list only. While it is in there, it is neither moved nor freed.
//! 4. The `prev` of the head is never written: musl's head has none.
//!
//! Manual pages: get_robust_list(2); Documentation/locking/robust-futex-ABI.rst.

#[cfg(not(loom))]
use super::id::{self, Block};
#[cfg(not(loom))]
use crate::primitive::atomic::AtomicU32;
use crate::primitive::atomic::{AtomicPtr, Ordering};
#[cfg(not(loom))]
use crate::sys::errno::Errno;
#[cfg(not(loom))]
use crate::sys::syscall::syscall;
use core::sync::atomic::compiler_fence;

/// The distance from an entry to its lock's word.
pub(crate) const FUTEX_OFFSET: isize = if cfg!(target_env = "musl") { -28 } else { -32 };
/// The number of entries that the kernel walks when a thread ends (`ROBUST_LIST_LIMIT`, `uapi/linux/futex.h`).
pub(crate) const MOST: u32 = 2048;
/// The bit in a pointer to an entry that says that the lock inherits priority.
const INHERITS: usize = 1;

/// The address of the `next` of [`Links`], or of a head's `list`.
pub(crate) type Entry = *mut u8;

/// The kernel's `struct robust_list_head`.
#[repr(C)]
pub(crate) struct Head {
    pub(crate) list: AtomicPtr<u8>,
    pub(crate) futex_offset: isize,
    pub(crate) pending: AtomicPtr<u8>,
}

/// A lock's place in its owner's list.
#[repr(C)]
pub(crate) struct Links {
    prev: AtomicPtr<u8>,
    next: AtomicPtr<u8>,
}

impl Links {
    const_fn! {
        pub(crate) const fn new() -> Self {
            let null = core::ptr::null_mut();
            Links { prev: AtomicPtr::new(null), next: AtomicPtr::new(null) }
        }
    }

    /// Returns what stands for it in a list. The pointer may be used for `prev` too.
    #[inline(always)]
    pub(crate) fn entry(&self) -> Entry {
        core::ptr::from_ref(self).cast::<AtomicPtr<u8>>().wrapping_add(1).cast_mut().cast()
    }
}

/// As a pointer in a list says it.
#[inline(always)]
fn tagged(entry: Entry, inherits: bool) -> *mut u8 {
    entry.map_addr(|addr| addr | if inherits { INHERITS } else { 0 })
}

#[inline(always)]
fn untagged(pointer: *mut u8) -> Entry {
    pointer.map_addr(|addr| addr & !INHERITS)
}

/// # Safety
/// - `entry` is that of links or of a head.
#[inline(always)]
unsafe fn next_of<'a>(entry: Entry) -> &'a AtomicPtr<u8> {
    // SAFETY: an entry is the address of its `next`; it is valid (3).
    unsafe { &*entry.cast() }
}

/// # Safety
/// - `entry` is that of links.
#[inline(always)]
unsafe fn prev_of<'a>(entry: Entry) -> &'a AtomicPtr<u8> {
    // SAFETY: `prev` lies right before `next`; the entry is valid (3).
    unsafe { &*entry.cast::<AtomicPtr<u8>>().wrapping_sub(1) }
}

/// The calling thread and its list. `pub` because a public trait takes it; it cannot be named outside of the crate.
#[derive(Clone, Copy)]
pub struct Thread<'a> {
    pub(crate) number: u32,
    head: &'a Head,
    /// The number of locks that it may still take before the list is counted again; `None` where that cannot be stored.
    #[cfg(not(loom))]
    uncounted: Option<&'a AtomicU32>,
    /// The number of steps until the model's thread dies.
    #[cfg(all(test, loom))]
    life: &'a core::cell::Cell<usize>,
}

/// Ends a thread of a model, as the payload of a panic.
#[cfg(all(test, loom))]
pub(crate) struct Death;

impl Thread<'static> {
    /// Returns the calling thread, if it remembers its list; else [`find`](Self::find) finds it.
    ///
    /// The two are separate so that what is remembered stays in registers: in a `Result` with an error number the
    /// compiler stores a pointer in two halves and loads it whole, which costs some cpus 20 ns.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn known() -> Option<Self> {
        let block = Block::current()?;
        // SAFETY: null, or the head of this thread, which is there as long as the thread is.
        let head = unsafe { block.head.load(Ordering::Relaxed).as_ref() }?;
        Some(Thread { number: block.number(), head, uncounted: Some(&block.uncounted) })
    }

    /// Returns the calling thread, whose list the kernel is asked for.
    ///
    /// # Errors
    /// Of get_robust_list(2) and set_robust_list(2), where the kernel or a filter has none; `EINVAL` if the
    /// list is that of a libc whose mutexes are laid out in another way.
    #[cfg(not(loom))]
    #[cold]
    #[inline(never)]
    pub(crate) fn find() -> Result<Self, Errno> {
        find()
    }
}

#[cfg(not(loom))]
fn find() -> Result<Thread<'static>, Errno> {
    let mut head = registered()?;
    if head.is_null() && cfg!(target_env = "musl") {
        make_libc_register();
        head = registered()?;
    }
    let block = Block::current();
    if head.is_null() {
        head = register_own(block.ok_or(Errno::ENOSYS)?)?;
    }
    // SAFETY: the kernel's word for it: this thread's head, there as long as the thread is.
    let head: &'static Head = unsafe { &*head };
    if head.futex_offset != FUTEX_OFFSET {
        return Err(Errno::EINVAL);
    }
    if let Some(block) = block {
        block.head.store(core::ptr::from_ref(head).cast_mut(), Ordering::Relaxed);
    }
    let uncounted = block.map(|block| &block.uncounted);
    Ok(Thread { number: id::current(), head, uncounted })
}

/// Calls `get_robust_list(0, &head, &len)`, see get_robust_list(2).
///
/// The head that the kernel knows of this thread; null if none.
#[doc(alias = "get_robust_list")]
#[cfg(not(loom))]
fn registered() -> Result<*mut Head, Errno> {
    let (mut head, mut len) = (core::ptr::null_mut::<Head>(), 0usize);
    let args = [0, &raw mut head as usize, &raw mut len as usize, 0, 0, 0];
    // SAFETY: the kernel writes to the two words given.
    unsafe { syscall(libc::SYS_get_robust_list, args) }?;
    Ok(head)
}

/// musl registers at a thread's first mutex that is shared by processes. Were ours registered before, it would be lost
/// then.
#[cfg(not(loom))]
fn make_libc_register() {
    let mut kind = core::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let mut mutex = core::mem::MaybeUninit::<libc::pthread_mutex_t>::uninit();
    // SAFETY: both are initialised before they are used, by the first call that gets them; the mutex is
    // unlocked before it goes.
    unsafe {
        libc::pthread_mutexattr_init(kind.as_mut_ptr());
        libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
        libc::pthread_mutexattr_setpshared(kind.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_mutex_init(mutex.as_mut_ptr(), kind.as_ptr());
        if libc::pthread_mutex_lock(mutex.as_mut_ptr()) == 0 {
            libc::pthread_mutex_unlock(mutex.as_mut_ptr());
        }
        libc::pthread_mutex_destroy(mutex.as_mut_ptr());
        libc::pthread_mutexattr_destroy(kind.as_mut_ptr());
    }
}

/// Calls `set_robust_list(head, sizeof head)`, see set_robust_list(2).
///
/// A list of our own: for a thread that libc did not start, or a child that libc did not fork.
#[doc(alias = "set_robust_list")]
#[cfg(not(loom))]
fn register_own(block: &'static Block) -> Result<*mut Head, Errno> {
    // SeqCst, with the fence: the kernel has the list only after another thread can see this. Partner: the Acquire in
    // `first_thread` of `forks/survivor.rs`, after a look at the list.
    crate::sys::forks::survivor::HAS_OWN_LIST.store(true, Ordering::SeqCst);
    core::sync::atomic::fence(Ordering::SeqCst);
    let head = block.own_head.get();
    // SAFETY: the thread's own memory, to which references are made in `find` only, after this. The kernel
    // keeps the address for as long as the thread lives.
    unsafe {
        (*head).list.store(head.cast(), Ordering::Relaxed);
        (&raw mut (*head).futex_offset).write(FUTEX_OFFSET);
        (*head).pending.store(core::ptr::null_mut(), Ordering::Relaxed);
        syscall(libc::SYS_set_robust_list, [head as usize, size_of::<Head>(), 0, 0, 0, 0])?;
    }
    Ok(head)
}

impl<'a> Thread<'a> {
    /// Returns what stands for the head at the list's end.
    #[inline(always)]
    fn end(self) -> Entry {
        core::ptr::from_ref(self.head).cast_mut().cast()
    }

    /// Returns `true` if the kernel would find one more lock of this thread. To be asked before each lock.
    #[inline(always)]
    pub(crate) fn has_room(self) -> bool {
        #[cfg(not(loom))]
        {
            // Relaxed: of this thread alone.
            let left = self.uncounted.map_or(0, |uncounted| uncounted.load(Ordering::Relaxed));
            match (left, self.uncounted) {
                (1.., Some(uncounted)) => uncounted.store(left - 1, Ordering::Relaxed),
                _ => return self.count(),
            }
        }
        true
    }

    /// Counts the list; false if it is as long as it may be.
    #[cfg(not(loom))]
    #[cold]
    #[inline(never)]
    fn count(self) -> bool {
        let (mut length, mut at) = (0, untagged(self.head.list.load(Ordering::Relaxed)));
        while at != self.end() {
            length += 1;
            if length == MOST {
                return false;
            }
            // SAFETY: an entry of this thread's list that is not its head. (3)
            at = untagged(unsafe { next_of(at) }.load(Ordering::Relaxed));
        }
        if let Some(uncounted) = self.uncounted {
            // One of them is the lock that is asked for.
            uncounted.store((MOST - length).div_ceil(2) - 1, Ordering::Relaxed);
        }
        true
    }

    /// Says that the lock of this entry is being locked or unlocked.
    #[inline(always)]
    pub(crate) fn publish(self, entry: Entry, inherits: bool) {
        self.head.pending.store(tagged(entry, inherits), Ordering::Relaxed);
        self.step();
    }

    /// Says that it is done.
    #[inline(always)]
    pub(crate) fn withdraw(self) {
        compiler_fence(Ordering::SeqCst);
        self.head.pending.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.step();
    }

    /// Puts a lock that was just locked, and is pending, into the list: first, as libc does.
    ///
    /// # Safety
    /// - The links are in no list, and stay where they are until they are taken out.
    #[inline(always)]
    pub(crate) unsafe fn link(self, links: &Links, inherits: bool) {
        let (entry, end) = (links.entry(), self.end());
        let first = self.head.list.load(Ordering::Relaxed);
        links.next.store(first, Ordering::Relaxed);
        links.prev.store(end, Ordering::Relaxed);
        if untagged(first) != end {
            // SAFETY: an entry of this thread's list that is not its head. (3, 4)
            unsafe { prev_of(untagged(first)) }.store(entry, Ordering::Relaxed);
        }
        self.step();
        self.head.list.store(tagged(entry, inherits), Ordering::Relaxed);
        self.step();
    }

    /// Takes a lock that is pending out of the list, before it is unlocked.
    ///
    /// # Safety
    /// - The links are in this thread's list.
    #[inline(always)]
    pub(crate) unsafe fn unlink(self, links: &Links) {
        let prev = links.prev.load(Ordering::Relaxed);
        let next = links.next.load(Ordering::Relaxed);
        if untagged(next) != self.end() {
            // SAFETY: an entry of this thread's list that is not its head. (3, 4)
            unsafe { prev_of(untagged(next)) }.store(prev, Ordering::Relaxed);
        }
        // SAFETY: an entry of this thread's list, or its head. (3)
        unsafe { next_of(untagged(prev)) }.store(next, Ordering::Relaxed);
        self.step();
    }

    /// The end of a step: what was stored is stored, and the thread may die here. (1)
    #[inline(always)]
    pub(crate) fn step(self) {
        compiler_fence(Ordering::SeqCst);
        #[cfg(all(test, loom))]
        match self.life.get() {
            0 => std::panic::resume_unwind(std::boxed::Box::new(Death)),
            left => self.life.set(left - 1),
        }
    }
}

#[cfg(all(test, loom))]
impl<'a> Thread<'a> {
    /// Returns a thread of a model that dies after so many steps.
    pub(crate) fn in_model(number: u32, head: &'a Head, life: &'a core::cell::Cell<usize>) -> Self {
        let thread = Thread { number, head, life };
        head.list.store(thread.end(), Ordering::Relaxed);
        thread
    }

    /// Calls `f` with what the kernel finds when the thread dies: every entry but the pending one, then that
    /// one, and whether it is that one.
    pub(crate) fn walk(self, mut f: impl FnMut(Entry, bool)) {
        let pending = untagged(self.head.pending.load(Ordering::Relaxed));
        let mut at = untagged(self.head.list.load(Ordering::Relaxed));
        while at != self.end() {
            // Before the lock may go to another thread, which links it again. SAFETY: an entry in the list (invariant
            // 3).
            let next = untagged(unsafe { next_of(at) }.load(Ordering::Relaxed));
            if at != pending {
                f(at, false);
            }
            at = next;
        }
        if !pending.is_null() {
            f(pending, true);
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
