//! Steps and states of futexes in words.

use std::fmt::Write as _;

use super::kernel::{Age, Phase};
use super::{FLUSH, Futexes, Label, Mapping, NONE, Op, PROCESSES, State, Step, TIME_OUT, WORDS};

pub(super) fn label<const T: usize>(model: &Futexes<T>, state: &State<T>, step: Step) -> Label {
    let thread = usize::from(step.actor);
    let me = &state.threads[thread];
    if step.what == FLUSH {
        let (word, value) = me.buffer.unwrap_or_default();
        return Label::new("store buffer", "", format!("word {word} = {value} becomes visible"));
    }
    let kernel = match model.kernel.age {
        Age::Before2007 => "2.6.0 to 2.6.21",
        Age::Private => "2.6.22 to 6.16",
        Age::PerProcess => "6.17 and later",
    };
    if step.what == TIME_OUT {
        return Label::new("futex_wait", kernel, "times out");
    }
    let Some(op) = model.op(thread, state) else { return Label::new("exit", "", "has ended") };
    let call = match op {
        Op::Wait(..) | Op::WaitWhile(..) => "futex_wait",
        Op::Wake(..) => "futex_wake",
        Op::Requeue { .. } => "futex_requeue",
        Op::WakeOp { .. } => "futex_wake_op",
        Op::Die(_) => "handle_futex_death",
        Op::Map => "mmap",
        Op::Resize => "futex_hash_allocate",
        Op::Store(..) | Op::Exchange(..) => "program",
    };
    let (function, text) = match me.phase {
        Phase::User => ("program", begins(op)),
        Phase::MapLock => (call, "reads the map's lock (mmap_sem)".into()),
        Phase::GetKey if model.does_not_know_the_flag(state, thread, op) => {
            (call, "does not know the flag: returns ENOSYS".into())
        }
        Phase::GetKey => ("get_futex_key", "finds the key of the word".into()),
        Phase::CountWaiter => {
            ("futex_hb_waiters_inc", "counts itself as a waiter of the bucket".into())
        }
        Phase::CountTarget => {
            ("futex_hb_waiters_inc", "counts a waiter of the target's bucket".into())
        }
        Phase::LooksForWaiters => {
            ("futex_hb_waiters_pending", "looks whether the bucket has waiters".into())
        }
        Phase::LockBucket => (call, "locks the bucket".into()),
        Phase::LockSecondBucket => ("double_lock_hb", "locks the second bucket".into()),
        Phase::TestValue => (call, "tests the word's value".into()),
        Phase::Queue => ("futex_queue", "queues itself, and unlocks the bucket".into()),
        Phase::MapUnlock => (call, "unlocks the map".into()),
        Phase::Act if matches!(op, Op::Requeue { .. }) => {
            let wakes = if model.kernel.wakes_locked { ", and wakes them" } else { "" };
            (call, format!("takes those that it wakes from the queue{wakes}"))
        }
        Phase::Act => (call, "takes waiters from the queue, and unlocks".into()),
        Phase::Move => ("requeue_futex", "moves others to the target, and unlocks".into()),
        Phase::UncountTarget { .. } => {
            ("futex_hb_waiters_dec", "takes its count of the target's bucket back".into())
        }
        Phase::WakeThreads if model.kernel.wakes_locked => (call, "returns".into()),
        Phase::WakeThreads => ("wake_up_q", "wakes the threads that it took from the queue".into()),
        Phase::Unqueue => ("futex_unqueue", "leaves the queue".into()),
        Phase::MapWrite => (call, "locks the map for writing".into()),
        Phase::MapWriteUnlock => (call, "changes the map, and unlocks it".into()),
        Phase::Sleep if state.queue.contains(&step.actor) => (call, "goes to sleep".into()),
        Phase::Sleep => (call, "was woken before it slept".into()),
        Phase::Asleep => (call, "sleeps".into()),
    };
    let versions = match function {
        "program" => "",
        "futex_hb_waiters_inc" | "futex_hb_waiters_pending" if me.phase != Phase::CountTarget => {
            "3.14 and later"
        }
        "futex_hb_waiters_inc" | "futex_hb_waiters_dec" => "3.15 and later",
        "wake_up_q" => "4.2 and later",
        _ => kernel,
    };
    let label = Label::new(function, versions, text);
    let first = (0..T).find(|woken| me.wakes & (1 << woken) != 0);
    match (me.phase, first) {
        (Phase::WakeThreads, Some(woken)) => label.to(woken as u8),
        _ => label,
    }
}

fn begins(op: Op) -> String {
    match op {
        Op::Store(word, value) => format!("stores {value} to word {word}"),
        Op::Exchange(word, value) => format!("exchanges word {word} for {value}"),
        Op::Wait(word, expected, bits, scope) => {
            format!("waits: word {word}, if it is {expected} ({scope:?}, bits {bits:#x})")
        }
        Op::WaitWhile(word, value, scope) => {
            format!("reads word {word}, and waits while it is {value} ({scope:?})")
        }
        Op::Wake(word, count, bits, scope) => {
            format!("wakes {count} of word {word} ({scope:?}, bits {bits:#x})")
        }
        Op::Requeue { word, wake, requeue, target, scope, .. } => {
            format!("wakes {wake} of word {word}, and moves {requeue} to word {target} ({scope:?})")
        }
        Op::WakeOp { word, other, set, scope, .. } => {
            format!(
                "sets word {other} to {set}, and wakes waiters of words {word} and {other} ({scope:?})"
            )
        }
        Op::Die(word) => format!("ends while it has the robust lock in word {word}"),
        Op::Map => "changes its map".into(),
        Op::Resize => "asks for a larger table".into(),
    }
}

pub(super) fn summary<const T: usize>(model: &Futexes<T>, state: &State<T>) -> String {
    let mut text = String::new();
    for word in 0..WORDS {
        if !model.programs.iter().flatten().any(|op| op.names(word as u8)) {
            continue;
        }
        let processes = match model.mappings[word] {
            Mapping::File => 1,
            Mapping::Anonymous if model.processes.contains(&1) => PROCESSES,
            Mapping::Anonymous => 1,
        };
        let values = (0..processes)
            .map(|process| state.words[process][word].to_string())
            .collect::<Vec<_>>();
        _ = write!(text, "word {word} = {}, ", values.join(" and "));
    }
    let queued = state.queue.iter().filter(|&&thread| thread != NONE);
    let queue = queued.map(|thread| format!("T{thread}")).collect::<Vec<_>>().join(" ");
    _ = write!(text, "queue: {}", if queue.is_empty() { "empty" } else { &queue });
    text
}
