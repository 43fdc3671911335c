//! Every section aborted, as by a debugger that goes through a program instruction by instruction: what a
//! section cannot do is done by atomics on another part, after a capped number of attempts.
//!
//! The program steps through itself: the processor's trap flag makes it take a signal after each instruction.

#![cfg(target_arch = "x86_64")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use corelocal::cid::{self, Policy};
use corelocal::percpu::area::Cell;
use corelocal::percpu::{
    Area, Counter, CounterVec, Histogram, Lock, Max, PerCpu, Queue, Ring, Stack, Word,
};
use corelocal::sync;

/// More than any operation needs, by a factor of ten at least.
const MOST_STEPS: u64 = 500_000;

static COUNTER: Counter = Counter::new();
static COUNTERS: CounterVec<4> = CounterVec::new();
static HISTOGRAM: Histogram = Histogram::new();
static MAX: Max = Max::new();
static ADDED: Word = Word::new();
static EXCHANGED: Word = Word::new();
static UPDATED: Word = Word::new();
static OF_CPU: Word<cid::CpuId> = Word::new();
static CELLS: Area<2> = Area::with_image([100, 200]);
static LOCK: Lock<u64> = Lock::new(|| 0);
static VALUES: PerCpu<u64> = PerCpu::new(|| 7);
static STACK: Stack<u64, 8> = Stack::new();
static LONG: Stack<[u64; 3], 8> = Stack::new();
static RING: Ring<u64, 8> = Ring::new();
static QUEUE: Queue<u64> = Queue::new();
static MUTEX: sync::Mutex<u64> = sync::Mutex::new(0);

static CELL: OnceLock<Cell<'static, 2>> = OnceLock::new();

/// A name, and what is done.
type Operation = (&'static str, fn() -> bool);

/// What is done, and whether its outcome is right. Each is done once before, so slots and memory are there.
const OPERATIONS: &[Operation] = &[
    ("Counter::add", || {
        COUNTER.add(3);
        true
    }),
    ("CounterVec::add", || COUNTERS.add(2, 1).is_ok()),
    ("Histogram::record", || {
        HISTOGRAM.record(9);
        true
    }),
    ("Max::record", || {
        MAX.record(COUNTER.get() as u64);
        true
    }),
    ("Word::add_fetch", || ADDED.add_fetch(5) >= 5),
    ("Word::exchange", || {
        _ = EXCHANGED.exchange(4);
        true
    }),
    ("Word::store_if_equal", || {
        _ = EXCHANGED.store_if_equal(4, 5);
        true
    }),
    ("Word::fetch_update", || UPDATED.fetch_update(|word| Some(word + 1)).is_ok()),
    ("Word::fetch_update by cpu", || OF_CPU.fetch_update(|word| Some(word + 1)).is_ok()),
    ("CellWord::fetch_update", || cell().at::<1>().fetch_update(|word| Some(word + 1)).is_ok()),
    ("Lock::lock", || {
        *LOCK.lock() += 1;
        true
    }),
    ("PerCpu::get", || *VALUES.get() == 7),
    ("Stack::push, pop", || STACK.push(2).is_ok() && STACK.pop().is_some()),
    ("Stack::push, pop of several words", || LONG.push([2; 3]).is_ok() && LONG.pop().is_some()),
    ("Ring::push, pop", || RING.push(1).is_ok() && RING.pop().is_some()),
    ("Queue::push, try_pop", || QUEUE.push(1).is_ok() && QUEUE.try_pop().is_some()),
    ("Mutex::lock", || {
        *MUTEX.lock() += 1;
        true
    }),
];

fn cell() -> &'static Cell<'static, 2> {
    CELL.get_or_init(|| CELLS.take().expect("memory"))
}

fn sum<I: cid::SlotIndex>(word: &Word<I>) -> u64 {
    word.iter().map(|(_, word)| word).sum()
}

/// Traps taken since stepping began.
static STEPS: AtomicU64 = AtomicU64::new(0);
static STEPPING: AtomicBool = AtomicBool::new(false);

/// The trap flag, with which the processor raises SIGTRAP after each instruction.
const TRAP: i64 = 1 << 8;

/// Begins stepping in what it interrupted, or ends it. Each of its signals aborts a section.
extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if STEPS.fetch_add(1, Ordering::Relaxed) == MOST_STEPS {
        let message =
            b"every_operation_ends: an operation does not end while its sections are aborted\n";
        // SAFETY: async-signal-safe calls; a valid message; the second one ends the process.
        unsafe {
            libc::write(2, message.as_ptr().cast(), message.len());
            libc::_exit(3);
        }
    }
    // SAFETY: the kernel gives a context, which nothing else uses meanwhile.
    let flags = unsafe {
        &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize]
    };
    *flags = if STEPPING.load(Ordering::Relaxed) { *flags | TRAP } else { *flags & !TRAP };
}

/// Does it while the thread is interrupted after each of its instructions; how many these were.
fn stepped(operation: fn() -> bool) -> (bool, u64) {
    STEPS.store(0, Ordering::Relaxed);
    STEPPING.store(true, Ordering::Relaxed);
    // SAFETY: the handler is there.
    unsafe { libc::raise(libc::SIGTRAP) };
    let is_right = operation();
    STEPPING.store(false, Ordering::Relaxed);
    // SAFETY: the handler is installed; stepping ends at the next trap, at the latest at this one.
    unsafe { libc::raise(libc::SIGTRAP) };
    (is_right, STEPS.load(Ordering::Relaxed))
}

/// The only test of this program: another one would give slots to ids meanwhile, and SIGTRAP is everybody's. How long
/// it takes is up to the machine: single steps may cost a hypervisor's time.
#[test]
fn every_operation_ends_while_all_sections_are_aborted() {
    if cid::policy() == Policy::Lease {
        let test = "every_operation_ends_while_all_sections_are_aborted";
        eprintln!("skipped: {test}: threads have no sections here");
        return;
    }
    // SAFETY: all-zero bytes are a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler uses atomics and its context.
    assert_eq!(unsafe { libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()) }, 0);
    let before = corelocal::rseq::stats();
    for (name, operation) in OPERATIONS {
        assert!(operation(), "{name}");
        let (is_right, steps) = stepped(*operation);
        assert!(is_right, "{name}: another outcome after {steps} steps");
        assert!(steps > 10, "{name}: not stepped through");
    }
    let after = corelocal::rseq::stats();
    assert!(after.aborts > before.aborts && after.fallbacks > before.fallbacks, "{after:?}");
    // Each was done twice.
    assert_eq!((COUNTER.get(), COUNTERS.get(2), HISTOGRAM.count()), (6, Ok(2), 2));
    assert_eq!((MAX.get(), sum(&ADDED)), (Some(6), 10));
    assert_eq!((sum(&UPDATED), sum(&OF_CPU), cell().at::<1>().added()), (2, 2, 2));
    let mut locked = 0;
    LOCK.for_each_locked(|_, value| locked += *value).expect("membarrier");
    assert_eq!((locked, *MUTEX.lock()), (2, 2));
}
