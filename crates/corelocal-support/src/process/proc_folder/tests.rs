//! Tests of `proc_folder.rs`.

use super::*;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

/// Set in a copy of the test program that is to end its first thread.
const WITHOUT_FIRST_THREAD: &str = "CORELOCAL_TEST_WITHOUT_FIRST_THREAD";

/// In such a copy, before `main`: ends the first thread when another one has told that it runs. That one waits for
/// the end of stdin.
extern "C" fn end_first_thread() {
    // SAFETY: a string that ends with NUL; no other thread runs.
    if unsafe { libc::getenv(c"CORELOCAL_TEST_WITHOUT_FIRST_THREAD".as_ptr()) }.is_null() {
        return;
    }
    std::thread::spawn(|| {
        let _ = std::io::stdout().write_all(b"begun");
        let _ = std::io::stdout().flush();
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    // SAFETY: ends the calling thread. What its stack holds stays: no other thread refers to it.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

#[used]
// SAFETY: the section holds the addresses of functions that the C library calls before `main`.
#[unsafe(link_section = ".init_array")]
static END_FIRST_THREAD: extern "C" fn() = end_first_thread;

/// A process whose first thread has ended. It ends when it is dropped.
pub struct WithoutFirstThread(Child);

impl WithoutFirstThread {
    /// Starts one, and waits until its first thread has ended.
    pub fn start() -> WithoutFirstThread {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.env(WITHOUT_FIRST_THREAD, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = WithoutFirstThread(command.spawn().expect("this program"));
        let mut said = [0; 5];
        process.0.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("begun");
        let folder = PathBuf::from(format!("/proc/{}", process.id()));
        while !has_ended(&folder) {
            std::thread::yield_now();
        }
        process
    }

    /// Returns its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for WithoutFirstThread {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn another_thread_tells_what_all_share() {
    let me = std::process::id();
    assert_eq!(of(me), PathBuf::from(format!("/proc/{me}")));
    assert_eq!(of(u32::MAX), Path::new("/proc/4294967295"));
    let process = WithoutFirstThread::start();
    assert!(of(process.id()).starts_with(format!("/proc/{}/task", process.id())));
    assert!(fs::read_dir(of(process.id()).join("fd")).expect("descriptors").count() >= 3);
}
