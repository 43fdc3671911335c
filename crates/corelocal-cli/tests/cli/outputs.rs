//! Standard output whose reader has left, and standard output and error that are full.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::{Call, json};

/// A stream that nobody reads any more.
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
