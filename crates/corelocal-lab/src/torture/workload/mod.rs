//! Operations of the library's containers, each with the sequential model it must agree with.
//!
//! ```text
//!   mod.rs         what a workload is
//!   content.rs     what an object holds, as numbers
//!   numbers.rs     counters, maxima, histograms: one value, whatever core it came from
//!   word_sections.rs       a word for each core, and locks
//!   cells.rs       the same words, several in a cell of an area
//!   items.rs       stacks and rings, of items of a word and of three
//!   batches.rs     stacks, several items at a time
//!   limited.rs     stacks with a limit, as in a malloc
//!   queues.rs      queues, with room in the segment and without
//!   mutexes.rs     mutexes that nobody waits for
//! ```
//!
//! # What happens in a round
//! ```text
//!   begin            the object comes to a known state
//!   operate          the target's, disturbed; somewhere in it another one operates, then looks
//!   end              all that the object holds now
//! ```
//!
//! Invariants:
//! - `operate` is never inlined: its copy of the section is one that only workloads run.
//! - Nobody uses an object while it begins or ends: the target is between its operations, and the rival
//!   operates only while the target is stopped in one.
//! - The numbers of a pair of operands differ so much that a result tells which of them is missing.

mod batches;
mod cells;
mod content;
mod items;
mod limited;
mod mutexes;
mod numbers;
mod queues;
mod word_sections;

use std::cell::UnsafeCell;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use content::Cells;
pub use content::Content;

/// One operation on one object, which lives as long as the process.
#[derive(Clone, Copy)]
pub struct Workload {
    /// Its name in reports and on the command line.
    pub name: &'static str,
    /// Brings the object to the state that the operation starts from, and tells it.
    pub begin: fn(start: u64) -> Content,
    /// Which state that is: how many items, for instance.
    pub start: u64,
    /// The operation, and its result. Async-signal-safe.
    pub operate: fn(i64) -> i64,
    /// Looks at the object while others are in the middle of their operations. Async-signal-safe.
    pub look: fn() -> i64,
    /// Tells all that the object holds, and may take it. Async-signal-safe.
    pub end: fn() -> Content,
    /// What must come of it.
    pub model: Model,
    /// The section stores to the slot of the cpu it runs on.
    pub by_cpu: bool,
    /// The section stores to a slot, the one of its cpu or of its id.
    pub to_slot: bool,
}

/// The result of an operation that has none.
const DONE: i64 = 0;

/// How an object behaves when one operation follows the other.
#[derive(Clone, Copy)]
pub struct Model {
    /// What to operate with.
    pub operands: fn(before: &[i64]) -> Operands,
    /// Whether an operation may have this result on a part that holds this; if so, it holds what it
    /// does afterwards.
    pub step: fn(part: &mut Vec<i64>, operand: i64, result: i64) -> bool,
    /// What a look at an object tells that holds this.
    pub look: fn(all: &[i64]) -> i64,
    /// Each core's part is an object of its own; otherwise it does not matter where an operation was
    /// done.
    pub parted: bool,
}

/// A pair of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    /// Of the operation that is disturbed.
    pub target: i64,
    /// Of the one that disturbs it.
    pub other: i64,
}

/// The operations of the library that have a critical section.
pub fn library() -> Vec<Workload> {
    let of = [
        numbers::workloads,
        word_sections::workloads,
        cells::workloads,
        items::workloads,
        batches::workloads,
        limited::workloads,
        queues::workloads,
        mutexes::workloads,
    ];
    of.into_iter().flat_map(|workloads: fn() -> Vec<Workload>| workloads()).collect()
}

/// An object of a workload.
struct Static<T>(UnsafeCell<T>);

// SAFETY: `exclusive` is for those times when nobody else uses it.
unsafe impl<T: Sync> Sync for Static<T> {}

impl<T> Static<T> {
    const fn new(object: T) -> Static<T> {
        Static(UnsafeCell::new(object))
    }

    fn shared(&self) -> &T {
        // SAFETY: exclusive use happens at other times.
        unsafe { &*self.0.get() }
    }

    /// # Safety
    /// Nobody uses it until the result is dropped.
    #[expect(clippy::mut_from_ref, reason = "the caller's promise")]
    unsafe fn exclusive(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}

/// A workload with an object of its own. Expressions stand in the functions' own bodies.
macro_rules! workload {
    (
        $name:literal, $type:ty, $model:expr, $by_cpu:expr;
        begin($begun:ident, $start:pat) $begin:expr;
        operate($object:ident, $n:ident) $operate:expr;
        look($seen:ident) $look:expr;
        end($ended:ident) $end:expr;
    ) => {{
        static OBJECT: $crate::torture::workload::Static<$type> =
            $crate::torture::workload::Static::new(<$type>::new());
        fn begin($start: u64) -> $crate::torture::workload::Content {
            // SAFETY: nobody uses an object while it begins.
            let $begun = unsafe { OBJECT.exclusive() };
            $begin
        }
        #[inline(never)]
        fn operate($n: i64) -> i64 {
            let $object = OBJECT.shared();
            $operate
        }
        fn look() -> i64 {
            let $seen = OBJECT.shared();
            $look
        }
        fn end() -> $crate::torture::workload::Content {
            // SAFETY: nobody uses an object while it ends.
            let $ended = unsafe { OBJECT.exclusive() };
            $end
        }
        $crate::torture::workload::Workload {
            name: $name,
            begin,
            start: 0,
            operate,
            look,
            end,
            model: $model,
            by_cpu: $by_cpu,
            to_slot: true,
        }
    }};
}
use workload;
