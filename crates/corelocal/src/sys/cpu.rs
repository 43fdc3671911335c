//! Cpus: which there are, and which this process may use.

pub(in crate::sys) mod cpulist;
pub(in crate::sys) mod cpuset;
pub(in crate::sys) mod possible_cpus;
