//! The kernel's steps of each operation.

use super::kernel::{Age, Phase};
use super::{Answer, Costs, Futexes, Key, Mapping, NONE, OWNER_DIED, Op, Scope, State};

impl<const T: usize> Futexes<T> {
    fn key(&self, thread: usize, word: u8, scope: Scope, state: &State<T>) -> Key {
        let process = self.processes[thread];
        let is_private = match scope {
            Scope::Private => true,
            Scope::Shared => false,
            Scope::Global | Scope::GlobalOnce => state.threads[thread].is_private,
        };
        match self.mappings[usize::from(word)] {
            _ if is_private => Key::new(Key::PRIVATE, process, word),
            Mapping::File => Key::new(Key::INODE, 0, word),
            Mapping::Anonymous => Key::new(Key::MM_SHARED, process, word),
        }
    }

    /// Returns the bucket of a key: words 0 and 2 share one.
    pub(super) fn bucket(&self, state: &State<T>, key: Key) -> usize {
        let odd = usize::from(key.word() % 2);
        if key.kind() == Key::PRIVATE && self.kernel.age == Age::PerProcess {
            let is_small = state.tables[key.process()].size == 0;
            2 + 2 * key.process() + if is_small { 0 } else { odd }
        } else {
            odd
        }
    }

    /// Returns the buckets of an operation, in the order in which they are locked: that of their addresses.
    fn buckets(&self, state: &State<T>, thread: usize, op: Op) -> (usize, Option<usize>) {
        let keys = state.threads[thread].keys;
        let (one, other) = (self.bucket(state, keys[0]), self.bucket(state, keys[1]));
        let has_two = matches!(op, Op::Requeue { .. } | Op::WakeOp { .. });
        let second = has_two && (one != other || self.kernel.locks_twice);
        (one.min(other), second.then_some(one.max(other)))
    }

    fn uses_table(&self, thread: usize, op: Op, state: &State<T>) -> bool {
        let private =
            |(word, _, scope)| self.key(thread, word, scope, state).kind() == Key::PRIVATE;
        self.kernel.age == Age::PerProcess && op.words().is_some_and(private)
    }

    /// Returns `true` if the thread has a step to take: it does not sleep, and what it needs is free.
    pub(super) fn can_go_on(&self, state: &State<T>, thread: usize) -> bool {
        let me = &state.threads[thread];
        let Some(op) = self.op(thread, state) else { return false };
        let process = usize::from(self.processes[thread]);
        // A locked operation waits for the thread's own stores.
        let is_ordered = me.buffer.is_none();
        let is_free = |bucket: usize| state.locks[bucket] == NONE;
        match me.phase {
            // One store fits into the buffer.
            Phase::User => {
                is_ordered || !matches!(op, Op::Store(..) | Op::Exchange(..) | Op::Die(_))
            }
            // The references that other kinds of keys take are atomic.
            Phase::GetKey => {
                let (word, _, scope) = op.words().expect("a system call has a word");
                is_ordered || self.key(thread, word, scope, state).kind() == Key::PRIVATE
            }
            Phase::MapLock => is_ordered && state.maps[process] != NONE,
            Phase::MapWrite => is_ordered && state.maps[process] == 0,
            Phase::LooksForWaiters => is_ordered || self.kernel.no_barrier,
            Phase::CountWaiter | Phase::CountTarget => is_ordered,
            Phase::LockBucket => is_ordered && is_free(self.buckets(state, thread, op).0),
            Phase::LockSecondBucket => self.buckets(state, thread, op).1.is_none_or(is_free),
            Phase::Unqueue => {
                !state.queue.contains(&(thread as u8)) || is_free(self.bucket(state, me.keys[0]))
            }
            Phase::Asleep => false,
            _ => true,
        }
    }

