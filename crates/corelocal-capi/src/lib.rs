//! corelocal for C and C++: the functions of `libcorelocal.so` and `libcorelocal.a`.
//!
//! Each module is a subject and has a header of its name in `include/corelocal/`, which is generated from it
//! (`tests/headers.rs`). `inline.h` is written by hand.
//!
//! ```text
//!   counter.rs      counters, and sets of counters          ids.rs       cpu, concurrency id, slots
//!   area.rs         words for each core, allocated          rcu_copy.rs  values that are read as one
//!   histogram.rs    how often values occur                  mutex.rs     locks, also in shared memory and robust
//!   pool.rs         pointers for reuse on this core         rcu.rs       data that is read all the time
//!   queue.rs        pointers for another thread             clock.rs     time
//!   trace.rs        events of a flight recorder
//!   doctor.rs       which fast paths are active             error.rs     error numbers and versions
//!   inline.rs       what inline.h asks when a program starts
//! ```
//!
//! # Invariants
//! 1. An object is declared in C as words without a meaning, as long and aligned as the Rust object in its place
//!    (`object.rs`). All words 0 is a new object.
//! 2. No function panics or unwinds. One that can fail returns a negative error number.
//! 3. A pointer that a function is given is valid, unless its comment says that it may be null: a C program's duty, as
//!    with every C library.
//! 4. Only what the headers declare is exported.
#![cfg(target_os = "linux")]
#![allow(non_camel_case_types, reason = "the names of types are those of C")]

mod alloc;
mod area;
mod clock;
mod counter;
mod doctor;
mod error;
mod histogram;
mod ids;
mod inline;
mod mutex;
mod object;
mod pool;
mod queue;
mod rcu;
mod rcu_copy;
mod trace;
