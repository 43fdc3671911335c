//! A number for each thread that no other thread ever has: neither a later one, nor one of a forked child.
//!
//! A thread pointer is used again once its thread has ended, and by the threads that a child starts. So each thread
//! draws a number when it is first asked for, and keeps it in its static TLS, which is zero in a new thread:
//!
//! ```text
//!   63                                41   40                     0
//!   process: generation, or process id      how many were drawn, + 1
//! ```
//!
//! # Invariants
//! 1. A serial is never 0, and is the same at every call of a thread, in a child that the thread forked too.
//! 2. A fork copies memory page by page while other threads run. So a child may have a name that a thread wrote, and an
//!    older count. What the process is called differs then, as the child draws its numbers after the fork.

use crate::primitive::global::{AtomicU64, Ordering};
use crate::sys::arch::{self, own_words};
use crate::sys::forks;
use crate::sys::forks::survivor;

const PROCESS_SHIFT: u32 = 41;
/// The bit that marks a process id; smaller numbers are generations.
const IS_PROCESS_ID: u64 = 1 << 22;

const _: () = assert!(own_words::SERIAL % 2 == 0, "an aligned word of 64 bits");

static DRAWN: AtomicU64 = AtomicU64::new(0);

/// Returns the calling thread's; `None` where threads have no words of their own. Async-signal-safe; a load.
#[inline(always)]
pub(crate) fn current() -> Option<u64> {
    let first = arch::own_word(own_words::SERIAL)?;
    // SAFETY: two words of the calling thread, zero at first, aligned (asserted above), of this file alone.
    let word = unsafe { &*first.as_ptr().cast::<AtomicU64>() };
    match word.load(Ordering::Relaxed) {
        0 => Some(draw(word)),
        known => Some(known),
    }
}

/// Returns what this process is called in serials.
fn process() -> u64 {
    match forks::are_told_apart() {
        true => u64::from(forks::generation()),
        false => IS_PROCESS_ID | u64::from(survivor::process_id().unwrap_or_default()),
    }
}

#[cold]
#[inline(never)]
fn draw(word: &AtomicU64) -> u64 {
    let (process, count) = loop {
        let process = process();
        let count = DRAWN.fetch_add(1, Ordering::Relaxed) + 1;
        // Else a signal handler forked in between, and this is the child, where another thread of the parent may have
        // drawn that number.
        if process == self::process() {
            break (process, count);
        }
    };
    let serial = (process << PROCESS_SHIFT) | (count % (1 << PROCESS_SHIFT));
    // Relaxed: of this thread. A signal handler that came in between has drawn one, which stays.
    match word.compare_exchange(0, serial, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => serial,
        Err(known) => known,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own() {
        let Some(mine) = current() else { return };
        assert!(mine != 0 && current() == Some(mine));
        let others: std::vec::Vec<_> =
            (0..4).map(|_| std::thread::spawn(current).join().unwrap()).collect();
        for (at, other) in others.iter().enumerate() {
            assert!(other.is_some_and(|other| other != mine) && !others[..at].contains(other));
        }
    }

    /// The thread that forks keeps its number, and the child draws others.
    #[test]
    fn a_child_keeps_its_own_alone() {
        let Some(mine) = current() else { return };
        // SAFETY: the child makes atomic accesses only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let drawn = draw(&AtomicU64::new(0));
            let is_right = current() == Some(mine)
                && (!forks::are_told_apart() || drawn >> PROCESS_SHIFT != mine >> PROCESS_SHIFT);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: the child is ours, `status` writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
