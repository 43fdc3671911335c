//! Containers that items go into and come out of, and their invariant: every item comes out once.
//!
//! # Accounting
//! An item is a token: a unique number. A flow counts the tokens that went in minus those that came out, and sums a
//! scrambled image of each in the same way. At the end, when the rest has been taken out of the container, both are
//! 0. A token that was lost, duplicated or torn leaves a difference, with probability 1 - 2^-64.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use corelocal::cid::{Cid, CpuId, NodeCid, SlotIndex};
use corelocal::percpu::{Batch, Pool, PushError, Queue, Ring, Stack, Word};

use super::heap::Heap;

/// The number of containers.
pub const BINS: usize = 12;

/// The number of tokens in a batch.
pub const BATCH: usize = 8;

/// Tokens that went in minus tokens that came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    pub tokens: i64,
    pub image: i64,
}

impl Flow {
    /// Counts a token that goes in.
    pub fn put(&mut self, token: u64) {
        self.tokens += 1;
        self.image = self.image.wrapping_add(scrambled(token));
    }

    /// Counts a token that comes out.
    pub fn take(&mut self, token: u64) {
        self.tokens -= 1;
        self.image = self.image.wrapping_sub(scrambled(token));
    }

    /// Adds another flow.
    pub fn add(&mut self, other: &Flow) {
        self.tokens += other.tokens;
        self.image = self.image.wrapping_add(other.image);
    }
}

/// A flow that signal handlers update.
pub struct AtomicFlow {
    tokens: AtomicI64,
    image: AtomicI64,
}

impl AtomicFlow {
    pub const fn new() -> AtomicFlow {
        AtomicFlow { tokens: AtomicI64::new(0), image: AtomicI64::new(0) }
    }

    /// Adds a handler's flow.
    pub fn add(&self, flow: &Flow) {
        self.tokens.fetch_add(flow.tokens, Ordering::Relaxed);
        self.image.fetch_add(flow.image, Ordering::Relaxed);
    }

    pub fn get(&self) -> Flow {
        Flow {
            tokens: self.tokens.load(Ordering::Relaxed),
            image: self.image.load(Ordering::Relaxed),
        }
    }
}

/// Returns a bijective scrambling of numbers (splitmix64's finalizer; Steele, Lea, Flood 2014).
fn scrambled(token: u64) -> i64 {
    let token = (token ^ token >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let token = (token ^ token >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (token ^ token >> 31) as i64
}

/// Returns a unique number, never 0.
pub fn token() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A container of tokens. All methods except `drain` may be used in signal handlers.
pub trait Bin: Sync + Send {
    /// Puts a token in if there is room.
    fn put(&self, token: u64, flow: &mut Flow);

    /// Takes a token out if there is one.
    fn take(&self, flow: &mut Flow);

    /// Puts in as many tokens as fit, and takes them out, several at a time if possible.
    fn exchange_batches(&self, flow: &mut Flow) {
        for _ in 0..BATCH {
            self.put(token(), flow);
        }
        for _ in 0..BATCH {
            self.take(flow);
        }
    }

    /// Takes all tokens out, including those of other cores. Tokens that are put in meanwhile may stay.
    fn drain(&self, flow: &mut Flow);

    /// Takes all tokens out, when no other thread uses it any more.
    fn empty(&mut self, flow: &mut Flow) {
        self.drain(flow);
    }
}

/// Conversion between tokens and items.
trait Item: Copy + Send + 'static {
    fn of(token: u64) -> Self;
    /// Returns the token. For a torn item this is a number that was never a token.
    fn token(self) -> u64;
}

impl Item for u64 {
    fn of(token: u64) -> u64 {
        token
    }

    fn token(self) -> u64 {
        self
    }
}

impl<const WORDS: usize> Item for [u64; WORDS] {
    fn of(token: u64) -> Self {
        std::array::from_fn(|word| token.rotate_left(word as u32))
    }

    fn token(self) -> u64 {
        let torn = |first: &u64| self != Self::of(*first);
        self.first().copied().filter(|first| !torn(first)).unwrap_or(u64::MAX)
    }
}

impl<T: Item, const CAPACITY: usize, I: SlotIndex> Bin for Stack<T, CAPACITY, I>
where
    Self: Drain<T>,
{
    fn put(&self, token: u64, flow: &mut Flow) {
        if self.push(T::of(token)).is_ok() {
            flow.put(token);
        }
    }

    fn take(&self, flow: &mut Flow) {
        self.pop().into_iter().for_each(|item| flow.take(item.token()));
    }

    fn exchange_batches(&self, flow: &mut Flow) {
        let mut batch: Batch<T, BATCH> = Batch::new();
        batch.fill(std::iter::repeat_with(|| T::of(token())));
        // Items that do not fit stay in the batch, and are taken out of it.
        let mut whole: Batch<T, BATCH> = Batch::new();
        for item in batch {
            flow.put(item.token());
            let _ = whole.push(item);
        }
        self.push_some(&mut whole);
        whole.for_each(|item| flow.take(item.token()));
        let mut batch: Batch<T, BATCH> = Batch::new();
        self.pop_some(&mut batch);
        batch.for_each(|item| flow.take(item.token()));
    }

    fn drain(&self, flow: &mut Flow) {
        self.drain_into(|item| flow.take(item.token()));
    }

    fn empty(&mut self, flow: &mut Flow) {
        self.drain_mut().for_each(|item| flow.take(item.token()));
    }
}

/// Emptying a stack: all of it if slots can be frozen, otherwise this core's part.
trait Drain<T> {
    fn drain_into(&self, take: impl FnMut(T));
}

impl<T: Send + 'static, const CAPACITY: usize> Drain<T> for Stack<T, CAPACITY, Cid> {
    fn drain_into(&self, take: impl FnMut(T)) {
        // A slot that another thread has frozen keeps its items.
        let _ = self.drain_all(take);
    }
}

