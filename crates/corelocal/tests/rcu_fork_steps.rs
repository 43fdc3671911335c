//! A signal handler that forks between any two instructions of a guard's begin and end: in the child, no grace period ends
//! while there is a guard, and one ends when there is none.
//!
//! The program steps through itself: the processor's trap flag makes it take a signal after each instruction, whose
//! handler forks. The child goes on from there without steps.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod forked;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corelocal::rcu::Domain;

/// The trap flag, with which the processor raises SIGTRAP after each instruction.
const TRAP: i64 = 1 << 8;

/// The handler forks at each of the first steps, then at one of so many: a section that is stepped through is aborted, and
/// tried again many times.
const ALL: u64 = 400;
const EACH: u64 = 101;
static STEPS: AtomicU64 = AtomicU64::new(0);
static IS_STEPPING: AtomicBool = AtomicBool::new(false);
static IS_CHILD: AtomicBool = AtomicBool::new(false);
static IS_RAW: AtomicBool = AtomicBool::new(false);
/// The children that have ended with this code. The last one counts those that a signal ended.
static ENDS: [AtomicU32; 5] = [const { AtomicU32::new(0) }; 5];

/// What a child finds.
const RIGHT: i32 = 0;
const ENDED_UNDER_A_GUARD: i32 = 1;
const NEVER_ENDS: i32 = 2;
const NEVER_ENDS_FOR_OTHERS: i32 = 3;
const KILLED: usize = 4;

/// Forks as fork(2) does it, with libc's handlers or without. In the child the caller goes on; the parent waits for it.
fn fork_here(is_raw: bool) {
    // SAFETY: async-signal-safe; the child makes system calls and uses RCU.
    let child = unsafe { if is_raw { libc::syscall(libc::SYS_fork) as i32 } else { libc::fork() } };
    if child == 0 {
        IS_STEPPING.store(false, Ordering::Relaxed);
        IS_CHILD.store(true, Ordering::Relaxed);
        IS_RAW.store(is_raw, Ordering::Relaxed);
        // SAFETY: ends the child if it hangs.
        unsafe { libc::alarm(20) };
        return;
    }
    let mut status = -1;
    // SAFETY: waits for the child just made; writes one number.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    let end = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) as usize } else { KILLED };
    ENDS[end.min(KILLED)].fetch_add(1, Ordering::Relaxed);
}

extern "C" fn at_a_step(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if IS_STEPPING.load(Ordering::Relaxed) {
        let nth = STEPS.fetch_add(1, Ordering::Relaxed);
        if nth < ALL || nth % EACH == 0 {
            fork_here(false);
            // As a program forks that does not call libc, and runs none of its handlers.
            if IS_STEPPING.load(Ordering::Relaxed) {
                fork_here(true);
            }
        }
    }
    // SAFETY: the kernel gives a context, which nothing else uses meanwhile.
    let flags = unsafe {
        &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize]
    };
    *flags = if IS_STEPPING.load(Ordering::Relaxed) { *flags | TRAP } else { *flags & !TRAP };
}

extern "C" fn at_a_tick(_: i32) {
    if IS_STEPPING.load(Ordering::Relaxed) {
        fork_here(false);
    }
}

/// Installs a handler that nothing but tests of this program uses.
fn handle(signal: i32, handler: *const ()) {
    // SAFETY: all-zero bytes are a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handlers use atomics, their context and fork.
    assert_eq!(unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) }, 0);
}

/// Returns `true` if a grace period ends without guards that end meanwhile.
fn ends(domain: &'static Domain) -> bool {
    let ticket = domain.start_poll();
    (0..100).any(|_| ticket.is_complete() == Ok(true))
}

extern "C" fn ends_in_a_thread(domain: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the static domain that `ends_for_others` passes.
    usize::from(ends(unsafe { &*domain.cast::<Domain>() })) as *mut libc::c_void
}

/// Like `ends`, in another thread.
fn ends_for_others(domain: &'static Domain) -> bool {
    let mut result = std::ptr::null_mut();
    // SAFETY: a thread that is joined; places for results.
    unsafe {
        let mut thread = std::mem::zeroed();
        let at = std::ptr::from_ref(domain).cast_mut().cast();
        if libc::pthread_create(&mut thread, std::ptr::null(), ends_in_a_thread, at) != 0 {
            return false;
        }
        libc::pthread_join(thread, &mut result);
    }
    !result.is_null()
}

/// Ends the process if it is a child, which has a guard or none.
fn judge(domain: &'static Domain, guards: impl Sized, has_guards: bool) {
    if !IS_CHILD.load(Ordering::Relaxed) {
        return;
    }
    let code = if has_guards && ends(domain) {
        ENDED_UNDER_A_GUARD
    } else {
        drop(guards);
        // Without libc's handlers, other threads learn from the first one's next use of RCU which guards it has.
        if IS_RAW.load(Ordering::Relaxed) {
            let _ = ends(domain);
        }
        match (ends_for_others(domain), ends(domain)) {
            (_, false) => NEVER_ENDS,
            (false, _) => NEVER_ENDS_FOR_OTHERS,
            _ => RIGHT,
        }
    };
    // SAFETY: ends the child.
    unsafe { libc::_exit(code) };
}

