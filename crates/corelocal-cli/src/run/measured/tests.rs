//! Tests of `measured.rs`.

use super::super::cache_stats::tests::tally;
use super::*;

fn run(wall_s: f64, kib: u64, status: i32) -> Run {
    Run {
        status: ExitStatus::from_raw(status),
        wall_s,
        user_s: wall_s / 2.0,
        system_s: 0.25,
        peak_kib: Some(kib),
        resident: vec![(0.0, kib / 2), (wall_s / 2.0, kib), (wall_s, kib / 4)],
        tally: None,
    }
}

/// Two mallocs and five rounds of a program.
pub fn answer() -> Answer {
    let ours = Malloc {
        id: "corelocal".to_owned(),
        label: "corelocal".to_owned(),
        ours: true,
        library: Some("/x/libcorelocal_malloc.so".into()),
    };
    let libc = Malloc { label: "glibc 2.36".to_owned(), ..Malloc::of_libc() };
    let slow = [2.0, 2.0, 3.0, 4.0, 4.0].map(|wall_s| run(wall_s, 40_960, 0)).to_vec();
    let mut fast = [1.0, 1.0, 1.5, 2.0, 2.0].map(|wall_s| run(wall_s, 20_480, 0)).to_vec();
    fast[1].status = ExitStatus::from_raw(3 << 8);
    let command = ["program".into(), "argument".into()];
    Answer::new(&command, vec![libc, ours], vec![slow, fast], vec![None, Some(tally())])
}

#[test]
fn medians_and_ratios() {
    let answer = answer();
    let [libc, ours] = &answer.mallocs[..] else { panic!("two mallocs") };
    assert_eq!(libc.wall_s.unwrap().median, 3.0);
    assert_eq!((libc.wall_ratio, ours.wall_ratio), (None, Some(0.5)));
    assert_eq!(ours.peak_ratio, Some(0.5));
    assert_eq!(ours.cpu_ratio, Some(1.0 / 1.75));
    // Rounds whose quartiles of time overlap.
    assert_eq!(ours.verdict.as_deref(), Some("50 % less peak memory"));
    assert_eq!(libc.verdict, None);
    assert_eq!(ours.final_kib.unwrap().median, 5120.0);
    assert_eq!((ours.ended.as_str(), ours.well), ("exit code 3", false));
    assert_eq!(ours.resident.len(), 3);
}

#[test]
fn few_rounds_and_interruptions_have_no_verdict() {
    let mallocs = || {
        vec![
            Malloc::of_libc(),
            Malloc { id: "x".to_owned(), library: Some("/x".into()), ..Malloc::of_libc() },
        ]
    };
    let rounds = |n: usize, wall_s: f64| vec![run(wall_s, 40_960, 0); n];
    let of =
        |n| Answer::new(&[], mallocs(), vec![rounds(n, 2.0), rounds(n, 1.0)], vec![None, None]);
    assert!(of(5).mallocs[1].verdict.is_some() && of(5).remarks().is_empty());
    assert_eq!(of(4).mallocs[1].verdict, None);
    assert!(of(4).remarks()[0].contains("--rounds 5"), "{:?}", of(4).remarks());
    let mut ended = of(5);
    ended.interrupt(2, 10);
    assert_eq!(ended.mallocs[1].verdict, None);
}

#[test]
fn who_is_to_blame_for_an_end() {
    let [one] = &answer().bad_ends()[..] else { panic!("one malloc") };
    assert!(one.contains("corelocal") && one.contains("exit code 3"), "{one}");
    let mallocs = || vec![Malloc::of_libc(), Malloc { id: "x".to_owned(), ..Malloc::of_libc() }];
    let killed = || vec![run(1.0, 1, 9)];
    let all = Answer::new(&[], mallocs(), vec![killed(), killed()], vec![None, None]).bad_ends();
    assert_eq!(all, ["Runs ended with signal 9, with every malloc."]);
    // Interrupted before the second one's turn: not counted against either.
    let mut first = Answer::new(&[], mallocs(), vec![killed(), vec![]], vec![None, None]);
    assert_eq!(first.bad_ends().len(), 1);
    first.interrupt(9, 0);
    assert_eq!(first.remarks(), ["Interrupted by signal 9: the figures cover part of one run."]);
    // What ended badly before is told.
    let mut answer = answer();
    answer.interrupted = Some(Interrupted { signal: 2, whole_runs: 6 });
    let [first, second] = &answer.remarks()[..] else { panic!("two sentences") };
    assert_eq!(first, "Interrupted by signal 2: the figures cover the 6 runs before.");
    assert!(second.contains("exit code 3"), "{second}");
    assert!(
        Answer::new(&[], mallocs(), vec![Vec::new(), Vec::new()], vec![None, None])
            .bad_ends()
            .is_empty()
    );
}

#[test]
fn nothing_was_seen() {
    let mut short = run(0.001, 1, 9);
    (short.peak_kib, short.resident) = (None, Vec::new());
    let answer = Answer::new(&[], vec![Malloc::of_libc()], vec![vec![short]], vec![None]);
    let only = &answer.mallocs[0];
    assert!(only.peak_kib.is_none() && only.final_kib.is_none() && only.wall_s.is_some());
    assert_eq!(only.ended, "signal 9");
    let none = Answer::new(&[], vec![Malloc::of_libc()], vec![Vec::new()], vec![None]);
    assert!(none.mallocs[0].wall_s.is_none());
}
