//! Counters, and sets of counters that lie side by side.

use core::ffi::{c_int, c_void};

use corelocal::foreign::base_of;
use corelocal::percpu::{Counter, CounterVec};

use crate::object::{destroy, object, rust_object};

/// A counter that threads on different cores add to without contention: a signed number of 64 bits that wraps.
///
/// An addition costs about as much as an increment of a plain variable, whatever the number of threads. Reading costs a
/// cache miss for each core that has added.
///
/// Declare it as CORELOCAL_COUNTER_INIT or as zeros, in static or any other memory. It takes 24 bytes, and 8 bytes on
/// each core that used it.
///
/// All functions may be called by any thread, in signal handlers, before main, during thread exit and in children of
/// fork, which have their own copy. They do not block or allocate. In a child of vfork an addition may be lost. Their
/// memory order is relaxed: a reader sees the additions that happen before the read.
///
/// Kernels: restartable sequences since Linux 4.18; without them additions are atomic, on lines that few threads share.
#[repr(C)]
pub struct corelocal_counter {
    opaque: [u64; 3],
}
rust_object!(corelocal_counter, Counter);

/// Adds n, wrapping. Constant time. corelocal/inline.h has it inline.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_counter_add(counter: *mut corelocal_counter, n: i64) {
    // SAFETY: by the contract.
    unsafe { object(counter) }.add(n);
}

/// Returns the value. Each addition made meanwhile is included or not. Linear in the cores in use.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_counter_get(counter: *const corelocal_counter) -> i64 {
    // SAFETY: by the contract.
    unsafe { object(counter) }.get()
}

/// Takes the value and leaves 0. Of several threads that take at once, each addition goes to exactly one. Linear in the
/// cores in use.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_counter_take(counter: *mut corelocal_counter) -> i64 {
    // SAFETY: by the contract.
    unsafe { object(counter) }.take()
}

/// Gives the counter's memory on each core back. No other thread may use it meanwhile. Afterwards it is a new one, of
/// value 0. Not needed for counters that live as long as the program.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_counter_destroy(counter: *mut corelocal_counter) {
    // SAFETY: by the contract.
    unsafe { destroy(counter) };
}

/// Many counters that lie next to each other on each core, eight in a cache line. What touches several of them touches
/// one or two lines.
///
/// Make it by corelocal_counter_set_create. A set of n counters takes 8 n bytes rounded up to a power of two, at least
/// 64, on each core that used it, and once more for the process. Only pages that were touched are resident.
///
/// Where its functions may be called is as for corelocal_counter, but for create and destroy, which use malloc and free.
#[repr(C)]
pub struct corelocal_counter_set {
    /// What inline.h finds this core's counters by. Null: it makes calls.
    base: *const u8,
    counters: *const c_void,
    /// The number of counters.
    len: usize,
    /// How many there is room for, as a base-2 logarithm.
    shift: usize,
}

/// The most counters of a set: 1 MiB on each core.
pub const CORELOCAL_COUNTER_SET_MAX: usize = 131_072;

/// Evaluates `$body` with `$set`'s counters as `$counters`, a `&CounterVec<N>` of the right length.
macro_rules! with_counters {
    ($set:expr, $counters:ident => $body:expr) => {
        with_counters!(@ $set, $counters => $body; 3 4 5 6 7 8 9 10 11 12 13 14 15 16; 17)
    };
    (@ $set:expr, $counters:ident => $body:expr; $($shift:literal)+; $last:literal) => {
        match $set.shift {
            // SAFETY: `create` made one of this length.
            $($shift => { let $counters = unsafe { &*$set.counters.cast::<CounterVec<{ 1 << $shift }>>() }; $body })+
            // SAFETY: as above; there is none of another length.
            _ => { let $counters = unsafe { &*$set.counters.cast::<CounterVec<{ 1 << $last }>>() }; $body }
        }
    };
}

