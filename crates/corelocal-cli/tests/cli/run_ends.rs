//! How `corelocal run` ends: when it is interrupted, and when what it has to tell cannot be written.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::run::library;
use crate::{Call, json};

/// `corelocal run` with these arguments, of a script.
fn of_script(options: &[&str], script: &str, out: impl Into<Stdio>) -> (Output, TempDir) {
    Call::new(&[&["run"], options, &["sh", "-c", script]].concat()).ended_into(out)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How many runs of all mallocs figures are of.
fn runs(answer: &Value) -> u64 {
    let mallocs = answer["mallocs"].as_array().expect("mallocs");
    mallocs.iter().filter_map(|malloc| malloc["wall_s"]["n"].as_u64()).sum()
}

/// Its parent is the command; how many runs there were is in a file, with the one before those that count.
const INTERRUPTS_THE_THIRD: &str = "echo run >> runs; \
    if [ $(wc -l < runs) -ge 4 ]; then kill -TERM $PPID; exec sleep 60; fi";

#[test]
fn an_interrupted_run_is_compared_with_none() {
    let Some((_folder, library)) = library("an_interrupted_run_is_compared_with_none") else {
        return;
    };
    let library = library.to_str().expect("text");
    let options = ["--compare", "--rounds", "9", "--malloc", library];
    let (output, folder) = of_script(&options, INTERRUPTS_THE_THIRD, Stdio::piped());
    let err = text(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{}: {err}", output.status);
    assert!(
        err.contains("Interrupted by signal 15: the figures cover the 2 runs before."),
        "{err}"
    );
    assert!(!err.contains("a run ended with") && !err.contains("with every malloc"), "{err}");
    let ran = std::fs::read_to_string(folder.path().join("runs")).expect("what the runs wrote");
    assert_eq!(ran.lines().count(), 1 + 3);

    let options = [&options[..], &["--json"]].concat();
    let (output, _folder) = of_script(&options, INTERRUPTS_THE_THIRD, Stdio::piped());
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{}", text(&output.stderr));
    let answer = json(&text(&output.stdout));
    assert_eq!(runs(&answer), 2, "{answer:#}");
    assert_eq!(answer["interrupted"]["whole_runs"], 2, "{answer:#}");
    for malloc in answer["mallocs"].as_array().expect("mallocs") {
        assert_eq!(malloc["well"], true, "{answer:#}");
    }
}

#[test]
fn a_comparison_that_is_interrupted_at_once() {
    // The program has its own idea of the signal; that there is no comparison is not its to decide.
    let script = "trap 'exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.05; done";
    let options = ["--compare", "--malloc", "libc"];
    let (output, _folder) = of_script(&options, script, Stdio::piped());
    let err = text(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{}: {err}", output.status);
    assert!(err.contains("Interrupted by signal 15: the figures cover part of one run."), "{err}");
}

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("/dev/full")
}

#[test]
fn what_cannot_be_written_leaves_the_programs_end() {
    for (script, code, signal) in [
        ("exit 7", Some(7), None),
        ("kill -KILL $$", None, Some(libc::SIGKILL)),
        ("exit 0", Some(1), None),
    ] {
        let (output, _folder) = of_script(&["--malloc", "libc", "--json"], script, full());
        let err = text(&output.stderr);
        assert_eq!((output.status.code(), output.status.signal()), (code, signal), "{err}");
        assert!(err.contains("cannot write to standard output"), "{script}: {err}");
        // Each of two is told.
        let options = ["--malloc", "libc", "--json", "--html", "gone/page.html"];
        let mut call = Call::new(&[&["run"], &options[..], &["sh", "-c"]].concat());
        std::fs::create_dir(call.folder.path().join("gone")).expect("a new folder");
        call.command.arg(format!("rmdir gone; {script}"));
        let (output, _folder) = call.ended_into(full());
        let err = text(&output.stderr);
        assert_eq!((output.status.code(), output.status.signal()), (code, signal), "{err}");
        for words in ["gone/page.html", "cannot write to standard output"] {
            assert!(err.contains(words), "{script}: {err}");
        }
    }
    // A reader that closes the pipe has read enough.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    drop(ours);
    let theirs = std::os::fd::OwnedFd::from(theirs);
    let (output, _folder) = of_script(&["--malloc", "libc", "--json"], "exit 7", theirs);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
}
