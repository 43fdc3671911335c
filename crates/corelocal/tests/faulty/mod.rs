//! Programs that are wrong: each runs in a process of its own, this test binary again, and is ended by the malloc.

use std::env;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};

const CHILD: &str = "CORELOCAL_TEST_FAULT";

/// Runs `wrong` in a process whose `CORELOCAL_MALLOC` is `mode`; `test` is the name of the calling test.
pub fn run(test: &str, mode: &str, wrong: unsafe fn()) -> Output {
    if env::var(CHILD).is_ok_and(|child| child == test) {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: no core file; then what the test is about: the process ends there.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            wrong();
            libc::_exit(0);
        }
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, test);
    command.env("CORELOCAL_MALLOC", mode).output().unwrap()
}

/// The one line in which the malloc says what is wrong before the process ends by `signal`, and all that it says.
pub fn last_words(test: &str, mode: &str, signal: i32, wrong: unsafe fn()) -> (String, String) {
    let output = run(test, mode, wrong);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(signal), "{said}");
    let lines: Vec<&str> =
        said.lines().filter(|line| line.starts_with("corelocal malloc: 0x")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    (lines[0].to_string(), said.clone())
}
