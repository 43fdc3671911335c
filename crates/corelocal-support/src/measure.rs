//! Measuring: rounds in which contestants take turns, and what disturbed them.
//!
//! ```text
//!   affinity.rs  which cpus a thread may run on
//!   engine.rs    the rounds, and how long they are
//!   loops.rs     the contestant that repeats one operation
//!   noise.rs     what else used the machine meanwhile
//!   stats.rs     medians, quartiles and paired ratios
//! ```

pub mod affinity;
pub mod engine;
pub mod loops;
pub mod noise;
pub mod stats;
