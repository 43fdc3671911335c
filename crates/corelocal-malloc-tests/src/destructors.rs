//! Memory used by threads that are about to end, after their own data is gone: destructors of keys that
//! take and give back, again and again as far as POSIX has it; destructors of the language's own; and what
//! a thread leaves to others.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use crate::Outcome;
use crate::object::{Object, Random};

/// Of libc's keys, the first.
static KEYS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
static RUNS: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
/// What threads have left to others.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

struct Left(Object);

// SAFETY: memory with a single owner.
unsafe impl Send for Left {}

/// A value of a key: how often its destructor is to set it again, before an object.
#[repr(C)]
struct Value {
    again: u64,
    key: usize,
    object: Object,
}

fn object(seed: u64) -> Object {
    let mut random = Random::new(seed);
    let size = random.size() % 50_000 + 1;
    // SAFETY: takes a number.
    let at = unsafe { libc::malloc(size) };
    if at.is_null() {
        WRONG.fetch_add(1, Ordering::Relaxed);
        return Object::NONE;
    }
    Object::fill(at, size, random.next())
}

fn give(object: Object) {
    if object.check(object.size).is_err() {
        WRONG.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: taken by `object`, or null; given back once.
    unsafe { libc::free(object.at.cast()) };
}

fn set(key: usize, again: u64) {
    // SAFETY: takes a number.
    let value: *mut Value = unsafe { libc::malloc(size_of::<Value>()) }.cast();
    if value.is_null() {
        WRONG.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: just taken; a key that was made.
    unsafe {
        value.write(Value { again, key, object: object(again * 17 + key as u64) });
        libc::pthread_setspecific(KEYS[key].load(Ordering::Relaxed), value.cast());
    }
}

unsafe extern "C" fn destructor(value: *mut c_void) {
    RUNS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: a value of ours, which the key no longer has.
    let (Value { again, key, object: own }, value) =
        unsafe { (value.cast::<Value>().read(), value) };
    let temporary = object(again);
    give(own);
    // SAFETY: a value of ours, which the key no longer has.
    unsafe { libc::free(value) };
    give(temporary);
    if again > 0 {
        set(key, again - 1);
    } else if let Ok(mut left) = LEFT.lock() {
        left.push(Left(object(key as u64)));
    }
}

/// Ends with its thread, before or after the keys.
struct Last(Vec<u8>);

impl Drop for Last {
    fn drop(&mut self) {
        let mut copy = self.0.clone();
        copy.extend_from_slice(&[1; 3000]);
        if copy[..self.0.len()] != self.0[..] {
            WRONG.fetch_add(1, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

extern "C" fn at_exit() {
    give(object(99));
}

/// So many threads, sixteen at a time.
pub fn run(threads: u64) -> Outcome {
    for key in &KEYS {
        let mut made = 0;
        // SAFETY: the key is valid for writes; the destructor is a function of its type.
        if unsafe { libc::pthread_key_create(&mut made, Some(destructor)) } != 0 {
            return Err("no key is left".to_owned());
        }
        key.store(made, Ordering::Relaxed);
    }
    // SAFETY: a function of its type.
    unsafe { libc::atexit(at_exit) };
    let mut begun = 0;
    while begun < threads {
        let some = 16.min(threads - begun);
        begun += some;
        let work = |nth: u64| {
            // POSIX promises four rounds of destructors.
            (0..KEYS.len()).for_each(|key| set(key, nth % 3));
            LAST.with(|last| last.replace(Some(Last(vec![nth as u8; 5000]))));
            (0..100).map(object).collect::<Vec<Object>>().into_iter().for_each(give);
            Left(object(nth))
        };
        let running: Vec<_> = (0..some).map(|nth| thread::spawn(move || work(nth))).collect();
        for thread in running {
            let left = thread.join().map_err(|_| "a thread panicked".to_owned())?;
            give(left.0);
        }
    }
    let left = LEFT.lock().map(|mut left| std::mem::take(&mut *left)).unwrap_or_default();
    let count = left.len();
    left.into_iter().for_each(|left| give(left.0));
    let (runs, wrong) = (RUNS.load(Ordering::Relaxed), WRONG.load(Ordering::Relaxed));
    if wrong > 0 {
        return Err(format!("{wrong} objects were wrong"));
    }
    if runs < threads * 3 || count == 0 || left_over().is_null() {
        return Err(format!("only {runs} destructors ran for {threads} threads"));
    }
    Ok(format!("{runs} destructors of {threads} threads"))
}

/// Returns the memory that is there when the program ends, as most programs have it.
fn left_over() -> *const u8 {
    // SAFETY: takes a number; it is never given back.
    unsafe { libc::malloc(1234) }.cast()
}
