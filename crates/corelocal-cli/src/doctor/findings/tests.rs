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
        refused(Refusal::BrokenKernel),
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

const OLD: Version = Some((6, 1));
const NEW: Version = Some((6, 7));

/// What it says of the remedy.
fn does(finding: &Finding, text: &str) -> bool {
    finding.remedy.as_deref().is_some_and(|remedy| remedy.contains(text))
}

#[test]
fn an_old_kernel_has_no_fields_of_newer_ones() {
    let mut caps = complete();
    caps.rseq.feature_size = 0;
    caps.rseq.mm_cid = false;
    caps.rseq.node_id = false;
    caps.rseq.abi = Some(Abi::V1);
    caps.rseq.slice_available = false;
    for of in [concurrency_id, node] {
        let (old, new) = (of(&caps, OLD), of(&caps, NEW));
        assert_eq!((old.state, new.state), (State::Absent, State::Degraded), "{old:?} {new:?}");
        assert!(does(&old, "6.3") && !does(&new, "6.3"), "{old:?} {new:?}");
        assert_eq!(of(&caps, None).state, State::Absent);
    }
    caps.rseq.feature_size = 28;
    caps.rseq.len = 20;
    assert!(does(&node(&caps, NEW), "GLIBC_TUNABLES"));
    // Without a registration its kernel is not what is missing.
    assert_eq!(node(&refused(Refusal::Disabled), OLD).state, State::Degraded);
    assert_eq!(find(&of(&caps, &quiet()), "time-slice extension").state, State::Absent);
}

#[test]
fn remote_fences_that_do_not_end_sections() {
    let mut caps = complete();
    caps.membarrier = Ok(Commands::PRIVATE_EXPEDITED);
    caps.membarrier_rseq = false;
    assert_eq!(membarrier(&caps, Some((4, 19))).state, State::Absent);
    assert_eq!(membarrier(&caps, Some((5, 10))).state, State::Degraded);
}

#[test]
fn calls_that_an_old_kernel_lacks_are_absent() {
    let mut caps = complete();
    caps.futex.waitv = false;
    caps.futex.futex2 = false;
    for kernel in [Some((5, 15)), None] {
        let finding = newer_futex(&caps, kernel);
        assert_eq!((finding.state, &*finding.used), (State::Absent, "LOCK_PI2"));
        assert!(does(&finding, "6.7"), "{finding:?}");
    }
}

#[test]
fn calls_that_a_filter_refuses_are_degraded() {
    type Take = fn(&mut Caps);
    let takes: [(Take, &str); 3] = [
        (|caps| caps.futex.lock_pi2 = false, "refuses: LOCK_PI2"),
        (|caps| caps.futex.waitv = false, "refuses: waitv"),
        (|caps| caps.futex.futex2 = false, "refuses: futex2"),
    ];
    for (take, why) in takes {
        let mut caps = complete();
        take(&mut caps);
        let finding = newer_futex(&caps, NEW);
        assert_eq!(finding.state, State::Degraded, "{finding:?}");
        assert!(does(&finding, "seccomp") && finding.why.is_some_and(|it| it.ends_with(why)));
    }
    // What this kernel is too old for is not refused.
    let mut caps = complete();
    caps.futex.waitv = false;
    caps.futex.futex2 = false;
    let finding = newer_futex(&caps, OLD);
    assert!(finding.why.is_some_and(|why| why.ends_with("refuses: waitv")));
}

#[test]
fn no_sysfs() {
    let mut caps = complete();
    caps.topology.possible.source = topology::Source::Affinity;
    assert_eq!(find(&of(&caps, &quiet()), "cpu topology").state, State::Degraded);
}
