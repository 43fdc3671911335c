//! Tests of `history.rs`.

use super::*;
use crate::torture::workload::{Workload, library};
use crate::torture::{allowed_cpus, confine};

fn model(name: &str) -> Model {
    library().into_iter().find(|workload| workload.name == name).unwrap().model
}

/// Whether a history of an object with one number is explained.
fn judge(
    name: &str,
    (target, other): (i64, i64),
    before: i64,
    look: Option<i64>,
    end: i64,
) -> bool {
    let seen = Seen {
        before: Content::of([before]),
        result: 0,
        other: look.map(|look| Other { result: 0, look }),
        end: Content::of([end]),
    };
    complaint(&model(name), Operands { target, other }, &seen, Away::default()).is_none()
}

#[test]
fn an_addition_counts_once() {
    for (between, end, explained) in [
        (None, 11, true),
        (None, 10, false), // lost
        (None, 12, false), // twice
        (Some(110), 111, true),
        (Some(111), 111, true),
        (Some(110), 110, false), // the target's is lost
        (Some(10), 11, false),   // the other's is lost
        (Some(111), 112, false), // the target's counts twice
    ] {
        assert_eq!(judge("counter-cid/add", (1, 100), 10, between, end), explained);
    }
}

#[test]
fn a_maximum_never_falls() {
    for (between, end, explained) in [
        (Some(12), 12, true),
        (Some(12), 11, false),
        (Some(11), 12, false),
        (None, 11, true),
        (None, 10, false),
    ] {
        assert_eq!(judge("max-cid/record", (11, 12), 10, between, end), explained);
    }
}

/// Without disturbance every workload agrees with its model.
#[test]
fn operations_agree_with_their_models() {
    let round = |workload: &Workload| {
        let before = (workload.begin)(workload.start);
        let operands = (workload.model.operands)(before.numbers());
        let result = (workload.operate)(operands.target);
        let given = (workload.operate)(operands.other);
        let other = Some(Other { result: given, look: (workload.look)() });
        let seen = Seen { before, result, other, end: (workload.end)() };
        complaint(&workload.model, operands, &seen, Away { target: true, other: true })
    };
    confine(0, &allowed_cpus()[..1]);
    for workload in library() {
        // A concurrent test may take the slot away in the middle of a round, but not every time.
        let mut rounds = (0..20).map(|_| round(&workload));
        let complaints: Vec<String> = rounds.by_ref().map_while(|complaint| complaint).collect();
        assert!(complaints.len() < 20, "{}: {:?}", workload.name, complaints.first());
    }
}
