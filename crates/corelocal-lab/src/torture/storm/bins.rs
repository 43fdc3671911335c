//! Containers that items go into and come out of, and what must hold of them: every item comes out once.
//!
//! # The account
//! An item is a token, a number that nobody else puts in. A flow counts the tokens that went in less
//! those that came out, and adds up a scrambled image of each likewise. In the end, with what is left in
//! the container taken out, both are 0; a token that was lost, came twice or came torn would leave
//! something, but for one chance in 2^64.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use corelocal::cid::{Cid, CpuId, NodeCid, SlotIndex};
use corelocal::percpu::{Batch, Pool, Queue, Ring, Stack, Word};

use super::heap::Heap;

/// How many containers there are.
pub const BINS: usize = 12;

/// Tokens in a batch.
pub const BATCH: usize = 8;

/// Tokens that went in less those that came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    pub tokens: i64,
    pub image: i64,
}

impl Flow {
    /// A token went in.
    pub fn put(&mut self, token: u64) {
        self.tokens += 1;
        self.image = self.image.wrapping_add(scrambled(token));
    }

    /// A token came out.
    pub fn take(&mut self, token: u64) {
        self.tokens -= 1;
        self.image = self.image.wrapping_sub(scrambled(token));
    }

    /// Takes another's over.
    pub fn add(&mut self, other: &Flow) {
        self.tokens += other.tokens;
        self.image = self.image.wrapping_add(other.image);
    }
}

/// A flow that signal handlers keep.
pub struct AtomicFlow {
    tokens: AtomicI64,
    image: AtomicI64,
}

impl AtomicFlow {
    pub const fn new() -> AtomicFlow {
        AtomicFlow { tokens: AtomicI64::new(0), image: AtomicI64::new(0) }
    }

    /// Adds a handler's own.
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

/// Different numbers look unrelated (splitmix64's finalizer; Steele, Lea, Flood 2014).
fn scrambled(token: u64) -> i64 {
    let token = (token ^ token >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let token = (token ^ token >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (token ^ token >> 31) as i64
}

/// A number that was never given before, and is never 0.
pub fn token() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A container of tokens. All but `drain` may be used in signal handlers.
pub trait Bin: Sync + Send {
    /// Puts a token in if there is room.
    fn put(&self, token: u64, flow: &mut Flow);

    /// Takes a token out if there is one.
    fn take(&self, flow: &mut Flow);

    /// As many tokens in as there is room for, and out, several at a time if that can be done.
    fn exchange_batches(&self, flow: &mut Flow) {
        for _ in 0..BATCH {
            self.put(token(), flow);
        }
        for _ in 0..BATCH {
            self.take(flow);
        }
    }

    /// Takes all out, of other cores too; what others put in meanwhile may stay.
    fn drain(&self, flow: &mut Flow);

    /// Takes all out, when nobody else uses it any more.
    fn empty(&mut self, flow: &mut Flow) {
        self.drain(flow);
    }
}

/// A token as an item, and back.
trait Item: Copy + Send + 'static {
    fn of(token: u64) -> Self;
    /// A torn one is no token that ever was.
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
        // What does not go in stays in the batch: all is put in, and what stays is taken out.
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

/// Emptying a stack: from afar where slots can be frozen, else as far as one's own core goes.
trait Drain<T> {
    fn drain_into(&self, take: impl FnMut(T));
}

impl<T: Send + 'static, const CAPACITY: usize> Drain<T> for Stack<T, CAPACITY, Cid> {
    fn drain_into(&self, take: impl FnMut(T)) {
        // A slot that somebody else has frozen keeps its items.
        let _ = self.drain_all(take);
    }
}

impl<T: Send + 'static, const CAPACITY: usize> Drain<T> for Stack<T, CAPACITY, NodeCid> {
    fn drain_into(&self, take: impl FnMut(T)) {
        // Likewise.
        let _ = self.drain_all(take);
    }
}

impl<T: Send + 'static, const CAPACITY: usize> Drain<T> for Stack<T, CAPACITY, CpuId> {
    fn drain_into(&self, take: impl FnMut(T)) {
        std::iter::from_fn(|| self.pop()).take(CAPACITY).for_each(take);
    }
}

/// A token whose drop is accounted for: a pool drops what it keeps.
struct Pooled(u64);

/// What pools dropped.
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
            Err(surplus) => _ = surplus.token(),
        }
    }

    fn take(&self, flow: &mut Flow) {
        self.try_get().into_iter().for_each(|object| flow.take(object.token()));
    }

    fn drain(&self, _: &mut Flow) {
        // A slot that somebody else has frozen keeps its objects.
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
        // Not more than there may be: others go on putting in.
        Queue::drain(self).take(1 << 16).for_each(|item| flow.take(item.token()));
    }

    fn empty(&mut self, flow: &mut Flow) {
        Queue::drain(self).for_each(|item| flow.take(item.token()));
    }
}

/// Each core's word holds a token or 0.
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
        // As with stacks.
        let _ = Word::drain(self, |_, token| flow.take(token));
    }

    fn empty(&mut self, flow: &mut Flow) {
        self.iter().filter(|(_, token)| *token != 0).for_each(|(_, token)| flow.take(token));
        *self = Word::new();
    }
}

/// All of them, with their names.
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
