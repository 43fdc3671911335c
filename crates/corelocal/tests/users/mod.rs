//! Children that are other users.
//!
//! Invariant: as in `forked`: a child's body makes system calls only, and allocates nothing.
#![allow(dead_code, reason = "not every test needs all of it")]

use crate::forked::{Child, fork};

/// Users without rights, which own nothing.
pub const ALICE: u32 = 65534;
pub const BOB: u32 = 65533;

/// Whether this process may become them; else the test is skipped.
pub fn may_change(test: &str) -> bool {
    // SAFETY: no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let child = is_root.then(|| as_user(ALICE, || 0).wait());
    let works = child == Some(crate::forked::End::Code(0));
    if !works {
        eprintln!("skipped: {test}: needs root, to become other users");
    }
    works
}

/// Starts a child that is this user, and in the group of the same number alone.
pub fn as_user(user: u32, body: impl FnOnce() -> i32) -> Child {
    fork(move || {
        // SAFETY: numbers; the child has one thread. An empty list of groups.
        let is_user = unsafe {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(user, user, user) == 0
                && libc::setresuid(user, user, user) == 0
        };
        if is_user { body() } else { 99 }
    })
}
