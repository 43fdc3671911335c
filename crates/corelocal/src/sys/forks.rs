//! Thread identities that remain meaningful in a forked child.
//!
//! A child has one thread, and copies of locks that other threads of its parent held and of slots that they had
//! frozen. No thread of the child will ever release those. So such a word records its owner and the number of forks
//! so far:
//!
//! ```text
//!   44                      16 15            0
//!   thread                    generation
//! ```
//!
//! The generation is the number of forks from the program's first process to this one, counting processes in which a
//! thread asked for it. Its word is in memory that fork wipes (`WipeOnFork`). The first thread that asks after a fork
//! writes the next number. A child of `vfork` shares the word, as it shares the locks. Where the kernel refuses to
//! wipe, all processes have the first generation, and no owner ever counts as gone. A refusal, also for lack of
//! memory, is permanent: a lock that was taken under one identity could not be released under another.
//!
//! # Invariants
//! 1. An identity is never 0, and is the same at every call of a thread in one process.
//! 2. A thread is gone if it has an earlier generation, and a later generation began with another thread
//!    (`sys/forks/survivor.rs`). The data that a gone thread owned is in the state after one of its stores; the fork
//!    copied all that it had done.
//! 3. The thread that forked is never gone, for any thread of the child or of a child of the child. When in doubt a
//!    thread counts as present, so what it holds stays held.
//!
//! Two threads with equal identities (of 2^29; their stacks are a multiple of 2 TiB apart) count as one: then neither
//! is gone.

pub(crate) mod orphaned;
#[cfg(not(loom))]
pub(in crate::sys) mod survivor;
pub(crate) mod wipe_on_fork;

/// The identity of a thread in a generation: see the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64);

impl Identity {
    /// The number of bits in the number of an identity.
    pub(crate) const BITS: u32 = 45;
    const GENERATION_BITS: u32 = 16;

    /// Returns the calling thread's. Async-signal-safe; two loads.
    #[inline]
    pub(crate) fn of_this_thread() -> Identity {
        Identity(imp::thread() << Self::GENERATION_BITS | u64::from(imp::generation()))
    }

    /// Returns it as a number below 2^[`BITS`](Self::BITS).
    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Returns the identity of this number.
    pub(crate) fn of_number(number: u64) -> Identity {
        Identity(number)
    }

    /// Returns a thread that a fork left behind, for any thread that asks.
    #[cfg(test)]
    pub(crate) fn gone() -> Identity {
        Identity(1 << Self::GENERATION_BITS)
    }

    /// Returns `true` if this is a thread that a fork left behind, as seen by `me`, the calling thread.
    pub(crate) fn is_gone(self, me: Identity) -> bool {
        let thread = self.thread();
        self.generation() != me.generation()
            && imp::is_gone(self.generation(), me.generation(), |other| other == thread)
    }

    /// Returns `true` if this is the same thread, or one of the child's whose stack was that of a gone one.
    pub(crate) fn is_alike(self, me: Identity) -> bool {
        self.0 >> Self::GENERATION_BITS == me.0 >> Self::GENERATION_BITS
    }

    /// Returns the thread: below 2^29, without the generation.
    pub(crate) fn thread(self) -> u64 {
        self.0 >> Self::GENERATION_BITS
    }

    pub(crate) fn generation(self) -> u32 {
        self.0 as u32 % (1 << Self::GENERATION_BITS)
    }
}

/// Returns whether a fork left a thread behind that was there in the generation `then`, of which is known only that
/// `is_it` is true for it, given [`Identity::thread`].
pub(crate) fn is_left_behind(then: u32, is_it: impl Fn(u64) -> bool) -> bool {
    imp::is_gone(then, generation(), is_it)
}

/// Returns `true` if it is known which thread this process began with, or nothing is older than the process.
#[cfg(not(loom))]
pub(crate) fn is_first_thread_known() -> bool {
    imp::is_first_thread_known()
}

