//! A handler that must not take memory, and does: whatever it interrupts, a call of the malloc more often
//! than not. libc's own malloc waits for itself then, so this is asked of others only.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::object::{Object, Random};

static CAME: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: c_int) {
    let errno = crate::api::errno();
    // Relaxed: counts.
    let nth = CAME.fetch_add(1, Ordering::Relaxed);
    let mut random = Random::new(nth);
    let mut kept = [Object::NONE; 8];
    for slot in &mut kept {
        let size = random.size() % 5000 + 1;
        // SAFETY: takes a number; that a handler may not do it is what is tried.
        let at = unsafe { libc::malloc(size) };
        if at.is_null() {
            WRONG.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        *slot = Object::fill(at, size, random.next());
    }
    for object in kept {
        if object.check(object.size).is_err() {
            WRONG.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: taken above, or null.
        unsafe { libc::free(object.at.cast()) };
    }
    crate::api::set_errno(errno);
}

/// For so many milliseconds, with a signal in so many microseconds.
pub fn run(millis: u64, every_us: u64) -> Outcome {
    // SAFETY: a zeroed sigaction is valid; the handler is a function of its type; the times are valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let every = libc::timeval { tv_sec: 0, tv_usec: every_us as libc::suseconds_t };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
    let end = Instant::now() + Duration::from_millis(millis);
    let mut random = Random::new(3);
    let mut slots = [Object::NONE; 500];
    let mut operations = 0;
    while Instant::now() < end {
        for _ in 0..1000 {
            let slot = &mut slots[random.below(500) as usize];
            slot.check(slot.size)?;
            let size = random.size() % 20_000 + 1;
            // SAFETY: taken before, or null; replaced.
            let at = unsafe {
                libc::free(slot.at.cast());
                libc::malloc(size)
            };
            if at.is_null() {
                return Err(format!("nothing for {size} bytes"));
            }
            *slot = Object::fill(at, size, random.next());
            operations += 1;
        }
    }
    // SAFETY: a zeroed timer stops; the objects are given back once.
    unsafe {
        let none: libc::itimerval = std::mem::zeroed();
        libc::setitimer(libc::ITIMER_REAL, &none, std::ptr::null_mut());
        slots.iter().for_each(|object| libc::free(object.at.cast()));
    }
    let (came, wrong) = (CAME.load(Ordering::Relaxed), WRONG.load(Ordering::Relaxed));
    if wrong > 0 {
        return Err(format!("{wrong} objects of handlers were wrong"));
    }
    if came < 10 {
        return Err(format!("only {came} signals came in {millis} ms"));
    }
    Ok(format!("{operations} operations, {came} signals"))
}
