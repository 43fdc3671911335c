//! Threads that libc starts, for forked children: std's spawn takes locks of std's own, which a thread that began or
//! ended in the parent may have held during the fork. Those of libc are in order in a child.

use std::ffi::c_void;
use std::ptr;

/// Runs `body` in `N` threads at once and waits for all of them; false if one could not be started. A panic in
/// one ends the process.
pub fn run<const N: usize, F: Fn() + Sync>(body: F) -> bool {
    extern "C" fn start<F: Fn() + Sync>(body: *mut c_void) -> *mut c_void {
        // SAFETY: `run` lends the body until this thread has ended.
        unsafe { (*body.cast::<F>())() };
        ptr::null_mut()
    }
    let shared = (&raw const body).cast_mut().cast::<c_void>();
    let threads = [(); N].map(|()| {
        // SAFETY: an integer or a pointer, written below if it is used.
        let mut thread: libc::pthread_t = unsafe { std::mem::zeroed() };
        // SAFETY: `thread` is writable; the body is read only, by threads that are waited for.
        let error =
            unsafe { libc::pthread_create(&raw mut thread, ptr::null(), start::<F>, shared) };
        (error == 0).then_some(thread)
    });
    for thread in threads.into_iter().flatten() {
        // SAFETY: started above, and joined once.
        unsafe { libc::pthread_join(thread, ptr::null_mut()) };
    }
    threads.iter().all(Option::is_some)
}
