//! Pointers for another thread.

use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};

use corelocal::percpu::Queue;
use corelocal::sync::Deadline;

use crate::object::{destroy, object, rust_object};
use crate::pool::Item;

/// A queue of pointers with many producers, each on its core, and one or more consumers that may sleep: first in, first
/// out for each core, bounded by memory only.
///
/// Pointers that one thread pushed come out in order as long as it stays on its core. There is no order between cores.
///
/// Declare it as CORELOCAL_QUEUE_INIT or as zeros. It takes 128 bytes, and on each core that used it 128 bytes and a segment
/// of 4 KiB. Further segments come and go with their pointers.
///
/// push and try_pop may be called by any thread, in signal handlers, before main, during thread exit and in children of
/// fork, which have copies of all pointers. They do not block, and use no heap. Not in children of vfork. pop sleeps, and
/// is not for signal handlers. What is done before a push happens before what follows the pop of that pointer.
///
/// Kernels: as for corelocal_counter.
#[repr(C, align(64))]
pub struct corelocal_queue {
    opaque: [u64; 16],
}
rust_object!(corelocal_queue, Queue<Item>);

/// Appends a pointer, not null, and wakes a consumer if one sleeps. Returns 0, -EINVAL for null, or -ENOMEM. Constant time;
/// the first push of a process may take milliseconds.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_queue_push(
    queue: *mut corelocal_queue,
    item: *mut c_void,
) -> c_int {
    let Some(item) = NonNull::new(item) else { return -libc::EINVAL };
    // SAFETY: by the contract.
    match unsafe { object(queue) }.push(Item(item)) {
        Ok(()) => 0,
        Err(_) => -libc::ENOMEM,
    }
}

/// Returns the oldest pointer of some core, or null if there seems to be none. Constant time while the core that gave the
/// last one has more, else linear in the cores in use.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_queue_try_pop(queue: *mut corelocal_queue) -> *mut c_void {
    // SAFETY: by the contract.
    unsafe { object(queue) }.try_pop().map_or(null_mut(), |item| item.0.as_ptr())
}

/// Returns a pointer, and sleeps until there is one, at most for so many nanoseconds. Null once they have passed. A negative
/// number: for as long as it takes.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_queue_pop(
    queue: *mut corelocal_queue,
    nanoseconds: i64,
) -> *mut c_void {
    // SAFETY: by the contract.
    let queue = unsafe { object(queue) };
    let item = match crate::clock::span(nanoseconds) {
        None => Some(queue.pop()),
        Some(span) => queue.try_pop().or_else(|| queue.pop_until(Deadline::after(span))),
    };
    item.map_or(null_mut(), |item| item.0.as_ptr())
}

/// Returns 1 if the queue was empty at some moment of the call, else 0. Linear in the cores in use.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_queue_is_empty(queue: *const corelocal_queue) -> c_int {
    // SAFETY: by the contract.
    c_int::from(unsafe { object(queue) }.is_empty())
}

/// Ends the queue, which is a new one afterwards. Pointers that are still in it are forgotten: pop them before. No other
/// thread may use it meanwhile.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_queue_destroy(queue: *mut corelocal_queue) {
    // SAFETY: by the contract.
    unsafe { destroy(queue) };
}
