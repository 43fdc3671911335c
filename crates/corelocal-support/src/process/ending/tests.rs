//! Tests of `ending.rs`.

use super::*;
use std::process::Command;
use std::thread;

#[test]
fn a_program_is_killed_only_if_the_time_is_ours() {
    for is_ours in [false, true] {
        let sleeps = Command::new("sh").args(["-c", "trap '' TERM; exec sleep 60"]).spawn();
        let mut child = sleeps.expect("a shell");
        let long_ago = Instant::now().checked_sub(PATIENCE * 2).expect("it runs that long");
        let mut ending = Ending { asked: long_ago, is_ours, is_told: false };
        ending.insist(&child);
        assert_eq!(ending.is_told, !is_ours);
        if !is_ours {
            assert_eq!(child.try_wait().ok(), Some(None));
            signal(&child, libc::SIGKILL).expect("a child");
        }
        let status = child.wait().expect("a child");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }
}

#[test]
fn a_program_of_another_user_is_waited_for() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!(
            "skipped: a_program_of_another_user_is_waited_for: only root becomes another user"
        );
    }
    let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
    let is_told = thread::scope(|scope| {
        let ask = scope.spawn(|| {
            const OTHER: libc::uid_t = 65_534;
            // SAFETY: numbers only. Unlike the C library's function, the call changes this thread alone, which ends
            // soon.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, OTHER, OTHER, OTHER) };
            assert_eq!(changed, 0);
            let mut ending = Ending::ask(&child, true);
            let is_told = ending.is_told;
            ending.asked = Instant::now().checked_sub(PATIENCE * 2).expect("it runs that long");
            ending.is_told = false;
            ending.insist(&child);
            [is_told, ending.is_told]
        });
        ask.join().expect("no panic")
    });
    let status = child.try_wait();
    child.kill().expect("a child");
    child.wait().expect("a child");
    assert_eq!(is_told, [true, true]);
    assert_eq!(status.ok(), Some(None));
}

#[test]
fn codes_are_the_programs() {
    let status = |raw| code(ExitStatus::from_raw(raw));
    assert_eq!(status(0), ExitCode::SUCCESS);
    assert_eq!(status(7 << 8), ExitCode::from(7));
    assert_eq!(status(libc::SIGKILL), ExitCode::from(137));
}
