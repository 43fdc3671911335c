//! Tests of `forks.rs`.

use super::*;

#[test]
fn who_is_gone() {
    let me = Identity::of_this_thread();
    assert_eq!(me, Identity::of_this_thread());
    assert!(me.number() != 0 && me.number() >> Identity::BITS == 0);
    assert_eq!(Identity::of_number(me.number()), me);
    assert_eq!(generation(), me.generation());
    let other = std::thread::spawn(Identity::of_this_thread).join().unwrap();
    assert!(other != me && !other.is_gone(me) && !me.is_gone(me));
    assert!(Identity::gone().is_gone(me));
}

/// Returns what `body` finds in a forked child, which ends after a minute at the latest.
pub(crate) fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child makes system calls and atomic accesses, and starts threads at most.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a system call.
        unsafe { libc::alarm(60) };
        let right = body();
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = -1;
    // SAFETY: the child is ours, `status` writable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status == 0
}

extern "C" fn ask(seen: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: what `by_another_thread` passes.
    let (holder, gone) = unsafe { &mut *seen.cast::<(Identity, bool)>() };
    *gone = holder.is_gone(Identity::of_this_thread());
    core::ptr::null_mut()
}

/// Whether a thread that this process starts takes the holder for gone.
fn by_another_thread(holder: Identity) -> bool {
    let mut seen = (holder, false);
    // SAFETY: the thread is joined before `seen` goes.
    unsafe {
        let mut thread = core::mem::zeroed();
        let at = (&raw mut seen).cast();
        assert_eq!(libc::pthread_create(&mut thread, core::ptr::null(), ask, at), 0);
        assert_eq!(libc::pthread_join(thread, core::ptr::null_mut()), 0);
    }
    seen.1
}

/// No number is taken twice or left out, however many threads ask first.
#[test]
#[cfg_attr(miri, ignore = "forks and starts threads in the child")]
fn threads_that_ask_at_once_get_the_next_number() {
    extern "C" fn ask_soon(start: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: a flag on the stack of the thread that joins this one.
        let start = unsafe { &*start.cast::<std::sync::atomic::AtomicBool>() };
        while !start.load(std::sync::atomic::Ordering::Relaxed) {
            core::hint::spin_loop();
        }
        core::ptr::without_provenance_mut(generation() as usize)
    }
    let expected = generation() + 1;
    for _ in 0..crate::scaled::scaled(200) {
        assert!(in_child(|| {
            let start = std::sync::atomic::AtomicBool::new(false);
            // SAFETY: the threads are joined before the flag goes.
            unsafe {
                let mut threads: [libc::pthread_t; 4] = core::mem::zeroed();
                for thread in &mut threads {
                    let at = (&raw const start).cast_mut().cast();
                    assert_eq!(libc::pthread_create(thread, core::ptr::null(), ask_soon, at), 0);
                }
                start.store(true, std::sync::atomic::Ordering::Relaxed);
                threads.iter().all(|thread| {
                    let mut seen = core::ptr::null_mut();
                    assert_eq!(libc::pthread_join(*thread, &mut seen), 0);
                    seen.addr() == expected as usize
                })
            }
        }));
    }
}

/// Whatever thread of a child is asked, and whichever is asked first.
#[test]
#[cfg_attr(miri, ignore = "forks")]
fn all_threads_of_a_child_know_which_thread_forked() {
    let me = Identity::of_this_thread();
    let (tell, told) = std::sync::mpsc::channel();
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        tell.send(Identity::of_this_thread()).unwrap();
        let _ = wait.recv();
    });
    let other = told.recv().unwrap();
    assert!(!other.is_gone(me));
    let by_me = || {
        let now = Identity::of_this_thread();
        other.is_gone(now) && !me.is_gone(now)
    };
    let by_others = || by_another_thread(other) && !by_another_thread(me);
    assert!(in_child(|| by_me() && by_others()));
    assert!(in_child(|| by_others() && by_me()));
    // Whatever the process in between asked.
    assert!(in_child(|| in_child(|| by_others() && by_me())));
    assert!(in_child(|| by_others() && in_child(|| by_me() && by_others())));
    drop(end);
    thread.join().unwrap();
}
