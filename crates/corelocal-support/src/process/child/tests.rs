//! Tests of `child.rs`.

use std::fs;

use super::*;

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script);
    command
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn output_of_a_good_child() {
    assert_eq!(output_within(sh("echo '[1]'"), LONG).unwrap(), "[1]\n");
}

#[test]
fn a_failing_child_is_quoted() {
    let error = output_within(sh("echo first >&2; echo no luck >&2; exit 3"), LONG);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no luck") && error.contains('3'), "{error}");
}

#[test]
fn a_talkative_child_does_not_block() {
    let script = "head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero; echo end";
    let output = output_within(sh(script), LONG).unwrap();
    assert_eq!(output.len() as u64, MOST_OUTPUT);
}

#[test]
fn the_limit_ends_a_child_and_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = format!("sleep 600 & echo $! $$ > {}; wait", pids.display());
    let start = Instant::now();
    let error = output_within(sh(&script), Duration::from_millis(500)).unwrap_err();
    assert!(start.elapsed() < LONG, "the sleep was waited for");
    assert!(format!("{error:#}").contains("within 0.5 s"), "{error:#}");
    for pid in fs::read_to_string(pids).unwrap().split_whitespace() {
        assert!(gone(pid), "process {pid} is still there");
    }
}

/// Whether a killed process has ended; it may take a moment, and stay as a zombie where the
/// process that adopted it does not wait for it.
fn gone(pid: &str) -> bool {
    (0..1000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .map_or(true, |stat| stat.rsplit(')').next().is_some_and(|s| s.starts_with(" Z")))
    })
}

#[test]
fn unknown_names_are_refused() {
    let error = dispatch(&[], "no-such-child", &[]).unwrap_err().to_string();
    assert!(error.contains("no-such-child"), "{error}");
}
