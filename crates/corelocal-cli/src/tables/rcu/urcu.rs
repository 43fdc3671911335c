//! liburcu behind a safe interface, if the build found it, or the reason why it did not.
//!
//! Invariant: the C code registers the calling thread, and unregisters it before it returns.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::Reads;

/// A flavour: how its readers are told from threads that have no reference.
pub trait Flavour: Send + Sync + 'static {
    /// Its functions, or what to do to have them.
    const FUNCTIONS: Result<Functions, &'static str>;
}

/// What the C code beside this file does; see there.
#[derive(Clone, Copy)]
#[cfg_attr(not(urcu), allow(dead_code, reason = "the library is missing"))]
pub struct Functions {
    read: unsafe extern "C" fn(*const AtomicPtr<u64>, u64, u64) -> u64,
    pub free: unsafe extern "C" fn(u64),
    pub wait: unsafe extern "C" fn(u64),
}

macro_rules! flavour {
    ($(#[$doc:meta])* $name:ident $read:ident $free:ident $wait:ident) => {
        $(#[$doc])*
        pub struct $name;

        impl Flavour for $name {
            #[cfg(urcu)]
            const FUNCTIONS: Result<Functions, &'static str> = {
                unsafe extern "C" {
                    fn $read(at: *const AtomicPtr<u64>, expected: u64, times: u64) -> u64;
                    fn $free(times: u64);
                    fn $wait(times: u64);
                }
                Ok(Functions { read: $read, free: $free, wait: $wait })
            };

            #[cfg(not(urcu))]
            const FUNCTIONS: Result<Functions, &'static str> = Err(
                "not installed: built where pkg-config did not find liburcu; install it (liburcu-dev) and run \
                 `cargo clean -p corelocal-cli`",
            );
        }
    };
}

flavour! {
    /// Readers count in words of their own; grace periods use membarrier(2).
    Memb corelocal_urcu_memb_read corelocal_urcu_memb_free corelocal_urcu_memb_wait
}
flavour! {
    /// Like `Memb`; threads need not be registered.
    Bp corelocal_urcu_bp_read corelocal_urcu_bp_free corelocal_urcu_bp_wait
}
flavour! {
    /// Threads say now and then that they have no reference.
    Qsbr corelocal_urcu_qsbr_read corelocal_urcu_qsbr_free corelocal_urcu_qsbr_wait
}

/// A value that is read by this flavour.
pub struct Urcu {
    at: AtomicPtr<u64>,
    functions: Functions,
}

impl Urcu {
    pub fn new<F: Flavour>(value: u64) -> anyhow::Result<Urcu> {
        let functions = F::FUNCTIONS.map_err(anyhow::Error::msg)?;
        Ok(Urcu { at: AtomicPtr::new(Box::into_raw(Box::new(value))), functions })
    }
}

impl Reads for Urcu {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        // SAFETY: the address of a pointer to a value that stays until this is dropped.
        unsafe { (self.functions.read)(&raw const self.at, expected, times) }
    }
}

impl Drop for Urcu {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and no thread reads any more.
        drop(unsafe { Box::from_raw(self.at.load(Ordering::Relaxed)) });
    }
}
