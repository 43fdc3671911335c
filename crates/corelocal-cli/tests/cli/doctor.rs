//! `corelocal doctor` in the worlds that a machine can put it into.

use serde_json::Value;

use crate::{Call, corelocal, json, skip};

const PATHS: [&str; 10] = [
    "critical sections",
    "cpu number",
    "concurrency id",
    "NUMA node",
    "remote fences",
    "private futexes",
    "newer futex calls",
    "time-slice extension",
    "clock",
    "cpu topology",
];

/// The owner of the threads' registrations, as `doctor --json` reports it.
fn owner() -> String {
    let diagnosis = json(&corelocal(&["doctor", "--json"]).out);
    diagnosis["caps"]["rseq"]["owner"].as_str().expect("an owner").to_owned()
}

#[test]
fn text_has_every_path_and_no_colour() {
    let done = corelocal(&["doctor"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    for path in PATHS {
        let line = done.out.lines().find(|line| line.starts_with(path));
        let line = line.unwrap_or_else(|| panic!("no line for {path}:\n{}", done.out));
        let states = ["  active    ", "  degraded  ", "  absent    "];
        assert!(states.iter().any(|state| line.contains(state)), "{line}");
    }
    assert!(!done.out.contains('\u{1b}') && done.err.is_empty(), "{}", done.whole());
}

#[test]
fn colour_on_request() {
    let forced = Call::new(&["doctor"]).env("CLICOLOR_FORCE", "1").done();
    assert!(forced.out.contains("\u{1b}[32mactive"), "{}", forced.out);
    let refused = Call::new(&["doctor"]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").done();
    let asked_for = Call::new(&["doctor", "--json"]).env("CLICOLOR_FORCE", "1").done();
    for done in [refused, asked_for] {
        assert!(!done.out.contains('\u{1b}'), "{}", done.out);
    }
}

#[test]
fn json_says_what_the_text_says() {
    let done = corelocal(&["doctor", "--json"]);
    assert_eq!(done.code, Some(0));
    let diagnosis = json(&done.out);
    assert_eq!(diagnosis["version"], env!("CARGO_PKG_VERSION"));
    let findings = diagnosis["findings"].as_array().expect("findings");
    let paths: Vec<&str> = findings.iter().filter_map(|finding| finding["path"].as_str()).collect();
    assert_eq!(paths, PATHS);
    let degraded = findings.iter().filter(|finding| finding["state"] == "degraded").count();
    assert_eq!(diagnosis["degraded"], degraded);
    let owner = diagnosis["caps"]["rseq"]["owner"].as_str().expect("an owner");
    assert!(["libc", "corelocal", "nobody"].contains(&owner), "{owner}");
    assert!(diagnosis["caps"]["kernel"].is_string() && diagnosis["surroundings"].is_object());
    let text = corelocal(&["doctor"]).out;
    // The column of states. On a busy machine the clock may have settled for one call and not for the other.
    let state =
        |line: &str| line.get(22..).and_then(|rest| rest.split(' ').next().map(str::to_owned));
    for finding in findings.iter().filter(|finding| finding["path"] != "clock") {
        let path = finding["path"].as_str().expect("a name");
        let line = text.lines().find(|line| line.starts_with(path)).unwrap_or_default();
        assert_eq!(state(line).as_deref(), finding["state"].as_str(), "{path}:\n{text}");
    }
    let degraded = text.lines().filter(|line| state(line).as_deref() == Some("degraded")).count();
    let count = format!("{degraded} degraded");
    assert!(text.lines().last().is_some_and(|line| line.contains(&count)), "{text}");
}

#[test]
fn strict_exits_with_1_where_a_path_is_degraded() {
    for args in [["doctor", "--strict"].as_slice(), &["doctor", "--strict", "--json"]] {
        let off = Call::new(args).env("CORELOCAL_RSEQ", "off").done();
        assert_eq!(off.code, Some(1), "{}", off.whole());
        assert!(off.err.is_empty(), "{}", off.err);
    }
    let off = Call::new(&["doctor"]).env("CORELOCAL_RSEQ", "off").done();
    assert_eq!(off.code, Some(0), "only --strict fails");
    assert!(off.out.contains("do: unset CORELOCAL_RSEQ"), "{}", off.out);
    let here = corelocal(&["doctor", "--strict", "--json"]);
    let degraded = json(&here.out)["degraded"].as_u64().expect("a number");
    assert_eq!(here.code, Some(i32::from(degraded > 0)), "{degraded} degraded");
}

#[test]
fn a_libc_told_not_to_register_is_stood_in_for() {
    let test = "a_libc_told_not_to_register_is_stood_in_for";
    if owner() == "nobody" {
        return skip(test, "rseq is not available");
    }
    let done = Call::new(&["doctor"]).env("GLIBC_TUNABLES", "glibc.pthread.rseq=0").done();
    assert!(done.out.contains("registered by corelocal"), "{}", done.out);
}

#[test]
fn a_filter_that_refuses_rseq_is_named_with_the_remedy() {
    let test = "a_filter_that_refuses_rseq_is_named_with_the_remedy";
    if cfg!(not(target_arch = "x86_64")) {
        return skip(test, "this architecture has no sections to be refused");
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        let call = Call::new(&["doctor", "--json"]);
        let done = match call.done_refused(libc::SYS_rseq, errno) {
            Err(reason) => return skip(test, &reason),
            Ok(done) => done,
        };
        let diagnosis = json(&done.out);
        assert_eq!(diagnosis["caps"]["rseq"]["owner"], "nobody");
        let Value::Array(findings) = &diagnosis["findings"] else { panic!("no findings") };
        let sections = findings.iter().find(|finding| finding["path"] == PATHS[0]);
        let sections = sections.expect("critical sections");
        let says = |key: &str, words: &str| {
            let text = sections[key].as_str().unwrap_or_default();
            assert!(text.contains(words), "{key}: {text:?} lacks {words:?}");
        };
        assert_eq!(sections["state"], "degraded");
        says("why", "a seccomp filter refuses rseq");
        says("remedy", "allow rseq (system call 334 on x86-64)");
    }
}

#[test]
fn a_clock_that_may_not_be_read_in_place() {
    let done = Call::new(&["doctor"]).env("CORELOCAL_CLOCK", "vdso").done();
    assert_eq!(done.code, Some(0), "{}", done.whole());
    if cfg!(target_arch = "x86_64") {
        assert!(done.out.contains("unset CORELOCAL_CLOCK"), "{}", done.out);
    }
}