    /// Takes the thread's next step.
    pub(super) fn go_on(
        &self,
        state: &mut State<T>,
        thread: usize,
        costs: &mut Costs,
    ) -> Result<(), String> {
        let op = self.op(thread, state).ok_or("a thread goes on after its end")?;
        let process = usize::from(self.processes[thread]);
        let phase = state.threads[thread].phase;
        let is_old = self.kernel.age == Age::Before2007;
        let next = match phase {
            Phase::User => return self.begin(state, thread, op, costs),
            Phase::MapLock => {
                costs.atomics += 1;
                state.maps[process] += 1;
                Phase::GetKey
            }
            Phase::GetKey => match self.get_key(state, thread, op, costs) {
                Some(next) => next,
                None => return Ok(()),
            },
            Phase::CountWaiter => {
                costs.atomics += 1;
                let bucket = self.bucket(state, state.threads[thread].keys[0]);
                state.waiters[bucket] += 1;
                self.kernel.after(phase)
            }
            Phase::CountTarget => {
                costs.atomics += 1;
                let bucket = self.bucket(state, state.threads[thread].keys[1]);
                state.waiters[bucket] += 1;
                Phase::LockBucket
            }
            Phase::LooksForWaiters => {
                let bucket = self.bucket(state, state.threads[thread].keys[0]);
                if state.waiters[bucket] == 0 {
                    self.end(state, thread, Answer::Count(0));
                    return Ok(());
                }
                Phase::LockBucket
            }
            Phase::LockBucket => {
                costs.locks += 1;
                let (first, second) = self.buckets(state, thread, op);
                state.locks[first] = thread as u8;
                match second {
                    _ if op.is_wait() => self.kernel.after(phase),
                    Some(_) => Phase::LockSecondBucket,
                    None => Phase::Act,
                }
            }
            Phase::LockSecondBucket => {
                costs.locks += 1;
                let second = self.buckets(state, thread, op).1.expect("there are two");
                state.locks[second] = thread as u8;
                Phase::Act
            }
            Phase::TestValue => {
                let (word, ..) = op.words().expect("a wait has a word");
                if op.expected() != Some(self.load(state, thread, word)) {
                    if self.kernel.counts_before_the_test() {
                        let bucket = self.bucket(state, state.threads[thread].keys[0]);
                        state.waiters[bucket] -= 1;
                    }
                    self.leave(state, thread);
                    state.maps[process] -= u8::from(is_old);
                    self.end(state, thread, Answer::Differs);
                    return Ok(());
                }
                self.kernel.after(phase)
            }
            Phase::Queue => {
                state.threads[thread].bits = op.bits();
                state.enqueue(thread);
                self.leave(state, thread);
                self.kernel.after(phase)
            }
            Phase::Sleep => {
                if !state.queue.contains(&(thread as u8)) {
                    // It was woken before it slept.
                    self.end(state, thread, Answer::Count(0));
                    return Ok(());
                }
                Phase::Asleep
            }
            Phase::Act => {
                let answer = self.act(state, thread, op, costs);
                if self.kernel.wakes_locked {
                    self.wake_taken(state, thread);
                }
                let is_requeue = matches!(op, Op::Requeue { .. });
                if answer != Answer::Differs && is_requeue {
                    Phase::Move
                } else {
                    self.unlock(state, thread);
                    match answer {
                        Answer::Differs if self.kernel.counts_before_a_requeue() => {
                            Phase::UncountTarget { differs: true }
                        }
                        Answer::Differs => {
                            state.maps[process] -= u8::from(is_old);
                            self.end(state, thread, answer);
                            return Ok(());
                        }
                        _ if is_old => Phase::MapUnlock,
                        _ => Phase::WakeThreads,
                    }
                }
            }
            Phase::Move => {
                if let Op::Requeue { requeue, .. } = op {
                    let keys = state.threads[thread].keys;
                    state.threads[thread].woken += self.requeue(state, keys, requeue);
                }
                self.unlock(state, thread);
                if is_old { Phase::MapUnlock } else { Phase::WakeThreads }
            }
            Phase::UncountTarget { differs } => {
                costs.atomics += 1;
                let bucket = self.bucket(state, state.threads[thread].keys[1]);
                state.waiters[bucket] -= 1;
                let count = Answer::Count(state.threads[thread].woken);
                self.end(state, thread, if differs { Answer::Differs } else { count });
                return Ok(());
            }
            Phase::MapUnlock => {
                costs.atomics += 1;
                state.maps[process] -= 1;
                if op.is_wait() { Phase::Sleep } else { Phase::WakeThreads }
            }
            Phase::WakeThreads => {
                self.wake_taken(state, thread);
                if matches!(op, Op::Requeue { .. }) && self.kernel.counts_before_a_requeue() {
                    Phase::UncountTarget { differs: false }
                } else {
                    let count = state.threads[thread].woken;
                    self.end(state, thread, Answer::Count(count));
                    return Ok(());
                }
            }
            Phase::Unqueue => {
                // A waker that was faster has taken it from the queue.
                let is_queued = state.queue.contains(&(thread as u8));
                if is_queued {
                    self.take_from_queue(state, thread);
                }
                self.end(
                    state,
                    thread,
                    if is_queued { Answer::TimedOut } else { Answer::Count(0) },
                );
                return Ok(());
            }
            Phase::MapWrite => {
                costs.atomics += 1;
                state.maps[process] = NONE;
                Phase::MapWriteUnlock
            }
            Phase::MapWriteUnlock => {
                state.maps[process] = 0;
                self.end(state, thread, Answer::Count(0));
                return Ok(());
            }
            Phase::Asleep => return Err(format!("T{thread} goes on while it sleeps")),
        };
        state.threads[thread].phase = next;
        Ok(())
    }

