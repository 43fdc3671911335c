//! Call chains in copies of this program's own stack: taken by a wait for a lock that is not available, in plain
//! functions, in a signal handler, and in callbacks from libc.

#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use corelocal::sync::RwLock;
use corelocal::sync::profile::{self, Kind, Profile, Stack};
use corelocal_symbols::callers::{Files, Frame, Program, Registers};

static HELD: RwLock<u32> = RwLock::new(0);
static OTHERS: [RwLock<u32>; 2] = [RwLock::new(0), RwLock::new(0)];

/// Waits in vain, and so leaves a copy of the stack: the longest wait so far, each time.
#[inline(never)]
fn leave_a_copy(lock: &RwLock<u32>, micros: u64) {
    let _read = lock.read();
    assert!(lock.try_write_for(Duration::from_micros(micros)).is_none());
}

#[inline(never)]
fn middle(lock: &RwLock<u32>, micros: u64) -> u32 {
    inlined(lock, micros);
    // Not a tail call.
    black_box(1)
}

#[inline(always)]
fn inlined(lock: &RwLock<u32>, micros: u64) {
    leave_a_copy(lock, micros);
    black_box(());
}

#[inline(never)]
fn outer(lock: &RwLock<u32>, micros: u64) -> u32 {
    black_box(middle(lock, micros) + 1)
}

/// The names of the functions in the copy, innermost first, and their lines.
fn functions_of(lock: &RwLock<u32>) -> (Vec<(String, String)>, Vec<Frame>) {
    let profile = Profile::of_this_process().expect("it was started");
    let address = std::ptr::from_ref(lock) as u64;
    let is_it = |address_of: u64| (address..address + 8).contains(&address_of);
    let told = profile.locks().find(|told| told.kind == Kind::Write && is_it(told.address));
    let mut stack = Box::new(Stack::EMPTY);
    assert!(profile.read_waiter(&told.expect("it was waited for"), &mut stack));
    let mut listed = Box::new([0; Profile::FILES_BYTES]);
    let len = profile.read_files(&mut listed);
    let files = Files::new(std::str::from_utf8(&listed[..len]).expect("text"), None);
    let program = Program::new(&files);
    let frames = program.callers(Registers::new(*stack.registers()), stack.words());
    let text = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
    let all = frames.iter().flat_map(|frame| &frame.functions);
    (all.map(|function| (text(&function.name), text(&function.source))).collect(), frames.clone())
}

/// Where these functions are among the others: in this order, further out each time.
fn in_order(functions: &[(String, String)], names: &[&str]) {
    let mut rest = functions.iter();
    for name in names {
        assert!(rest.any(|(function, _)| function.ends_with(name)), "{name} in {functions:#?}");
    }
}

#[test]
fn functions_signals_and_libc() {
    profile::start().expect("memory for a profile");
    assert_eq!(outer(&HELD, 2000), 2);
    let (functions, frames) = functions_of(&HELD);
    let order = ["leave_a_copy", "inlined", "middle", "outer", "functions_signals_and_libc"];
    in_order(&functions, &order);
    // The inlined one is part of a call, and each has its line.
    let call = frames.iter().find(|frame| {
        frame.functions.len() > 1 && {
            let name = frame.functions.last().and_then(|function| function.name.as_ref());
            name.is_some_and(|name| name.ends_with("middle"))
        }
    });
    assert!(call.is_some(), "{frames:#?}");
    let of_this_file = |(function, source): &&(String, String)| {
        function.ends_with("outer") && source.contains("callers.rs:")
    };
    assert!(functions.iter().any(|function| of_this_file(&function)), "{functions:#?}");
    // Down to the thread's first function.
    let this = std::env::current_exe().expect("this program");
    assert_eq!(frames[0].file.as_deref(), Some(this.as_path()));
    assert!(functions.len() > 10, "{functions:#?}");

    in_a_signal_handler();
    from_libc();
    names_of_statics();
}

extern "C" fn handler(_: c_int) {
    leave_a_copy(&OTHERS[0], 2000);
}

#[inline(never)]
fn interrupted() {
    // SAFETY: a signal to this thread, for which there is a handler that takes locks of this library only.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
}

fn in_a_signal_handler() {
    // SAFETY: a handler that stays.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    interrupted();
    let (functions, _) = functions_of(&OTHERS[0]);
    let order = ["leave_a_copy", "handler", "interrupted", "in_a_signal_handler"];
    in_order(&functions, &order);
}

extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
    leave_a_copy(&OTHERS[1], 2000);
    0
}

fn from_libc() {
    let mut numbers = [2_u64, 1];
    // SAFETY: two numbers of that size, and a function that compares.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 2, 8, Some(compare)) };
    let (functions, _) = functions_of(&OTHERS[1]);
    in_order(&functions, &["leave_a_copy", "compare", "from_libc"]);
}

fn names_of_statics() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let files = Files::new(&maps, None);
    let program = Program::new(&files);
    let named = |address: u64| program.variable_at(address);
    let (name, at) = named(&raw const HELD as u64).expect("a static");
    assert!(name.ends_with("HELD") && at == 0, "{name}+{at}");
    let (name, at) = named(&raw const OTHERS[1] as u64).expect("a static");
    assert!(name.ends_with("OTHERS") && at == size_of::<RwLock<u32>>() as u64, "{name}+{at}");
    let on_stack = 0_u8;
    assert_eq!(named(&raw const on_stack as u64), None);
    assert_eq!(named(Box::as_ref(&Box::new(0_u8)) as *const u8 as u64), None);
}
