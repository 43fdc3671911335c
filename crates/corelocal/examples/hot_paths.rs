//! Functions that each do one operation: `ci/instructions` counts what they execute when all goes well.

use corelocal::clock::{self, Ticks};
use corelocal::percpu::{Counter, Histogram, Queue, Ring, Stack, Word};
use corelocal::rcu::RcuCopy;
use corelocal::rseq;
use corelocal::sync::Mutex;

static COUNTER: Counter = Counter::new();
static HISTOGRAM: Histogram = Histogram::new();
static WORD: Word = Word::new();
static STACK: Stack<u64, 64> = Stack::new();
static RING: Ring<u64, 64> = Ring::new();
static QUEUE: Queue<u64> = Queue::new();
static MUTEX: Mutex<u64> = Mutex::new(0);
static COPY: RcuCopy<u64> = RcuCopy::new(1);

/// Defines functions whose names other programs find.
macro_rules! operations {
    ($($name:ident($($operand:ident: $type:ty)?) $(-> $result:ty)? $body:block)+) => {
        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            extern "C-unwind" fn $name($($operand: $type)?) $(-> $result)? $body
        )+
    };
}

operations! {
    hot_cpu_id() -> u32 { rseq::cpu_id() }
    hot_cid() -> u32 { rseq::cid() }
    hot_counter_add(n: i64) { COUNTER.add(n); }
    hot_histogram_record(n: u64) { HISTOGRAM.record(n); }
    hot_word_exchange(n: u64) -> u64 { WORD.exchange(n) }
    hot_stack_push(n: u64) { let _ = STACK.push(n); }
    hot_stack_pop() -> u64 { STACK.pop().unwrap_or(0) }
    hot_ring_push(n: u64) { let _ = RING.push(n); }
    hot_queue_push(n: u64) { let _ = QUEUE.push(n); }
    hot_mutex_add(n: u64) { *MUTEX.lock() += n; }
    hot_copy_load() -> u64 { COPY.load() }
    hot_monotonic() -> u64 { clock::monotonic() }
    hot_monotonic_unordered() -> u64 { clock::monotonic_unordered() }
    hot_ticks() -> u64 { Ticks::now().as_raw() }
}

fn main() {
    hot_counter_add(2);
    hot_histogram_record(3);
    hot_word_exchange(4);
    hot_stack_push(5);
    hot_ring_push(6);
    hot_queue_push(7);
    hot_mutex_add(8);
    let ids = (hot_cpu_id(), hot_cid());
    let times = (hot_monotonic(), hot_monotonic_unordered(), hot_ticks());
    println!(
        "{ids:?}: counter {}, popped {}, copy {}; {times:?}",
        COUNTER.get(),
        hot_stack_pop(),
        hot_copy_load(),
    );
}
