//! How much stack the calls of a malloc take: of a thread with a short one, and of a signal's handler.
//!
//! Invariant: a stack is filled with a pattern before it is used, so that what was written to is seen afterwards.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Outcome;

/// Long enough for whatever is measured.
const LEN: usize = 256 << 10;
const PATTERN: u8 = 0x5a;

/// Memory that is filled with the pattern.
struct Stack(*mut u8);

impl Stack {
    fn new() -> Result<Stack, String> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, filled within its bounds.
        unsafe {
            let at = libc::mmap(null_mut(), LEN, access, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Err("no stack".to_owned());
            }
            at.cast::<u8>().write_bytes(PATTERN, LEN);
            Ok(Stack(at.cast()))
        }
    }

    /// Returns the bytes from its end down to the lowest one that was written to.
    fn used(&self) -> usize {
        // SAFETY: in the mapping, which no thread uses now.
        let is_clean = |nth: &usize| unsafe { self.0.add(*nth).read_volatile() } == PATTERN;
        LEN - (0..LEN).take_while(is_clean).count()
    }
}

/// What is done with the malloc: small and large objects, more than cold paths take for little, and back.
fn work() {
    const COUNT: usize = 4096;
    let mut last = null_mut::<*mut c_void>();
    for nth in 0..COUNT {
        // SAFETY: an object of a word and more, in a list.
        unsafe {
            let size = [16, 24_000, 100, 2000, 5000, 70_000][nth % 6] + nth % 64;
            let at = libc::malloc(size).cast::<*mut c_void>();
            if at.is_null() {
                break;
            }
            at.write(last.cast());
            last = at;
        }
    }
    // SAFETY: numbers, and the list that was made above.
    unsafe {
        libc::free(libc::realloc(libc::calloc(1, 3 << 20), 5 << 20));
        libc::free(libc::aligned_alloc(1 << 20, 1 << 20));
        while !last.is_null() {
            let before = last.read();
            libc::free(last.cast());
            last = before.cast();
        }
    }
}

/// What is done to see what is taken without it.
fn nothing() {}

static WORK: AtomicUsize = AtomicUsize::new(0);

fn do_work() {
    match WORK.load(Ordering::Relaxed) {
        0 => nothing(),
        _ => work(),
    }
}

extern "C" fn on_thread(_: *mut c_void) -> *mut c_void {
    do_work();
    null_mut()
}

extern "C" fn on_signal(_: c_int) {
    do_work();
}

fn in_thread() -> Result<usize, String> {
    let stack = Stack::new()?;
    let (mut thread, mut attributes) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: places for results; the stack lives until the thread has ended.
    let failed = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack.0.cast(), LEN);
        let made =
            libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), on_thread, null_mut());
        made != 0 || libc::pthread_join(thread.assume_init(), null_mut()) != 0
    };
    if failed { Err("no thread".to_owned()) } else { Ok(stack.used()) }
}

fn in_handler() -> Result<usize, String> {
    let stack = Stack::new()?;
    let own = libc::stack_t { ss_sp: stack.0.cast(), ss_flags: 0, ss_size: LEN };
    // SAFETY: all bytes 0 is an action, and a handler that takes a number; the stack is used in `raise` alone.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_flags = libc::SA_ONSTACK;
        action.sa_sigaction = on_signal as *const () as usize;
        let mut before = MaybeUninit::uninit();
        libc::sigaltstack(&own, before.as_mut_ptr());
        libc::sigaction(libc::SIGUSR1, &action, null_mut());
        libc::raise(libc::SIGUSR1);
        libc::sigaltstack(before.as_ptr(), null_mut());
    }
    Ok(stack.used())
}

/// Work takes no more than so many bytes of a stack, in a handler and in a thread, the first of each and later ones.
pub fn stack(of_handler: u64, of_thread: u64) -> Outcome {
    let mut all = Vec::new();
    for (name, most, measure) in [
        ("a handler", of_handler, in_handler as fn() -> Result<usize, String>),
        ("a thread", of_thread, in_thread),
    ] {
        WORK.store(0, Ordering::Relaxed);
        let without = measure()?;
        WORK.store(1, Ordering::Relaxed);
        for _ in 0..3 {
            let used = measure()?.saturating_sub(without);
            if used as u64 > most {
                return Err(format!("{used} bytes of the stack of {name}, besides {without}"));
            }
            all.push(used);
            // What is due by time is due.
            // SAFETY: a number.
            unsafe { libc::usleep(1_100_000) };
        }
    }
    Ok(format!("{all:?} bytes"))
}

/// Work on the shortest stack that libc makes a thread with.
pub fn shortest_stack() -> Outcome {
    WORK.store(1, Ordering::Relaxed);
    let (mut thread, mut attributes) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: places for results; takes a name.
    let failed = unsafe {
        let shortest = libc::sysconf(libc::_SC_THREAD_STACK_MIN).max(16 << 10) as usize;
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), shortest);
        let made =
            libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), on_thread, null_mut());
        made != 0 || libc::pthread_join(thread.assume_init(), null_mut()) != 0
    };
    if failed { Err("no thread".to_owned()) } else { Ok("done".to_owned()) }
}
