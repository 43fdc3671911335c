//! Words of the library's environment variables that mean nothing are said once, with the nearest known one; the others are
//! not.

#![cfg(all(target_os = "linux", feature = "std"))]

use std::process::Command;

use corelocal::cid::Cid;
use corelocal::percpu::Counter;
use corelocal::sync::Mutex;
use corelocal::{alloc, clock};

const CHILD: &str = "CORELOCAL_TEST_WORDS";

/// Uses what reads each of the variables, from several threads.
fn use_all() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // SAFETY: ours, given back once.
                unsafe { alloc::deallocate(alloc::allocate(100)) };
                Counter::<Cid>::new().add(1);
                clock::settle();
                let mut held = LOCK.lock();
                *held += 1;
                std::thread::sleep(std::time::Duration::from_millis(5));
            });
        }
    });
}

/// Standard error of a child with this variable.
fn said(variable: &str, value: &str) -> String {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "words", "--nocapture"])
        .env(CHILD, "1")
        .env("CORELOCAL_CLOCK", "")
        .env(variable, value)
        .output()
        .expect("a child");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).expect("ASCII");
    said.lines()
        .filter(|line| line.starts_with("corelocal: "))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn words() {
    if std::env::var_os(CHILD).is_some() {
        return use_all();
    }
    for (variable, wrong, near) in [
        ("CORELOCAL_MALLOC", "chekc", "check"),
        ("CORELOCAL_MALLOC", "guard:x", "guard:N"),
        ("CORELOCAL_MALLOC", "background:on", "background:no"),
        ("CORELOCAL_MALLOC", "stats-signal:FOO", "stats-signal:SIGNAL"),
        ("CORELOCAL_MALLOC", "resident:lots", "resident:BYTES"),
        ("CORELOCAL_RSEQ", "of", "off"),
        ("CORELOCAL_CLOCK", "vdos", "vdso"),
        ("CORELOCAL_LOCKS", "redy", "ready"),
        ("CORELOCAL_LOCK_ORDER", "onn", "on"),
    ] {
        let line = format!(
            "corelocal: {variable}: `{wrong}` is not known and does nothing; the nearest is `{near}`\n"
        );
        assert_eq!(said(variable, wrong), line);
    }
    assert_eq!(said("CORELOCAL_MALLOC", "count,cuont,,chekc").lines().count(), 2);
    let odd = said("CORELOCAL_MALLOC", "\u{1b}[31mred");
    assert!(odd.contains("`\\x1b[31mred`"), "{odd}");
    assert!(said("CORELOCAL_MALLOC", &"x".repeat(100_000)).len() < 200);
    for (variable, right) in [
        ("CORELOCAL_MALLOC", ""),
        (
            "CORELOCAL_MALLOC",
            "count,guard,guard:99,nodes:2,resident:16M,pressure:no,background:yes",
        ),
        (
            "CORELOCAL_MALLOC",
            "stats-signal:USR1,profile-signal:61,hugepages:no,profile-rate:1M,tally:/tmp/x",
        ),
        ("CORELOCAL_RSEQ", "off"),
        ("CORELOCAL_CLOCK", "paravirtual"),
        ("CORELOCAL_LOCKS", "ready"),
    ] {
        assert_eq!(said(variable, right), "", "{variable}={right}");
    }
}