    /// Does what a program does in user mode, up to the system call.
    fn begin(
        &self,
        state: &mut State<T>,
        thread: usize,
        op: Op,
        costs: &mut Costs,
    ) -> Result<(), String> {
        let process = usize::from(self.processes[thread]);
        costs.units += u64::from(op.words().is_some());
        match op {
            Op::Store(word, value) if self.store_buffers => {
                state.threads[thread].buffer = Some((word, value));
                self.end(state, thread, Answer::None);
            }
            Op::Store(word, value) | Op::Exchange(word, value) => {
                costs.atomics += u64::from(matches!(op, Op::Exchange(..)));
                self.store(state, thread, word, value);
                self.end(state, thread, Answer::None);
            }
            Op::WaitWhile(word, value, _) if self.load(state, thread, word) != value => {
                state.threads[thread].at += 1;
            }
            Op::Resize => {
                state.tables[process].is_replaced |= state.tables[process].size == 0;
                self.end(state, thread, Answer::Count(0));
            }
            Op::Map => state.threads[thread].phase = Phase::MapWrite,
            _ => {
                if let Op::Die(word) = op {
                    costs.atomics += 1;
                    let value = self.load(state, thread, word);
                    self.store(state, thread, word, value | OWNER_DIED);
                }
                state.threads[thread].is_private = state.is_private[process];
                let is_old = self.kernel.age == Age::Before2007;
                state.threads[thread].phase = if is_old { Phase::MapLock } else { Phase::GetKey };
            }
        }
        Ok(())
    }

