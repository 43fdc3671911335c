//! From facts to findings: for each path what there is, what is used, why not more, what to do.
//!
//! Invariant: a path that is not `Active` says why, and says what to do unless nothing can be done.

use corelocal::sys::topology::{self, CgroupVersion};
use corelocal::sys::{Abi, Caps, Errno, Owner, Refusal, membarrier::Commands};

use super::clock;
use super::finding::{Finding, State};
use super::surroundings::Surroundings;

/// Major and minor number of a kernel, if they are known.
type Version = Option<(u32, u32)>;

/// Returns the state of a path that the kernel does not offer, and that Linux has since this version. A kernel that is
/// new enough keeps it back, and so does a filter.
fn missing(kernel: Version, since: (u32, u32)) -> State {
    if kernel.is_some_and(|kernel| kernel >= since) { State::Degraded } else { State::Absent }
}

/// Returns all findings, the most important first.
pub fn of(caps: &Caps, around: &Surroundings) -> Vec<Finding> {
    let kernel = caps.kernel.version();
    vec![
        sections(caps, around),
        cpu_number(caps),
        concurrency_id(caps, kernel),
        node(caps, kernel),
        membarrier(caps, kernel),
        private_futex(caps),
        newer_futex(caps, kernel),
        slice_extension(caps),
        clock::finding(caps, around),
        cpus(caps),
    ]
}

fn sections(caps: &Caps, around: &Surroundings) -> Finding {
    let rseq = &caps.rseq;
    let offered = match rseq.feature_size {
        0 => "kernel: the 20 bytes of Linux 4.18, or no rseq".to_owned(),
        size => format!("kernel: {size} bytes, alignment {}", rseq.align),
    };
    let libc = match rseq.libc_size {
        None => "libc: does not support rseq",
        Some(0) => "libc: supports rseq, did not register",
        Some(_) => "libc: registers every thread",
    };
    let offered = format!("{offered}; {libc}");
    let abi = match rseq.abi {
        Some(Abi::V2) => "v2",
        _ => "v1",
    };
    let used = match rseq.owner {
        Owner::Libc => format!("libc's registration, {} bytes, {abi}", rseq.len),
        Owner::Corelocal => {
            format!("registered by corelocal at a thread's first use, {} bytes, {abi}", rseq.len)
        }
        Owner::Nobody => "none: atomics on lines that few threads share".to_owned(),
    };
    let finding = Finding::new("critical sections", used, offered);
    match rseq.refusal {
        None if around.rseq_tunable_off => Finding {
            why: Some("GLIBC_TUNABLES prevents libc from registering".to_owned()),
            ..finding
        },
        None => finding,
        Some(refusal) => {
            let (why, remedy) = explain(refusal, caps, around);
            finding.but(State::Degraded, why, Some(remedy))
        }
    }
}

fn explain(refusal: Refusal, caps: &Caps, around: &Surroundings) -> (String, &'static str) {
    let old = caps.kernel.version().is_some_and(|version| version < (4, 18));
    let (why, remedy) = match refusal {
        Refusal::Disabled => return (refusal.to_string(), "unset CORELOCAL_RSEQ"),
        Refusal::Architecture => {
            return (
                refusal.to_string(),
                "run on x86-64, arm64 or riscv64; other architectures have no critical sections yet",
            );
        }
        Refusal::BrokenKernel => {
            return (
                refusal.to_string(),
                "run Linux 7.0.14 or later: arm64's 6.19 and earlier 7.0 may go on with a section",
            );
        }
        Refusal::LibcThread => {
            ("a filter installed after start refuses rseq", "allow rseq in that seccomp filter")
        }
        Refusal::Vfork => ("this process is a vfork child", "use fork, or exec the program"),
        Refusal::Kernel(_) if around.valgrind => {
            ("valgrind does not support rseq", "nothing to do: results under valgrind are exact")
        }
        Refusal::Kernel(_) if around.gvisor => {
            ("gVisor's kernel has no rseq", "run it outside of gVisor for speed")
        }
        Refusal::Kernel(Errno::EBUSY | Errno::EINVAL) => (
            "another library has registered an area of its own",
            "remove that library, or let glibc 2.35 or later register for both",
        ),
        Refusal::Kernel(_) if around.seccomp => (
            "a seccomp filter refuses rseq",
            "allow rseq (system call 334 on x86-64) in the container's seccomp profile",
        ),
        Refusal::Kernel(_) if old => ("the kernel is older than rseq", "run Linux 4.18 or later"),
        Refusal::Kernel(_) => {
            ("the kernel is built without CONFIG_RSEQ", "run a kernel with CONFIG_RSEQ=y")
        }
    };
    (format!("{why} ({refusal})"), remedy)
}

