//! `corelocal torture` on this machine, and where it cannot be tried.

use crate::{Call, corelocal, json, skip};

/// `corelocal torture`, with a short answer where ptrace or sections are refused.
const UNABLE: i32 = 3;

#[test]
fn one_disturbance_everywhere() {
    let done = corelocal(&["torture", "--only", "+signal", "--json"]);
    if done.code == Some(UNABLE) {
        return skip("one_disturbance_everywhere", done.err.trim());
    }
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let answer = json(&done.out);
    let count = |name: &str| answer[name].as_u64().unwrap_or_else(|| panic!("no {name}"));
    assert!(count("triples") > 50 && count("ok") == count("triples"), "{answer}");
    assert_eq!(answer["coverage"]["unreached"], json("[]"), "{answer}");
}

#[test]
fn a_matrix_names_triples_that_can_be_asked_for() {
    let done = corelocal(&["torture", "--only", "counter-cid/add@0+stop"]);
    if done.code == Some(UNABLE) {
        return skip("a_matrix_names_triples_that_can_be_asked_for", done.err.trim());
    }
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert!(done.out.contains("\n1 triple: 1 ok, 0 failed, 0 not reached, 0 skipped, in "));
    for unknown in ["counter", "counter-cid/add@1000", "@1000"] {
        let done = corelocal(&["torture", "--only", unknown]);
        assert_eq!(done.code, Some(2), "{}", done.whole());
        assert!(done.err.contains("counter-cid/add"), "{}", done.whole());
    }
}

#[test]
fn a_short_storm() {
    let done = corelocal(&["torture", "--for", "300ms", "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let totals = json(&done.out);
    assert!(totals["operations"]["adds"].as_u64() > Some(0), "{totals}");
    assert!(totals["operations"]["items"].as_u64() > Some(0), "{totals}");
    assert!(totals["signals"].as_u64() > Some(0), "{totals}");
    assert!(totals["compactions"].is_u64() && totals["freezes"].is_u64(), "{totals}");
}

#[test]
fn sections_switched_off() {
    let done = Call::new(&["torture"]).env("CORELOCAL_RSEQ", "off").done();
    assert_eq!(done.code, Some(UNABLE), "{}", done.whole());
    assert!(done.err.contains("switched off by CORELOCAL_RSEQ=off"), "{}", done.whole());
    let storm = Call::new(&["torture", "--for", "200ms"]).env("CORELOCAL_RSEQ", "off").done();
    assert_eq!(storm.code, Some(0), "{}", storm.whole());
}

#[test]
fn ptrace_refused() {
    match Call::new(&["torture"]).done_refused(libc::SYS_ptrace, libc::EPERM) {
        Err(why) => skip("ptrace_refused", &why),
        Ok(done) => {
            assert_eq!(done.code, Some(UNABLE), "{}", done.whole());
            // Where there are no sections, that is said first.
            assert!(done.err.starts_with("error: "), "{}", done.whole());
        }
    }
}
