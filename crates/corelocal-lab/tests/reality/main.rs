//! The models beside the running kernel.

#[cfg(target_arch = "x86_64")]
mod clock_pages;
mod common;
#[cfg(target_arch = "x86_64")]
mod descriptors;
mod futexes;
mod handed_on;
mod ids;
mod registrations;
