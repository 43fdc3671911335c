//! What a caller has the command ignore, as a supervisor does that wants no notice of its children's ends.

use crate::{Call, Done, heap};

const BOTH: [libc::c_int; 2] = [libc::SIGCHLD, libc::SIGPIPE];

fn ignoring(signals: &[libc::c_int], args: &[&str]) -> Done {
    Call::new(args).signals(&BOTH, libc::SIG_DFL).ignoring(signals).done()
}

#[test]
fn results_are_there_where_ends_of_children_are_ignored() {
    for command in [&["locks"][..], &["run", "--malloc", "libc"]] {
        let done = ignoring(&BOTH, &[command, &["sh", "-c", "exit 7"]].concat());
        assert_eq!(done.code, Some(7), "{}", done.whole());
        assert!(!done.err.contains("error:"), "{}", done.whole());
    }
    let done = ignoring(&BOTH, &["bench", "clock", "--quick"]);
    assert!(!done.whole().contains("waited for"), "{}", done.whole());

    let Some(library) = heap::library("results_are_there_where_ends_of_children_are_ignored")
    else {
        return;
    };
    let done = heap::heap_of_program(&library, &["--rate", "32K"], "7").ignoring(&BOTH).done();
    assert_eq!(done.code, Some(7), "{}", done.whole());
    assert!(done.err.contains("Heap of"), "{}", done.whole());
}

/// Whatever the caller has the command ignore.
#[test]
fn a_program_begins_with_default_signals() {
    for command in [&["locks"][..], &["run", "--malloc", "libc"]] {
        let program = ["grep", "SigIgn", "/proc/self/status"];
        let done = ignoring(&BOTH, &[command, &program].concat());
        let mask = done.out.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let mask = mask.unwrap_or_else(|| panic!("{}", done.whole()));
        assert!(BOTH.iter().all(|signal| mask >> (signal - 1) & 1 == 0), "{}", done.whole());
    }
}
