//! The top of a thread's stack: enough for the functions that called the lock.
//!
//! Invariants: as in `trace.rs`.

use crate::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::profile::trace::Stack;
use crate::sys::sequence::Sequence;
use crate::sys::thread::stack::{self, NAME_BYTES, REGISTERS};

const PIECE_BYTES: usize = 2048;
const WORDS: usize = PIECE_BYTES / size_of::<u64>() - REGISTERS - 2;

/// The registers of a function; `None` on architectures where they are not known.
pub(super) type Registers = Option<[u64; REGISTERS]>;

/// A copy of the top of a stack. All bytes 0 means that there is none.
#[repr(C)]
pub(super) struct Piece {
    sequence: Sequence,
    len: AtomicU64,
    registers: [AtomicU64; REGISTERS],
    words: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Piece>() == PIECE_BYTES);

impl Piece {
    /// Records the stack of a function with these registers.
    ///
    /// # Safety
    /// - That function has called this one, directly or indirectly.
    #[inline(never)]
    pub(super) unsafe fn take(&self, registers: &Registers) {
        let Some(_writing) = self.sequence.write() else { return };
        let len = registers.as_ref().map_or(0, |registers| {
            // SAFETY: the function with these registers is active; the words are whole bytes, and no other thread
            // writes to them (`sys/sequence.rs`, 1).
            unsafe { stack::copy_of(registers, self.words.as_ptr() as *mut u8, WORDS * 8) }
        });
        for (word, register) in self.registers.iter().zip(registers.unwrap_or_default()) {
            word.store(register, Relaxed);
        }
        self.len.store((len / size_of::<u64>()) as u64, Relaxed);
    }

    /// Copies another one.
    pub(super) fn copy_from(&self, other: &Piece) {
        let Some(_writing) = self.sequence.write() else { return };
        let len = other.len();
        self.len.store(len as u64, Relaxed);
        let from = other.registers.iter().chain(&other.words[..len]);
        let to = self.registers.iter().chain(&self.words[..len]);
        to.zip(from).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
    }

    /// Reads it as a stack of this thread; false if there is none, or it is being written.
    pub(super) fn read(&self, thread: (u32, [u8; NAME_BYTES]), into: &mut Stack) -> bool {
        let read = self.sequence.read(|| {
            let word = |word: &AtomicU64| word.load(Relaxed);
            let words = self.words[..self.len()].iter().map(word);
            into.fill(thread, self.registers.iter().map(word), words);
        });
        read.is_some()
    }

    /// Returns the length in words, limited to the capacity, whatever another process wrote.
    fn len(&self) -> usize {
        (self.len.load(Relaxed) as usize).min(WORDS)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::sys::memory::pages;

    fn piece() -> &'static Piece {
        let at = pages::map(PIECE_BYTES).unwrap().cast::<Piece>();
        // SAFETY: zeroed pages, which are never unmapped.
        unsafe { &*at }
    }

    #[test]
    fn what_is_read_is_what_was_taken_and_never_more_than_there_is_room_for() {
        let (one, other) = (piece(), piece());
        let mut stack = std::boxed::Box::new(Stack::EMPTY);
        let who = (7, *b"a name\0\0\0\0\0\0\0\0\0\0");
        assert!(!one.read(who, &mut stack));
        // SAFETY: the registers are those of this function.
        unsafe { one.take(&stack::registers()) };
        other.copy_from(one);
        assert!(one.read(who, &mut stack));
        assert_eq!((stack.thread(), stack.name()), (7, "a name"));
        let (registers, words) = (*stack.registers(), stack.words().to_vec());
        assert!(other.read(who, &mut stack));
        assert_eq!((*stack.registers(), stack.words()), (registers, &*words));
        other.len.store(u64::MAX, Relaxed);
        one.copy_from(other);
        assert!(one.read(who, &mut stack));
        assert_eq!(stack.words().len(), WORDS);
    }
}
