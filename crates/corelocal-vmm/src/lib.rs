//! A tiny virtual machine, so that tests read a clock page that KVM itself writes.
//!
//! A model of the hypervisor shows what its authors believed. This crate asks the hypervisor: it makes a
//! machine of one or two cpus whose guest, thirty bytes of code, does what a guest's kernel does at boot
//! (it tells KVM where its clock pages are) and then only steps: each step leaves guest mode and enters
//! it again, and at each entry KVM publishes what there is to publish. The test has the same memory mapped
//! and reads the page as a guest's programs would, while it sets the clock, stops the guest or lets only
//! one of the cpus run.
//!
//! The data's way:
//!
//! ```text
//! test: Machine::set_clock ──> KVM ──at the next Vcpu::step──> guest memory: page of that cpu
//! test: Page::read  <───────────────────────────────────────────────────┘
//! ```
//!
//! For tests only: nothing here is meant to run a real guest. Linux on x86-64 with `/dev/kvm`; elsewhere
//! the crate is empty, and without the device [`Machine::new`] says why it cannot be.
#![cfg(target_arch = "x86_64")]

mod machine;
mod memory;
pub mod payload;

pub use machine::{Machine, Unavailable, Vcpu};
