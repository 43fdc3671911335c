//! The models of this protocol by name.

use super::super::case::Entry;
use super::kernel::{Age, Kernel};
use super::{ANY, Futexes, Mapping, Op, Scope};
use Scope::{Global, GlobalOnce, Private, Shared};

const TODAY: Kernel = Kernel::of(Age::PerProcess);
const SINCE_2007: Kernel = Kernel::of(Age::Private);
const UNTIL_4_1: Kernel = Kernel { wakes_locked: true, ..SINCE_2007 };
const BEFORE_2007: Kernel = Kernel::of(Age::Before2007);

fn threads<const T: usize>(kernel: Kernel, programs: [Vec<Op>; T]) -> Futexes<T> {
    Futexes {
        kernel,
        processes: [0; T],
        programs,
        mappings: [Mapping::Anonymous; 3],
        store_buffers: true,
        timeouts: false,
    }
}

/// Returns two waiters for a word, and a thread that sets it and wakes them.
fn wait_and_wake(kernel: Kernel, scope: Scope) -> Futexes<3> {
    let waiter = || vec![Op::WaitWhile(0, 0, scope)];
    threads(kernel, [waiter(), waiter(), vec![Op::Store(0, 1), Op::Wake(0, 2, ANY, scope)]])
}

/// Returns two waiters for a word, and a thread that sets both words, wakes one waiter and moves the other.
fn requeue(kernel: Kernel, target: u8) -> Futexes<3> {
    let waiter = || vec![Op::WaitWhile(0, 0, Private)];
    let requeue =
        Op::Requeue { word: 0, wake: 1, requeue: 1, target, expected: Some(1), scope: Private };
    threads(
        kernel,
        [waiter(), waiter(), vec![Op::Store(0, 1), requeue, Op::Wake(target, 1, ANY, Private)]],
    )
}

/// Returns two waiters for a word, each of which wakes one of another word afterwards, and a thread that sets the first
/// word, wakes one waiter and moves the other: a condition variable's broadcast. The thread that is woken unlocks the
/// mutex.
fn handed_on(kernel: Kernel) -> Futexes<3> {
    let waiter = || vec![Op::Wait(0, 0, ANY, Private), Op::Wake(1, 1, ANY, Private)];
    let requeue =
        Op::Requeue { word: 0, wake: 1, requeue: 1, target: 1, expected: Some(1), scope: Private };
    threads(kernel, [waiter(), waiter(), vec![Op::Exchange(0, 1), requeue]])
}

/// Returns a waiter and a waker of two processes on one word of a file.
fn processes(kernel: Kernel, waiter: Scope, waker: Scope) -> Futexes<2> {
    let programs =
        [vec![Op::WaitWhile(0, 0, waiter)], vec![Op::Store(0, 1), Op::Wake(0, 1, ANY, waker)]];
    Futexes { processes: [0, 1], mappings: [Mapping::File; 3], ..threads(kernel, programs) }
}

/// Returns two threads that wait for a robust lock, whose owner ends.
fn owner_death(scope: Scope) -> Futexes<2> {
    let waiter = vec![Op::WaitWhile(0, 0, scope)];
    Futexes { mappings: [Mapping::File; 3], ..threads(SINCE_2007, [waiter, vec![Op::Die(0)]]) }
}

/// Returns a waiter and a waker of a program that keeps the flag in one word.
fn fallback(scope: Scope) -> Futexes<2> {
    let programs =
        [vec![Op::WaitWhile(0, 0, scope)], vec![Op::Store(0, 1), Op::Wake(0, 1, ANY, scope)]];
    threads(BEFORE_2007, programs)
}

