//! What operations do to the queue of waiters, with their buckets locked.

use super::{ANY, Answer, Costs, Futexes, Key, NONE, Op, State};

impl<const T: usize> Futexes<T> {
    /// Does what an operation does with its buckets locked; a requeue then moves the other waiters
    /// ([`Futexes::requeue`]).
    pub(super) fn act(
        &self,
        state: &mut State<T>,
        thread: usize,
        op: Op,
        costs: &mut Costs,
    ) -> Answer {
        let keys = state.threads[thread].keys;
        match op {
            Op::Wake(_, count, bits, _) => self.wake(state, thread, keys[0], count.max(1), bits),
            Op::Die(_) => self.wake(state, thread, keys[0], 1, ANY),
            Op::Requeue { word, wake, expected, .. } => {
                if expected.is_some_and(|expected| expected != self.load(state, thread, word)) {
                    return Answer::Differs;
                }
                self.wake(state, thread, keys[0], wake, ANY);
            }
            Op::WakeOp { wake, other, set, compare, wake_other, .. } => {
                costs.atomics += 1;
                let old = self.load(state, thread, other);
                self.store(state, thread, other, set);
                self.wake(state, thread, keys[0], wake.max(1), ANY);
                if old == compare {
                    self.wake(state, thread, keys[1], wake_other.max(1), ANY);
                }
            }
            _ => {}
        }
        Answer::None
    }

    /// Takes up to `count` waiters from the queue, in its order. The thread wakes them later, and since 4.2 without the lock.
    fn wake(&self, state: &mut State<T>, waker: usize, key: Key, count: u8, bits: u8) {
        let mut left = count;
        for queued in state.queue.into_iter().filter(|&queued| queued != NONE) {
            let thread = usize::from(queued);
            let matches =
                state.threads[thread].keys[0] == key && state.threads[thread].bits & bits != 0;
            if matches && left > 0 {
                self.take_from_queue(state, thread);
                state.threads[waker].wakes |= 1 << thread;
                state.threads[waker].woken += 1;
                left -= 1;
            }
        }
    }

    pub(super) fn take_from_queue(&self, state: &mut State<T>, thread: usize) {
        state.dequeue(thread);
        if self.kernel.counts_waiters() {
            let bucket = self.bucket(state, state.threads[thread].keys[0]);
            state.waiters[bucket] = state.waiters[bucket].saturating_sub(1);
        }
    }

    /// Lets up to `count` waiters of the first key wait for the second, and returns their number.
    pub(super) fn requeue(&self, state: &mut State<T>, [from, to]: [Key; 2], count: u8) -> u8 {
        let (old, new) = (self.bucket(state, from), self.bucket(state, to));
        let mut moved = 0;
        for queued in state.queue.into_iter().filter(|&queued| queued != NONE) {
            let thread = usize::from(queued);
            if moved == count || state.threads[thread].keys[0] != from {
                continue;
            }
            moved += 1;
            if self.kernel.counts_waiters() {
                state.waiters[old] -= 1;
                state.waiters[new] += 1;
            }
            // In another bucket it becomes the last one; in the same it keeps its place.
            if old != new {
                state.dequeue(thread);
                state.enqueue(thread);
            }
            if !self.kernel.keeps_key {
                state.threads[thread].keys[0] = to;
            }
        }
        moved
    }
}
