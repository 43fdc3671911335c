//! Tests of the comparison: verdicts, matching, and a sentence for every way a file can be wrong.

use super::*;

fn a() -> Report {
    parse(include_bytes!("../../../tests/fixtures/report-a.json")).unwrap()
}

fn b() -> Report {
    parse(include_bytes!("../../../tests/fixtures/report-b.json")).unwrap()
}

fn stat(median: f64, half_range: f64) -> Stat {
    let (q1, q3) = (median - half_range, median + half_range);
    Stat { median, q1, q3, min: q1, max: q3, n: 20 }
}

#[test]
fn a_change_needs_size_and_a_quiet_machine() {
    use Verdict::{Changed, Faster, Noise, Slower};
    for (better, old, new, expected) in [
        (Better::Lower, stat(10.0, 0.1), stat(8.0, 0.1), Faster),
        (Better::Lower, stat(10.0, 0.1), stat(12.0, 0.1), Slower),
        (Better::Higher, stat(10.0, 0.1), stat(8.0, 0.1), Slower),
        (Better::Higher, stat(10.0, 0.1), stat(12.0, 0.1), Faster),
        (Better::Neither, stat(10.0, 0.1), stat(12.0, 0.1), Changed),
        // under 5 %, however quiet
        (Better::Lower, stat(10.0, 0.0), stat(9.6, 0.0), Noise),
        // 20 %, but the quartile ranges sum to more
        (Better::Lower, stat(10.0, 0.6), stat(8.0, 0.5), Noise),
        (Better::Lower, stat(10.0, 0.4), stat(8.0, 0.5), Faster),
        (Better::Lower, stat(0.0, 0.0), stat(0.0, 0.0), Noise),
        (Better::Neither, stat(0.0, 0.0), stat(1.0, 0.0), Changed),
    ] {
        assert_eq!(verdict(better, &old, &new), expected, "{better:?} {old:?} {new:?}");
    }
}

#[test]
fn finds_the_faster_the_slower_and_the_noise() {
    let comparison = compare(&a(), &b());
    let of = |title: &str, label: &str| {
        let table = comparison.tables.iter().find(|t| t.title == title).unwrap();
        table.changes.iter().find(|c| c.label == label).unwrap()
    };
    let getcpu = of("Reading the cpu number", "glibc sched_getcpu");
    assert_eq!(getcpu.verdict, Verdict::Faster);
    assert!((getcpu.percent.unwrap() + 20.0).abs() < 0.1);
    assert_eq!(of("Futex calls", "WAIT, value differs, private").verdict, Verdict::Slower);
    assert_eq!(of("Reading the cpu number", "lsl").verdict, Verdict::Noise);
    assert_eq!(of("The statistics counter", "mutex, 64 threads").verdict, Verdict::Noise);
    assert_eq!(comparison.summary(), "1 faster, 1 slower, 43 noise.");
    assert_eq!(comparison.differences.len(), 1, "{:?}", comparison.differences);
    assert_eq!(comparison.differences[0].field, "kernel");
}

#[test]
fn lists_what_only_one_report_has() {
    let (mut old, mut new) = (a(), b());
    new.quick = true;
    new.tables[1].rows[0].points.remove(0);
    new.tables[0].rows.retain(|row| row.id != "lsl");
    old.tables.retain(|table| table.id != "futex");
    let comparison = compare(&old, &new);
    assert_eq!(
        comparison.only_old,
        ["Reading the cpu number: lsl", "The statistics counter: sched_getcpu + atomic, 1 threads"]
    );
    assert_eq!(comparison.only_new.len(), 4);
    assert!(comparison.differences.iter().any(|d| d.field == "rounds"));
}

#[test]
fn rounds_of_other_lengths_are_told() {
    let (old, mut new) = (a(), a());
    new.long = true;
    let comparison = compare(&old, &new);
    let rounds = comparison.differences.iter().find(|it| it.field == "rounds").unwrap();
    assert_eq!((&*rounds.old, &*rounds.new), ("full", "long (--long)"));
}

