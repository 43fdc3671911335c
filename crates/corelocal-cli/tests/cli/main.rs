//! The command as a user meets it: its words, its exit codes, its files, and what it does when the
//! world is against it.
//!
//! Invariants:
//! - Every call has a time limit, against hangs only.
//! - Every call runs in a folder of its own, with none of the variables set that change output.
//! - What asks a process to end does so in every call, though it may be ignored here, as behind nohup(1).
//! - No output may hold a panic, wanted or not.

mod asked;
mod clock;
mod clockd;
mod doctor;
mod heap;
mod heap_ends;
#[cfg(feature = "export")]
mod heap_otlp;
mod heap_running;
mod help_and_errors;
mod ignored_signals;
mod lab;
mod locks;
mod locks_order;
mod outputs;
mod refuse;
mod report;
mod run;
mod run_ends;
mod run_inside;
mod tables;
mod torture;
mod trace;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// What changes which paths are taken.
const OURS: [&str; 10] = [
    "CORELOCAL_MALLOC",
    "CORELOCAL_RSEQ",
    "CORELOCAL_CLOCK",
    "CORELOCAL_LOCKS",
    "CORELOCAL_LOCK_ORDER",
    "CORELOCAL_TRACE",
    "CORELOCAL_MALLOC_LIBRARY",
    "CORELOCAL_MALLOCS",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
];

/// A call that is not done by then hangs.
const LIMIT: Duration = Duration::from_secs(400);

/// The program, ready to be called with `args`.
struct Call {
    command: Command,
    folder: TempDir,
}

/// What a call did.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
    /// Where it ran.
    folder: TempDir,
}

impl Call {
    fn new(args: &[&str]) -> Call {
        let folder = TempDir::new().expect("a temporary folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelocal"));
        command.args(args).current_dir(&folder);
        let colour_and_width = ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"];
        // Cargo tells tests where it is; what it runs builds what is missing.
        for name in colour_and_width.into_iter().chain(OURS).chain(["CARGO"]) {
            command.env_remove(name);
        }
        let call = Call { command, folder };
        call.signals(&[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM], libc::SIG_DFL)
    }

    /// These signals are ignored from the beginning.
    fn ignoring(self, signals: &[libc::c_int]) -> Call {
        self.signals(signals, libc::SIG_IGN)
    }

    /// What these signals do from the beginning; the last word counts.
    fn signals(mut self, signals: &[libc::c_int], what: libc::sighandler_t) -> Call {
        let signals = signals.to_vec();
        // SAFETY: signal(2) may be called between fork and exec, and the vector is only read.
        unsafe {
            self.command.pre_exec(move || {
                for signal in &signals {
                    libc::signal(*signal, what);
                }
                Ok(())
            });
        }
        self
    }

    fn env(mut self, name: &str, value: &str) -> Call {
        self.command.env(name, value);
        self
    }

    /// A file in the folder of the call.
    fn file(self, name: &str, content: &str) -> Call {
        std::fs::write(self.folder.path().join(name), content).expect("a new file");
        self
    }

    fn done(self) -> Done {
        let output = assert_cmd::Command::from_std(self.command).timeout(LIMIT).output();
        Done::new(output.expect("the program starts"), self.folder)
    }

    /// With standard output where `out` says.
    fn done_into(self, out: impl Into<Stdio>) -> Done {
        let (output, folder) = self.ended_into(out);
        Done::new(output, folder)
    }

    /// As [`done_into`](Call::done_into), of what a signal may end.
    fn ended_into(mut self, out: impl Into<Stdio>) -> (Output, TempDir) {
        self.command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the program starts");
        ended(&mut child);
        (child.wait_with_output().expect("it has ended"), self.folder)
    }
}

/// How it ends; it is killed if it hangs.
fn ended(child: &mut Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return status;
        }
        if began.elapsed() > LIMIT {
            child.kill().expect("a child of ours");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The next line, with its end; nothing if no more is written.
fn line(out: &mut BufReader<impl Read + AsRawFd>) -> String {
    let mut text = String::new();
    let fd = out.get_ref().as_raw_fd();
    let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let limit = libc::c_int::try_from(LIMIT.as_millis()).expect("a few minutes");
    let began = Instant::now();
    while out.buffer().is_empty() {
        // SAFETY: one descriptor, which is open as long as its reader.
        match unsafe { libc::poll(&mut wanted, 1, limit) } {
            1 => break,
            // Interrupted.
            -1 if began.elapsed() < LIMIT => {}
            _ => panic!("nothing is written"),
        }
    }
    out.read_line(&mut text).expect("text");
    text
}

impl Done {
    fn new(output: Output, folder: TempDir) -> Done {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        let (out, err) = (text(output.stdout), text(output.stderr));
        let code = output.status.code();
        assert!(code.is_some(), "ended by {}, or hung:\n{out}{err}", output.status);
        assert!(!err.contains("panicked") && code != Some(101), "{out}{err}");
        Done { code, out, err, folder }
    }

    /// Both outputs and the exit code as one text.
    fn whole(&self) -> String {
        let mut text = format!("exit code {}\n", self.code.unwrap_or(-1));
        for (name, content) in [("standard output", &self.out), ("standard error", &self.err)] {
            if !content.is_empty() {
                text.push_str(&format!("--- {name}\n{content}"));
            }
        }
        text
    }

    fn read(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// Runs the program with `args`.
fn corelocal(args: &[&str]) -> Done {
    Call::new(args).done()
}

/// Says that `test` could not run here; `ci/test` counts such lines.
fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// Gives this process a name that is not UTF-8, and maps a file of such a name until it ends.
fn take_odd_names() {
    const NAME: &[u8] = b"caf\xe9";
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join(OsStr::from_bytes(NAME));
    fs::write(&path, "content").expect("a file");
    let file = File::open(&path).expect("a file");
    let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), 7, read, private, file.as_raw_fd(), 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    fs::write("/proc/self/comm", NAME).expect("a name");
}
