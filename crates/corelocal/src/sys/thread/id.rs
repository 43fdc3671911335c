//! The calling thread's id in the kernel, which the words of robust and priority-inheritance locks contain.
//!
//! `gettid(2)` costs 100 ns, and a lock 10. So a thread caches its id in its static TLS, after the rseq area
//! (`sys/arch`). A forked child has a copy of that memory and another id. So the cached id comes with the generation
//! of its process (`sys/forks.rs`), and is valid in that generation only.
//!
//! # Invariants
//! 1. The cached id is that of the thread in the generation beside it, which is written last. A signal handler that
//!    interrupts in between finds another generation, and asks the kernel.
//! 2. Nothing is cached where forks cannot be distinguished.
//! 3. A block belongs to its thread: other threads do not access it.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::compiler_fence;

use super::robust_list::Head;
use crate::primitive::global::{AtomicPtr, AtomicU32, Ordering};
use crate::sys::arch::{self, own_words};
use crate::sys::errno::Errno;
use crate::sys::forks;
use crate::sys::syscall::syscall;

/// The bits of a lock's word that hold a thread's number.
pub(crate) const MASK: u32 = libc::FUTEX_TID_MASK;

/// A thread's record of its own identity. All bytes 0 is an empty one.
#[repr(C)]
pub(in crate::sys) struct Block {
    /// The generation of the process in which the record is valid.
    generation: AtomicU32,
    number: AtomicU32,
    /// The head of the thread's robust list. Null until it is first needed.
    pub(in crate::sys) head: AtomicPtr<Head>,
    /// The number of robust locks that the thread may still take before its list is counted again (`robust_list.rs`).
    pub(in crate::sys) uncounted: AtomicU32,
    /// The robust list's head for a thread whose libc has none.
    pub(in crate::sys) own_head: UnsafeCell<Head>,
}

const _: () = assert!(own_words::NUMBER % 2 == 0, "a block has pointers");
const _: () = assert!(size_of::<Block>() <= 4 * (own_words::SERIAL - own_words::NUMBER));

impl Block {
    /// Returns the calling thread's, where there is static TLS.
    #[inline(always)]
    fn of_this_thread() -> Option<&'static Block> {
        let first = arch::own_word(own_words::NUMBER)?;
        // SAFETY: words of the calling thread, zero at first, aligned as the area is, so many that there is
        // room for it, and an even number of them before it (asserted above). (3)
        Some(unsafe { &*first.as_ptr().cast::<Block>() })
    }

    /// Returns the calling thread's, with all in it true now; `None` if nothing can be remembered (2).
    #[inline(always)]
    pub(in crate::sys) fn current() -> Option<&'static Block> {
        let block = Self::of_this_thread()?;
        if block.generation.load(Ordering::Relaxed) == forks::generation() {
            return Some(block);
        }
        block.renewed()
    }

    #[cold]
    #[inline(never)]
    fn renewed(&self) -> Option<&Block> {
        if !forks::are_told_apart() {
            return None;
        }
        let generation = forks::generation();
        let number = ask();
        forks::note_number(number);
        self.number.store(number, Ordering::Relaxed);
        self.head.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.uncounted.store(0, Ordering::Relaxed);
        // Partner: a signal handler in this thread. (1)
        compiler_fence(Ordering::Release);
        self.generation.store(generation, Ordering::Relaxed);
        Some(self)
    }

    /// Returns the thread's number.
    #[inline(always)]
    pub(in crate::sys) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }
}

/// Returns the calling thread's number: never 0, and within [`MASK`]. Async-signal-safe.
#[inline]
pub(crate) fn current() -> u32 {
    match Block::current() {
        Some(block) => block.number(),
        None => ask_and_note(),
    }
}

/// Calls `gettid()`, see gettid(2).
#[doc(alias = "gettid")]
#[cold]
fn ask() -> u32 {
    // SAFETY: no arguments. The call cannot fail.
    let number = unsafe { syscall(libc::SYS_gettid, [0; 6]) };
    number.map_or(MASK, |number| number as u32)
}

/// Returns the number of a thread that remembers none.
#[cold]
fn ask_and_note() -> u32 {
    let number = ask();
    forks::note_number(number);
    number
}

/// The thread that an owner's number in a private object belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A thread of this process; also assumed in doubt.
    Present,
    /// A thread that has ended, in a process that is no fork.
    Ended,
    /// A thread that has ended, or that a fork left behind.
    Gone,
    /// The calling thread, which forked, under the number that it had in the parent.
    Mine,
    /// The thread that forked, under its number in the parent; another thread asks.
    First,
}

/// See [`Whose`].
#[cold]
pub(crate) fn whose(number: u32) -> Whose {
    if !is_stranger(number) || is_guest() {
        Whose::Present
    } else if !forks::are_told_apart() {
        // It may be a thread of the parent's: in doubt a lock counts as held.
        Whose::Present
    } else if forks::generation() == 1 {
        Whose::Ended
    } else if !forks::may_be_number_of_first(number) {
        Whose::Gone
    } else if forks::is_first_thread() {
        Whose::Mine
    } else {
        Whose::First
    }
}

/// Returns `true` if the calling thread is a child of `vfork` in its parent's memory, whose threads are none of its
/// own. `false` where threads remember nothing.
fn is_guest() -> bool {
    Block::current().is_some_and(|block| block.number() != ask())
}

/// Calls `tgkill(getpid(), number, 0)`, see tgkill(2).
///
/// Whether this number is that of no thread of this process. `false` if the kernel does not say.
#[doc(alias = "tgkill")]
#[cold]
pub(crate) fn is_stranger(number: u32) -> bool {
    // SAFETY: no preconditions.
    let process = unsafe { libc::getpid() } as usize;
    // Signal number 0 only checks whether the thread exists.
    let args = [process, number as c_int as usize, 0, 0, 0, 0];
    // SAFETY: no addresses.
    let found = unsafe { syscall(libc::SYS_tgkill, args) };
    found == Err(Errno::ESRCH)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn asked() -> u32 {
        // SAFETY: no preconditions.
        unsafe { libc::gettid() as u32 }
    }

    #[test]
    fn each_thread_knows_its_number() {
        assert_eq!(current(), asked());
        let other = std::thread::spawn(|| {
            assert_eq!((current(), current()), (asked(), asked()));
            assert!(!is_stranger(current()));
            current()
        });
        let number = other.join().unwrap();
        assert!(number != current());
    }

    #[test]
    fn who_is_a_stranger() {
        assert!(!is_stranger(current()));
        // More than the kernel gives out: 2^22.
        assert!(is_stranger(MASK));
    }

    #[test]
    fn a_child_knows_its_own_number() {
        let before = current();
        // SAFETY: the child makes system calls and atomic accesses.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = current() == asked() && current() != before && is_stranger(before);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = -1;
        // SAFETY: the child is ours, `status` writable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(current(), before);
    }
}