/// Makes n counters of value 0, between 1 and CORELOCAL_COUNTER_SET_MAX.
///
/// Returns 0, -EINVAL for another n, or -ENOMEM. Not for signal handlers.
///
/// # Safety
/// - See the crate's invariant 3. `set` may be uninitialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_counter_set_create(
    set: *mut corelocal_counter_set,
    n: usize,
) -> c_int {
    if n == 0 || n > CORELOCAL_COUNTER_SET_MAX {
        return -libc::EINVAL;
    }
    let shift = n.next_power_of_two().trailing_zeros().max(3) as usize;
    // As long as `CounterVec` of that length: the slots, and a word for each counter.
    let bytes = size_of::<CounterVec<0>>() + (8 << shift);
    // SAFETY: not 0 bytes.
    let counters = unsafe { libc::calloc(1, bytes) };
    if counters.is_null() {
        return -libc::ENOMEM;
    }
    let mut made =
        corelocal_counter_set { base: core::ptr::null(), counters: counters.cast(), len: n, shift };
    with_counters!(made, counters => {
        debug_assert!(size_of_val(counters) == bytes);
        made.base = base_of(counters);
    });
    // SAFETY: by the contract.
    unsafe { set.write(made) };
    0
}

/// Ends a set that was made by corelocal_counter_set_create, or is zeros. No other thread may use it meanwhile. Not for
/// signal handlers.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_counter_set_destroy(set: *mut corelocal_counter_set) {
    // SAFETY: by the contract.
    let set = unsafe { &mut *set };
    if set.counters.is_null() {
        return;
    }
    with_counters!(set, counters => {
        // SAFETY: by the contract this is the only user.
        unsafe { core::ptr::drop_in_place(core::ptr::from_ref(counters).cast_mut()) }
    });
    // SAFETY: made by `calloc`, in `create`.
    unsafe { libc::free(set.counters.cast_mut().cast()) };
    let (base, counters) = (core::ptr::null(), core::ptr::null());
    *set = corelocal_counter_set { base, counters, len: 0, shift: 0 };
}

/// Adds n, wrapping, to the counter at index. Returns 0, or -ERANGE if there is no such counter. Constant time.
/// corelocal/inline.h has it inline.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_counter_set_add(
    set: *mut corelocal_counter_set,
    index: usize,
    n: i64,
) -> c_int {
    // SAFETY: by the contract.
    let set = unsafe { &*set };
    if index >= set.len {
        return -libc::ERANGE;
    }
    // The index is in range, as there is room for at least `len`.
    with_counters!(set, counters => { let _ = counters.add(index, n); });
    0
}

/// Returns the value of the counter at index, as corelocal_counter_get does; 0 if there is no such counter.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_counter_set_get(
    set: *const corelocal_counter_set,
    index: usize,
) -> i64 {
    // SAFETY: by the contract.
    let set = unsafe { &*set };
    if index >= set.len {
        return 0;
    }
    with_counters!(set, counters => counters.get(index).unwrap_or(0))
}

/// Takes the value of the counter at index, as corelocal_counter_take does; 0 if there is no such counter.
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_counter_set_take(
    set: *mut corelocal_counter_set,
    index: usize,
) -> i64 {
    // SAFETY: by the contract.
    let set = unsafe { &*set };
    if index >= set.len {
        return 0;
    }
    with_counters!(set, counters => counters.take(index).unwrap_or(0))
}

/// Stores the values of the first n counters to values, or of all if there are fewer. Returns how many were stored. Each is
/// exact, as corelocal_counter_get has it. Linear in n times the cores in use.
///
/// # Safety
/// - See the crate's invariant 3. `values` has room for n numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_counter_set_get_all(
    set: *const corelocal_counter_set,
    values: *mut i64,
    n: usize,
) -> usize {
    // SAFETY: by the contract.
    let set = unsafe { &*set };
    let stored = n.min(set.len);
    if stored > 0 {
        with_counters!(set, counters => for (at, value) in counters.iter().take(stored).enumerate() {
            // SAFETY: below n, for which there is room.
            unsafe { values.add(at).write(value) };
        });
    }
    stored
}
