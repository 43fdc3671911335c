//! Tests of `lazy_mapping.rs`.

use super::*;
use std::format;
use std::string::String;

/// Kilobytes that the kernel says in a line of the process's status.
fn status(line: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = text.lines().filter(|found| found.starts_with(line));
    numbers.filter_map(|found| found.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// What a child makes of it, which locks all that it maps.
fn in_locked_child(test: &str, body: fn()) {
    const CHILD: &str = "CORELOCAL_TEST_LOCKED";
    if std::env::var_os(CHILD).is_none() {
        let program = std::env::current_exe().expect("a path of this test");
        let name = format!("sys::lazy_mapping::tests::{test}");
        let child = std::process::Command::new(program)
            .args([name.as_str(), "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, "yes")
            .output()
            .expect("the test program starts");
        let said = String::from_utf8_lossy(&child.stderr);
        std::eprint!(
            "{}",
            said.lines()
                .filter(|line| line.starts_with("skipped"))
                .fold(String::new(), |all, line| all + line + "\n")
        );
        assert!(child.status.success(), "{said}");
        return;
    }
    // SAFETY: a number.
    if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
        std::eprintln!("skipped: sparse {test}: mlockall is refused");
        return;
    }
    body();
}

#[test]
fn it_is_not_locked() {
    in_locked_child("it_is_not_locked", || {
        let (len, before) = (64 << 20, [status("VmLck:"), status("VmRSS:")]);
        let at = map(len).expect("address space");
        let after = [status("VmLck:"), status("VmRSS:")];
        assert!(after[0] < before[0] + 1024 && after[1] < before[1] + 4096, "{before:?} {after:?}");
        // SAFETY: mapped just now, and used by this test only.
        unsafe {
            at.add(len - 1).write_volatile(7);
            assert_eq!((at.read_volatile(), at.add(len - 1).read_volatile()), (0, 7));
            pages::unmap(at, len);
        }
    });
}

#[test]
fn it_is_zeros_to_the_end() {
    let len = 3 * page_size();
    let at = map(len).expect("address space");
    // SAFETY: mapped just now, and used by this test only.
    unsafe {
        assert!((0..len).all(|byte| at.add(byte).read() == 0));
        at.write_bytes(1, len);
        pages::unmap(at, len);
    }
}
