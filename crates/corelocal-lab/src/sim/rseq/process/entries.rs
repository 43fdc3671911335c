//! Lives of processes by name, and planted faults of programs and kernels.

use super::super::super::case::Entry;
use super::Op::{
    Add, AddAtomically, Clone, Disarm, Exec, Fork, Register, Reuse, Unmap, Unregister, Vfork,
};
use super::{Budget, Checks, DESCRIPTOR, Descriptor, Fault, Op, Process};

const LOST: Option<&str> = Some("a count is lost");
const KILLED: Option<&str> = Some("SIGSEGV");
const IN_OTHER_USE: Option<&str> = Some("in other use");

/// Under a kernel before 6.19.
fn of(programs: &[&[Op]]) -> Process {
    Process {
        programs: programs.iter().map(|program| program.to_vec()).collect(),
        descriptor: DESCRIPTOR,
        checks: Checks::All,
        fault: None,
        budget: Budget { preemptions: 2, migrations: 1, signals: 2 },
    }
}

/// Returns a process whose signals are blocked.
fn blocked(programs: &[&[Op]]) -> Process {
    let process = of(programs);
    Process { budget: Budget { signals: 0, ..process.budget }, ..process }
}

/// Two threads that add.
const THREADS: [&[Op]; 2] = [&[Register, Clone(1), Add], &[Register, Add]];

pub(in crate::sim) fn entries() -> Vec<Entry> {
    let threads = || of(&THREADS);
    let with = |descriptor| Process { descriptor, ..threads() };
    let fault = |fault, process: Process| Process { fault: Some(fault), ..process };
    let vfork = |child: &[Op]| blocked(&[&[Register, Clone(1), Vfork(2)], &[Register, Add], child]);
    let atomic = [AddAtomically, Exec, Register, Add];
    let correct = [
        (
            "nested-signals",
            "two threads, two signals that may nest, handlers with sections",
            threads(),
        ),
        (
            "nested-signals-6.19",
            "the same on kernels that check the abort handler only",
            Process { checks: Checks::AbortHandler, ..threads() },
        ),
        (
            "fork",
            "a child has a copy of the area, and stays registered",
            of(&[&[Register, Add, Fork(1), Add], &[Add]]),
        ),
        (
            "vfork",
            "a child in the same memory adds by an atomic operation, then calls exec",
            vfork(&atomic),
        ),
        (
            "exec",
            "a new program registers again, and works before that, too",
            of(&[&[Register, Add, Exec, Add, Register, Add]]),
        ),
        (
            "exit",
            "a thread ends its registration before the area's memory is used for something else",
            blocked(&[&[Register, Clone(1), Add], &[Register, Add, Unregister, Reuse]]),
        ),
        (
            "dlclose",
            "rseq_cs is cleared before the descriptor is unmapped",
            blocked(&[&[Register, Add, Disarm, Unmap]]),
        ),
    ];
    let wrong = [
        (
            "vfork-section",
            "a child of vfork runs a section: its parent's area looks registered",
            LOST,
            vfork(&[Add, Exec, Register, Add]),
        ),
        (
            "vfork-handler",
            "a child of vfork gets a signal, whose handler runs a section",
            LOST,
            Process { budget: threads().budget, ..vfork(&atomic) },
        ),
        (
            "dlclose-armed",
            "a library is unmapped while rseq_cs still names its descriptor",
            KILLED,
            blocked(&[&[Register, Add, Unmap]]),
        ),
        (
            "area-reused",
            "a thread's area is given to others, and is still registered",
            IN_OTHER_USE,
            blocked(&[&[Register, Clone(1), Add], &[Register, Add, Reuse]]),
        ),
        (
            "late-start",
            "the section begins one instruction after rseq_cs is stored",
            LOST,
            with(Descriptor { start_ip: 2, post_commit_offset: 2, ..DESCRIPTOR }),
        ),
        (
            "unsigned-handler",
            "the abort handler lacks the signature",
            KILLED,
            with(Descriptor { abort_ip: 9, ..DESCRIPTOR }),
        ),
        (
            "handler-within",
            "the abort handler is within the section",
            KILLED,
            with(Descriptor { post_commit_offset: 8, ..DESCRIPTOR }),
        ),
        (
            "flagged",
            "flags of the descriptor, which kernels before 6.0 took",
            KILLED,
            with(Descriptor { flags: 1, ..DESCRIPTOR }),
        ),
        (
            "no-restart",
            "before 6.0: a descriptor whose flags suppress restarts",
            LOST,
            Process { checks: Checks::WithFlags, ..with(Descriptor { flags: 7, ..DESCRIPTOR }) },
        ),
        (
            "exec-keeps",
            "a kernel keeps the registration in exec",
            IN_OTHER_USE,
            fault(Fault::ExecKeeps, of(&[&[Register, Add, Exec, Add]])),
        ),
        (
            "thread-keeps",
            "a kernel lets a thread have its parent's registration",
            Some("answers"),
            fault(Fault::ThreadKeeps, threads()),
        ),
        (
            "frame-first",
            "a kernel looks at rseq_cs after it has made the handler's frame",
            LOST,
            fault(Fault::HandlerFirst, threads()),
        ),
    ];
    let correct = correct.into_iter().map(|(name, about, process)| (name, about, None, process));
    let entry =
        |(name, about, fault, process)| Entry::new(format!("rseq/{name}"), about, fault, process);
    correct.chain(wrong).map(entry).collect()
}
