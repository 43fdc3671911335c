//! `corelocal bench`: figures come out whatever stands in the way of everything around them.

use crate::{Call, Done, corelocal, json, skip};

/// The table that is measured fastest, and one of its rows.
const TABLE: &str = "clock";
const ROW: &str = "vDSO CLOCK_MONOTONIC ";

fn assert_figures(done: &Done) {
    let row = done.out.lines().find(|line| line.contains(ROW));
    let digits = row.is_some_and(|row| row.chars().any(|c| c.is_ascii_digit()));
    assert!(digits, "no figures:\n{}", done.whole());
}

/// A call that has figures and one complaint, which contains `words`.
fn assert_complaint(done: &Done, words: &[&str]) {
    assert_figures(done);
    assert_eq!(done.code, Some(1), "{}", done.whole());
    assert_eq!(done.err.matches("error:").count(), 1, "{}", done.err);
    for words in words {
        assert!(done.err.contains(words), "{:?} lacks {words:?}", done.err);
    }
}

#[test]
fn a_table_its_file_and_a_comparison_with_it() {
    let first = corelocal(&["bench", TABLE, TABLE, "--quick", "--json", "old.json"]);
    assert_eq!(first.code, Some(0), "{}", first.whole());
    assert_figures(&first);
    assert!(first.err.is_empty() && !first.out.contains('\u{1b}'), "{}", first.whole());
    let old = first.read("old.json");
    let report = json(&old);
    assert_eq!(report["schema"], 2);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["quick"], true);
    let tables = report["tables"].as_array().expect("tables");
    assert_eq!(tables.len(), 1, "a table named twice is measured once");
    assert_eq!(tables[0]["id"], TABLE);
    assert!(
        tables[0]["rows"][0]["points"][0]["stat"]["median"].as_f64().is_some_and(|ns| ns > 0.0)
    );

    let second = Call::new(&["bench", TABLE, "--quick", "--compare", "old.json"])
        .file("old.json", &old)
        .done();
    assert_eq!(second.code, Some(0), "{}", second.whole());
    let created = report["created"].as_str().expect("a time");
    assert!(second.out.contains(&format!("Compared with {created}")), "{}", second.out);
    for heading in ["then", "now", "change", "verdict"] {
        assert!(second.out.contains(heading), "no column {heading}:\n{}", second.out);
    }
}

#[test]
fn a_damaged_comparison_costs_only_itself() {
    let good = include_str!("../../../corelocal-bench/tests/fixtures/report-a.json");
    let cut = &good[..good.len() / 2];
    let newer = good.replacen("\"schema\": 1", "\"schema\": 999", 1);
    assert_ne!(newer, good);
    for (content, words) in [
        (cut, "the file is truncated"),
        ("{\"tables\": 3}", "not a corelocal report"),
        ("figures: none", "it is not JSON"),
        ("", "the file is truncated"),
        (&newer, "report schema 999"),
    ] {
        let call = Call::new(&["bench", TABLE, "--quick", "--compare", "old.json"]);
        let done = call.file("old.json", content).done();
        assert_complaint(&done, &["cannot compare with old.json", words]);
    }
    let missing = corelocal(&["bench", TABLE, "--quick", "--compare", "old.json"]);
    assert_complaint(&missing, &["it does not exist"]);
}

#[test]
fn a_path_that_cannot_be_written_costs_only_itself() {
    for (path, words) in [
        (".", "it is a folder"),
        ("file/r.json", "file is not a folder"),
        ("no/such/r.json", "mkdir -p no/such"),
    ] {
        // Before anything is measured.
        let done = Call::new(&["bench", TABLE, "--json", path]).file("file", "").done();
        assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{}", done.whole());
        assert!(done.err.contains("cannot write") && done.err.contains(words), "{}", done.err);
    }
    let full = corelocal(&["bench", TABLE, "--quick", "--json", "/dev/full"]);
    assert_complaint(&full, &["cannot write", "no space is left"]);
}

#[test]
fn without_the_right_to_pin() {
    let test = "without_the_right_to_pin";
    let call = Call::new(&["bench", TABLE, "--quick"]);
    match call.done_refused(libc::SYS_sched_setaffinity, libc::EPERM) {
        Err(reason) => skip(test, &reason),
        Ok(done) => {
            assert_eq!(done.code, Some(0), "{}", done.whole());
            assert_figures(&done);
            assert!(done.out.contains("could not be pinned to one cpu"), "{}", done.out);
        }
    }
}

#[test]
fn without_rseq() {
    for table in ["cpu_number", TABLE] {
        let done = Call::new(&["bench", table, "--quick"]).env("CORELOCAL_RSEQ", "off").done();
        assert_eq!(done.code, Some(0), "{}", done.whole());
        assert!(done.out.contains("none: atomics"), "the stamp tells:\n{}", done.out);
    }
}

/// The process that a row of the table `counter` is measured in.
#[test]
fn the_counter_without_rseq() {
    let child = ["__child", "counter-off", "2", "2000000"];
    let done = Call::new(&child).env("CORELOCAL_RSEQ", "off").done();
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let figures = json(&done.out);
    assert!(figures["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{}", done.out);
    assert!(figures["Mops/s"].as_f64().is_some_and(|mops| mops > 0.0), "{}", done.out);
}
