//! Values of up to 64 bytes that are read all the time, as one, and replaced now and then.

use core::ffi::c_void;

use corelocal::rcu::RcuCopy;

use crate::object::{destroy, object, rust_object};

/// The most bytes of a value.
pub const CORELOCAL_RCU_COPY_MAX: usize = 64;

/// A value of up to 64 bytes of which readers get a copy: all of it is of one version. Zeros at first. Limits, addresses,
/// settings.
///
/// Declare it as CORELOCAL_RCU_COPY_INIT or as zeros. It takes 72 bytes, and 128 more after the first store.
///
/// load may be called by any thread, in signal handlers, before main, at thread exit and in children of fork. It is
/// wait-free, and makes no store that another thread sees. A load sees what happened before the store of its version. The
/// others are not for signal handlers.
///
/// Kernels: 5.10 and later for the fast path, as it takes membarrier(2) with the RSEQ command; else loads are under a guard.
#[repr(C)]
pub struct corelocal_rcu_copy {
    opaque: [u64; 9],
}
rust_object!(corelocal_rcu_copy, RcuCopy<[u64; 8]>);

/// Copies the first n bytes of the current version to to; n counts as at most 64. corelocal/inline.h has it inline.
///
/// # Safety
/// - See the crate's invariant 3. `to` has room for n bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rcu_copy_load(
    copy: *const corelocal_rcu_copy,
    to: *mut c_void,
    n: usize,
) {
    // SAFETY: by the contract.
    let words = unsafe { object(copy) }.load();
    // SAFETY: as many bytes as there are; by the contract `to` has room.
    unsafe {
        to.cast::<u8>()
            .copy_from_nonoverlapping(words.as_ptr().cast(), n.min(CORELOCAL_RCU_COPY_MAX));
    }
}

/// Makes n bytes, at most 64, the current version; the others are 0. Takes microseconds: two calls of membarrier(2) or more.
/// Of several threads that store at once each stores a whole version.
///
/// # Safety
/// - See the crate's invariant 3. `from` has n bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rcu_copy_store(
    copy: *mut corelocal_rcu_copy,
    from: *const c_void,
    n: usize,
) {
    let mut words = [0_u64; 8];
    // SAFETY: as many bytes as there are; by the contract `from` has them.
    unsafe {
        words
            .as_mut_ptr()
            .cast::<u8>()
            .copy_from_nonoverlapping(from.cast(), n.min(CORELOCAL_RCU_COPY_MAX));
    }
    // SAFETY: by the contract.
    unsafe { object(copy) }.store(words);
}

/// Gives its memory back. No other thread may use it meanwhile. Afterwards it is a new one, of zeros.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rcu_copy_destroy(copy: *mut corelocal_rcu_copy) {
    // SAFETY: by the contract.
    unsafe { destroy(copy) };
}