/// Returns `true` if this process began with the calling thread.
pub(crate) fn is_first_thread() -> bool {
    imp::is_first_thread()
}

/// Returns the number of forks from the program's first process to this one, or more; below 2^16, and never 0. Only
/// processes that asked for it are counted. Async-signal-safe; two loads.
#[inline]
pub(crate) fn generation() -> u32 {
    imp::generation()
}

/// Returns whether the generation is the first one, so that a fork has left no owner behind. False until a thread has
/// asked for the generation, and where forks cannot be distinguished. Async-signal-safe; two loads.
#[inline]
pub(crate) fn is_first_generation() -> bool {
    imp::is_first_generation()
}

/// The bits of [`process`].
pub(crate) const PROCESS_BITS: u32 = 27;

/// Returns what tells this process from its ancestors, and from all others that live in its pid namespace; the same for
/// all where forks are not told apart. Async-signal-safe; two loads.
#[inline(always)]
pub(crate) fn process() -> u32 {
    imp::process()
}

/// Returns `true` if forks are told apart: else what is remembered in one process may be believed in its child.
pub(crate) fn are_told_apart() -> bool {
    imp::are_told_apart()
}

/// Returns `true` if the first thread of this process may have locked something under this number in its parent.
#[cfg(not(loom))]
pub(crate) fn may_be_number_of_first(number: u32) -> bool {
    imp::may_be_number_of_first(number)
}

/// Has the calling thread lock under this number of the kernel's.
#[cfg(not(loom))]
pub(crate) fn note_number(number: u32) {
    imp::note_number(number);
}

/// Loom models do not fork, and all threads have the same identity.
#[cfg(loom)]
mod imp {
    pub(super) fn thread() -> u64 {
        0
    }

    pub(super) fn generation() -> u32 {
        1
    }

    pub(super) fn is_first_generation() -> bool {
        true
    }

    pub(super) fn process() -> u32 {
        0
    }

    pub(super) fn is_first_thread() -> bool {
        true
    }

    pub(super) fn is_gone(then: u32, now: u32, _: impl Fn(u64) -> bool) -> bool {
        then != now
    }

    pub(super) fn are_told_apart() -> bool {
        true
    }
}

#[cfg(not(loom))]
mod imp {
    use super::Identity;
    use super::survivor;
    use crate::primitive::global::{AtomicU32, Ordering};
    use crate::sys::WipeOnFork;

    const FIRST_GENERATION: u32 = 1;
    const GENERATIONS: u32 = 1 << Identity::GENERATION_BITS;

    #[inline]
    pub(super) fn thread() -> u64 {
        const { assert!(Identity::BITS - Identity::GENERATION_BITS == survivor::THREAD_BITS) };
        survivor::this_thread()
    }

    pub(super) fn is_first_thread() -> bool {
        survivor::is_first_thread(generation())
    }

    pub(super) fn is_gone(then: u32, now: u32, is_it: impl Fn(u64) -> bool) -> bool {
        if cfg!(test) && (then == 0 || now != generation()) {
            // A test made them up.
            return then != now;
        }
        survivor::is_gone(then, now, is_it)
    }

    pub(super) fn is_first_thread_known() -> bool {
        survivor::is_known(generation())
    }

    pub(super) fn may_be_number_of_first(number: u32) -> bool {
        survivor::may_be_number_of_first(number, generation())
    }

    pub(super) fn note_number(number: u32) {
        survivor::note_number(number, generation());
    }

    #[cold]
    pub(super) fn are_told_apart() -> bool {
        of_this_process().is_some()
    }

    /// The knowledge about this process.
    ///
    /// The generation goes through these states, each by one compare-exchange, and any thread takes the next step:
    ///
    /// ```text
    ///   0 (no thread has asked) → BEGUN → BEGUN | number → number
    /// ```
    /// A fork wipes it. So a thread that was interrupted by a signal handler, in which the process forked, fails to
    /// take the parent's next step in the child, and begins anew.
    struct Known {
        generation: AtomicU32,
        /// The process id; 0 until a thread asks for it.
        process: AtomicU32,
    }