impl<T: Send + 'static, const CAPACITY: usize> Drain<T> for Stack<T, CAPACITY, NodeCid> {
    fn drain_into(&self, take: impl FnMut(T)) {
        // A slot that another thread has frozen keeps its items.
        let _ = self.drain_all(take);
    }
}

impl<T: Send + 'static, const CAPACITY: usize> Drain<T> for Stack<T, CAPACITY, CpuId> {
    fn drain_into(&self, take: impl FnMut(T)) {
        std::iter::from_fn(|| self.pop()).take(CAPACITY).for_each(take);
    }
}

/// A token whose drop is counted, since a pool drops objects.
struct Pooled(u64);

/// The tokens that pools dropped.
static DROPPED: AtomicFlow = AtomicFlow::new();

impl Pooled {
    fn token(self) -> u64 {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut flow = Flow::default();
        flow.take(self.0);
        DROPPED.add(&flow);
    }
}

impl<const CAPACITY: usize> Bin for Pool<Pooled, CAPACITY> {
    fn put(&self, token: u64, flow: &mut Flow) {
        match self.try_put(Pooled(token)) {
            Ok(()) => flow.put(token),
            Err(PushError(surplus)) => _ = surplus.token(),
        }
    }

    fn take(&self, flow: &mut Flow) {
        self.try_get().into_iter().for_each(|object| flow.take(object.token()));
    }

    fn drain(&self, _: &mut Flow) {
        // A slot that another thread has frozen keeps its objects.
        let _ = self.clear();
    }

    fn empty(&mut self, flow: &mut Flow) {
        *self = Pool::new(|| Pooled(0));
        flow.add(&DROPPED.get());
    }
}

impl<T: Item, const CAPACITY: usize, I: SlotIndex> Bin for Ring<T, CAPACITY, I> {
    fn put(&self, token: u64, flow: &mut Flow) {
        if self.push(T::of(token)).is_ok() {
            flow.put(token);
        }
    }

    fn take(&self, flow: &mut Flow) {
        self.pop().into_iter().for_each(|item| flow.take(item.token()));
    }

    fn drain(&self, flow: &mut Flow) {
        Ring::drain(self, |item| flow.take(item.token()));
    }
}

impl<T: Item, I: SlotIndex> Bin for Queue<T, I> {
    fn put(&self, token: u64, flow: &mut Flow) {
        if self.push(T::of(token)).is_ok() {
            flow.put(token);
        }
    }

    fn take(&self, flow: &mut Flow) {
        self.try_pop().into_iter().for_each(|item| flow.take(item.token()));
    }

    fn drain(&self, flow: &mut Flow) {
        // A bounded number, since other threads keep putting items in.
        Queue::drain(self).take(1 << 16).for_each(|item| flow.take(item.token()));
    }

    fn empty(&mut self, flow: &mut Flow) {
        Queue::drain(self).for_each(|item| flow.take(item.token()));
    }
}

/// Keeps a token, or 0, in each core's word.
impl Bin for Word<Cid> {
    fn put(&self, token: u64, flow: &mut Flow) {
        flow.put(token);
        match Word::exchange(self, token) {
            0 => {}
            old => flow.take(old),
        }
    }

    fn take(&self, flow: &mut Flow) {
        if let Ok(token) = self.fetch_update(|token| (token != 0).then_some(0)) {
            flow.take(token);
        }
    }

    fn drain(&self, flow: &mut Flow) {
        // A slot that another thread has frozen keeps its token.
        let _ = Word::drain(self, |_, token| flow.take(token));
    }

    fn empty(&mut self, flow: &mut Flow) {
        self.iter().filter(|(_, token)| *token != 0).for_each(|(_, token)| flow.take(token));
        *self = Word::new();
    }
}

/// Returns all containers, with their names.
pub fn bins() -> [(&'static str, Box<dyn Bin>); BINS] {
    [
        ("a stack", Box::new(Stack::<u64, 64>::new())),
        ("a stack by cpu number", Box::new(Stack::<u64, 64, CpuId>::new())),
        ("a stack by node", Box::new(Stack::<u64, 64, NodeCid>::new())),
        ("a stack of long items", Box::new(Stack::<[u64; 3], 32>::new())),
        ("a pool", Box::new(Pool::<Pooled, 16>::new(|| Pooled(0)))),
        ("a ring", Box::new(Ring::<u64, 64>::new())),
        ("a ring of long items by cpu number", Box::new(Ring::<[u64; 3], 32, CpuId>::new())),
        ("a queue", Box::new(Queue::<u64>::new())),
        ("a queue of long items", Box::new(Queue::<[u64; 5]>::new())),
        ("a queue by node", Box::new(Queue::<u64, NodeCid>::new())),
        ("a word", Box::new(Word::<Cid>::new())),
        ("the malloc", Box::new(Heap::new())),
    ]
}
