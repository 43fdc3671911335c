//! Who a thread is, told in a way that a forked child understands.
//!
//! A child has one thread, and copies of whatever the other threads of its parent had in their hands: a
//! lock that is held, a slot that is frozen. Nobody there will ever let go of it. So such a word names
//! its holder, and since how many forks:
//!
//! ```text
//!   44                      16 15            0
//!   thread                    generation
//! ```
//!
//! The generation is the number of forks from the program's first process down to this one. Its word is
//! in memory that fork wipes (`WipedByFork`); whoever first looks after a fork writes
//! the next number, or a later one. A child of `vfork` shares it, as it shares the locks. Where it is
//! refused all processes are of the first generation, and nobody is ever gone.
//!
//! # Invariants
//! 1. An identity is never 0, and is the same at every call of a thread in one process.
//! 2. Who is gone is not here: of an earlier generation, and not the thread that forked, which is the
//!    first one of its child. What a gone thread held is as any of its stores left it; the fork copied
//!    all that it had done.
//!
//! Two threads whose identities look alike (of 2^29; their stacks lie a multiple of 2 TiB apart) are
//! taken for one: then nobody is gone, which is safe.
//!
//! Only the thread that forked knows who it was. A child whose first thread holds something from before
//! the fork, and that starts others before it lets go, breaks the second half of invariant 2. Nothing in
//! the library forks, so it takes a signal handler between two instructions of a holder, whose child may
//! call async-signal-safe functions only; or a fork in a closure that runs while a slot is frozen.

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64);

impl Identity {
    /// Of the number.
    pub(crate) const BITS: u32 = 45;
    const GENERATION_BITS: u32 = 16;

    /// The calling thread's. Async-signal-safe; two loads.
    #[inline]
    pub(crate) fn of_this_thread() -> Identity {
        Identity(imp::thread() << Self::GENERATION_BITS | u64::from(imp::generation()))
    }

    /// As a number below 2^[`BITS`](Self::BITS).
    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The identity of this number.
    pub(crate) fn of_number(number: u64) -> Identity {
        Identity(number)
    }

    /// One that a fork left behind, whoever asks.
    #[cfg(test)]
    pub(crate) fn gone() -> Identity {
        Identity(1 << Self::GENERATION_BITS)
    }

    /// Whether this is a thread that a fork left behind, as seen by `me`.
    pub(crate) fn is_gone(self, me: Identity) -> bool {
        self.generation() != me.generation() && !(self.is_alike(me) && imp::is_first_thread())
    }

    /// Whether this is the same thread, or one of the child's whose stack was that of a gone one.
    pub(crate) fn is_alike(self, me: Identity) -> bool {
        self.0 >> Self::GENERATION_BITS == me.0 >> Self::GENERATION_BITS
    }

    fn generation(self) -> u32 {
        self.0 as u32 % (1 << Self::GENERATION_BITS)
    }
}

/// The number of forks from the program's first process down to this one, as far as anybody asked, or more; below
/// 2^16, and never 0. Async-signal-safe; two loads.
#[inline]
pub(crate) fn generation() -> u32 {
    imp::generation()
}

/// Whether the generation is the first one, so that nothing in this process is left behind by a fork. False until
/// somebody asks for the generation, and where forks are not told apart. Async-signal-safe; two loads.
#[inline]
pub(crate) fn is_first_generation() -> bool {
    imp::is_first_generation()
}

/// Whether forks are told apart: else what is remembered in one process may be believed in its child.
pub(crate) fn are_told_apart() -> bool {
    imp::are_told_apart()
}

/// Nobody forks in a model, and one thread is as good as another.
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

    pub(super) fn is_first_thread() -> bool {
        true
    }

    pub(super) fn are_told_apart() -> bool {
        true
    }
}

#[cfg(not(loom))]
mod imp {
    use super::Identity;
    use crate::primitive::global::{AtomicU32, Ordering};
    use crate::sys::syscall::syscall;
    use crate::sys::{WipedByFork, arch};

    const FIRST_GENERATION: u32 = 1;
    const GENERATIONS: u32 = 1 << Identity::GENERATION_BITS;
    const THREADS: u64 = 1 << (Identity::BITS - Identity::GENERATION_BITS);
    /// No two threads are within a page: a stack lies in between.
    const PAGE_SHIFT: u32 = 12;

    #[inline]
    pub(super) fn thread() -> u64 {
        (arch::thread_pointer() as u64 >> PAGE_SHIFT) % THREADS
    }

    /// Whether the calling thread is the one that forked, or that the program began with.
    #[cold]
    pub(super) fn is_first_thread() -> bool {
        // SAFETY: no arguments.
        let thread = unsafe { syscall(libc::SYS_gettid, [0; 6]) };
        // SAFETY: no preconditions.
        thread.is_ok_and(|thread| thread as i32 == unsafe { libc::getpid() })
    }

    #[cold]
    pub(super) fn are_told_apart() -> bool {
        GENERATION.get().is_some()
    }

    /// 0 if nobody has asked in this process.
    // SAFETY: 0 is such a number.
    static GENERATION: WipedByFork<AtomicU32> = unsafe { WipedByFork::new() };
    /// At least the generation of this process, but right after a fork.
    static LAST: AtomicU32 = AtomicU32::new(0);

    #[inline]
    pub(super) fn generation() -> u32 {
        match known_generation() {
            0 => next_generation(),
            known => known,
        }
    }

    #[inline]
    pub(super) fn is_first_generation() -> bool {
        known_generation() == FIRST_GENERATION
    }

    /// 0 if nobody has asked in this process.
    #[inline]
    fn known_generation() -> u32 {
        GENERATION.known().map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[cold]
    fn next_generation() -> u32 {
        let Some(word) = GENERATION.get() else { return FIRST_GENERATION };
        loop {
            // Acquire: partner is the Release below; who comes too late sees the winner's number.
            let known = word.load(Ordering::Acquire);
            if known != 0 {
                return known;
            }
            // After the last one comes the second: the first has no ancestors.
            let last = LAST.load(Ordering::Relaxed);
            let next = match last + 1 {
                GENERATIONS.. => FIRST_GENERATION + 1,
                next => next,
            };
            // Before the word is set: a fork in between must find it. Whoever takes a number is the only one: if another
            // was faster it may be the parent's, and this the child of a handler's fork. Then a number may be left out.
            // Release: nobody acquires it, a child has a copy; it keeps company with the word's below.
            if LAST.compare_exchange(last, next, Ordering::Release, Ordering::Relaxed).is_err() {
                continue;
            }
            // A handler that forks here, before anybody has a number, leaves this one to both processes. Nothing that
            // the child has a copy of bears it.
            // Release and Acquire: partners of each other, and of the load above.
            return match word.compare_exchange(0, next, Ordering::Release, Ordering::Acquire) {
                Ok(_) => next,
                Err(first) => first,
            };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone() {
        let me = Identity::of_this_thread();
        assert_eq!(me, Identity::of_this_thread());
        assert!(me.number() != 0 && me.number() >> Identity::BITS == 0);
        assert_eq!(Identity::of_number(me.number()), me);
        assert_eq!(generation(), me.generation());
        let other = std::thread::spawn(Identity::of_this_thread).join().unwrap();
        assert!(other != me && !other.is_gone(me) && !me.is_gone(me));
        // As a child sees them. That the one that forked stays is shown by `try_lock.rs`.
        let child = Identity::of_number(me.number() + 1);
        assert!(other.is_gone(child));
    }
}
