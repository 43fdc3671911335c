//! Systems that are not Linux: names and numbers of the kernel's interface, and a stand-in for the kernel by std. So programs
//! that use the library compile and run there, by the portable form: atomics, std's clocks, std's parking.

pub mod alloc;
pub mod kernel;
pub mod names;
pub mod refused;
