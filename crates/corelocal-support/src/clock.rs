//! What commands about the clock have in common.
//!
//! ```text
//!   counter.rs  the cpu's counter beside a clock of the kernel
//!   labels.rs   what back-ends, sources and doubts are called
//!   offset.rs   how far a clock is from one of the kernel
//! ```

pub mod counter;
pub mod labels;
pub mod offset;
