//! The per-cpu list of librseq behind a safe interface, if this machine has the library, or the reason why it does not.
//!
//! Invariants:
//! - The heads have one for each cpu number the kernel can hand out.
//! - An object belongs to the list, or to the thread that took it.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use anyhow::ensure;

use super::turns::{Counts, Item, Object};
use crate::tables::checked::{Made, Subject};
use crate::tables::object::{Loaded, Source, once};

type Make = unsafe extern "C" fn(*const c_void) -> *mut Object;
/// Takes objects and puts them back, so many times. Returns 0, or -1 for a thread that cannot be registered.
type Turns = unsafe extern "C" fn(*const Head, u64, Make, *const c_void) -> libc::c_int;

fn turns() -> anyhow::Result<Turns> {
    static LOADED: Loaded<Turns> = Loaded::new();
    once(&LOADED, || {
        let files = &[("librseq.c", include_str!("librseq.c"))];
        let source = Source { files, flags: &["-lrseq"], packages: "librseq-dev" };
        let symbol = source.load()?.symbol("corelocal_librseq_turns")?;
        // SAFETY: librseq.c defines a function of this type.
        Ok(unsafe { std::mem::transmute::<*mut c_void, Turns>(symbol) })
    })
}

/// The first object of a cpu, on lines of the cpu's own.
#[repr(C, align(128))]
#[derive(Default)]
struct Head(AtomicPtr<Object>);

struct List {
    turns: Turns,
    heads: Vec<Head>,
    counts: Counts,
}

/// Returns the contestant.
pub fn in_list() -> Made {
    let heads = (0..corelocal::cid::capacity()).map(|_| Head::default()).collect();
    let list = List { turns: turns()?, heads, counts: Counts::default() };
    ensure!(list.run(0), "librseq cannot register this thread");
    Ok(Arc::new(list))
}

impl List {
    fn run(&self, times: u64) -> bool {
        unsafe extern "C" fn make(counts: *const c_void) -> *mut Object {
            // SAFETY: what `run` gives, which outlives the call.
            let counts = unsafe { &*counts.cast::<Counts>() };
            Box::into_raw(counts.make())
        }
        let counts = (&raw const self.counts).cast();
        // SAFETY: there is a head for each cpu number (invariant 1); objects begin as the C code
        // has it.
        unsafe { (self.turns)(self.heads.as_ptr(), times, make, counts) == 0 }
    }
}

impl Subject for List {
    fn work(&self, _: usize, operations: u64) {
        if !self.run(operations) {
            self.counts.fail();
        }
    }

    fn check(&self, _asked: u64) -> anyhow::Result<()> {
        let mut found: Vec<Item> = Vec::new();
        for head in &self.heads {
            // Relaxed: the threads that worked have been joined.
            let mut next = head.0.swap(ptr::null_mut(), Ordering::Relaxed);
            while !next.is_null() {
                // SAFETY: made by `make`, and in the list (invariant 2); what is there twice is
                // never dropped.
                let item = unsafe { Box::from_raw(next) };
                next = item.link.load(Ordering::Relaxed);
                found.push(item);
            }
        }
        self.counts.check(found, 0)
    }
}
