//! The end of a program that misused a guarded object: what happened, who did it, who allocated it, who freed it.
//!
//! A page that nobody may touch turns a mistake into a signal. Its handler runs on the thread that made it, wherever
//! that was, on a stack that may be short: it allocates nothing, has its tables in the pool, and waits for nobody for
//! long. When it has told, the handler that was there before is back, and the instruction is tried again: so the
//! program ends, or goes on, as it would have.
//!
//! # Invariants
//! 1. `FORMER` is filled in before our handler can be called.
//! 2. One thread at a time uses the work space: whoever has set `REPORTS`. Who has waited a second for it goes on all
//!    the same: the text may be wrong then, and nothing else is.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};

use super::fault::{self, Fault};
use super::guard::{self, Slot};
use super::trace::{Maps, Trace};
use crate::sys::stack::REGISTERS;

/// What a report needs. All bytes 0 is one.
pub(super) struct Work {
    now: Trace,
    maps: UnsafeCell<Maps>,
}

// SAFETY: used by one thread at a time (2).
unsafe impl Sync for Work {}

static REPORTS: AtomicBool = AtomicBool::new(false);

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

struct Former(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once before it is read (1).
unsafe impl Sync for Former {}

static FORMER: [Former; 2] = [const { Former(UnsafeCell::new(MaybeUninit::zeroed())) }; 2];

/// Ways to touch what one must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Freed,
    Behind,
    Before,
    Nothing,
}

/// Takes the signals, once.
#[cold]
pub(super) fn install() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut ours = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all bytes 0 is a handler of no signals, with an empty set; then places to write to, in this order.
    unsafe {
        let ours = ours.assume_init_mut();
        ours.sa_sigaction = handle as extern "C" fn(_, _, _) as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut ours.sa_mask);
        for (signal, former) in SIGNALS.into_iter().zip(&FORMER) {
            let asked = libc::sigaction(signal, null(), (*former.0.get()).as_mut_ptr());
            if asked == 0 {
                libc::sigaction(signal, ours, null_mut());
            }
        }
    }
}

fn former(signal: c_int) -> libc::sigaction {
    let nth = usize::from(signal != libc::SIGSEGV);
    // SAFETY: (1); all bytes 0 is the default.
    unsafe { (*FORMER[nth].0.get()).assume_init() }
}

/// Makes the handler the one that it was.
fn restore(signal: c_int, action: &libc::sigaction) {
    // SAFETY: an action that libc told us, or the default.
    unsafe { libc::sigaction(signal, action, null_mut()) };
}

/// Makes the action the default one.
fn reset(signal: c_int) {
    // SAFETY: all bytes 0 is the default.
    restore(signal, &unsafe { MaybeUninit::zeroed().assume_init() });
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's, for as long as the handler runs; of faults it has an address.
    let (is_fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    match guard::slot_of(address).filter(|_| is_fault) {
        Some(slot) => {
            // SAFETY: the thread's own `errno`.
            let errno = unsafe { *libc::__errno_location() };
            begin();
            tell(slot, address, context);
            restore(signal, &former(signal));
            end();
            // SAFETY: likewise.
            unsafe { *libc::__errno_location() = errno };
        }
        None => forward(signal, info, context, is_fault),
    }
}

/// Does for the program's handler, which is about to run, what the kernel would do before it calls it.
fn prepare(signal: c_int, former: &libc::sigaction) {
    // SAFETY: sets of signals, for the calling thread; the kernel puts its mask back when our handler returns.
    unsafe {
        if former.sa_flags & libc::SA_NODEFER != 0 {
            let mut own = MaybeUninit::uninit();
            libc::sigemptyset(own.as_mut_ptr());
            libc::sigaddset(own.as_mut_ptr(), signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, own.as_ptr(), null_mut());
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &former.sa_mask, null_mut());
    }
    if former.sa_flags & libc::SA_RESETHAND != 0 {
        reset(signal);
    }
}

/// Does with a signal that is not for us what would have been done.
fn forward(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    let former = former(signal);
    match former.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            reset(signal);
            // A fault happens again by itself.
            if !is_fault {
                // SAFETY: no preconditions; it comes when this handler is done.
                unsafe { libc::raise(signal) };
            }
        }
        handler if former.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: what the program gave to the kernel with this flag.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { core::mem::transmute(handler) };
            prepare(signal, &former);
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: likewise, without it.
            let handler: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
            prepare(signal, &former);
            handler(signal);
        }
    }
}

