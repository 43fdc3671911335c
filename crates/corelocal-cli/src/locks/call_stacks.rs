//! Where a thread was: the functions that called each other, without those of the lock itself and of the thread's
//! beginning, which are the same everywhere.
//!
//! Invariant: at least one function is left, if there was any.

use std::path::Path;
use std::sync::Arc;

use corelocal::sync::profile::Stack;
use corelocal_lab::callers::{Function, Program, Registers};
use serde::Serialize;

use crate::output::{one_line, shared_line};
use crate::units::nanos;

/// A thread, and where it was.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// How long it waited, or made others wait.
    pub time_ns: u64,
    pub thread: u32,
    pub name: String,
    /// Innermost first.
    pub frames: Vec<Call>,
}

/// A function in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    /// Its name, or the file and the address.
    pub function: Arc<str>,
    pub source: Option<Arc<str>>,
}

/// What a stack tells.
pub fn of(program: &Program<'_>, stack: &Stack) -> Place {
    Place {
        time_ns: nanos(stack.time()),
        thread: stack.thread(),
        name: one_line(stack.name().to_owned()),
        frames: frames(program, stack),
    }
}

/// What lies at the address of a lock: the name of a static, which its file has chosen, or the address.
pub fn variable(found: Option<(String, u64)>, address: u64) -> String {
    match found {
        Some((name, 0)) => one_line(name),
        Some((name, offset)) => format!("{}+{offset:#x}", one_line(name)),
        None => format!("{address:#x}"),
    }
}

/// The functions that called each other, innermost first.
pub fn frames(program: &Program<'_>, stack: &Stack) -> Vec<Call> {
    let registers = Registers::new(*stack.registers());
    let calls = program.callers(registers, stack.words()).into_iter().flat_map(|frame| {
        let (file, address) = (frame.file, frame.address);
        frame.functions.into_iter().map(move |function| call(function, file.as_deref(), address))
    });
    trimmed(calls.collect())
}

fn call(function: Function, file: Option<&Path>, address: u64) -> Call {
    let unnamed = || match file.and_then(Path::file_name) {
        Some(file) => format!("{}, {address:#x}", file.to_string_lossy()),
        None => format!("{address:#x}"),
    };
    let named = function.name.as_ref().map(shared_line);
    Call {
        function: named.unwrap_or_else(|| one_line(unnamed()).into()),
        source: function.source.as_ref().map(shared_line),
    }
}

/// Without the lock's own functions at the beginning, and what started the thread at the end.
fn trimmed(mut calls: Vec<Call>) -> Vec<Call> {
    let own = calls.iter().take_while(|call| is_of_the_lock(call)).count();
    let last = calls.iter().position(|call| is_beginning(&call.function));
    if let Some(last) = last.filter(|last| *last > 0) {
        // Without line tables a thread's closure is a part of the function that begins it.
        calls.truncate(if last > own { last } else { last + 1 });
    }
    // All of it is ours in our own tests.
    if own < calls.len() {
        calls.drain(..own);
    }
    calls
}

/// Whether it is a function of the lock. One that was inlined has no path where debug information is lines only, but
/// it has a file.
fn is_of_the_lock(call: &Call) -> bool {
    const LOCKS: [&str; 3] = ["corelocal::sys::", "corelocal::sync::", "lock_api::"];
    let is_ours = |name: &str| {
        let name = name.trim_start_matches(['<', '&']);
        LOCKS.iter().any(|prefix| name.starts_with(prefix))
    };
    // A guard that goes away: `core::ptr::drop_in_place<GUARD>`, or `drop_in_place::<GUARD>`, or `drop<GUARD, ()>`.
    let function = &*call.function;
    let short = function.strip_prefix("core::ptr::").or(function.strip_prefix("core::mem::"));
    let of_guard = ["drop_in_place", "drop_glue", "drop"].iter().any(|drop| {
        let what = short.unwrap_or(function).strip_prefix(drop);
        what.is_some_and(|what| is_ours(what.trim_start_matches("::")))
    });
    let is_bare_drop = function == "core::mem::drop";
    is_ours(function)
        || of_guard
        || is_bare_drop
        || call.source.as_deref().is_some_and(is_ours_by_file)
}

/// Whether a file is of the library's locks, or of `lock_api`: `/corelocal/src/sync/...`, `/corelocal-0.1.0/src/sys/...`.
fn is_ours_by_file(source: &str) -> bool {
    let is_package = |folder: &str, name: &str| {
        let version = folder.strip_prefix(name).map(|rest| rest.strip_prefix('-').unwrap_or(rest));
        version.is_some_and(|version| {
            version.starts_with(|c: char| c.is_ascii_digit()) || folder == name
        })
    };
    let folders: Vec<&str> = source.split('/').collect();
    folders.windows(3).any(|three| match three {
        [package, "src", "sync" | "sys"] => is_package(package, "corelocal"),
        [package, "src", _] => is_package(package, "lock_api"),
        _ => false,
    })
}

