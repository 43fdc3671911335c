//! Standard output whose reader has left, and standard output and error that are full.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::{Call, corelocal, json};

/// A stream whose reader has left.
fn left() -> OwnedFd {
    let (ours, theirs) = UnixStream::pair().expect("two sockets");
    drop(ours);
    theirs.into()
}

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("/dev/full")
}

const TALKERS: [&[&str]; 6] = [
    &["doctor"],
    &["doctor", "--json"],
    &["bench", "--list"],
    &["bench", "clock", "--quick"],
    &["--help"],
    &["--version"],
];

#[test]
fn a_reader_who_leaves_is_no_error() {
    for args in TALKERS {
        let done = Call::new(args).done_into(left());
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_full_output_is_told() {
    for args in &TALKERS[..4] {
        let done = Call::new(args).done_into(full());
        assert_eq!(done.code, Some(1), "{args:?}: {}", done.err);
        assert!(done.err.contains("cannot write to standard output"), "{args:?}: {}", done.err);
    }
}

#[test]
fn the_files_are_written_all_the_same() {
    let args = ["bench", "clock", "--quick", "--json", "r.json"];
    for (out, code) in [(left(), 0), (full().into(), 1)] {
        let done = Call::new(&args).done_into(out);
        assert_eq!(done.code, Some(code), "{}", done.err);
        assert_eq!(json(&done.read("r.json"))["tables"][0]["id"], "clock");
    }
}

#[test]
fn nowhere_to_complain() {
    let mut call = Call::new(&["bench", "clok"]);
    call.command.stderr(full());
    let status = call.command.status().expect("the program starts");
    assert_eq!(status.code(), Some(2), "a panic exits with 101");
}

#[test]
fn what_a_shell_gives_is_written_to() {
    let done = corelocal(&["bench", "clock", "--quick", "--json", "/dev/stdout"]);
    assert!(done.code == Some(0) && done.out.contains("\"tables\""), "{}", done.whole());
    // A descriptor of the shell's.
    let script = "exec 4>&1; \"$0\" bench clock --quick --json /dev/fd/4 >/dev/null | cat";
    let mut call = Call::new(&[]);
    let program = call.command.get_program().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).arg(program).current_dir(call.folder.path());
    call.command = shell;
    let done = call.done();
    assert_eq!(json(&done.out)["tables"][0]["id"], "clock");
}

#[test]
fn names_give_a_terminal_no_orders() {
    let name = "\u{1b}]0;title\u{7}\u{1b}[2J.heap";
    let done = Call::new(&["heap", name]).env("CLICOLOR_FORCE", "1").done();
    assert!(done.err.contains("\\u001b]0;title\\u0007\\u001b[2J.heap"), "{:?}", done.err);
    assert!(done.err.contains("\u{1b}[1m"), "no style: {:?}", done.err);
}

#[test]
fn names_of_files_stay_in_their_lines() {
    for args in
        [&["heap", "no\nfile.heap"][..], &["clock", "--file", "no\nfile"], &["locks", "./no\nfile"]]
    {
        let done = corelocal(args);
        assert!(done.code > Some(0), "{args:?}: {}", done.whole());
        assert!(done.err.contains("no\\u000afile"), "{args:?}: {}", done.whole());
        assert!(!done.err.contains("no\nfile"), "{args:?}: {}", done.whole());
    }
}
