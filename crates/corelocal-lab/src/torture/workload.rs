//! Operations of the library's containers, each with its sequential model.
//!
//! ```text
//!   workload.rs         the workloads
//!   content.rs          an object's content, as numbers
//!   numbers.rs          counters, maxima, histograms: one value, independent of cores
//!   word_sections.rs    a word for each core, and locks
//!   cells.rs            the same words, several in a cell of an area
//!   items.rs            stacks and rings, with items of one word and of three
//!   batches.rs          stacks with several items at a time
//!   limited.rs          stacks with a limit, as in a malloc
//!   queues.rs           queues, with room in the segment and without
//!   mutexes.rs          uncontended mutexes
//!   copies.rs           values that readers copy
//!   trace.rs            events of the tracer
//! ```
//!
//! # A round
//! ```text
//!   begin            the object is put into a known state
//!   operate          the target's operation, disturbed; during it another thread operates, then looks
//!   end              the object's content is read
//! ```
//!
//! Invariants:
//! - `operate` is never inlined: its copy of the section is run by workloads only.
//! - An object is not in use while it begins or ends: the target is between its operations, and the rival operates
//!   only while the target is stopped in one.
//! - The numbers of a pair of operands differ so much that a result shows which of them is missing.

mod batches;
mod cells;
mod content;
mod copies;
mod items;
mod limited;
mod mutexes;
mod numbers;
mod queues;
mod trace;
mod word_sections;

use std::cell::UnsafeCell;

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    target_os = "linux"
))]
pub use content::Cells;
pub use content::Content;

/// One operation on one object, which lives as long as the process.
#[derive(Clone, Copy)]
pub struct Workload {
    /// The name in reports and on the command line.
    pub name: &'static str,
    /// Puts the object into the initial state, and returns its content.
    pub begin: fn(start: u64) -> Content,
    /// The initial state, for instance the number of items.
    pub start: u64,
    /// Performs the operation and returns its result. Async-signal-safe.
    pub operate: fn(i64) -> i64,
    /// Looks at the object during other threads' operations. Async-signal-safe.
    pub look: fn() -> i64,
    /// Returns the object's content, and may take it out. Async-signal-safe.
    pub end: fn() -> Content,
    /// The sequential model.
    pub model: Model,
    /// The section stores to the slot of the cpu it runs on.
    pub by_cpu: bool,
    /// The section stores to a slot, that of its cpu or of its id.
    pub to_slot: bool,
}

/// The result of an operation without one.
const DONE: i64 = 0;

/// The sequential behaviour of an object.
#[derive(Clone, Copy)]
pub struct Model {
    /// The operands for this content.
    pub operands: fn(before: &[i64]) -> Operands,
    /// Whether an operation may have this result on a part with this content. If so, updates the content.
    pub step: fn(part: &mut Vec<i64>, operand: i64, result: i64) -> bool,
    /// The result of a look at an object with this content.
    pub look: fn(all: &[i64]) -> i64,
    /// Whether each core's part is an object of its own. Otherwise it is irrelevant where an operation is done.
    pub parted: bool,
}

/// A pair of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    /// The operand of the disturbed operation.
    pub target: i64,
    /// The operand of the operation in between.
    pub other: i64,
}

/// Returns the operations of the library that have a critical section.
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
        copies::workloads,
        trace::workloads,
    ];
    of.into_iter().flat_map(|workloads: fn() -> Vec<Workload>| workloads()).collect()
}

/// An object of a workload.
struct Static<T>(UnsafeCell<T>);

// SAFETY: `exclusive` is called only while no other thread uses it.
unsafe impl<T: Sync> Sync for Static<T> {}

impl<T> Static<T> {
    const fn new(object: T) -> Static<T> {
        Static(UnsafeCell::new(object))
    }

    fn shared(&self) -> &T {
        // SAFETY: `exclusive` is called only while no other thread uses it.
        unsafe { &*self.0.get() }
    }

    /// # Safety
    /// - No other thread uses it until the result is dropped.
    #[expect(clippy::mut_from_ref, reason = "the caller's promise")]
    unsafe fn exclusive(&self) -> &mut T {
        // SAFETY: the caller guarantees that no other thread uses it.
        unsafe { &mut *self.0.get() }
    }
}

/// A workload with an object of its own. Expressions are put into the functions' own bodies.
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
            // SAFETY: an object is not in use while it begins.
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
            // SAFETY: an object is not in use while it ends.
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
