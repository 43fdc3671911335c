//! Where a thread was: the functions that called each other, without those of the lock itself and of the thread's
//! beginning, which are the same everywhere.
//!
//! Invariant: at least one function is left, if there was any.

use std::path::Path;
use std::sync::Arc;

use corelocal::sync::profile::Stack;
use corelocal_symbols::callers::{Function, Program, Registers};
use serde::Serialize;

use corelocal_support::output::{one_line, shared_line};
use corelocal_support::units::nanos;

/// A thread, and where it was.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// The time that it waited or made others wait, in nanoseconds.
    pub time_ns: u64,
    pub thread: u32,
    pub name: String,
    /// The frames, innermost first.
    pub frames: Vec<Call>,
}

/// A function in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    /// The function's name, or the file and the address.
    pub function: Arc<str>,
    pub source: Option<Arc<str>>,
}

/// Returns what a stack tells.
pub fn of(program: &Program<'_>, stack: &Stack) -> Place {
    Place {
        time_ns: nanos(stack.time()),
        thread: stack.thread(),
        name: one_line(stack.name().to_owned()),
        frames: frames(program, stack),
    }
}

/// Returns what lies at the address of a lock: the name of a static, which its file has chosen, or the address.
pub fn variable(found: Option<(String, u64)>, address: u64) -> String {
    match found {
        Some((name, 0)) => one_line(name),
        Some((name, offset)) => format!("{}+{offset:#x}", one_line(name)),
        None => format!("{address:#x}"),
    }
}

/// Returns the functions that called each other, innermost first.
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

/// Leaves out the lock's own functions at the beginning, and what started the thread at the end.
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

/// Returns `true` if it is a function of the lock. One that was inlined has no path where debug information is lines
/// only, but it has a file.
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

/// Returns `true` if a file is of the library's locks, or of `lock_api`: `/corelocal/src/sync/...`,
/// `/corelocal-0.1.0/src/sys/...`.
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
mod tests;
