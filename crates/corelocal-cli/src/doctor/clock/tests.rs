//! Tests of `clock.rs`.

use super::*;

fn at(clock: Clock, source: &str) -> Finding {
    let mut caps = Caps::probe();
    caps.vdso.clock_gettime = true;
    finding(
        &caps,
        &Surroundings { clock, clocksource: source.to_owned(), ..Surroundings::default() },
    )
}

fn given_up(backend: Backend, cause: Cause, count: u32) -> Clock {
    Clock { backend, fallbacks: vec![(cause, count)], ..Clock::default() }
}

#[test]
fn the_best_is_active_and_says_what_was_doubted() {
    let best = at(Clock::default(), "tsc");
    assert_eq!((best.state, best.why), (State::Active, None));
    assert!(best.used.contains("exact"), "{}", best.used);
    let again = at(given_up(Backend::KernelPage, Cause::SourceSwitched, 2), "tsc");
    assert_eq!(again.state, State::Active);
    assert!(again.why.is_some_and(|why| why.contains("changed") && why.contains("(2 times)")));
    let alone = Clock { synchronised: Some(false), ..Clock::default() };
    assert!(at(alone, "tsc").offered.contains("not synchronised"));
}

#[test]
fn every_cause_has_a_remedy() {
    if !corelocal_support::clock::counter::IS_READ {
        return;
    }
    for cause in [
        Cause::UnknownLayout,
        Cause::Inconsistent,
        Cause::UpdateStalled,
        Cause::SourceSwitched,
        Cause::Unsynchronised,
        Cause::TimeNamespace,
        Cause::NoResources,
    ] {
        let finding = at(given_up(Backend::Anchor, cause, 1), "tsc");
        assert_eq!(finding.state, State::Degraded, "{cause}");
        assert!(finding.why.is_some_and(|why| why.ends_with("(once)")), "{cause}");
        let remedy = finding.remedy.unwrap();
        assert!(!remedy.is_empty() && !remedy.contains("see `"), "{cause}: {remedy}");
    }
}

#[test]
fn a_limit_is_named_first() {
    let limit = Some("vdso".to_owned());
    let finding = at(Clock { backend: Backend::Vdso, limit, ..Clock::default() }, "tsc");
    assert_eq!(finding.remedy.as_deref(), Some("unset CORELOCAL_CLOCK"));
    assert_eq!(finding.used, "clock_gettime by the vDSO");
    let limit = Some("libc".to_owned());
    let finding = at(Clock { backend: Backend::Vdso, limit, ..Clock::default() }, "tsc");
    assert_eq!(finding.used, "clock_gettime by libc");
    assert!(finding.why.is_some_and(|why| why.contains("CORELOCAL_CLOCK=libc")));
}

#[test]
fn a_clock_source_that_needs_the_kernel() {
    let slow = at(Clock { backend: Backend::Vdso, ..Clock::default() }, "hpet");
    assert_eq!(slow.state, State::Degraded);
    assert!(slow.used.contains("system call") && slow.why.is_some_and(|w| w.contains("hpet")));
}
