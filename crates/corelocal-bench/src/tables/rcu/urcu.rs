//! liburcu behind a safe interface, if this machine has it, or the reason why it does not.
//!
//! Invariant: the C code registers the calling thread, and unregisters it before it returns.

use std::ffi::c_void;
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Reads;
use crate::tables::object::{Loaded, Source, once};

/// A flavour: how its readers are told from threads that have no reference.
pub trait Flavour: Send + Sync + 'static {
    /// Returns its functions.
    ///
    /// # Errors
    /// The library is missing: what to do.
    fn functions() -> anyhow::Result<Functions>;
}

type Read = unsafe extern "C" fn(*const AtomicPtr<u64>, u64, u64) -> u64;
type Times = unsafe extern "C" fn(u64);

/// The functions of the C code beside this file.
#[derive(Clone, Copy)]
pub struct Functions {
    read: Read,
    pub free: Times,
    pub wait: Times,
}

/// Aligned as liburcu's thread-local words are: glibc loads a library with such words only into a program that has some
/// itself.
#[repr(align(128))]
struct Aligned(#[expect(dead_code, reason = "its place counts")] u8);

thread_local! {
    static ALIGNED: Aligned = const { Aligned(0) };
}

impl Functions {
    fn load(flags: &'static [&'static str], prefix: &str) -> anyhow::Result<Functions> {
        ALIGNED.with(|aligned| _ = std::hint::black_box(aligned));
        let files = &[("urcu.c", include_str!("urcu.c"))];
        let object = Source { files, flags, packages: "liburcu-dev" }.load()?;
        let symbol = |name: &str| object.symbol(&format!("corelocal_urcu_{prefix}_{name}"));
        let (read, free, wait) = (symbol("read")?, symbol("free")?, symbol("wait")?);
        // SAFETY: urcu.c defines functions of these types.
        Ok(unsafe {
            Functions {
                read: transmute::<*mut c_void, Read>(read),
                free: transmute::<*mut c_void, Times>(free),
                wait: transmute::<*mut c_void, Times>(wait),
            }
        })
    }
}

macro_rules! flavour {
    ($(#[$doc:meta])* $name:ident $prefix:literal $define:literal $library:literal) => {
        $(#[$doc])*
        pub struct $name;

        impl Flavour for $name {
            fn functions() -> anyhow::Result<Functions> {
                static LOADED: Loaded<Functions> = Loaded::new();
                once(&LOADED, || Functions::load(&[$define, $library, "-lurcu-common"], $prefix))
            }
        }
    };
}

flavour! {
    /// Readers count in words of their own; grace periods use membarrier(2).
    Memb "memb" "-DFLAVOUR_MEMB" "-lurcu-memb"
}
flavour! {
    /// Like `Memb`; threads need not be registered.
    Bp "bp" "-DFLAVOUR_BP" "-lurcu-bp"
}
flavour! {
    /// Threads say now and then that they have no reference.
    Qsbr "qsbr" "-DFLAVOUR_QSBR" "-lurcu-qsbr"
}

/// A value that is read by this flavour.
pub struct Urcu {
    at: AtomicPtr<u64>,
    functions: Functions,
}

impl Urcu {
    pub fn new<F: Flavour>(value: u64) -> anyhow::Result<Urcu> {
        let functions = F::functions()?;
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
