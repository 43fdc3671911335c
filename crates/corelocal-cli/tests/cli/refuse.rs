//! Running the program under a seccomp filter that refuses one system call.

use std::io;
use std::os::unix::process::CommandExt;

use crate::{Call, Done, skip};

impl Call {
    /// Runs the program with `call` failing with `errno` from its first instruction on; the error
    /// says why there can be no filter here.
    pub fn done_refused(mut self, call: libc::c_long, errno: i32) -> Result<Done, String> {
        // Tried in a child first: a machine without seccomp is no fault of the program.
        let mut probe = std::process::Command::new("/proc/self/exe");
        probe.arg("--help").stdout(std::process::Stdio::null());
        for command in [&mut probe, &mut self.command] {
            // SAFETY: between fork and exec the closure makes two system calls and takes no lock.
            unsafe { command.pre_exec(move || install(call, errno)) };
        }
        match probe.status() {
            Err(error) => Err(format!("no seccomp filter can be installed here: {error}")),
            Ok(_) => Ok(self.done()),
        }
    }
}

/// Puts the calling thread, and what it executes, under a filter.
fn install(call: libc::c_long, errno: i32) -> io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let mut program = [
        // The call's number is the first word of struct seccomp_data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { code: equals as u16, jt: 0, jf: 1, k: call as u32 },
        statement(give, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(give, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: PR_SET_NO_NEW_PRIVS takes no address; the filter outlives the call, which copies it.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if installed { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The code is elsewhere: an exit code of its own, unless another file cannot be read at all.
#[test]
fn check_of_debug_information_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let debug = folder.path().join("program.debug");
    let debug = debug.to_str().expect("UTF-8");
    let program = std::env::current_exe().expect("a path of this test");
    let split = std::process::Command::new("objcopy")
        .arg("--only-keep-debug")
        .arg(program)
        .arg(debug)
        .status();
    if !split.is_ok_and(|status| status.success()) {
        return skip("check_of_debug_information_alone", "objcopy cannot be run");
    }
    let done = Call::new(&["check", debug]).done();
    assert_eq!(done.code, Some(4), "{}", done.whole());
    assert!(done.err.contains("debug information only"), "{}", done.whole());
    let done = Call::new(&["check", debug, "/nonexistent"]).done();
    assert_eq!(done.code, Some(3), "{}", done.whole());
}
