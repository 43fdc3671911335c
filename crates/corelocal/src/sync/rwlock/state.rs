//! The state word of a read-write lock: 64 bits that change atomically.
//!
//! ```text
//!   what writers wait for                               what readers wait for
//!   63      59  58  57  56  55  54  53  52         32   31  30  29  28  27                0
//!   generation  RF  SF  WA  UG  UP  W   readers         W   CL  RA  --  owner's tag (owner_tag.rs)
//! ```
//!
//! The kernel lets threads sleep on one half of the word; the program changes both halves at once. Each half holds
//! what its sleepers wait for, so that every change that matters to them changes their half: W therefore occurs
//! twice.
//!
//! | bit | name | meaning |
//! |---|---|---|
//! | W | writing | A writer holds the lock. |
//! | UP | upgradable | An upgradable reader holds the lock, beside plain readers. |
//! | UG | upgrading | The upgradable reader waits for the plain readers to leave. |
//! | CL | closed | New readers must wait, because a writer waits. |
//! | RA, WA | asleep | Readers, or writers, may be sleeping. |
//! | RF | reader first | A reader has waited for long: no writer begins before it is in. |
//! | SF | sleepers first | A writer has waited for long: threads that have not slept do not begin. |
//!
//! The generation is that of the process when the lock was last free, counted from 0, so that a new lock is of the
//! first one. The tag is that of the writer or the upgradable reader; if processes share the lock, that of its
//! process. CL, RF and SF are advice: they count only in the current generation, since the thread that set them may
//! not have survived a fork.

use crate::sync::machinery::scope::Scope;
use crate::sys::thread::owner_tag::{self, GENERATION_BITS};
use crate::sys::{forks, futex};

pub(super) const TAG_BITS: u32 = 28;
const TAG: u64 = (1 << TAG_BITS) - 1;
pub(super) const READERS_ASLEEP: u64 = 1 << 29;
pub(super) const CLOSED: u64 = 1 << 30;
pub(super) const READER: u64 = 1 << 32;
/// The reader count from which on no reader is admitted. Visitors exceed it for a moment.
pub(super) const FULL: u64 = 1 << 52;
pub(super) const READERS: u64 = (1 << 53) - READER;
pub(super) const WRITING: u64 = 1 << 53 | 1 << 31;
pub(super) const UPGRADABLE: u64 = 1 << 54;
pub(super) const UPGRADING: u64 = 1 << 55;
pub(super) const WRITERS_ASLEEP: u64 = 1 << 56;
pub(super) const SLEEPERS_FIRST: u64 = 1 << 57;
pub(super) const READER_FIRST: u64 = 1 << 58;
const GENERATION_SHIFT: u32 = 64 - GENERATION_BITS;
const GENERATION: u64 = !0 << GENERATION_SHIFT;

/// Bits: threads may be sleeping.
pub(super) const ASLEEP: u64 = READERS_ASLEEP | WRITERS_ASLEEP;
/// Bits that count only in the generation in which they were set.
const ADVICE: u64 = CLOSED | READER_FIRST | SLEEPERS_FIRST;

/// A state of the lock's word.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct State(pub(super) u64);

/// Returns the process's generation as a state has it. Constant if processes share the lock, where no holder is gone
/// after a fork.
#[inline(always)]
fn generation<S: Scope>() -> u64 {
    match S::FUTEX {
        futex::Scope::Private => generation_bits(owner_tag::generation()),
        futex::Scope::Shared => 0,
    }
}

/// Generations are counted from 1.
#[inline(always)]
fn generation_bits(generation: u32) -> u64 {
    u64::from(generation).wrapping_sub(1) << GENERATION_SHIFT
}

/// Returns `true` if readers of this process may be visitors (`raw.rs`, invariant 6).
#[inline(always)]
pub(super) fn has_visitors<S: Scope>() -> bool {
    match S::FUTEX {
        futex::Scope::Private => forks::is_first_generation(),
        futex::Scope::Shared => false,
    }
}

/// Returns the calling thread's tag, or its process's if processes share the lock.
#[inline(always)]
pub(super) fn tag<S: Scope>() -> u32 {
    match S::FUTEX {
        futex::Scope::Private => owner_tag::tag::<TAG_BITS>(),
        futex::Scope::Shared => forks::process(),
    }
}

const _: () = assert!(forks::PROCESS_BITS <= TAG_BITS);

impl State {
    #[inline(always)]
    pub(super) fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    #[inline(always)]
    pub(super) fn with(self, flags: u64) -> State {
        State(self.0 | flags)
    }

    #[inline(always)]
    pub(super) fn without(self, flags: u64) -> State {
        State(self.0 & !flags)
    }

    #[inline(always)]
    pub(super) fn readers(self) -> u32 {
        ((self.0 & READERS) / READER) as u32
    }

