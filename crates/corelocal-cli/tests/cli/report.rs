//! `corelocal report`: its selections, and its ends. `ci/report.sh` has a whole one.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use crate::{corelocal, json};

#[test]
fn only_some_tables() {
    let done = corelocal(&["report", "--minutes", "1", "--only", "clock_convert,counter_8"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let report = json(&done.read("report.json"));
    let tables = report["tables"].as_array().expect("tables");
    let ids: Vec<&str> = tables.iter().filter_map(|table| table["id"].as_str()).collect();
    assert_eq!(ids, ["clock_convert", "counter_8"]);
    let unknown = corelocal(&["report", "--only", "clok"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.whole());
    assert!(unknown.err.contains("did you mean `clock`"), "{}", unknown.err);
}

/// Outputs that cannot be written are reported before anything is measured.
#[test]
fn outputs_are_tried_first() {
    let done = corelocal(&["report", "--html", "no/such/page.html"]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{}", done.whole());
    assert!(done.err.contains("mkdir -p no/such"), "{}", done.err);
}

#[test]
fn an_interrupted_report_has_the_tables_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelocal"));
    command.args(["report", "--only", "counter_8,locks"]).current_dir(&folder);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut shown = String::new();
    while !shown.contains("Eight counters") {
        assert!(out.read_line(&mut shown).unwrap() > 0, "{shown}");
    }
    // SAFETY: our child, which was not waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    out.read_to_string(&mut shown).unwrap();
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{shown}{err}");
    assert!(err.contains("interrupted: the table `locks`"), "{err}");
    let report = json(&std::fs::read_to_string(folder.path().join("report.json")).unwrap());
    assert_eq!(report["interrupted"], true);
    assert_eq!(report["missing"][0]["id"], "locks");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("1 of 2 tables were not measured: "), "{page}");
    assert_eq!(report["tables"].as_array().unwrap().len(), 1);
}