    /// A thread asks for the number. With a number besides: that one is chosen, but a fork may not find it in [`LAST`]
    /// yet. Known numbers are positive as `i32`, and no other state is.
    const BEGUN: u32 = 1 << 31;

    // SAFETY: 0 is a state, and no process number.
    static KNOWN: WipeOnFork<Known> = unsafe { WipeOnFork::new() };
    /// The stand-in where memory that a fork wipes cannot be had. It is never written to.
    static REFUSED: Known = Known { generation: AtomicU32::new(0), process: AtomicU32::new(0) };
    /// The generation of this process if it is known, or else of the last ancestor that asked.
    static LAST: AtomicU32 = AtomicU32::new(0);

    /// Returns `None` where forks are not told apart, now or later.
    #[cold]
    fn of_this_process() -> Option<&'static Known> {
        let known = KNOWN.get_or(&REFUSED);
        (!core::ptr::eq(known, &REFUSED)).then_some(known)
    }

    #[inline]
    pub(super) fn generation() -> u32 {
        let known = known_generation();
        if is_number(known) { known } else { next_generation() }
    }

    #[inline]
    fn is_number(state: u32) -> bool {
        state as i32 > 0
    }

    #[inline]
    pub(super) fn is_first_generation() -> bool {
        known_generation() == FIRST_GENERATION
    }

    /// Returns the state of [`Known::generation`].
    #[inline]
    fn known_generation() -> u32 {
        KNOWN.known().map_or(0, |known| known.generation.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn process() -> u32 {
        match KNOWN.known().map_or(0, |known| known.process.load(Ordering::Relaxed)) {
            0 => learn_process(),
            known => known,
        }
    }

    /// Returns the process id above some bits of the generation: a child in another pid namespace may have its parent's
    /// id.
    #[cold]
    fn learn_process() -> u32 {
        const GENERATION_BITS: u32 = 5;
        const { assert!(super::PROCESS_BITS - GENERATION_BITS == 22, "the kernel has ids below 2^22") };
        let Some(known) = of_this_process() else { return 0 };
        let Some(id) = survivor::process_id() else { return 0 };
        let process = ((id << GENERATION_BITS) | (generation() % (1 << GENERATION_BITS)))
            % (1 << super::PROCESS_BITS);
        // Relaxed: whichever thread is first, they store the same.
        known.process.store(process, Ordering::Relaxed);
        process
    }

    #[cold]
    fn next_generation() -> u32 {
        let Some(known) = of_this_process() else { return FIRST_GENERATION };
        let word = &known.generation;
        loop {
            // Acquire: partner is the Release below, of the thread that took the step.
            let state = word.load(Ordering::Acquire);
            // Relaxed: the word's own steps order it, and a child has a copy.
            let last = LAST.load(Ordering::Relaxed);
            let next = match state {
                _ if is_number(state) => return state,
                0 => BEGUN,
                BEGUN => BEGUN | after(last),
                _ => state & !BEGUN,
            };
            // Before the number is known, so that a child never takes the same one. It fails if another thread has done
            // it, or if this is a child and the number its parent's.
            if is_number(next) && after(last) == next {
                let _ = LAST.compare_exchange(last, next, Ordering::Relaxed, Ordering::Relaxed);
            }
            // Release: partner is the Acquire above, in the thread that takes the next step.
            let step = word.compare_exchange(state, next, Ordering::Release, Ordering::Relaxed);
            if step.is_ok() && is_number(next) {
                survivor::note(next);
            }
        }
    }

    /// After the last generation comes the second: the first one has no ancestors.
    fn after(last: u32) -> u32 {
        match last + 1 {
            GENERATIONS.. => FIRST_GENERATION + 1,
            next => next,
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