    pub(super) fn without_readers(self) -> State {
        self.without(READERS)
    }

    /// Returns `true` if there is no room for another reader.
    pub(super) fn is_full(self) -> bool {
        self.has(FULL)
    }

    /// Returns `true` if no thread holds the lock.
    #[inline(always)]
    pub(super) fn is_free(self) -> bool {
        !self.has(READERS | WRITING | UPGRADABLE)
    }

    /// Returns `true` if the advice counts.
    #[inline(always)]
    pub(super) fn is_current<S: Scope>(self) -> bool {
        self.0 & GENERATION == generation::<S>()
    }

    /// Free and current, nothing else; and the same with the writer of this tag, the calling thread's.
    #[inline(always)]
    pub(super) fn free_and_taken<S: Scope>(tag: u32) -> (State, State) {
        let free = match S::FUTEX {
            futex::Scope::Private => State(generation_bits(owner_tag::generation_of(tag))),
            futex::Scope::Shared => State(0),
        };
        (free, free.with(WRITING | u64::from(tag)))
    }

    /// Without advice that does not count.
    #[inline(always)]
    pub(super) fn seen<S: Scope>(self) -> State {
        if self.is_current::<S>() { self } else { self.without(ADVICE) }
    }

    /// Without any advice.
    pub(super) fn without_advice(self) -> State {
        self.without(ADVICE)
    }

    /// Free, of this generation, nothing else.
    pub(super) fn renewed<S: Scope>() -> State {
        State(generation::<S>())
    }

    /// With this tag in place of the holder's.
    pub(super) fn with_holder(self, tag: u32) -> State {
        self.without(TAG).with(u64::from(tag))
    }

    /// Returns whether a reader may enter at once: no writer holds the lock or keeps readers out, in this generation.
    #[inline(always)]
    pub(super) fn is_open<S: Scope>(self) -> bool {
        // One test of all the bits: branches before an atomic exchange delay it.
        (self.0 ^ generation::<S>()) & (GENERATION | WRITING | CLOSED | FULL) == 0
    }

    /// Returns the same in the first generation, whose bits are 0.
    #[inline(always)]
    pub(super) fn is_open_in_first_generation(self) -> bool {
        !self.has(GENERATION | WRITING | CLOSED | FULL)
    }

    /// Returns whether a reader may enter. With `first` it ignores CLOSED.
    #[inline(always)]
    pub(super) fn admits_reader(self, first: bool) -> bool {
        !self.has(WRITING | FULL) && (first || !self.has(CLOSED))
    }

    #[inline(always)]
    pub(super) fn with_reader(self) -> State {
        State(self.0 + READER)
    }

    /// Returns whether a thread sleeps until the readers have left.
    #[inline(always)]
    pub(super) fn awaits_readers(self) -> bool {
        self.has(WRITERS_ASLEEP | UPGRADING)
    }

    /// Returns whether a writer may begin. `slept` says whether it has slept.
    #[inline(always)]
    pub(super) fn admits_writer(self, slept: bool) -> bool {
        self.is_free() && !self.has(READER_FIRST) && (slept || !self.has(SLEEPERS_FIRST))
    }

    /// Returns a writer's state, from a free one. CLOSED is irrelevant then.
    #[inline(always)]
    pub(super) fn with_writer(self, tag: u32) -> State {
        self.without(CLOSED | TAG).with(WRITING | u64::from(tag))
    }

    /// Returns whether an upgradable reader may enter. `slept` says whether it has slept.
    pub(super) fn admits_upgradable(self, slept: bool) -> bool {
        !self.has(WRITING | UPGRADABLE | FULL) && (slept || !self.has(CLOSED | SLEEPERS_FIRST))
    }

    pub(super) fn with_upgradable(self, tag: u32) -> State {
        self.without(TAG).with(UPGRADABLE | u64::from(tag))
    }

    /// The state after an upgradable reader has become a writer: there are no other readers.
    pub(super) fn upgraded(self) -> State {
        self.without(UPGRADABLE | UPGRADING | CLOSED).with(WRITING)
    }

    /// The state after a writer or an upgradable reader has unlocked. An upgrade no longer waits.
    #[inline(always)]
    pub(super) fn let_go(self) -> State {
        self.without(WRITING | UPGRADABLE | UPGRADING | CLOSED | TAG)
    }

    /// Returns the state without readers that cannot exist: visitors of the parent, copied by a fork while a writer held
    /// the lock.
    pub(super) fn without_copied_visitors<S: Scope>(self) -> State {
        if self.has(WRITING) && !has_visitors::<S>() { self.without_readers() } else { self }
    }

    /// Returns the tag of the writer or the upgradable reader.
    pub(super) fn holder(self) -> u32 {
        (self.0 & TAG) as u32
    }
}