#[test]
fn a_table_in_another_unit_is_another_table() {
    let (old, mut new) = (a(), a());
    new.tables[2].unit = "cycles".to_owned();
    let comparison = compare(&old, &new);
    assert_eq!((comparison.only_old.len(), comparison.only_new.len()), (4, 4));
}

#[test]
fn a_vanished_zero_has_no_percentage() {
    let (mut old, new) = (a(), a());
    old.tables[2].rows[0].points[0].stat = stat(0.0, 0.0);
    let change = &compare(&old, &new).tables[2].changes[0];
    assert_eq!((change.percent, change.verdict), (None, Verdict::Slower));
}

#[test]
fn what_was_disturbed_is_noise() {
    let (old, mut new) = (a(), b());
    assert!(compare(&old, &new).count(Verdict::Slower) > 0);
    let rows = new.tables.iter_mut().flat_map(|table| &mut table.rows);
    rows.flat_map(|row| &mut row.points).for_each(|point| point.disturbed = true);
    let found = compare(&old, &new);
    assert_eq!([Verdict::Faster, Verdict::Slower].map(|verdict| found.count(verdict)), [0, 0]);
}

#[test]
fn a_load_that_is_sized_for_the_machine_is_compared_by_ratios() {
    let (mut old, mut new) = (a(), a());
    for table in old.tables.iter_mut().chain(&mut new.tables) {
        table.is_sized = true;
    }
    // Another load: all figures are twice as large, and their ratios the same.
    for point in new.tables.iter_mut().flat_map(|t| &mut t.rows).flat_map(|r| &mut r.points) {
        let Stat { median, q1, q3, min, max, .. } = &mut point.stat;
        [median, q1, q3, min, max].into_iter().for_each(|value| *value *= 2.0);
    }
    let found = compare(&old, &new);
    assert_eq!([Verdict::Faster, Verdict::Slower].map(|verdict| found.count(verdict)), [0, 0]);
    let row = new.tables[0].rows.iter_mut().find(|row| row.ours).unwrap();
    row.points[0].ratio = row.points[0].ratio.map(|ratio| 2.0 * ratio);
    assert_eq!(compare(&old, &new).count(Verdict::Faster), 1);
}

#[test]
fn every_damage_has_its_sentence() {
    let whole = include_bytes!("../../../tests/fixtures/report-a.json");
    let newer = br#"{"schema": 9, "version": "4.2.0", "tables": []}"#;
    let cases: [(&[u8], &str); 8] = [
        (b"", "truncated"),
        (&whole[..whole.len() / 2], "truncated"),
        (b"<!doctype html>", "not JSON"),
        (&[0xff, 0x00, 0xfe], "not JSON"),
        (b"[1, 2]", "not a corelocal report"),
        (br#"{"schema": "one", "tables": []}"#, "not a corelocal report"),
        (newer, "corelocal 4.2.0 wrote it with report schema 9, and this program reads up to 2"),
        (br#"{"schema": 1, "tables": []}"#, "damaged corelocal report (missing field `version`)"),
    ];
    for (bytes, expected) in cases {
        let problem = parse(bytes).unwrap_err();
        assert!(problem.contains(expected), "{problem:?} lacks {expected:?}");
        assert!(problem.contains("; "), "{problem:?} does not say what to do");
    }
}

#[test]
fn an_absent_or_unreadable_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("old.json");
    let problem = load(&absent).unwrap_err().to_string();
    assert!(problem.contains("old.json: it does not exist"), "{problem}");
    let problem = load(dir.path()).unwrap_err().to_string();
    assert!(problem.contains("directory"), "{problem}");
}

#[test]
fn a_pipe_without_a_writer_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("old.json");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(load(&pipe).unwrap_err().to_string()));
    let problem = is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("no wait");
    assert!(problem.contains("truncated"), "{problem}");
}

#[test]
fn a_file_that_is_too_long_is_not_parsed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.json");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(LONGEST + 1).unwrap();
    let problem = load(&path).unwrap_err().to_string();
    assert!(problem.contains("more than 64 MiB") && problem.contains("; "), "{problem}");
    file.set_len(LONGEST).unwrap();
    let problem = load(&path).unwrap_err().to_string();
    assert!(problem.contains("not JSON"), "{problem}");
}