pub(in crate::sim) fn entries() -> Vec<Entry> {
    let sleeps = Some("sleeps for ever");
    let bits = |wakes: [u8; 2]| {
        let waiter = |bits| vec![Op::Wait(0, 0, bits, Private)];
        let [first, second] = wakes.map(|bits| Op::Wake(0, 1, bits, Private));
        threads(TODAY, [waiter(1), waiter(2), vec![Op::Store(0, 1), first, second]])
    };
    let wake_op = || {
        let op = Op::WakeOp {
            word: 0,
            wake: 1,
            other: 1,
            set: 1,
            compare: 0,
            wake_other: 1,
            scope: Private,
        };
        let waiters = [vec![Op::WaitWhile(0, 0, Private)], vec![Op::WaitWhile(1, 0, Private)]];
        let [one, other] = waiters;
        threads(TODAY, [one, other, vec![Op::Store(0, 1), op]])
    };
    let resize = |kernel| {
        let waiter = |word| vec![Op::WaitWhile(word, 0, Private)];
        let waker = |word| vec![Op::Store(word, 1), Op::Wake(word, 1, ANY, Private)];
        let last = [vec![Op::Resize], waker(1), waker(0)].concat();
        threads(kernel, [waiter(0), waiter(1), last])
    };
    let timeouts = Futexes { timeouts: true, ..wait_and_wake(TODAY, Private) };
    let maps = |kernel, scope| {
        let waker = vec![Op::Store(0, 1), Op::Wake(0, 1, ANY, scope)];
        threads(kernel, [vec![Op::WaitWhile(0, 0, scope)], waker, vec![Op::Map]])
    };
    vec![
        Entry::new(
            "futex/private",
            "2 waiters and a waker, PRIVATE, Linux 6.17: the table of the process",
            None,
            wait_and_wake(TODAY, Private),
        ),
        Entry::new(
            "futex/private-2007",
            "the same, Linux 2.6.22 to 6.16: one table",
            None,
            wait_and_wake(SINCE_2007, Private),
        ),
        Entry::new(
            "futex/shared",
            "the same without the flag: key 10",
            None,
            wait_and_wake(TODAY, Shared),
        ),
        Entry::new(
            "futex/before-2007",
            "the same, Linux 2.6.21: eight steps, with the map's lock",
            None,
            wait_and_wake(BEFORE_2007, Shared),
        ),
        Entry::new(
            "futex/before-2007-mmap",
            "the same, beside a thread that changes the map",
            None,
            maps(BEFORE_2007, Shared),
        ),
        Entry::new(
            "futex/private-mmap",
            "PRIVATE beside a thread that changes the map",
            None,
            maps(TODAY, Private),
        ),
        Entry::new("futex/timeouts", "waits that may time out", None, timeouts),
        Entry::new(
            "futex/requeue",
            "one waiter is woken, the other moved to another word",
            None,
            requeue(TODAY, 1),
        ),
        Entry::new(
            "futex/requeue-same-bucket",
            "the same, where both words share a bucket",
            None,
            requeue(TODAY, 2),
        ),
        Entry::new(
            "futex/requeue-to-itself",
            "the target is the word itself",
            None,
            requeue(TODAY, 0),
        ),
        Entry::new(
            "futex/requeue-handed-on",
            "a thread that is woken wakes one of those that were moved, Linux 6.17",
            None,
            handed_on(TODAY),
        ),
        Entry::new(
            "futex/requeue-handed-on-2014",
            "the same, Linux 3.15 to 4.1: waiters are woken before the others are moved",
            None,
            handed_on(UNTIL_4_1),
        ),
        Entry::new("futex/bitset", "2 waiters with bits, woken by their bits", None, bits([2, 1])),
        Entry::new(
            "futex/wake-op",
            "one call sets a word, and wakes waiters of two",
            None,
            wake_op(),
        ),
        Entry::new(
            "futex/processes",
            "2 processes and a word of a file: key 01",
            None,
            processes(TODAY, Shared, Shared),
        ),
        Entry::new(
            "futex/owner-death",
            "the owner of a robust lock ends; the waiter does not say PRIVATE",
            None,
            owner_death(Shared),
        ),
        Entry::new(
            "futex/resize",
            "the table of the process is replaced by a larger one",
            None,
            resize(TODAY),
        ),
        Entry::new(
            "futex/fallback",
            "the flag in one word, on a kernel that does not know it: ENOSYS, and again",
            None,
            fallback(Global),
        ),
        Entry::new(
            "futex/bitset-differs",
            "a wake names other bits than the waiter",
            sleeps,
            bits([2, 2]),
        ),
        Entry::new(
            "futex/no-barrier",
            "a wake looks for waiters without a barrier after the store",
            sleeps,
            wait_and_wake(Kernel { no_barrier: true, ..TODAY }, Private),
        ),
        Entry::new(
            "futex/counts-late",
            "a waiter is counted after its value was tested",
            sleeps,
            wait_and_wake(Kernel { counts_late: true, ..TODAY }, Private),
        ),
        Entry::new(
            "futex/tests-early",
            "the value is tested before the bucket is locked",
            sleeps,
            wait_and_wake(Kernel { tests_early: true, ..TODAY }, Private),
        ),
        Entry::new(
            "futex/private-and-shared",
            "a PRIVATE waiter and a waker without the flag",
            sleeps,
            processes(TODAY, Private, Shared),
        ),
        Entry::new(
            "futex/private-processes",
            "PRIVATE between processes",
            sleeps,
            processes(TODAY, Private, Private),
        ),
        Entry::new(
            "futex/owner-death-private",
            "the owner of a robust lock ends; the waiter says PRIVATE",
            sleeps,
            owner_death(Private),
        ),
        Entry::new(
            "futex/requeue-to-itself-locked",
            "a requeue to the word itself locks its bucket twice",
            Some("for a lock"),
            requeue(Kernel { locks_twice: true, ..TODAY }, 0),
        ),
        Entry::new(
            "futex/requeue-keeps-key",
            "a waiter that was moved keeps its old key",
            sleeps,
            requeue(Kernel { keeps_key: true, ..TODAY }, 1),
        ),
        Entry::new(
            "futex/requeue-counts-late",
            "Linux 3.14: a requeue counts waiters in their new bucket when it moves them",
            sleeps,
            handed_on(Kernel { counts_moved_late: true, ..UNTIL_4_1 }),
        ),
        Entry::new(
            "futex/resize-forgets",
            "waiters stay in the old table",
            Some("counts no waiter"),
            resize(Kernel { forgets_old_table: true, ..TODAY }),
        ),
        Entry::new(
            "futex/fallback-once",
            "the flag in one word; a wake is not tried again after ENOSYS",
            sleeps,
            fallback(GlobalOnce),
        ),
    ]
}
