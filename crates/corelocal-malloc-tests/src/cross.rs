//! Threads that free objects of other threads: objects go through shared places, and the thread that takes one out
//! checks its content and frees it.
//!
//! Invariant: an object belongs to the thread that allocated it, or took it out.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;

use crate::Outcome;
use crate::object::{Object, Random};

/// Places: fewer than threads put objects in, so that each stays for a short time only.
const PLACES: usize = 300;
/// Where an object's size and seed are.
const HEAD: usize = 16;

/// So many threads, with so many objects each.
pub fn run(threads: u64, objects: u64) -> Outcome {
    let places: Vec<AtomicPtr<c_void>> = (0..PLACES).map(|_| AtomicPtr::default()).collect();
    let work = |nth: u64| -> Result<(), String> {
        let mut random = Random::new(nth);
        for _ in 0..objects {
            let object = taken(&mut random)?;
            let place = &places[random.below(PLACES as u64) as usize];
            // AcqRel: the thread that takes it out sees the content.
            given(place.swap(object, Ordering::AcqRel))?;
            // Its own, too, in between.
            given(taken(&mut random)?)?;
        }
        Ok(())
    };
    on_threads(threads, work)
        .and_then(|()| places.into_iter().try_for_each(|place| given(place.into_inner())))?;
    Ok(format!("{} objects of {threads} threads", 2 * threads * objects))
}

/// Does this on so many threads, each with its number, to the end of all; what the first one of those that failed says.
pub fn on_threads(
    threads: u64,
    work: impl Fn(u64) -> Result<(), String> + Sync,
) -> Result<(), String> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|nth| scope.spawn(move || work(nth))).collect();
        // All of them, before the first failure is told.
        let ended: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
        let panicked = || Err("a thread panicked".to_owned());
        ended.into_iter().try_for_each(|ended| ended.unwrap_or_else(|_| panicked()))
    })
}

fn taken(random: &mut Random) -> Result<*mut c_void, String> {
    let size = HEAD + random.size() % 20_000;
    let seed = random.next();
    // SAFETY: takes a number.
    let at = unsafe { libc::malloc(size) };
    if at.is_null() {
        return Err(format!("nothing for {size} bytes"));
    }
    // SAFETY: just taken, with room for the head.
    unsafe {
        at.cast::<u64>().write(size as u64);
        at.cast::<u64>().add(1).write(seed);
    }
    Object::fill(at.wrapping_byte_add(HEAD), size - HEAD, seed);
    Ok(at)
}

fn given(at: *mut c_void) -> Result<(), String> {
    if at.is_null() {
        return Ok(());
    }
    // SAFETY: from `taken`, and this thread's.
    let (size, seed) =
        unsafe { (at.cast::<u64>().read() as usize, at.cast::<u64>().add(1).read()) };
    if !(HEAD..30_000).contains(&size) {
        return Err(format!("the head of an object at {at:p} says {size} bytes"));
    }
    let size = size - HEAD;
    Object { at: at.wrapping_byte_add(HEAD).cast(), size, seed }.check(size)?;
    // SAFETY: allocated by `malloc`, and no longer used.
    unsafe { libc::free(at) };
    Ok(())
}

/// Returns the threads that take and give back until told to stop, while `meanwhile` runs.
pub fn under_load(threads: u64, meanwhile: impl FnOnce() -> Outcome) -> Outcome {
    use std::sync::atomic::AtomicBool;
    let stop = AtomicBool::new(false);
    let work = |nth: u64| -> Result<(), String> {
        let mut random = Random::new(1000 + nth);
        let mut kept = Vec::with_capacity(64);
        // Relaxed: the flag carries no data.
        while !stop.load(Ordering::Relaxed) {
            kept.push(taken(&mut random)?);
            if kept.len() == 64 {
                kept.drain(..).try_for_each(given)?;
            }
        }
        kept.into_iter().try_for_each(given)
    };
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|nth| scope.spawn(move || work(nth))).collect();
        let outcome = meanwhile();
        stop.store(true, Ordering::Relaxed);
        for thread in running {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))?;
        }
        outcome
    })
}
