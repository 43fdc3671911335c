//! A malloc whose caches belong to cores, not to threads.
//!
//! ```
//! use corelocal::alloc::CoreLocal;
//!
//! #[global_allocator]
//! static MEMORY: CoreLocal = CoreLocal;
//!
//! let numbers: Vec<u32> = (0..1000).collect();
//! assert_eq!(numbers.iter().sum::<u32>(), 499_500);
//! ```
//!
//! Threads own no memory: what a thread frees stays with the core it runs on, and the next thread that runs there
//! uses it. Memory therefore follows the cores in use, not the threads alive, and an object that is freed by another
//! thread costs no more than any other.
//!
//! # How data flows
//! ```text
//!   front end    allocate(40): size class → one section pops from this core's stack       front.rs, core_cache/
//!                deallocate: the map's byte for the chunk → one section pushes            layout/
//!                    │ stack empty: a batch in        │ stack full: a batch out
//!   middle end   the class's depot, an array of pointers; behind it the fullest span      central/
//!                    │ no span with a free object     │ a span becomes empty
//!   back end     chunks of 64 KiB, lowest address first; large objects                    page_heap/
//!                    │ map                            │ give back idle memory
//!                the kernel
//! ```
//! `malloc(40)`: 40 bytes belong to the class of 48. A section pops the top pointer of that class's stack on the
//! current core. That is all in the common case: no thread-local state, no atomic instruction, no test of what the
//! machine supports. An object of more than 1 MiB is a run of chunks of its own.
//!
//! # Floors
//! Each folder uses those below it: `debug` and `background`, which gives memory back; `core_cache`; `central`;
//! `page_heap`; `layout`. `config` has what the environment asks for, and `hook` is called by the lower floors when
//! they take memory or get some back.
//!
//! # Where it may be used
//! Everywhere: before constructors, in destructors of threads, in signal handlers, and in the child of a fork,
//! whatever the parent's other threads were doing. No call waits for a lock whose holder cannot run (`central.rs`);
//! the one bounded wait is 100 ms when memory has run out. A forked child does not get the few objects that other
//! threads of the parent were moving at that moment. In a child of `vfork` whose parent has other threads, the malloc
//! may be used only if the `vfork` is that of `corelocal-malloc`.
//!
//! # Errors
//! Out of memory, the result is null, and `errno` is left alone. Before that, all caches are emptied, all idle memory
//! goes back to the kernel, and the allocation is tried again. A pointer that is not an object of this malloc, or
//! that is already free, ends the process with a line on stderr as soon as it is noticed: at once if it points
//! outside of all objects or was the last object of its class that this core freed; otherwise when the object goes
//! back to its span.
//!
//! # Memory that goes back to the kernel
//! With [`CoreLocal`](struct@CoreLocal) alone, the program's own calls give memory back, from 32 MiB on, in steps of
//! 16 MiB: what no object has used for half a second, and pages between objects. A program that makes no call keeps its
//! memory.
//!
//! [`CoreLocal::with_background`] allows a thread for that, as `libcorelocal_malloc.so` does: then memory goes back also
//! while the program does nothing, memory pressure is watched, and huge pages are made.
//!
//! ```
//! use corelocal::alloc::CoreLocal;
//!
//! #[global_allocator]
//! static MEMORY: CoreLocal = CoreLocal::with_background();
//! ```
//! A program that drives this itself sets a hook of its own ([`set_cold_hook`]), or has a thread that calls
//! [`release_idle`] and [`wait_for_idle`]. The hook runs when a cache is filled or emptied: during any allocation or
//! release, in signal handlers as well. So it must not panic, nor take a lock that the program holds around an
//! allocation. At [`Moment::Taken`] it may also allocate, start threads and call [`watch_pressure`]; at
//! [`Moment::Given`] it may not.
//!
//! ```
//! use corelocal::alloc;
//! use std::thread;
//! use std::time::Duration;
//!
//! // No steps in the program's own calls.
//! alloc::set_cold_hook(usize::MAX, |_| ());
//! thread::spawn(|| loop {
//!     thread::sleep(Duration::from_millis(500));
//!     // Opens files for a moment: do not use this where another thread closes descriptors that it did not open.
//!     alloc::watch_pressure();
//!     let released = alloc::release_idle();
//!     if !alloc::use_huge_pages() && released == 0 {
//!         // Returns at once if idle memory remains.
//!         alloc::wait_for_idle();
//!     }
//! });
//! # thread::sleep(Duration::from_millis(1200));
//! ```
//!
//! # Environment
//! `CORELOCAL_MALLOC` is a list of words, read at the first allocation: `background:yes`, `resident:SIZE`, `stats`,
//! `check`, `guard`, `profile` and others. They mean what they mean for `libcorelocal_malloc.so` (docs/malloc.md), except
//! for `tally`, which that library alone knows. `check` checks every object, `guard` a random selection (`debug/`).
//! What is wanted at the program's end is written by `atexit`. `corelocal heap PROGRAM` makes a heap profile.
//!
//! # Invariants
//! 1. An object is in exactly one place: in use by the program, on a core's stack, in a depot, on an orphan list, in
//!    a local buffer of a function of this module, in the quarantine, or free in its span.
//! 2. This module uses no heap and no thread-local memory except the thread's rseq area.

mod allocate;
mod background;
mod central;
mod config;
mod core_cache;
mod deallocate;
mod debug;
mod fault;
mod front;
mod global;
mod hook;
#[doc(hidden)]
pub mod inspect;
mod layout;
mod limit;
mod page_heap;
mod random;
#[doc(hidden)]
pub mod reports;
mod resize;
#[doc(hidden)]
pub mod testing;

pub use allocate::{allocate, allocate_aligned, allocate_aligned_or, allocate_or, allocate_zeroed};
pub use background::{
    allow_background, idle_bytes, release_by_time, release_idle, set_target, trim, wait_for_idle,
};
pub use deallocate::{deallocate, deallocate_aligned_sized, deallocate_sized};
pub use debug::check::verify;
pub use debug::profile;
pub use debug::stats::{ClassStats, NodeStats, Stats, cores, stats};
pub use global::CoreLocal;
pub use hook::{Moment, set_cold_hook};
pub use limit::{limit, set_limit, set_out_of_memory_hook};
pub use page_heap::huge::use_huge_pages;
pub use page_heap::pressure::watch_pressure;
pub use resize::{reallocate, usable_size};