/// Waits a second at most for others who report: the first one tells, and the process ends.
fn begin() {
    for _ in 0..100 {
        // Acquire: partner is the Release in `end`.
        if !REPORTS.swap(true, Ordering::Acquire) {
            return;
        }
        let moment = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        // SAFETY: a time to sleep.
        unsafe { libc::nanosleep(&moment, null_mut()) };
    }
}

fn end() {
    // Release: partner is the Acquire in `begin`.
    REPORTS.store(false, Ordering::Release);
}

struct Headline {
    touch: Touch,
    what: &'static str,
    /// Bytes from the beginning of the object to what was touched.
    distance: isize,
    size: usize,
    object: usize,
}

impl fmt::Display for Headline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.touch {
            Touch::Freed => "used after it was freed",
            Touch::Behind => "used behind its end",
            Touch::Before => "used before its beginning",
            Touch::Nothing => return write!(f, "used, but it is no object: {}", self.what),
        })?;
        write!(
            f,
            ": {} of byte {} of an object of {} bytes at {:#x}",
            self.what, self.distance, self.size, self.object
        )
    }
}

/// Tells of a fault.
fn tell(slot: &'static Slot, address: usize, context: *mut c_void) {
    let touch = slot.touch(address);
    let (object, size) = slot.object();
    let (registers, what) = interrupted(context);
    let distance = address.wrapping_sub(object) as isize;
    fault::say(Headline { touch, what, distance, size, object }, address);
    let Some(work) = guard::work() else { return };
    // SAFETY: ours (2).
    let maps = unsafe {
        (*work.maps.get()).read();
        &*work.maps.get()
    };
    if let Some(registers) = registers {
        // SAFETY: likewise.
        unsafe { work.now.take_interrupted(registers) };
        work.now.print("used by", maps);
    }
    if touch != Touch::Nothing {
        tell_history(slot, touch == Touch::Freed, maps);
    }
}

fn tell_history(slot: &Slot, is_freed: bool, maps: &Maps) {
    slot.allocated.print("allocated by", maps);
    if is_freed {
        slot.freed.print("freed by", maps);
    }
}

/// Tells of an object that somebody gives back, and should not; the end.
#[cold]
pub(super) fn report(fault: Fault, slot: &Slot, address: usize) -> ! {
    begin();
    fault::say(fault, address);
    if let Some(work) = guard::work() {
        // SAFETY: ours (2).
        let maps = unsafe {
            (*work.maps.get()).read();
            work.now.take();
            &*work.maps.get()
        };
        work.now.print("noticed by", maps);
        tell_history(slot, fault == Fault::Twice, maps);
    }
    // `REPORTS` stays: nobody else reports any more.
    fault::abort()
}

/// The registers that the signal interrupted, as in a trace, and what the thread did.
#[cfg(target_arch = "x86_64")]
fn interrupted(context: *mut c_void) -> (Option<[u64; REGISTERS]>, &'static str) {
    // The kernel's ucontext: flags, link and stack, then the registers in this order.
    const FIRST: usize = 5;
    // rip, rsp, rbp, rbx, r12 to r15, and the fault's error code, which tells writes.
    const IN_TRACES: [usize; REGISTERS] = [16, 15, 10, 11, 4, 5, 6, 7];
    const ERROR: usize = 19;
    // SAFETY: what the kernel gave to the handler.
    let register = |nth: usize| unsafe { context.cast::<u64>().add(FIRST + nth).read() };
    let what = if register(ERROR) & 2 != 0 { "a write" } else { "a read" };
    (Some(IN_TRACES.map(register)), what)
}

#[cfg(not(target_arch = "x86_64"))]
fn interrupted(_context: *mut c_void) -> (Option<[u64; REGISTERS]>, &'static str) {
    (None, "an access")
}
