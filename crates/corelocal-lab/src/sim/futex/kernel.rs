//! How kernels implement futexes, in the versions that differ: the order of a thread's steps, which `steps.rs` takes.

use super::{ANY, Op, Scope};

/// A kernel's implementation of futexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The age of the implementation.
    pub age: Age,
    /// Whether a wake without a barrier looks for waiters. A planted fault.
    pub no_barrier: bool,
    /// Whether the value is tested before the bucket is locked. A planted fault.
    pub tests_early: bool,
    /// Whether a waiter is counted after its value was tested. A planted fault.
    pub counts_late: bool,
    /// Whether a requeue locks both buckets without a look whether they are the same. A planted fault.
    pub locks_twice: bool,
    /// Whether waiters stay in the old table when a larger one replaces it. A planted fault.
    pub forgets_old_table: bool,
    /// Whether a requeued waiter keeps its old key. A planted fault.
    pub keeps_key: bool,
    /// Whether waiters are woken with the buckets locked, before a requeue moves the others: before 4.2.
    pub wakes_locked: bool,
    /// Whether a requeue counts waiters in their new bucket only when it moves them. A planted fault.
    pub counts_moved_late: bool,
}

/// The kernels that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// 2.6.21 and before: every operation takes the map's lock, and no flag is known.
    Before2007,
    /// 2.6.22 to 6.16: private keys need no lock of the map.
    Private,
    /// 6.17 and later: private keys are in a table of the process.
    PerProcess,
}

impl Kernel {
    /// Returns a correct kernel.
    pub const fn of(age: Age) -> Kernel {
        Kernel {
            age,
            no_barrier: false,
            tests_early: false,
            counts_late: false,
            locks_twice: false,
            forgets_old_table: false,
            keeps_key: false,
            wakes_locked: false,
            counts_moved_late: false,
        }
    }

    /// Returns `true` if wakers look at a count of waiters before they lock (3.14 and later; here: since PRIVATE).
    pub(super) fn counts_waiters(self) -> bool {
        self.age != Age::Before2007
    }

    /// Returns `true` if a requeue counts itself as a waiter of the target's bucket before it locks (commit
    /// 69cd9eba3886).
    pub(super) fn counts_before_a_requeue(self) -> bool {
        self.counts_waiters() && !self.counts_moved_late
    }
}

/// The next step of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    #[default]
    User,
    /// The lock of the map, before 2007.
    MapLock,
    GetKey,
    CountWaiter,
    /// A requeue counts at the target before it locks.
    CountTarget,
    LooksForWaiters,
    LockBucket,
    LockSecondBucket,
    TestValue,
    Queue,
    MapUnlock,
    Sleep,
    Asleep,
    Act,
    /// A requeue, once it has taken those that it wakes.
    Move,
    WakeThreads,
    /// The early count of a requeue, and whether the word had another value.
    UncountTarget {
        differs: bool,
    },
    /// A wait that timed out.
    Unqueue,
    MapWrite,
    MapWriteUnlock,
}

impl Kernel {
    /// Returns the steps of a wait, up to the sleep.
    fn steps_of_a_wait(self) -> &'static [Phase] {
        use Phase::*;
        match self {
            Kernel { age: Age::Before2007, .. } => {
                &[MapLock, GetKey, LockBucket, TestValue, Queue, MapUnlock, Sleep]
            }
            Kernel { tests_early: true, .. } => {
                &[GetKey, TestValue, CountWaiter, LockBucket, Queue, Sleep]
            }
            Kernel { counts_late: true, .. } => {
                &[GetKey, LockBucket, TestValue, CountWaiter, Queue, Sleep]
            }
            _ => &[GetKey, CountWaiter, LockBucket, TestValue, Queue, Sleep],
        }
    }

    pub(super) fn after(self, phase: Phase) -> Phase {
        let steps = self.steps_of_a_wait();
        let at = steps.iter().position(|&step| step == phase);
        at.and_then(|at| steps.get(at + 1)).copied().unwrap_or(Phase::Asleep)
    }

    pub(super) fn counts_before_the_test(self) -> bool {
        let at = |phase| self.steps_of_a_wait().iter().position(|&step| step == phase);
        at(Phase::CountWaiter).is_some_and(|counts| Some(counts) < at(Phase::TestValue))
    }
}

impl Op {
    /// Returns the words of a system call, and its flag.
    pub(super) fn words(self) -> Option<(u8, Option<u8>, Scope)> {
        match self {
            Op::Wait(word, .., scope)
            | Op::WaitWhile(word, _, scope)
            | Op::Wake(word, .., scope) => Some((word, None, scope)),
            Op::Requeue { word, target, scope, .. } => Some((word, Some(target), scope)),
            Op::WakeOp { word, other, scope, .. } => Some((word, Some(other), scope)),
            Op::Die(word) => Some((word, None, Scope::Shared)),
            Op::Store(..) | Op::Exchange(..) | Op::Map | Op::Resize => None,
        }
    }

    /// Returns `true` if the operation is about this word.
    pub(super) fn names(self, word: u8) -> bool {
        match self {
            Op::Store(of, _) | Op::Exchange(of, _) => of == word,
            _ => self.words().is_some_and(|(one, other, _)| one == word || other == Some(word)),
        }
    }

    pub(super) fn is_wait(self) -> bool {
        matches!(self, Op::Wait(..) | Op::WaitWhile(..))
    }

    pub(super) fn bits(self) -> u8 {
        match self {
            Op::Wait(_, _, bits, _) | Op::Wake(_, _, bits, _) => bits,
            _ => ANY,
        }
    }

    /// Returns the value that the word must have.
    pub(super) fn expected(self) -> Option<u8> {
        match self {
            Op::Wait(_, expected, ..) | Op::WaitWhile(_, expected, _) => Some(expected),
            Op::Requeue { expected, .. } => expected,
            _ => None,
        }
    }
}