const NO_SECTIONS: &str = "threads are not registered, see critical sections";

fn cpu_number(caps: &Caps) -> Finding {
    let offered = match caps.vdso.getcpu {
        true => "vDSO: getcpu",
        false => "vDSO: no getcpu, so reading the cpu number costs a system call",
    };
    match caps.rseq.owner {
        Owner::Nobody => Finding::new("cpu number", "sched_getcpu", offered).but(
            State::Degraded,
            NO_SECTIONS,
            None,
        ),
        _ => Finding::new("cpu number", "rseq cpu_id, one load", offered),
    }
}

fn concurrency_id(caps: &Caps, kernel: Version) -> Finding {
    const NAME: &str = "concurrency id";
    let offered = match caps.rseq.feature_size >= 28 {
        true => "kernel: mm_cid",
        false => "kernel: no mm_cid",
    };
    if caps.rseq.owner == Owner::Nobody {
        let used = "none: a few threads share a slot";
        return Finding::new(NAME, used, offered).but(State::Degraded, NO_SECTIONS, None);
    }
    if caps.rseq.mm_cid {
        return Finding::new(NAME, "mm_cid, one load: memory follows the cores used", offered);
    }
    // No slower, and compact all the same; an id more is met when threads wander over the cpus.
    let used = "cpu number, with compact slots: memory follows the cores used";
    not_published(caps, kernel, Finding::new(NAME, used, offered))
}

/// Completes the finding on a field of the rseq area, which kernels publish since Linux 6.3.
fn not_published(caps: &Caps, kernel: Version, finding: Finding) -> Finding {
    let state = missing(kernel, (6, 3));
    let (why, remedy) = match state {
        State::Degraded if caps.rseq.feature_size == 0 => (
            "the auxiliary vector has no AT_RSEQ_FEATURE_SIZE, so the available fields are unknown"
                .to_owned(),
            "run it without an emulator or loader that replaces the auxiliary vector",
        ),
        State::Degraded => (
            format!("the registration covers {} bytes only", caps.rseq.len),
            "run with another libc, or with GLIBC_TUNABLES=glibc.pthread.rseq=0",
        ),
        _ => (
            format!("Linux {} does not publish it; Linux 6.3 and later do", caps.kernel),
            "run Linux 6.3 or later",
        ),
    };
    finding.but(state, why, Some(remedy))
}

fn node(caps: &Caps, kernel: Version) -> Finding {
    let nodes = caps.topology.nodes.set.count().max(1);
    let offered = format!("{nodes} {}", if nodes == 1 { "node" } else { "nodes" });
    if caps.rseq.node_id {
        return Finding::new("NUMA node", "rseq node_id, one load", offered);
    }
    let finding = Finding::new("NUMA node", "getcpu, a system call", offered);
    match caps.rseq.owner {
        Owner::Nobody => finding.but(State::Degraded, NO_SECTIONS, None),
        _ => not_published(caps, kernel, finding),
    }
}

fn membarrier(caps: &Caps, kernel: Version) -> Finding {
    const NAME: &str = "remote fences";
    match &caps.membarrier {
        Ok(_) if caps.membarrier_rseq => {
            let used = "membarrier, expedited, ends critical sections";
            Finding::new(NAME, used, "kernel: PRIVATE_EXPEDITED_RSEQ")
        }
        Ok(commands) if commands.contains(Commands::PRIVATE_EXPEDITED) => {
            let used = "membarrier, expedited, does not end critical sections";
            Finding::new(NAME, used, "kernel: PRIVATE_EXPEDITED").but(
                missing(kernel, (5, 10)),
                format!("Linux {} has no PRIVATE_EXPEDITED_RSEQ", caps.kernel),
                Some("run Linux 5.10 or later with CONFIG_RSEQ=y"),
            )
        }
        Ok(_) => Finding::new(NAME, "none", "kernel: no expedited membarrier").but(
            State::Degraded,
            format!("Linux {} is too old for it", caps.kernel),
            Some("run Linux 5.10 or later"),
        ),
        Err(errno) => Finding::new(NAME, "none", "kernel: refused").but(
            State::Degraded,
            format!("membarrier(2) failed: {errno}"),
            Some("allow membarrier in the seccomp profile"),
        ),
    }
}

