//! Data that is read all the time and replaced now and then.
//!
//! # Readers without a name
//! As in liburcu, a reader is a thread between lock and unlock, and both have no arguments. The guard lies in the thread's
//! [`Nested`] meanwhile, with the number of nested readers.
//!
//! # Invariants
//! 1. While `depth` is not 0 the thread has a guard, and the words of `guard` change only where `read_lock` that raised it
//!    from 0 has just done so. So a signal handler, which finishes before its thread goes on, may come in between anywhere: at
//!    depth 0 it takes and ends a guard of its own, else it only counts.
//! 2. `depth` is 0 at the end of a thread, as it was for all readers that ended.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::sync::atomic::{Ordering, compiler_fence};

use corelocal::rcu::{self, Error, Guard, Ticket};

use crate::clock::span;

struct Nested {
    depth: Cell<u32>,
    guard: UnsafeCell<MaybeUninit<Guard>>,
}

thread_local! {
    static NESTED: Nested = const {
        Nested { depth: Cell::new(0), guard: UnsafeCell::new(MaybeUninit::uninit()) }
    };
}

/// Begins to read: what is loaded from now on is not freed before the reader ends. Readers nest. A few nanoseconds.
///
/// May be called by any thread, without a registration, in signal handlers that end what they begin, and in children of
/// fork. Not for coroutines that go on in another thread. Kernels: restartable sequences and membarrier(2); without them
/// readers cost atomic operations and a fence.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_rcu_read_lock() {
    NESTED.with(|nested| {
        let depth = nested.depth.get();
        if depth > 0 {
            nested.depth.set(depth + 1);
            return;
        }
        let guard = rcu::read();
        nested.depth.set(1);
        // A handler from here on does not touch the guard (invariant 1).
        compiler_fence(Ordering::SeqCst);
        // SAFETY: this thread's own, and no handler uses it.
        unsafe { (*nested.guard.get()).write(guard) };
    });
}

/// Ends what corelocal_rcu_read_lock began.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_rcu_read_unlock() {
    NESTED.with(|nested| {
        let depth = nested.depth.get();
        if depth != 1 {
            return nested.depth.set(depth.saturating_sub(1));
        }
        // SAFETY: written by the call that began (invariant 1), and read once.
        let guard = unsafe { (*nested.guard.get()).assume_init_read() };
        compiler_fence(Ordering::SeqCst);
        nested.depth.set(0);
        drop(guard);
    });
}

/// Returns 1 if the calling thread reads, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_rcu_read_ongoing() -> c_int {
    NESTED.with(|nested| c_int::from(nested.depth.get() > 0))
}

/// A reader that is not tied to nesting. See corelocal_rcu_begin.
#[repr(C)]
pub struct corelocal_rcu_reader {
    opaque: [usize; 3],
}
const _: () = assert!(size_of::<corelocal_rcu_reader>() == size_of::<Guard>());
const _: () = assert!(align_of::<corelocal_rcu_reader>() == align_of::<Guard>());

/// Does what corelocal_rcu_read_lock does, in memory of the caller's: faster, as it needs no thread-local data, and readers
/// may end in any order, by the thread that began them.
///
/// # Safety
/// - See the crate's invariant 3. `reader` may be uninitialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rcu_begin(reader: *mut corelocal_rcu_reader) {
    // SAFETY: by the contract; as long and aligned as a guard.
    unsafe { reader.cast::<Guard>().write(rcu::read()) };
}

/// Ends what corelocal_rcu_begin began.
///
/// # Safety
/// - See the crate's invariant 3. The reader has begun, by this thread, and ends once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rcu_end(reader: *mut corelocal_rcu_reader) {
    // SAFETY: by the contract.
    unsafe { core::ptr::drop_in_place(reader.cast::<Guard>()) };
}

fn errno(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Error::TimedOut) => -libc::ETIMEDOUT,
        Err(Error::InCallback | Error::UnderGuard) => -libc::EDEADLK,
        Err(Error::Refused(errno)) => -errno.0,
        Err(_) => -libc::EIO,
    }
}

/// Waits until all readers that have begun have ended, at most for so many nanoseconds; a negative number is no limit. What
/// no new reader can find may be freed then.
///
/// Returns 0. -ETIMEDOUT: readers are still there. -EDEADLK: the calling thread reads by
/// corelocal_rcu_read_lock, or is in a function of corelocal_rcu_call; for a reader of its own by corelocal_rcu_begin it would
/// wait for ever. Or the error of a membarrier(2) that is refused since. After an error nothing may be freed. Not for
/// signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_rcu_synchronize(nanoseconds: i64) -> c_int {
    // The library would wait for ever.
    if corelocal_rcu_read_ongoing() != 0 {
        return -libc::EDEADLK;
    }
    errno(match span(nanoseconds) {
        None => rcu::synchronize(),
        Some(span) => rcu::synchronize_timeout(span),
    })
}

/// Calls function with argument once all readers that have begun have ended, on a thread of the library's. `bytes`: what
/// that frees; from 1 MiB on the wait begins at once, and from 64 MiB on the caller waits.
///
/// A few nanoseconds and a small allocation. In a process of one thread that does not read, the function is called at once.
/// Functions run in no particular order. Those that have not run when the process ends do not run: call
/// corelocal_rcu_barrier before. Not for signal handlers.
///
/// # Safety
/// - See the crate's invariant 3. The function may be called by any thread, with that argument, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rcu_call(
    function: unsafe extern "C" fn(argument: *mut c_void),
    argument: *mut c_void,
    bytes: usize,
) {
    struct Call(unsafe extern "C" fn(*mut c_void), *mut c_void);
    // SAFETY: by the contract any thread may call it.
    unsafe impl Send for Call {}
    let call = Call(function, argument);
    rcu::GLOBAL.defer_bytes(bytes, move || {
        let Call(function, argument) = { call };
        // SAFETY: by the contract.
        unsafe { function(argument) };
    });
}

/// Waits until all functions of corelocal_rcu_call before this call have run. Returns 0, or as corelocal_rcu_synchronize.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_rcu_barrier() -> c_int {
    errno(rcu::barrier())
}

/// A point in time at which readers may have been there. See corelocal_rcu_start_poll.
#[repr(C)]
pub struct corelocal_rcu_poll {
    opaque: [usize; 3],
}
const _: () = assert!(size_of::<corelocal_rcu_poll>() == size_of::<Ticket>());
const _: () = assert!(align_of::<corelocal_rcu_poll>() == align_of::<Ticket>());
const _: () = assert!(!mem::needs_drop::<Ticket>());

/// Remembers now, for corelocal_rcu_poll_done. Does not wait.
///
/// # Safety
/// - See the crate's invariant 3. `poll` may be uninitialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rcu_start_poll(poll: *mut corelocal_rcu_poll) {
    // SAFETY: by the contract; as long and aligned as a ticket.
    unsafe { poll.cast::<Ticket>().write(rcu::start_poll()) };
}

/// Returns 1 if all readers that had begun at corelocal_rcu_start_poll have ended, else 0, or an error as
/// corelocal_rcu_synchronize. Does not wait; takes steps towards the end. One thread at a time may ask.
///
/// # Safety
/// - See the crate's invariant 3. The poll was started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_rcu_poll_done(poll: *const corelocal_rcu_poll) -> c_int {
    // SAFETY: by the contract.
    match unsafe { &*poll.cast::<Ticket>() }.is_complete() {
        Ok(is_complete) => c_int::from(is_complete),
        Err(error) => errno(Err(error)),
    }
}
