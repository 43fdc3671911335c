//! Reports of guarded objects that were misused: what happened, and the stacks of the access, the allocation and the
//! free.
//!
//! An access to a closed page raises a signal. Its handler runs on the faulting thread, anywhere in the program,
//! possibly on a short stack. So it does not allocate, keeps its tables in the pool, and waits for other threads only
//! briefly. After the report the previous handler is restored and the instruction repeated, so the program ends or
//! continues as it would have.
//!
//! # Invariants
//! 1. `FORMER` is initialised before our handler can be called.
//! 2. One thread at a time uses the work space: the one that set `REPORTS`. A thread that has waited for it for a
//!    second goes on anyway; the worst result is a garbled report.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};

use super::call_stack::{CallStack, Maps};
use super::guard::{self, Slot};
use crate::alloc::fault::{self, Fault};
use crate::sys::arch::stacks;

/// The working memory of reports. All bytes 0 is a valid one.
pub(super) struct Work {
    now: CallStack,
    maps: UnsafeCell<Maps>,
}

// SAFETY: used by one thread at a time (2).
unsafe impl Sync for Work {}

static REPORTS: AtomicBool = AtomicBool::new(false);

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

struct Former(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before it is read (1).
unsafe impl Sync for Former {}

static FORMER: [Former; 2] = [const { Former(UnsafeCell::new(MaybeUninit::zeroed())) }; 2];

/// Kinds of invalid accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Freed,
    Behind,
    Before,
    Nothing,
}

/// Installs the signal handlers, once.
#[cold]
pub(super) fn install() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut ours = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zero is a valid `sigaction` with an empty mask; then the kernel writes to `FORMER` and reads ours.
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
    // SAFETY: initialised (1); zero is the default action.
    unsafe { (*FORMER[nth].0.get()).assume_init() }
}

/// Restores the former handler.
fn restore(signal: c_int, action: &libc::sigaction) {
    // SAFETY: an action that libc returned, or the default action.
    unsafe { libc::sigaction(signal, action, null_mut()) };
}

/// Sets the default action.
fn reset(signal: c_int) {
    // SAFETY: zero is the default action.
    restore(signal, &unsafe { MaybeUninit::zeroed().assume_init() });
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's structure is valid while the handler runs, and has an address for faults.
    let (is_fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    match guard::slot_of(address).filter(|_| is_fault) {
        Some(slot) => {
            // SAFETY: the thread's own `errno`.
            let errno = unsafe { *libc::__errno_location() };
            begin();
            tell(slot, address, context);
            restore(signal, &former(signal));
            end();
            // SAFETY: the thread's own `errno`.
            unsafe { *libc::__errno_location() = errno };
        }
        None => forward(signal, info, context, is_fault),
    }
}

/// Sets up the signal mask for the program's handler as the kernel would.
fn prepare(signal: c_int, former: &libc::sigaction) {
    // SAFETY: changes the calling thread's signal mask; the kernel restores it when our handler returns.
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

/// Passes a signal on that is not for us.
fn forward(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    let former = former(signal);
    match former.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            reset(signal);
            // A fault is raised again when the instruction is repeated.
            if !is_fault {
                // SAFETY: no preconditions; the signal arrives when this handler returns.
                unsafe { libc::raise(signal) };
            }
        }
        handler if former.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO the program's handler has this type.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { core::mem::transmute(handler) };
            prepare(signal, &former);
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO the program's handler has this type.
            let handler: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
            prepare(signal, &former);
            handler(signal);
        }
    }
}

/// Waits up to a second for another thread's report, after which the process usually ends.
fn begin() {
    for _ in 0..100 {
        // Acquire: partner is the Release in `end`.
        if !REPORTS.swap(true, Ordering::Acquire) {
            return;
        }
        let moment = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        // SAFETY: a valid time.
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
    /// Bytes from the beginning of the object to the access.
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

/// Reports an access to a closed page.
fn tell(slot: &'static Slot, address: usize, context: *mut c_void) {
    let touch = slot.touch(address);
    let (object, size) = slot.object();
    // SAFETY: the kernel passed this context to the handler.
    let (registers, what) = unsafe { stacks::interrupted(context) };
    let distance = address.wrapping_sub(object) as isize;
    fault::say(Headline { touch, what, distance, size, object }, address);
    let Some(work) = guard::work() else { return };
    // SAFETY: this thread has set `REPORTS` (2).
    let maps = unsafe {
        (*work.maps.get()).read();
        &*work.maps.get()
    };
    if let Some(registers) = registers {
        // SAFETY: this thread has set `REPORTS` (2).
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

/// Reports an invalid free of a guarded object, and ends the process.
#[cold]
pub(super) fn report(fault: Fault, slot: &Slot, address: usize) -> ! {
    begin();
    fault::say(fault, address);
    if let Some(work) = guard::work() {
        // SAFETY: this thread has set `REPORTS` (2).
        let maps = unsafe {
            (*work.maps.get()).read();
            work.now.take();
            &*work.maps.get()
        };
        work.now.print("noticed by", maps);
        tell_history(slot, fault == Fault::Twice, maps);
    }
    // `REPORTS` stays set: no other thread reports any more.
    fault::abort()
}
