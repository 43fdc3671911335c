//! Futexes: threads of two processes wait on words and wake each other, through the kernel's hash table of waiters.
//!
//! ```text
//!   thread                  kernel
//!   wait(word, expected)    key of the word; count itself as a waiter of the bucket; lock the bucket; does the word
//!                           still have the value? queue, unlock; still in the queue? sleep
//!   wake(word, n)           key of the word; barrier; no waiter in the bucket? return; lock the bucket; take up to n
//!                           waiters with the same key from the queue, unlock, wake them
//!   requeue(word, target)   keys of both; count a waiter of the target's bucket; lock both buckets; take those that it
//!                           wakes from the queue; give others the target's key and bucket; unlock; wake; uncount
//! ```
//! A key has a kind, in its two low bits: 00, an address of one process (PRIVATE); 01, a page of a file; 10, a page of
//! one process that was named without PRIVATE. Waiters and wakers meet only if they have the same key.
//!
//! Threads' plain stores go through a store buffer: another thread sees one only after it left the buffer. Locked
//! operations and barriers wait until the thread's own buffer is empty.
//!
//! # Rules
//! 1. No thread waits for ever: when nothing goes on, all programs have ended.
//! 2. No thread locks a bucket that it has locked.
//! 3. A thread that is queued has a bucket's count, so that a waker looks.
//!
//! Sources: kernel/futex/{core,waitwake,requeue}.c; commit 34f01cc1f512, "FUTEX: new PRIVATE futexes", whose message
//! lists the eight steps; commit 69cd9eba3886, "futex: Avoid race between requeue and wake" (3.15); commit 80367ad01d93
//! (the per-process table, 6.16).

mod entries;
mod kernel;
mod queue;
mod steps;
mod words;

use std::borrow::Cow;

pub(super) use entries::entries;
pub use kernel::{Age, Kernel};

use super::{Costs, Label, Model, Step};
use kernel::Phase;

/// The number of words.
pub const WORDS: usize = 3;
/// The number of processes.
pub const PROCESSES: usize = 2;
const NONE: u8 = u8::MAX;

/// Threads that run programs, and a kernel.
#[derive(Clone, Debug)]
pub struct Futexes<const T: usize> {
    /// The kernel's implementation.
    pub kernel: Kernel,
    /// The process of each thread.
    pub processes: [u8; T],
    /// The program of each thread.
    pub programs: [Vec<Op>; T],
    /// The mapping of each word.
    pub mappings: [Mapping; WORDS],
    /// Whether plain stores go through a buffer.
    pub store_buffers: bool,
    /// Whether waits may time out.
    pub timeouts: bool,
}

/// The mapping that a word lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Anonymous memory: each process has its own.
    Anonymous,
    /// Both processes have the same, at the same address.
    File,
}

/// The flag that a program passes to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// FUTEX_PRIVATE_FLAG.
    Private,
    /// A shared futex: no flag is given.
    Shared,
    /// The flag is in one word of the process. A program that gets ENOSYS clears it and tries again.
    Global,
    /// The same, without trying again after ENOSYS.
    GlobalOnce,
}

/// All bits of a bitset.
pub const ANY: u8 = 0xff;

/// An operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A plain store to a word.
    Store(u8, u8),
    /// An atomic exchange: a store and a barrier.
    Exchange(u8, u8),
    /// `FUTEX_WAIT_BITSET(word, expected, bits)`.
    Wait(u8, u8, u8, Scope),
    /// Waits while the word has the value: looks again after each wake-up.
    WaitWhile(u8, u8, Scope),
    /// `FUTEX_WAKE_BITSET(word, count, bits)`.
    Wake(u8, u8, u8, Scope),
    /// `FUTEX_REQUEUE(word, wake, requeue, target)`, with an expected value `FUTEX_CMP_REQUEUE`.
    Requeue {
        /// The word that threads wait on.
        word: u8,
        /// The number of threads to wake.
        wake: u8,
        /// The number of further threads to move.
        requeue: u8,
        /// The word that they wait on afterwards.
        target: u8,
        /// The value that the word must have.
        expected: Option<u8>,
        /// The flag.
        scope: Scope,
    },
    /// `FUTEX_WAKE_OP`: sets `other`, wakes waiters of `word`, and those of `other` if it was `compare` before.
    WakeOp {
        /// The word whose waiters are woken in any case.
        word: u8,
        /// The number of threads to wake.
        wake: u8,
        /// The word that is set.
        other: u8,
        /// The word's new value.
        set: u8,
        /// The old value for which its waiters are woken.
        compare: u8,
        /// The number of threads to wake.
        wake_other: u8,
        /// The flag.
        scope: Scope,
    },
    /// The thread ends while it holds the robust lock in this word: the kernel marks it, and wakes one waiter.
    Die(u8),
    /// `mmap`: changes the process's address space, with its lock held.
    Map,
    /// `prctl(PR_FUTEX_HASH)`: a larger table for the process.
    Resize,
}

