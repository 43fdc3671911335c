//! Tests of `call_stacks.rs`.

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
    assert_eq!(corelocal_support::output::path_line(Path::new(&forged)), escaped);
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
