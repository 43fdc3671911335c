//! Running a test's body in a child process: with another environment, or under a seccomp filter
//! that refuses system calls.
//!
//! The child is this test binary again, told by an environment variable to run one test. A filter
//! cannot be taken off, and the harness's own threads must never meet it, so the child leaves by
//! `_exit` as soon as the body is done.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, panic, thread};

use tempfile::TempDir;

const CHILD: &str = "CORELOCAL_TEST_CHILD";
const CANNOT_FILTER: i32 = 77;

/// Says that `test` could not run here; `ci/test` counts such lines.
pub fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
}

/// Whether this process is the child that runs a test's body.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn in_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Which calls of a number a filter refuses.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each test binary uses some of them")]
pub enum When {
    /// All.
    Always,
    /// Those whose second argument has one of these bits.
    Bits(u32),
    /// Those whose second argument, but for futex's flag bits, is this.
    Operation(u32),
}

/// Runs `body` in a child process in which `call` fails with `errno`, in a thread that libc has set
/// up before the filter came. Fails if the child does; `test` is the name of the calling test.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn run_refusing(test: &str, call: libc::c_long, when: When, errno: i32, body: fn()) {
    run_in_child(
        test,
        |_| (),
        || {
            refuse(call, when, errno);
            body();
        },
    );
}

/// In a child: `call` fails from here on in the calling thread and those it starts.
pub fn refuse(call: libc::c_long, when: When, errno: i32) {
    if install(call, when, errno).is_err() {
        // SAFETY: ends the process; nothing in it is needed any more.
        unsafe { libc::_exit(CANNOT_FILTER) };
    }
}

/// Runs `body` in a child process that is under the filter from its first instruction on, libc's
/// own start included.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn run_born_refusing(test: &str, call: libc::c_long, when: When, errno: i32, body: fn()) {
    let prepare = |command: &mut Command| {
        // SAFETY: between fork and exec the closure makes two system calls and takes no lock.
        unsafe { command.pre_exec(move || install(call, when, errno)) };
    };
    run_in_child(test, prepare, body);
}

/// Runs `body` in a child process started as `prepare` says. Fails if the child does, or if it has
/// not ended after ten minutes, of which a guest beside other work takes two; `test` is the name of the calling test function.
pub fn run_in_child(test: &str, prepare: impl FnOnce(&mut Command), body: impl FnOnce()) {
    if env::var(CHILD).is_ok_and(|child| child == test) {
        // The panic hook prints; the harness must not be told.
        let code = panic::catch_unwind(panic::AssertUnwindSafe(body)).map_or(101, |()| 0);
        // SAFETY: ends the process; nothing in it is needed any more.
        unsafe { libc::_exit(code) };
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .stdout(Stdio::null());
    prepare(&mut command);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return skip(test, &format!("the child cannot be started: {error}")),
    };
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > Duration::from_secs(600) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_millis(5));
    };
    match status.code() {
        Some(0) => {}
        Some(CANNOT_FILTER) => skip(test, "seccomp filters cannot be installed here"),
        _ => panic!("the child failed: {status}"),
    }
}

/// As [`run_in_child`], with a new folder, which the parent may look into afterwards.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn run_with_folder(
    test: &str,
    prepare: impl FnOnce(&mut Command, &Path),
    body: impl FnOnce(),
) -> TempDir {
    let mut folder = None;
    let with_folder = |command: &mut Command| {
        // Made in the parent alone: the child leaves by `_exit` and would not remove it.
        prepare(command, folder.insert(tempfile::tempdir().unwrap()).path());
    };
    run_in_child(test, with_folder, body);
    folder.expect("the parent has made a folder")
}

/// Puts the calling thread, and the threads it will start, under a filter.
fn install(call: libc::c_long, when: When, errno: i32) -> std::io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump =
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let has_bits = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let and = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    // Offsets in struct seccomp_data: the call's number is at 0, the second argument at 24 (its low
    // half, on a little-endian machine).
    let (number_at, second_at) = (0, 24);
    let command_bits = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u32;
    let (mask, test) = match when {
        When::Always => (u32::MAX, jump(equals, 0, 0, 0)),
        When::Bits(bits) => (u32::MAX, jump(has_bits, bits, 0, 1)),
        When::Operation(operation) => (command_bits, jump(equals, operation, 0, 1)),
    };
    let mut program = [
        statement(load, number_at),
        jump(equals, call as u32, 0, 4),
        statement(load, second_at),
        statement(and, mask),
        test,
        statement(give, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(give, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: PR_SET_NO_NEW_PRIVS takes no address; the filter outlives the call, which copies it.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if installed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