/// The mark in a robust word whose owner died.
pub const OWNER_DIED: u8 = 0x40;

/// The kernel's key of a futex: a kind in the low bits, the process, the word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u8);

impl Key {
    /// An address of one process.
    pub const PRIVATE: u8 = 0b00;
    /// A page of a file.
    pub const INODE: u8 = 0b01;
    /// A page of one process, named without PRIVATE.
    pub const MM_SHARED: u8 = 0b10;

    fn new(kind: u8, process: u8, word: u8) -> Key {
        Key(kind | process << 2 | word << 4)
    }

    /// Returns the two low bits.
    pub fn kind(self) -> u8 {
        self.0 & 3
    }

    fn process(self) -> usize {
        usize::from(self.0 >> 2 & 3)
    }

    fn word(self) -> u8 {
        self.0 >> 4
    }
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// No operation has ended.
    #[default]
    None,
    /// A count, or 0.
    Count(u8),
    /// EAGAIN: the word does not have the value.
    Differs,
    /// ETIMEDOUT.
    TimedOut,
    /// ENOSYS: the kernel does not know the flag.
    Unknown,
}

/// A thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread {
    at: u8,
    phase: Phase,
    /// The keys of the operation; while it sleeps, the first is the one that it is queued with.
    keys: [Key; 2],
    bits: u8,
    /// The flag that its program has passed, where that is in one word.
    is_private: bool,
    /// Whether it keeps the table of its process from being replaced.
    uses_table: bool,
    /// The threads that it is about to wake, a bit for each.
    wakes: u8,
    woken: u8,
    /// A store that others do not see: the word, and the value.
    buffer: Option<(u8, u8)>,
    answer: Answer,
}

const BUCKETS: usize = 2 + 2 * PROCESSES;

/// The words, the threads and the kernel's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const T: usize> {
    threads: [Thread; T],
    words: [[u8; WORDS]; PROCESSES],
    /// The waiting threads, in the order in which they were queued.
    queue: [u8; T],
    /// The holder of each bucket's lock: two of the whole system, then two of each process.
    locks: [u8; BUCKETS],
    /// The number of threads that are or will be queued in each bucket.
    waiters: [u8; BUCKETS],
    /// Readers of each process's lock of its map, or `NONE`: a writer.
    maps: [u8; PROCESSES],
    /// The word in which each process keeps the flag.
    is_private: [bool; PROCESSES],
    tables: [Table; PROCESSES],
}

/// The table of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    /// 0: one bucket, 1: two.
    size: u8,
    /// Operations under way that use it.
    users: u8,
    /// A larger one is to replace it.
    is_replaced: bool,
}

impl<const T: usize> State<T> {
    /// Returns what the last operation of the thread returned.
    pub fn answer(&self, thread: usize) -> Answer {
        self.threads[thread].answer
    }

    /// Returns `true` if the thread sleeps in the kernel.
    pub fn sleeps(&self, thread: usize) -> bool {
        self.threads[thread].phase == Phase::Asleep
    }

    /// Returns the value of the word, as the process sees it.
    pub fn word(&self, process: usize, word: usize) -> u8 {
        self.words[process][word]
    }

    fn enqueue(&mut self, thread: usize) {
        let free =
            self.queue.iter().position(|&queued| queued == NONE).expect("a thread is queued once");
        self.queue[free] = thread as u8;
    }

    fn dequeue(&mut self, thread: usize) {
        let mut kept = self.queue.into_iter().filter(|&queued| usize::from(queued) != thread);
        self.queue = std::array::from_fn(|_| kept.next().unwrap_or(NONE));
    }
}

