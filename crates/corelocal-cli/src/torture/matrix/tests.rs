//! Tests of `matrix.rs`.

use super::*;
use corelocal_lab::torture::{Coverage, Place, Tried, Unreached};

fn report(verdicts: &[Verdict]) -> Report {
    let tried = Disturbance::ALL.into_iter().zip(verdicts);
    let tried = tried.map(|(disturbance, verdict)| Tried { disturbance, verdict: verdict.clone() });
    let row = Row {
        number: 3,
        address: 0x1000,
        instruction: "add qword ptr [rax], rbx".to_owned(),
        place: Place::Inside,
        tried: tried.collect(),
    };
    let section = Section {
        name: "counter/add".to_owned(),
        function: "operate".to_owned(),
        broken: None,
        rows: vec![row],
    };
    let coverage = Coverage { sections: 3, disturbed: 1, alike: 2, ..Coverage::default() };
    Report { sections: vec![section], coverage }
}

fn plain(report: &Report, width: usize) -> String {
    anstream::adapter::strip_str(&text(&Answer::new(report, 1.0), width)).to_string()
}

#[test]
fn a_failure_says_how_to_see_it_again() {
    let failed = Verdict::Failed("it was lost".to_owned());
    let report = report(&[Verdict::Ok, failed]);
    let expected = "counter/add in operate
                                stop  signal
   3  add qword ptr \
             [rax], rbx  ok    FAIL
  FAIL counter/add@3+signal: it was lost
       to repeat: corelocal torture \
             --only 'counter/add@3+signal'

3 critical sections in this program: 1 reached by workloads, 2 \
             inlined copies of these
processes are not killed in a section here: tests/trace.rs does that
2 triples: 1 ok, 1 failed, 0 not reached, 0 skipped, in 1.0 s
";
    assert_eq!(plain(&report, 100), expected);
    assert!(!report.is_clean());
}

#[test]
fn a_matrix_fits_80_columns() {
    let mut report = report(&[const { Verdict::Ok }; Disturbance::ALL.len()]);
    report.sections[0].rows[0].instruction = "x".repeat(200);
    let text = plain(&report, 80);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(report.is_clean());
}

#[test]
fn a_forgotten_section_is_no_success() {
    let mut report = report(&[Verdict::Ok]);
    report.coverage.unreached.push(Unreached {
        function: "ring_push".to_owned(),
        address: 0x2000,
        instructions: "cmp mov".to_owned(),
    });
    assert!(!report.is_clean());
    assert!(plain(&report, 100).contains("no workload reaches the section in ring_push"));
}
