//! What is done from afar, and to what.
//!
//! Invariant: a container is used by its threads within bounds, however seldom it is emptied.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};
use corelocal::cid;
use corelocal::percpu::{self, Counter, Lock, Queue, Stack, Word};
use corelocal::sys::membarrier;

use super::contestant::{Made, Subject};

/// A subject from its parts: `step(data)` puts in, `act(data, slot)` takes out, `left(data)` counts.
struct Parts<D, S, A, L> {
    data: D,
    step: S,
    act: A,
    left: L,
}

fn made<D: Send + Sync + 'static>(
    data: D,
    step: impl Fn(&D) -> u64 + Send + Sync + 'static,
    act: impl Fn(&D, u32) -> anyhow::Result<Option<u64>> + Send + Sync + 'static,
    left: impl Fn(&D) -> u64 + Send + Sync + 'static,
) -> Made {
    Ok(Arc::new(Parts { data, step, act, left }))
}

impl<D, S, A, L> Subject for Parts<D, S, A, L>
where
    D: Send + Sync,
    S: Fn(&D) -> u64 + Send + Sync,
    A: Fn(&D, u32) -> anyhow::Result<Option<u64>> + Send + Sync,
    L: Fn(&D) -> u64 + Send + Sync,
{
    fn step(&self) -> u64 {
        (self.step)(&self.data)
    }

    fn act(&self, slot: u32) -> anyhow::Result<Option<u64>> {
        (self.act)(&self.data, slot)
    }

    fn left(&self) -> u64 {
        (self.left)(&self.data)
    }
}

/// Checks whether there are critical sections to be stopped.
fn sections() -> anyhow::Result<()> {
    ensure!(
        cid::policy() != cid::Policy::Lease,
        "no rseq: threads have no slots that could be taken away; `corelocal doctor` says why"
    );
    Ok(())
}

fn count(counter: &Counter) -> u64 {
    counter.add(1);
    1
}

/// Acts on the slots of the process, while a counter is used: nothing of it may be lost.
fn beside_a_counter(act: fn(u32) -> anyhow::Result<()>) -> Made {
    let act = move |_: &Counter, slot| act(slot).map(|()| None);
    made(Counter::new(), count, act, |counter| counter.get() as u64)
}

pub fn barrier() -> Made {
    membarrier::register_private_expedited_rseq().context("membarrier(2) is refused")?;
    beside_a_counter(|_| {
        membarrier::private_expedited_rseq().context("membarrier(2) is refused")?;
        Ok(())
    })
}

pub fn freeze() -> Made {
    sections()?;
    beside_a_counter(|slot| {
        drop(cid::freeze(slot)?);
        Ok(())
    })
}

pub fn compact() -> Made {
    sections()?;
    beside_a_counter(|_| {
        cid::compact()?;
        Ok(())
    })
}

pub fn trim() -> Made {
    beside_a_counter(|_| {
        percpu::trim()?;
        Ok(())
    })
}

pub fn counter() -> Made {
    let take = |counter: &Counter, _| Ok(Some(counter.take() as u64));
    made(Counter::new(), count, take, |counter| counter.get() as u64)
}

pub fn word() -> Made {
    sections()?;
    let add = |word: &Word| {
        word.add_fetch(1);
        1
    };
    let take = |word: &Word, slot| match word.with_frozen(slot, std::mem::take) {
        // No thread has been there.
        Err(cid::Busy::NoSlot) => Ok(Some(0)),
        taken => Ok(Some(taken?)),
    };
    made(Word::new(), add, take, |word| word.iter().map(|(_, word)| word).sum())
}

pub fn stack() -> Made {
    type Items = Stack<u64, 64>;
    sections()?;
    // Full is as good: then there is something to drain.
    let push = |stack: &Items| stack.push(1).map_or(0, |()| 1);
    let drain = |stack: &Items, slot| Ok(Some(stack.drain(slot, drop)? as u64));
    made(Items::new(), push, drain, |stack| stack.len() as u64)
}

pub fn queue() -> Made {
    /// A thread that finds room puts in this many. Then there is none until all are out.
    const ITEMS: u64 = 64;
    struct Bounded(Queue<u64>, AtomicBool);
    let push = |queue: &Bounded| {
        // Relaxed, here and below: the items have their own order, and a look at the flag that is out
        // of date finds it again at the next step.
        if !queue.1.load(Ordering::Relaxed) || !queue.1.swap(false, Ordering::Relaxed) {
            return 0;
        }
        (0..ITEMS).map(|item| queue.0.push(item).map_or(0, |()| 1)).sum()
    };
    let drain = |queue: &Bounded, _| {
        let taken = queue.0.drain().count() as u64;
        queue.1.store(true, Ordering::Relaxed);
        Ok(Some(taken))
    };
    let left = |queue: &Bounded| {
        let items: Vec<u64> = queue.0.drain().collect();
        items.into_iter().map(|item| queue.0.push(item).map_or(0, |()| 1)).sum()
    };
    made(Bounded(Queue::new(), AtomicBool::new(true)), push, drain, left)
}

pub fn lock() -> Made {
    /// About half a microsecond.
    const PAUSES: usize = 32;
    let add = |lock: &Lock<u64>| {
        // Held all the time, it would be held by a thread without a cpu nearly always.
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
        *lock.lock() += 1;
        1
    };
    let sum = |lock: &Lock<u64>, f: fn(&mut u64) -> u64| {
        let mut sum = 0;
        lock.for_each_locked(|_, value| sum += f(value)).map(|()| sum)
    };
    let take = move |lock: &Lock<u64>, _| Ok(Some(sum(lock, std::mem::take)?));
    // Refused, it falls short.
    made(Lock::default(), add, take, move |lock| sum(lock, |value| *value).unwrap_or(0))
}
