//! Operations in a constructor that may run before the library's own does, and thus before the library knows where
//! the kernel writes a thread's ids.
//!
//! In an optimised build the compiler keeps the offsets of these ids from one operation to the next one.

mod sandbox;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use corelocal::cid::{CpuId, NodeCid};
use corelocal::percpu::{Counter, Ring, Stack, Word};
use corelocal::{cid, rseq};
use sandbox::run_in_child;

static HITS: Counter = Counter::new();
static BY_NODE: Counter<NodeCid> = Counter::new();
static BY_CPU: Counter<CpuId> = Counter::new();
static WORD: Word = Word::new();
static STACK: Stack<u64, 8> = Stack::new();
static RING: Ring<u64, 8> = Ring::new();
/// What the constructor saw was right.
static AS_EXPECTED: AtomicBool = AtomicBool::new(false);

extern "C" fn early() {
    let first = rseq::cid();
    HITS.add(1);
    HITS.add(1);
    BY_NODE.add(1);
    BY_NODE.add(1);
    BY_CPU.add(1);
    BY_CPU.add(1);
    let sums = WORD.add_fetch(1) >= 1 && WORD.add_fetch(1) >= 1;
    let pushed = STACK.push(7).is_ok() && RING.push(7).is_ok();
    let ids = first < cid::capacity() && rseq::cid() < cid::capacity();
    AS_EXPECTED.store(sums && pushed && ids, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static EARLY: extern "C" fn() = early;

fn what_a_constructor_did_is_there() {
    assert!(AS_EXPECTED.load(Ordering::Relaxed));
    assert_eq!((HITS.get(), BY_NODE.get(), BY_CPU.get()), (2, 2, 2));
    assert_eq!(RING.drain(|item| assert_eq!(item, 7)), 1);
}

#[test]
fn as_libc_does() {
    what_a_constructor_did_is_there();
}

#[test]
fn registered_by_the_library() {
    let prepare = |command: &mut Command| {
        command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    };
    run_in_child("registered_by_the_library", prepare, what_a_constructor_did_is_there);
}

#[test]
fn registered_by_nobody() {
    let prepare = |command: &mut Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("registered_by_nobody", prepare, what_a_constructor_did_is_there);
}