fn private_futex(caps: &Caps) -> Finding {
    const NAME: &str = "private futexes";
    if caps.futex.private {
        return Finding::new(NAME, "private by default, shared on request", "kernel: both");
    }
    Finding::new(NAME, "shared futexes for everything", "kernel: shared only").but(
        State::Degraded,
        "private futex operations answer ENOSYS",
        Some("allow FUTEX_PRIVATE_FLAG in the seccomp profile, or run Linux 2.6.22 or later"),
    )
}

fn newer_futex(caps: &Caps, kernel: Version) -> Finding {
    let futex = &caps.futex;
    let all = [
        ("LOCK_PI2", futex.lock_pi2, (5, 14)),
        ("waitv", futex.waitv, (5, 16)),
        ("futex2", futex.futex2, (6, 7)),
    ];
    let list = |is_listed: &dyn Fn(bool, State) -> bool| {
        let listed = all.iter().filter(|call| is_listed(call.1, missing(kernel, call.2)));
        let names: Vec<&str> = listed.map(|call| call.0).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let there = list(&|is_there, _| is_there);
    let finding = Finding::new("newer futex calls", &*there, format!("kernel: {there}"));
    let refused = list(&|is_there, state| !is_there && state == State::Degraded);
    match all.iter().rev().find(|call| !call.1) {
        None => finding,
        Some(_) if refused != "none" => finding.but(
            State::Degraded,
            format!("Linux {} has them, but refuses: {refused}", caps.kernel),
            Some("allow futex_waitv, futex_wake, futex_wait, futex_requeue and all of futex in the seccomp profile"),
        ),
        Some((_, _, (major, minor))) => {
            let older = list(&|is_there, _| !is_there);
            let why = format!("not in Linux {}: {older}", caps.kernel);
            finding.but(State::Absent, why, Some(&format!("run Linux {major}.{minor} or later")))
        }
    }
}

fn slice_extension(caps: &Caps) -> Finding {
    const NAME: &str = "time-slice extension";
    let rseq = &caps.rseq;
    if rseq.slice_available {
        let used = if rseq.slice_enabled { "enabled" } else { "available, not switched on" };
        return Finding::new(NAME, used, "kernel: rseq slice extension");
    }
    let offered = "kernel: no rseq slice extension";
    let (why, remedy) = match rseq.abi {
        Some(Abi::V2) => (
            "the kernel is built or booted without it".to_owned(),
            "run a kernel with CONFIG_RSEQ_SLICE_EXTENSION=y",
        ),
        Some(Abi::V1) if rseq.feature_size > 32 => (
            "the thread is registered with 32 bytes, which excludes it".to_owned(),
            "run with glibc 2.41 or later, or with GLIBC_TUNABLES=glibc.pthread.rseq=0",
        ),
        Some(Abi::V1) => {
            (format!("Linux {} is older than it", caps.kernel), "run Linux 7.0 or later")
        }
        None => (NO_SECTIONS.to_owned(), "see critical sections"),
    };
    Finding::new(NAME, "not used", offered).but(State::Absent, why, Some(remedy))
}

fn cpus(caps: &Caps) -> Finding {
    let topology = &caps.topology;
    let cgroup = topology.cgroup.as_ref().map_or_else(String::new, |cpuset| {
        let version = match cpuset.version {
            CgroupVersion::V1 => "v1",
            CgroupVersion::V2 => "v2",
        };
        format!(", cpuset {} (cgroup {version})", cpuset.cpus)
    });
    let offered = format!(
        "possible {}{}, online {}, allowed {}{cgroup}",
        topology.possible.set,
        if topology.is_sparse() { " (sparse)" } else { "" },
        topology.online.set,
        topology.affinity.set,
    );
    let ids = topology.nr_possible_ids();
    let used = format!("slots for {ids} ids, populated as they are used");
    let finding = Finding::new("cpu topology", used, offered);
    if topology.possible.source == topology::Source::Sysfs {
        return finding;
    }
    finding.but(
        State::Degraded,
        "/sys does not list the possible cpus, so slots are reserved for the maximum number",
        Some("mount sysfs in the container"),
    )
}

#[cfg(test)]
mod tests;