    /// Returns `None` if the operation has ended.
    fn get_key(
        &self,
        state: &mut State<T>,
        thread: usize,
        op: Op,
        costs: &mut Costs,
    ) -> Option<Phase> {
        let (word, other, scope) = op.words().expect("a system call has a word");
        let process = usize::from(self.processes[thread]);
        let key = self.key(thread, word, scope, state);
        if self.does_not_know_the_flag(state, thread, op) {
            state.maps[process] -= 1;
            self.unknown_flag(state, thread, scope);
            return None;
        }
        // A reference to the inode or the map, and one less at the end.
        if key.kind() != Key::PRIVATE {
            costs.atomics += 2;
        }
        if self.uses_table(thread, op, state) {
            let table = state.tables[process];
            if table.is_replaced && table.users == 0 {
                self.replace_table(state, process);
            }
            state.tables[process].users += 1;
            state.threads[thread].uses_table = true;
        }
        let second = other.map_or(key, |other| self.key(thread, other, scope, state));
        state.threads[thread].keys = [key, second];
        Some(match op {
            _ if op.is_wait() => self.kernel.after(Phase::GetKey),
            Op::Requeue { .. } if self.kernel.counts_before_a_requeue() => Phase::CountTarget,
            Op::Wake(..) | Op::Die(_) if self.kernel.counts_waiters() => Phase::LooksForWaiters,
            _ => Phase::LockBucket,
        })
    }

    pub(super) fn does_not_know_the_flag(&self, state: &State<T>, thread: usize, op: Op) -> bool {
        let private =
            |(word, _, scope)| self.key(thread, word, scope, state).kind() == Key::PRIVATE;
        self.kernel.age == Age::Before2007 && op.words().is_some_and(private)
    }

    /// Answers ENOSYS: a program that keeps the flag in one word clears it, and tries again.
    fn unknown_flag(&self, state: &mut State<T>, thread: usize, scope: Scope) {
        if matches!(scope, Scope::Global | Scope::GlobalOnce) {
            state.is_private[usize::from(self.processes[thread])] = false;
        }
        if scope == Scope::Global {
            state.threads[thread].phase = Phase::User;
        } else {
            self.end(state, thread, Answer::Unknown);
        }
    }

    /// Gives the process a larger table: its waiters go to their new buckets.
    fn replace_table(&self, state: &mut State<T>, process: usize) {
        state.tables[process] = super::Table { size: 1, users: 0, is_replaced: false };
        if self.kernel.forgets_old_table {
            return;
        }
        let mut moved = [0, 0];
        for &thread in state.queue.iter().filter(|&&thread| thread != NONE) {
            let key = state.threads[usize::from(thread)].keys[0];
            if key.kind() == Key::PRIVATE && key.process() == process {
                moved[usize::from(key.word() % 2)] += 1;
            }
        }
        state.waiters[2 + 2 * process..][..2].copy_from_slice(&moved);
    }

    /// Wakes the threads that it has taken from the queue.
    fn wake_taken(&self, state: &mut State<T>, thread: usize) {
        let wakes = std::mem::take(&mut state.threads[thread].wakes);
        for woken in (0..T).filter(|woken| wakes & (1 << woken) != 0) {
            // One that timed out meanwhile may sleep again by now: that is another wait.
            let is_queued = state.queue.contains(&(woken as u8));
            if state.threads[woken].phase == Phase::Asleep && !is_queued {
                self.end(state, woken, Answer::Count(0));
            }
        }
    }

    /// Unlocks the buckets.
    fn unlock(&self, state: &mut State<T>, thread: usize) {
        let held = state.locks.iter_mut().filter(|holder| usize::from(**holder) == thread);
        held.for_each(|holder| *holder = NONE);
    }

    /// Unlocks the buckets, and lets go of the table.
    fn leave(&self, state: &mut State<T>, thread: usize) {
        self.unlock(state, thread);
        if std::mem::take(&mut state.threads[thread].uses_table) {
            state.tables[usize::from(self.processes[thread])].users -= 1;
        }
    }

    /// Returns from the operation. A program that waits while a word has a value looks at it again.
    fn end(&self, state: &mut State<T>, thread: usize, answer: Answer) {
        let looks_again = matches!(self.op(thread, state), Some(Op::WaitWhile(..)));
        self.leave(state, thread);
        let me = &mut state.threads[thread];
        let (at, buffer) = (me.at + u8::from(!looks_again), me.buffer);
        let answer = if answer == Answer::None { me.answer } else { answer };
        *me = super::Thread { at, buffer, answer, ..super::Thread::default() };
    }
}
