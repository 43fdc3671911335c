//! Pointers for reuse on this core.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use corelocal::percpu::Stack;

use crate::object::{destroy, object, rust_object};

/// The most pointers that a core keeps.
pub const CORELOCAL_POOL_CAPACITY: usize = 64;

/// A pointer that any thread may have.
#[repr(transparent)]
pub struct Item(pub NonNull<c_void>);

// SAFETY: what it points to is the program's concern; it comes out once for each time that it went in.
unsafe impl Send for Item {}

/// Pointers that are kept for the next thread on this core that needs one: free objects, buffers, connections. Each core
/// has a stack of up to CORELOCAL_POOL_CAPACITY.
///
/// Declare it as CORELOCAL_POOL_INIT or as zeros. It takes 16 bytes, and 1 KiB on each core that used it.
///
/// push and pop may be called by any thread, in signal handlers, before main, during thread exit and in children of fork,
/// which have copies of all pointers. They do not block or allocate. Not in children of vfork: a pointer may be lost or
/// come out twice. What is done before a push happens before what follows the pop of that pointer.
///
/// Kernels: as for corelocal_counter.
#[repr(C)]
pub struct corelocal_pool {
    opaque: [u64; 2],
}
type Pointers = Stack<Item, CORELOCAL_POOL_CAPACITY>;
rust_object!(corelocal_pool, Pointers);

/// Keeps a pointer, not null. Returns 0, -EINVAL for null, -ENOSPC if this core's stack is full or there is no memory
/// for one. Constant time.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_pool_push(
    pool: *mut corelocal_pool,
    item: *mut c_void,
) -> c_int {
    let Some(item) = NonNull::new(item) else { return -libc::EINVAL };
    // SAFETY: by the contract.
    match unsafe { object(pool) }.push(Item(item)) {
        Ok(()) => 0,
        Err(_) => -libc::ENOSPC,
    }
}

/// Returns the pointer that this core kept last, or null if it keeps none. Constant time.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_pool_pop(pool: *mut corelocal_pool) -> *mut c_void {
    // SAFETY: by the contract.
    unsafe { object(pool) }.pop().map_or(core::ptr::null_mut(), |item| item.0.as_ptr())
}

/// Ends the pool, which is a new one afterwards, and calls visit with each pointer that it kept, on whichever core, and with
/// context. visit may be null: then the pointers are forgotten. No other thread may use the pool meanwhile, nor may visit.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_pool_destroy(
    pool: *mut corelocal_pool,
    visit: Option<unsafe extern "C" fn(item: *mut c_void, context: *mut c_void)>,
    context: *mut c_void,
) {
    // SAFETY: by the contract this is the only user.
    let items = unsafe { &mut *pool.cast::<Pointers>() };
    for item in items.drain_mut() {
        if let Some(visit) = visit {
            // SAFETY: the program's own function, with what it asked for.
            unsafe { visit(item.0.as_ptr(), context) };
        }
    }
    // SAFETY: as above.
    unsafe { destroy(pool) };
}
