use super::*;

/// This machine's capabilities as if everything were there.
fn complete() -> Caps {
    let mut caps = Caps::probe();
    caps.rseq.owner = Owner::Libc;
    caps.rseq.refusal = None;
    caps.rseq.len = 33;
    caps.rseq.feature_size = 33;
    caps.rseq.align = 64;
    caps.rseq.libc_size = Some(33);
    caps.rseq.abi = Some(Abi::V2);
    caps.rseq.node_id = true;
    caps.rseq.mm_cid = true;
    caps.rseq.slice_available = true;
    caps.futex.private = true;
    caps.futex.lock_pi2 = true;
    caps.futex.waitv = true;
    caps.futex.futex2 = true;
    caps.membarrier_rseq = true;
    caps.vdso.clock_gettime = true;
    caps.vdso.getcpu = true;
    caps.topology.possible.source = topology::Source::Sysfs;
    caps
}

fn quiet() -> Surroundings {
    Surroundings { clocksource: "tsc".to_owned(), ..Surroundings::default() }
}

fn refused(refusal: Refusal) -> Caps {
    let mut caps = complete();
    caps.rseq.owner = Owner::Nobody;
    caps.rseq.refusal = Some(refusal);
    caps.rseq.len = 0;
    caps.rseq.abi = None;
    caps.rseq.node_id = false;
    caps.rseq.mm_cid = false;
    caps.rseq.slice_available = false;
    caps
}

fn find<'a>(findings: &'a [Finding], path: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.path == path).expect(path)
}

#[test]
fn everything_active() {
    for finding in of(&complete(), &quiet()) {
        assert_eq!(finding.state, State::Active, "{finding:?}");
        assert_eq!(finding.remedy, None);
    }
}

#[test]
fn whatever_is_not_active_says_why() {
    let worlds = [
        refused(Refusal::Disabled),
        refused(Refusal::Architecture),
        refused(Refusal::Kernel(Errno::ENOSYS)),
        refused(Refusal::Kernel(Errno::EPERM)),
        refused(Refusal::LibcThread),
        refused(Refusal::Vfork),
    ];
    for caps in worlds {
        let findings = of(&caps, &quiet());
        assert_eq!(find(&findings, "critical sections").state, State::Degraded);
        assert!(find(&findings, "critical sections").remedy.is_some());
        for finding in findings.iter().filter(|finding| finding.state != State::Active) {
            assert!(finding.why.is_some(), "{finding:?}");
        }
    }
}

#[test]
fn the_same_errno_has_different_causes() {
    let caps = refused(Refusal::Kernel(Errno::ENOSYS));
    let why = |around: &Surroundings| {
        find(&of(&caps, around), "critical sections").why.clone().expect("a reason")
    };
    assert!(why(&Surroundings { valgrind: true, ..quiet() }).contains("valgrind"));
    assert!(why(&Surroundings { gvisor: true, ..quiet() }).contains("gVisor"));
    assert!(why(&Surroundings { seccomp: true, ..quiet() }).contains("seccomp"));
    assert!(why(&quiet()).contains("CONFIG_RSEQ"));
}

#[test]
fn an_old_kernel_has_no_concurrency_ids() {
    let mut caps = complete();
    caps.rseq.feature_size = 0;
    caps.rseq.mm_cid = false;
    caps.rseq.abi = Some(Abi::V1);
    caps.rseq.slice_available = false;
    let findings = of(&caps, &quiet());
    let finding = find(&findings, "concurrency id");
    assert_eq!(finding.state, State::Absent);
    assert!(finding.remedy.as_deref().is_some_and(|remedy| remedy.contains("6.3")), "{finding:?}");
    assert_eq!(find(&findings, "time-slice extension").state, State::Absent);
}

#[test]
fn missing_newer_calls_are_absent_not_degraded() {
    let mut caps = complete();
    caps.futex.waitv = false;
    caps.futex.futex2 = false;
    let findings = of(&caps, &quiet());
    let finding = find(&findings, "newer futex calls");
    assert_eq!(finding.state, State::Absent);
    assert_eq!(finding.used, "LOCK_PI2");
    assert!(finding.remedy.as_deref().is_some_and(|remedy| remedy.contains("6.7")), "{finding:?}");
}

#[test]
fn no_sysfs() {
    let mut caps = complete();
    caps.topology.possible.source = topology::Source::Affinity;
    assert_eq!(find(&of(&caps, &quiet()), "cpu topology").state, State::Degraded);
}