// `Step::what`.
const GO_ON: u8 = 0;
const FLUSH: u8 = 1;
const TIME_OUT: u8 = 2;

impl<const T: usize> Futexes<T> {
    fn op(&self, thread: usize, state: &State<T>) -> Option<Op> {
        self.programs[thread].get(usize::from(state.threads[thread].at)).copied()
    }

    /// Returns where the values of the word are that the thread sees.
    fn place(&self, thread: usize, word: u8) -> (usize, usize) {
        let word = usize::from(word);
        let process = match self.mappings[word] {
            Mapping::Anonymous => self.processes[thread].into(),
            Mapping::File => 0,
        };
        (process, word)
    }

    fn store(&self, state: &mut State<T>, thread: usize, word: u8, value: u8) {
        let (process, at) = self.place(thread, word);
        match self.mappings[at] {
            Mapping::Anonymous => state.words[process][at] = value,
            Mapping::File => state.words.iter_mut().for_each(|words| words[at] = value),
        }
    }

    /// Returns the value that the thread reads: its own store first.
    fn load(&self, state: &State<T>, thread: usize, word: u8) -> u8 {
        let (process, at) = self.place(thread, word);
        match state.threads[thread].buffer {
            Some((of, value)) if of == word => value,
            _ => state.words[process][at],
        }
    }
}

impl<const T: usize> Model for Futexes<T> {
    type State = State<T>;

    fn actors(&self) -> Vec<Cow<'static, str>> {
        (0..T).map(|thread| format!("T{thread}").into()).collect()
    }

    fn initial(&self) -> State<T> {
        State {
            threads: [Thread::default(); T],
            words: [[0; WORDS]; PROCESSES],
            queue: [NONE; T],
            locks: [NONE; BUCKETS],
            waiters: [0; BUCKETS],
            maps: [0; PROCESSES],
            is_private: [true; PROCESSES],
            tables: [Table::default(); PROCESSES],
        }
    }

    fn steps_of(&self, state: &State<T>, actor: u8, steps: &mut Vec<Step>) {
        let thread = usize::from(actor);
        if state.threads[thread].buffer.is_some() {
            steps.push(Step::must(actor, FLUSH));
        }
        if self.can_go_on(state, thread) {
            steps.push(Step::must(actor, GO_ON));
        }
        if self.timeouts && state.threads[thread].phase == Phase::Asleep {
            steps.push(Step::may(actor, TIME_OUT));
        }
    }

    fn take(&self, state: &mut State<T>, step: Step, costs: &mut Costs) -> Result<(), String> {
        let thread = usize::from(step.actor);
        match step.what {
            FLUSH => {
                if let Some((word, value)) = state.threads[thread].buffer.take() {
                    self.store(state, thread, word, value);
                }
                Ok(())
            }
            TIME_OUT => {
                state.threads[thread].phase = Phase::Unqueue;
                Ok(())
            }
            _ => self.go_on(state, thread, costs),
        }
    }

    /// Rules 2 and 3.
    fn invariant(&self, state: &State<T>) -> Result<(), String> {
        let queued = state.queue.iter().filter(|&&queued| queued != NONE);
        for &thread in queued {
            let bucket = self.bucket(state, state.threads[usize::from(thread)].keys[0]);
            if state.waiters[bucket] == 0 && self.kernel.counts_waiters() {
                return Err(format!("T{thread} is queued in a bucket that counts no waiter"));
            }
        }
        Ok(())
    }

    /// Checks rule 1.
    fn at_rest(&self, state: &State<T>) -> Result<(), String> {
        let waits = |&thread: &usize| self.op(thread, state).is_some();
        match (0..T).find(waits) {
            Some(thread) if state.threads[thread].phase == Phase::Asleep => {
                Err(format!("T{thread} sleeps for ever"))
            }
            Some(thread) => Err(format!("T{thread} waits for a lock for ever")),
            None => Ok(()),
        }
    }

    fn label(&self, state: &State<T>, step: Step) -> Label {
        words::label(self, state, step)
    }

    fn summary(&self, state: &State<T>) -> String {
        words::summary(self, state)
    }
}