/// Begins or ends stepping.
fn step(is_on: bool) {
    IS_STEPPING.store(is_on, Ordering::Relaxed);
    // SAFETY: the handler is there.
    unsafe { libc::raise(libc::SIGTRAP) };
}

/// Begins a guard, and ends it, with steps in one of both and so many guards around it. Returns the number of steps.
fn steps(domain: &'static Domain, outer: usize, of_begin: bool) -> u64 {
    let around: Vec<_> = (0..outer).map(|_| domain.read()).collect();
    STEPS.store(0, Ordering::Relaxed);
    if of_begin {
        step(true);
    }
    let guard = domain.read();
    if of_begin {
        step(false);
        judge(domain, (guard, around), true);
        return STEPS.load(Ordering::Relaxed);
    }
    step(true);
    drop(guard);
    step(false);
    judge(domain, around, outer > 0);
    STEPS.load(Ordering::Relaxed)
}

fn assert_all_right(what: &str) {
    let ends: Vec<_> = ENDS.iter().map(|end| end.swap(0, Ordering::Relaxed)).collect();
    assert!(
        ends[RIGHT as usize] > 0 && ends[1..].iter().all(|end| *end == 0),
        "{what}: of the children {} were right, in {} a grace period ended under a guard, in {} none ended, in {} none \
         ended for another thread, and {} were killed",
        ends[0],
        ends[1],
        ends[2],
        ends[3],
        ends[4]
    );
}

/// One test: signal handlers are the process's, and a child of raw fork(2) finds locks of libc as they are.
#[test]
fn a_handler_forks_between_any_two_instructions() {
    static PLAIN: Domain = Domain::named("plain");
    handle(libc::SIGTRAP, at_a_step as *const ());
    let domain = &PLAIN;
    drop(domain.read());
    domain.synchronize().unwrap();
    for outer in 0..3 {
        for of_begin in [true, false] {
            let steps = steps(domain, outer, of_begin);
            assert!(steps > 20, "not stepped through");
            let name = if of_begin { "the begin" } else { "the end" };
            assert_all_right(&format!("{name} of a guard in {outer} others, {steps} steps"));
        }
    }
    // The same in a child that has a guard from before its own fork, and so takes the cold path.
    let guard = domain.read();
    let child = forked::fork(|| {
        for of_begin in [true, false] {
            steps(domain, 0, of_begin);
        }
        // In no grandchild a grace period ends: each of them has the guard from before the first fork.
        let ends: Vec<_> = ENDS.iter().map(|end| end.load(Ordering::Relaxed)).collect();
        let right = [ENDED_UNDER_A_GUARD as usize, RIGHT as usize, KILLED]
            .iter()
            .all(|end| ends[*end] == 0);
        i32::from(!right || ends[NEVER_ENDS as usize] == 0)
    });
    assert_eq!(child.wait(), forked::End::Code(0));
    drop(guard);
    by_ticks();
    forgotten();
}

/// The same at moments that a timer chooses, without steps that abort critical sections.
fn by_ticks() {
    static DOMAIN: Domain = Domain::named("ticks");
    drop(DOMAIN.read());
    DOMAIN.synchronize().unwrap();
    handle(libc::SIGUSR1, at_a_tick as *const ());
    let is_over = AtomicBool::new(false);
    // SAFETY: no arguments.
    let me = unsafe { libc::pthread_self() } as usize;
    std::thread::scope(|scope| {
        let _tell = storm::Tell(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(300));
                // SAFETY: a thread that waits for this one.
                unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR1) };
            }
        });
        IS_STEPPING.store(true, Ordering::Relaxed);
        let end = Instant::now() + Duration::from_millis(storm::scaled(4_000));
        while Instant::now() < end {
            for _ in 0..1000 {
                let guard = DOMAIN.read();
                judge(&DOMAIN, guard, true);
                judge(&DOMAIN, (), false);
            }
        }
        IS_STEPPING.store(false, Ordering::Relaxed);
    });
    assert_all_right("forks at ticks");
}

/// A thread that has forgotten so many guards that a count of 32 bits is 0 again.
fn forgotten() {
    static DOMAIN: Domain = Domain::named("forgotten");
    let test = "a_handler_forks_between_any_two_instructions, forgotten guards";
    if cfg!(debug_assertions) || storm::scaled(1000) < 1000 {
        eprintln!("skipped: {test}: 2^32 guards take too long in this build");
        return;
    }
    (0..1_u64 << 32).for_each(|_| std::mem::forget(DOMAIN.read()));
    forked::judge(|| !ends(&DOMAIN)).succeeds();
}
