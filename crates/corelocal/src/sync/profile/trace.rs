//! A copy of the stack of a thread that waited longer, or delayed others longer, than any before it.
//!
//! The frames are recovered by an observer that can read the program's files: see `sys/thread/stack.rs`. Threads of one
//! process write it; other processes read it.
//!
//! # Invariants
//! 1. All fields except the sequence number are written by the thread that has the right to write (`sys/sequence.rs`),
//!    and read between two reads of that number. The kernel writes the stack on behalf of the same thread.
//! 2. Other processes may have written any number, so each is checked against its bounds before use.

use core::time::Duration;

use crate::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sys::sequence::Sequence;
use crate::sys::thread::stack::{self, REGISTERS};

/// The maximum number of bytes of a stack that are copied.
const STACK_BYTES: usize = 16 * 1024 - 128;
const STACK_WORDS: usize = STACK_BYTES / size_of::<u64>();
const NAME_WORDS: usize = stack::NAME_BYTES / size_of::<u64>();

/// All bytes 0 is an empty trace.
#[repr(C)]
pub(super) struct Trace {
    sequence: Sequence,
    /// The time that the thread waited or delayed others, in nanoseconds.
    time: AtomicU64,
    /// The time of the copy, on the monotonic clock, in nanoseconds.
    taken: AtomicU64,
    thread: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
    len: AtomicU64,
    unused: u64,
    registers: [AtomicU64; REGISTERS],
    stack: [AtomicU64; STACK_WORDS],
}

const _: () = assert!(size_of::<Trace>() == 16 * 1024);

/// A copy of the stack of a thread that waited longest for a lock, or delayed others longest.
///
/// It begins at the stack pointer, and ends at the top of the stack or at the capacity. `corelocal locks` recovers
/// the calling functions from it and the program's files.
#[derive(Clone)]
pub struct Stack {
    pub(super) time: u64,
    pub(super) taken: u64,
    thread: u32,
    name: [u8; stack::NAME_BYTES],
    registers: [u64; REGISTERS],
    len: usize,
    words: [u64; STACK_WORDS],
}

impl Trace {
    /// Copies the calling thread's stack. Does nothing if another thread writes, or on architectures without register
    /// access.
    #[inline(never)]
    pub(super) fn take(&self, time: u64, now: u64) {
        let Some(_writing) = self.sequence.write() else { return };
        // SAFETY: the words are whole bytes of this trace, and no other thread writes to them (invariant 1).
        let copied = unsafe { stack::copy(self.stack.as_ptr() as *mut u8, STACK_BYTES) };
        let (registers, len) = copied.unwrap_or_default();
        for (word, register) in self.registers.iter().zip(registers) {
            word.store(register, Relaxed);
        }
        self.len.store(len as u64, Relaxed);
        self.time.store(time, Relaxed);
        self.taken.store(now, Relaxed);
        let (thread, name) = stack::this_thread();
        self.thread.store(thread.into(), Relaxed);
        for (word, bytes) in self.name.iter().zip(name.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), Relaxed);
        }
    }

    /// Copies the trace into `into`. False if it is empty or being written.
    pub(super) fn read(&self, into: &mut Stack) -> bool {
        let read = self.sequence.read(|| {
            into.time = self.time.load(Relaxed);
            into.taken = self.taken.load(Relaxed);
            into.thread = self.thread.load(Relaxed) as u32;
            for (bytes, word) in into.name.chunks_exact_mut(8).zip(&self.name) {
                bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
            }
            for (register, word) in into.registers.iter_mut().zip(&self.registers) {
                *register = word.load(Relaxed);
            }
            // Checked against its bounds (invariant 2).
            into.len = (self.len.load(Relaxed) as usize).min(STACK_BYTES);
            for (copy, word) in into.words.iter_mut().zip(&self.stack).take(into.len.div_ceil(8)) {
                *copy = word.load(Relaxed);
            }
        });
        read.is_some()
    }
}

impl Stack {
    /// An empty stack, to be filled by [`Profile::read_holder`](super::Profile::read_holder).
    pub const EMPTY: Stack = Stack {
        time: 0,
        taken: 0,
        thread: 0,
        name: [0; stack::NAME_BYTES],
        registers: [0; REGISTERS],
        len: 0,
        words: [0; STACK_WORDS],
    };

    /// Fills it with this thread's data.
    pub(super) fn fill(
        &mut self,
        (thread, name): (u32, [u8; stack::NAME_BYTES]),
        registers: impl Iterator<Item = u64>,
        words: impl Iterator<Item = u64>,
    ) {
        (self.time, self.taken, self.thread, self.name) = (0, 0, thread, name);
        self.registers.iter_mut().zip(registers).for_each(|(copy, word)| *copy = word);
        let copied = self.words.iter_mut().zip(words).map(|(copy, word)| *copy = word).count();
        self.len = copied * size_of::<u64>();
    }

    /// Returns how long the thread waited, or delayed others.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.time)
    }

    /// Returns how long ago the copy was taken.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(super::now().saturating_sub(self.taken))
    }

    /// Returns the thread id.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Returns the thread's name in the kernel, of up to 15 bytes.
    pub fn name(&self) -> &str {
        let len = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        let name = &self.name[..len];
        match core::str::from_utf8(name) {
            Ok(name) => name,
            // The name was cut in the middle of a character.
            Err(error) => core::str::from_utf8(&name[..error.valid_up_to()]).unwrap_or(""),
        }
    }

    /// On x86-64 the program counter, stack pointer, rbp, rbx and r12 to r15; on aarch64 program counter, stack pointer,
    /// x29, x30, x19 to x22. All 0 on other architectures.
    pub fn registers(&self) -> &[u64; REGISTERS] {
        &self.registers
    }

    /// Returns the words of the stack, from the stack pointer on.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.len / size_of::<u64>()]
    }
}

impl core::fmt::Debug for Stack {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut debug = f.debug_struct("Stack");
        debug.field("time", &self.time()).field("thread", &self.thread).field("name", &self.name());
        debug.field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::sys::memory::pages;

    fn trace() -> &'static Trace {
        let at = pages::map(size_of::<Trace>()).unwrap().cast::<Trace>();
        // SAFETY: zeroed pages, which are never unmapped.
        unsafe { &*at }
    }

    #[test]
    fn what_is_read_is_what_was_taken() {
        let (trace, mut stack) = (trace(), std::boxed::Box::new(Stack::EMPTY));
        assert!(!trace.read(&mut stack));
        let body = || trace.take(1234, 5678);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("a long name for one".into());
            thread.spawn_scoped(scope, body).unwrap();
        });
        assert!(trace.read(&mut stack));
        assert_eq!((stack.time(), stack.taken), (Duration::from_nanos(1234), 5678));
        assert_eq!(stack.name(), "a long name for");
        assert!(stack.thread() != 0 && stack.thread() != std::process::id());
        if cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(corelocal_model))) {
            let [counter, pointer, ..] = *stack.registers();
            assert!(counter != 0 && pointer != 0 && !stack.words().is_empty());
        }
        // The last byte is the first one of a two-byte character.
        stack.name = *b"0123456789abcd\xc3\xa4";
        stack.name[15] = 0;
        assert_eq!(stack.name(), "0123456789abcd");
    }

    #[test]
    fn lengths_from_elsewhere_are_bounded() {
        let (trace, mut stack) = (trace(), std::boxed::Box::new(Stack::EMPTY));
        trace.take(1, 2);
        trace.len.store(u64::MAX, Relaxed);
        assert!(trace.read(&mut stack));
        assert_eq!(stack.words().len(), STACK_WORDS);
    }
}
