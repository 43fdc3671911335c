//! `corelocal_malloc.h`: statistics for programs, and control of what the malloc keeps.
//!
//! Invariant: the declarations are those of `include/corelocal_malloc.h`.

use core::ffi::{c_int, c_void};
use core::mem;
use core::sync::atomic::{AtomicPtr, Ordering};

use corelocal::alloc::{self, profile, reports};

/// `struct corelocal_malloc_info`.
#[repr(C)]
pub struct Info {
    in_use: usize,
    cached: usize,
    used: usize,
    idle: usize,
    mapped: usize,
    released: usize,
    huge: usize,
    large_objects: usize,
    large_bytes: usize,
}

/// Fills the first `size` bytes of `info`.
///
/// # Safety
/// - `info` points to `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_malloc_get_info(info: *mut c_void, size: usize) {
    let stats = alloc::stats();
    let all = Info {
        in_use: reports::in_use(&stats),
        cached: reports::cached(&stats),
        used: stats.used,
        idle: stats.idle,
        mapped: stats.committed,
        released: stats.released,
        huge: stats.huge,
        large_objects: stats.large_objects,
        large_bytes: stats.large_bytes,
    };
    let known = size.min(size_of::<Info>());
    // SAFETY: by the contract; a caller of a later version gets zeros for what is not known here.
    unsafe {
        info.cast::<u8>().copy_from_nonoverlapping((&raw const all).cast(), known);
        info.cast::<u8>().add(known).write_bytes(0, size - known);
    }
}

/// Gives all unused memory but `keep` bytes back to the kernel. Returns 1 if there was any, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_malloc_trim(keep: usize) -> c_int {
    c_int::from(alloc::trim(keep))
}

/// Sets the target below which idle memory stays; 0 for none.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_malloc_set_target(bytes: usize) {
    alloc::set_target((bytes != 0).then_some(bytes));
}

/// Sets the limit for what is mapped for objects; 0 for none.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_malloc_set_limit(bytes: usize) {
    alloc::set_limit((bytes != 0).then_some(bytes));
}

type Hook = extern "C" fn(usize) -> c_int;
/// The program's hook; null: none.
static HOOK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the hook that runs before an allocation fails.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_malloc_set_out_of_memory_hook(hook: Option<Hook>) {
    // Release: partner is the Acquire in `call`.
    HOOK.store(hook.map_or(core::ptr::null_mut(), |hook| hook as *mut c_void), Ordering::Release);
    alloc::set_out_of_memory_hook(hook.map(|_| call as fn(usize) -> bool));
}

fn call(size: usize) -> bool {
    let hook = HOOK.load(Ordering::Acquire);
    // SAFETY: null, or a function of this type.
    let hook = unsafe { mem::transmute::<*mut c_void, Option<Hook>>(hook) };
    hook.is_some_and(|hook| hook(size) != 0)
}

/// Starts a profile; `rate` 0 for the default. Returns 0, or -1 and `errno`.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_malloc_profile_start(rate: usize) -> c_int {
    const DEFAULT: u64 = 512 << 10;
    match profile::start(if rate == 0 { DEFAULT } else { rate as u64 }) {
        Ok(_) => 0,
        Err(why) => {
            // SAFETY: the thread's own `errno`.
            unsafe { *libc::__errno_location() = why.0 };
            -1
        }
    }
}

/// Stops the profile.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_malloc_profile_stop() {
    profile::stop();
}
