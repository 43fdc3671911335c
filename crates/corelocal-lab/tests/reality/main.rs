//! The models beside the running kernel.

#[cfg(target_arch = "x86_64")]
mod clock_pages;
mod futexes;
mod ids;
mod registrations;
