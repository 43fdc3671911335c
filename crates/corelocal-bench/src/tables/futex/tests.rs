//! Tests of the futex table: every row is checked before it is timed.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corelocal_support::measure::engine::Plan;
use corelocal_support::schema::Machine;

use super::*;

#[test]
fn every_row_is_measured_or_explained() {
    let machine = Machine { tsc_mhz: Some(2000.0), ..Machine::default() };
    let plan = Plan { round: Duration::from_micros(50), rounds: 5, ..Plan::QUICK };
    let table = Futex.run(&mut Context::new(plan, &machine)).unwrap();
    assert_eq!(table.rows.len(), 19);
    for row in &table.rows {
        assert_eq!(row.points.is_empty(), row.unavailable.is_some(), "{}", row.id);
        for point in &row.points {
            assert!(point.ratio.is_some() && point.extra.contains_key("cycles"), "{}", row.id);
        }
    }
}

#[test]
fn an_unexpected_result_is_a_reason() {
    let contest = Contest::new(&Futex, "");
    // SAFETY: no kernel has a call of this number.
    let call = || unsafe { libc::syscall(UNKNOWN) };
    let machine = Machine::default();
    let plan = Plan { round: Duration::from_micros(50), rounds: 5, ..Plan::QUICK };
    let table = add(contest, Row::new("row", "row"), call, refused_with(Errno::EAGAIN))
        .measure(&Context::new(plan, &machine));
    assert!(table.rows[0].unavailable.as_ref().unwrap().contains("fails here"));
    assert!(woke_nobody(3).unwrap_err().contains('3'));
    assert!(refused_with(Errno::EAGAIN)(0).is_err());
}

#[test]
fn the_mask_of_new_files_is_the_one_in_force() {
    let Some(mask) = file_mode_mask() else {
        eprintln!("skipped: the_mask_of_new_files_is_the_one_in_force: no /proc");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::File::create(&path).unwrap();
    let mode = fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666 & !mask);
}

#[test]
fn a_word_in_a_file() {
    match FileWord::map() {
        Ok(file) => {
            assert_eq!(file.word().load(Ordering::Relaxed), HELD);
            assert_eq!(file.word().swap(7, Ordering::Relaxed), HELD);
            assert_eq!(file.word().load(Ordering::Relaxed), 7);
        }
        Err(error) => eprintln!("skipped: a_word_in_a_file: {error}"),
    }
}
