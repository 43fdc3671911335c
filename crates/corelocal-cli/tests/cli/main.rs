//! The command as a user meets it: its words, its exit codes, its files, and what it does when the
//! world is against it.
//!
//! Invariants:
//! - Every call has a time limit, against hangs only.
//! - Every call runs in a folder of its own, with none of the variables set that change output.
//! - No output may hold a panic, wanted or not.

mod asked;
mod clock;
mod clockd;
mod doctor;
mod heap;
mod locks;
mod outputs;
mod refuse;
mod report;
mod run;
mod run_ends;
mod run_inside;
mod tables;
mod torture;
mod words;

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// What changes which paths are taken.
const OURS: [&str; 8] = [
    "CORELOCAL_MALLOC",
    "CORELOCAL_RSEQ",
    "CORELOCAL_CLOCK",
    "CORELOCAL_LOCKS",
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
        Call { command, folder }
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
    fn done_into(mut self, out: impl Into<Stdio>) -> Done {
        self.command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the program starts");
        let began = Instant::now();
        while child.try_wait().expect("a child of ours").is_none() {
            if began.elapsed() > LIMIT {
                child.kill().expect("a child of ours");
            }
            thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().expect("the program ends");
        Done::new(output, self.folder)
    }
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