fn is_beginning(function: &str) -> bool {
    // As std's own backtraces end.
    function.contains("__rust_begin_short_backtrace")
        || ["start_thread", "__libc_start_main", "__libc_start_call_main", "clone3"]
            .contains(&function)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trim(functions: &[&str]) -> Vec<Arc<str>> {
        let call = |function: &&str| Call { function: (*function).into(), source: None };
        let calls = trimmed(functions.iter().map(call).collect());
        calls.into_iter().map(|call| call.function).collect()
    }

    #[test]
    fn what_is_the_same_everywhere_is_left_out() {
        let stack = [
            "corelocal::sys::stack::copy",
            "<corelocal::sync::profile::hooks::Wait as core::ops::drop::Drop>::drop",
            "core::ptr::drop_in_place<corelocal::sync::rwlock::guard::RwLockWriteGuard<u32>>",
            "program::hot",
            "corelocal::sync::once::Once::call_once",
            "program::main",
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "std::rt::lang_start",
        ];
        let left = ["program::hot", "corelocal::sync::once::Once::call_once", "program::main"];
        assert_eq!(trim(&stack), left.map(Arc::from));
        assert_eq!(trim(&stack[..2]).len(), 2);
        // A closure that was inlined, without line tables.
        let inlined = [stack[0], stack[1], stack[6], stack[7]];
        assert_eq!(trim(&inlined), [Arc::from(stack[6])]);
        assert_eq!(trim(&["start_thread"]), ["start_thread"].map(Arc::from));
        assert!(trim(&[]).is_empty());
        for own in [
            "lock_api::mutex::Mutex<R,T>::lock",
            "<lock_api::mutex::MutexGuard<R,T> as core::ops::drop::Drop>::drop",
            "core::ptr::drop_in_place::<corelocal::sync::rwlock::guard::RwLockWriteGuard<u32>>",
            "core::ptr::drop_glue::<lock_api::mutex::MutexGuard<R,T>>",
            "core::mem::drop::<corelocal::sync::mutex::guard::MutexGuard<u32>>",
            "core::mem::drop",
            "drop_in_place<corelocal::sync::mutex::guard::MutexGuard<u64>>",
            "drop<corelocal::sync::mutex::guard::MutexGuard<u64>, ()>",
        ] {
            assert_eq!(trim(&[own, "f"]), ["f".into()], "{own}");
        }
        assert_eq!(trim(&["core::ptr::drop_in_place<program::Guard>", "f"]).len(), 2);
    }

    #[test]
    fn functions_without_a_path_are_known_by_their_file() {
        for (source, is_ours) in [
            ("/home/me/corelocal/crates/corelocal/src/sync/mutex/lock.rs:326", true),
            ("/home/me/.cargo/registry/src/x/corelocal-0.1.0/src/sys/thread/stack.rs:32", true),
            ("/home/me/.cargo/registry/src/x/lock_api-0.4.12/src/mutex.rs:3", true),
            ("/home/me/corelocal/crates/corelocal-cli/src/sync/x.rs:1", false),
            ("/home/me/corelocal/crates/corelocal/src/percpu/counter.rs:1", false),
            ("/home/me/corelocal/src/syncing.rs:1", false),
            ("src/sync/mutex.rs:1", false),
        ] {
            let call = Call { function: "lock".into(), source: Some(source.into()) };
            assert_eq!(is_of_the_lock(&call), is_ours, "{source}");
        }
    }

    #[test]
    fn names_that_a_file_has_chosen_stay_in_their_lines() {
        let forged = "L\nno deadlocks\x1b[32m".to_owned();
        let escaped = "L\\u000ano deadlocks\\u001b[32m";
        assert_eq!(variable(Some((forged.clone(), 0)), 16), escaped);
        assert_eq!(variable(Some((forged.clone(), 8)), 16), format!("{escaped}+0x8"));
        assert_eq!(variable(None, 16), "0x10");
        assert_eq!(crate::output::path_line(Path::new(&forged)), escaped);
    }

    #[test]
    fn functions_without_a_name() {
        let nobody = || Function { name: None, source: None };
        assert_eq!(&*call(nobody(), None, 0x12).function, "0x12");
        assert_eq!(
            &*call(nobody(), Some(Path::new("/lib/libc.so.6")), 0x12).function,
            "libc.so.6, 0x12"
        );
    }
}
