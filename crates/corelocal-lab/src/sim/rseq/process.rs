//! Restartable sequences over the life of a process: registrations, nested signals, children, `exec`, exits.
//!
//! ```text
//!   a thread's program          its section                         the kernel, before a return to user space
//!   register                    0  rseq_cs = descriptor             is an area registered? does rseq_cs name a
//!   add ──────────────────────▶ 1  cpu = cpu_id; negative: 9        descriptor? descriptor::fixup
//!   fork, vfork, exec, …        2  value = counters[cpu]            cpu_id = the number of this cpu
//!                               3  counters[cpu] = value + 1
//!                               8  (abort handler) to 0
//!                               9  an atomic operation instead
//! ```
//! The sections of this library are explored in [`super::Sections`]; this one is the simplest, a counter of each cpu.
//!
//! # Rules
//! 1. No count is lost: the counters of a map add up to the number of commits.
//! 2. The kernel ends no thread.
//! 3. The kernel writes to registered areas only, not to memory that is in other use.
//!
//! Sources: include/linux/rseq.h, `rseq_fork`, `rseq_execve`; kernel/rseq.c; man vfork(2).

mod entries;
mod kernel;

use std::borrow::Cow;

pub(in crate::sim) use entries::entries;

use super::super::{Costs, Label, Model, Step};
use super::descriptor::{Checks, Descriptor};
use super::registration::{Abi, Call, Registration, UNREGISTER};

/// The next operation of a thread's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// `rseq(2)`, for the area of the thread.
    Register,
    Unregister,
    /// Adds one by the section.
    Add,
    /// Adds one by an atomic operation.
    AddAtomically,
    /// Starts a thread that runs the program of this number, with an area of its own.
    Clone(u8),
    /// Starts a process with a copy of the memory.
    Fork(u8),
    /// Starts a child in the same memory, and waits until that has called `exec` or has exited.
    Vfork(u8),
    /// Runs another program: what follows is in new memory.
    Exec,
    /// `rseq_cs = 0`.
    Disarm,
    /// `dlclose`: unmaps the section and its descriptor.
    Unmap,
    /// Gives the area's memory to others.
    Reuse,
}

/// Programs, and a kernel.
#[derive(Clone, Debug)]
pub struct Process {
    programs: Vec<Vec<Op>>,
    descriptor: Descriptor,
    checks: Checks,
    fault: Option<Fault>,
    budget: Budget,
}

/// A planted fault of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `exec` keeps the registration.
    ExecKeeps,
    /// A new thread, or a child of `vfork`, has its parent's registration.
    ThreadKeeps,
    /// `rseq_cs` is looked at after the handler's frame was made.
    HandlerFirst,
}

/// The number of times that the kernel may do each action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    preemptions: u8,
    migrations: u8,
    signals: u8,
}

const THREADS: usize = 3;
const CPUS: usize = 2;
/// Handlers that may be nested.
const NESTED: usize = 2;

// Addresses of areas, and the signature.
const AREAS: u64 = 0x1000;
const AREA_DISTANCE: u64 = 0x100;
const SIGNATURE: u32 = 0x5305_3053;

// The section's instructions, by address.
const ARM: u8 = 0;
const READ_CPU: u8 = 1;
const LOAD: u8 = 2;
const COMMIT: u8 = 3;
const END: u8 = 4;
const ABORT: u8 = 8;
const ATOMIC: u8 = 9;

/// The section's own descriptor.
const DESCRIPTOR: Descriptor = Descriptor {
    version: 0,
    flags: 0,
    start_ip: READ_CPU as u64,
    post_commit_offset: (END - READ_CPU) as u64,
    abort_ip: ABORT as u64,
};

const ABI: Abi = Abi { feature_size: 28, align: 32, reads_area: true, has_slices: false };

/// Threads, the memory maps of processes, and what the kernel may still do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    threads: [Thread; THREADS],
    maps: Vec<Map>,
    left: Budget,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    phase: Phase,
    program: u8,
    map: u8,
    /// The number of the area that its thread pointer names.
    area: u8,
    registration: Registration,
    /// The frames of the program and of its signal handlers, of which the last one runs.
    frames: Vec<Frame>,
    cpu: u8,
    runs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Absent,
    Present,
    /// It waits for a child of vfork, by number.
    Waits(u8),
    Gone,
    Killed,
}

/// A point in a program or in a handler, with registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Frame {
    op: u8,
    ip: u8,
    cpu: u8,
    value: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Map {
    counters: [u8; CPUS],
    /// The sum that atomic operations have added.
    atomic: u8,
    commits: u8,
    areas: [Area; THREADS],
    /// The section and its descriptor are mapped.
    has_section: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Area {
    /// The memory is in other use.
    Other,
    Of {
        /// `None`: not registered.
        cpu_id: Option<u8>,
        is_armed: bool,
    },
}

const NEW_AREA: Area = Area::Of { cpu_id: None, is_armed: false };

// `Step::what`.
const GO_ON: u8 = 0;
const PREEMPT: u8 = 1;
const RUN: u8 = 2;
const SIGNAL: u8 = 3;

impl Process {
    fn op(&self, thread: &Thread) -> Option<Op> {
        match thread.frames.as_slice() {
            [] => None,
            [program] => {
                self.programs[usize::from(thread.program)].get(usize::from(program.op)).copied()
            }
            // Each handler adds one.
            [.., handler] => (handler.op == 0).then_some(Op::Add),
        }
    }

    /// Takes the thread's next instruction, system call, or return from a handler.
    fn go_on(&self, state: &mut State, number: usize) -> Result<(), String> {
        let Some(op) = self.op(&state.threads[number]) else {
            state.threads[number].frames.pop();
            if state.threads[number].frames.is_empty() {
                state.leave(number, Phase::Gone);
            }
            return Ok(());
        };
        match op {
            Op::Add => return self.section(state, number),
            Op::AddAtomically => {
                let map = state.map_of(number);
                (map.atomic, map.commits) = (map.atomic + 1, map.commits + 1);
            }
            Op::Disarm => {
                if let Area::Of { is_armed, .. } = state.area_of(number) {
                    *is_armed = false;
                }
            }
            Op::Unmap => state.map_of(number).has_section = false,
            Op::Reuse => *state.area_of(number) = Area::Other,
            Op::Register | Op::Unregister => {
                let thread = &mut state.threads[number];
                let address = AREAS + AREA_DISTANCE * u64::from(thread.area);
                let flags = if op == Op::Register { 0 } else { UNREGISTER };
                let call = Call { address, length: 32, flags, signature: SIGNATURE };
                let answer = thread.registration.call(ABI, call, |_| true);
                answer.map_err(|refusal| format!("T{number}: rseq(2) answers {refusal:?}"))?;
                let cpu = thread.cpu;
                *state.area_of(number) = match op {
                    Op::Register => Area::Of { cpu_id: Some(cpu), is_armed: false },
                    _ => NEW_AREA,
                };
            }
            Op::Clone(program) | Op::Fork(program) | Op::Vfork(program) => {
                self.start(state, number, op, program);
            }
            Op::Exec => self.exec(state, number),
        }
        let frame = state.threads[number].frames.last_mut().expect("the thread runs");
        frame.op += 1;
        Ok(())
    }

    /// Runs an instruction of the section, or of what follows it.
    fn section(&self, state: &mut State, number: usize) -> Result<(), String> {
        let area = usize::from(state.threads[number].area);
        let mut frame = *state.threads[number].frames.last().expect("the thread runs");
        let Map { counters, atomic, commits, areas, has_section } = state.map_of(number);
        if !*has_section {
            return Err(format!("T{number} runs a section that is not mapped"));
        }
        let Area::Of { cpu_id, is_armed } = &mut areas[area] else {
            return Err(format!("T{number} uses an area that is in other use"));
        };
        match frame.ip {
            ARM => (*is_armed, frame.ip) = (true, READ_CPU),
            READ_CPU => match *cpu_id {
                Some(cpu) => (frame.cpu, frame.ip) = (cpu, LOAD),
                None => frame.ip = ATOMIC,
            },
            LOAD => (frame.value, frame.ip) = (counters[usize::from(frame.cpu)], COMMIT),
            ABORT => frame.ip = ARM,
            ip => {
                match ip {
                    COMMIT => counters[usize::from(frame.cpu)] = frame.value + 1,
                    _ => *atomic += 1,
                }
                *commits += 1;
                frame = Frame { op: frame.op + 1, ..Frame::default() };
            }
        }
        *state.threads[number].frames.last_mut().expect("the thread runs") = frame;
        Ok(())
    }
}

impl State {
    fn map_of(&mut self, number: usize) -> &mut Map {
        &mut self.maps[usize::from(self.threads[number].map)]
    }

    /// Returns the area that the thread's pointer names.
    fn area_of(&mut self, number: usize) -> &mut Area {
        let area = usize::from(self.threads[number].area);
        &mut self.map_of(number).areas[area]
    }

    /// The thread does not run any more, and its parent waits no longer.
    fn leave(&mut self, number: usize, phase: Phase) {
        self.threads[number].phase = phase;
        self.threads[number].runs = false;
        self.wake_parent(number);
    }

    fn wake_parent(&mut self, number: usize) {
        for thread in &mut self.threads {
            if thread.phase == Phase::Waits(number as u8) {
                thread.phase = Phase::Present;
            }
        }
    }
}

impl Model for Process {
    type State = State;

    fn actors(&self) -> Vec<Cow<'static, str>> {
        vec!["T0".into(), "T1".into(), "T2".into()]
    }

    fn initial(&self) -> State {
        let absent = Thread {
            phase: Phase::Absent,
            program: 0,
            map: 0,
            area: 0,
            registration: Registration::default(),
            frames: Vec::new(),
            cpu: 0,
            runs: false,
        };
        let first = Thread {
            phase: Phase::Present,
            frames: vec![Frame::default()],
            runs: true,
            ..absent.clone()
        };
        let map = Map {
            counters: [0; CPUS],
            atomic: 0,
            commits: 0,
            areas: [NEW_AREA; THREADS],
            has_section: true,
        };
        State { threads: [first, absent.clone(), absent], maps: vec![map], left: self.budget }
    }

    fn steps_of(&self, state: &State, actor: u8, steps: &mut Vec<Step>) {
        let thread = &state.threads[usize::from(actor)];
        if thread.phase != Phase::Present {
            return;
        }
        if !thread.runs {
            for cpu in 0..CPUS as u8 {
                let is_free = !state.threads.iter().any(|other| other.runs && other.cpu == cpu);
                if is_free && (cpu == thread.cpu || state.left.migrations > 0) {
                    steps.push(Step::may(actor, RUN).with(cpu));
                }
            }
            return;
        }
        steps.push(Step::must(actor, GO_ON));
        if state.left.preemptions > 0 {
            steps.push(Step::may(actor, PREEMPT));
        }
        if state.left.signals > 0 && thread.frames.len() <= NESTED {
            steps.push(Step::may(actor, SIGNAL));
        }
    }

    fn take(&self, state: &mut State, step: Step, costs: &mut Costs) -> Result<(), String> {
        let number = usize::from(step.actor);
        match step.what {
            GO_ON => {
                costs.units += 1;
                return self.go_on(state, number);
            }
            PREEMPT => {
                state.left.preemptions -= 1;
                state.threads[number].runs = false;
            }
            RUN => {
                let thread = &mut state.threads[number];
                state.left.migrations -= u8::from(thread.cpu != step.with);
                (thread.cpu, thread.runs) = (step.with, true);
                return self.return_to_user(state, number);
            }
            _ => {
                state.left.signals -= 1;
                return self.deliver(state, number);
            }
        }
        Ok(())
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        if let Some(number) = state.threads.iter().position(|thread| thread.phase == Phase::Killed)
        {
            return Err(format!("the kernel ends T{number} by SIGSEGV"));
        }
        let is_lost = |map: &Map| map.counters.iter().sum::<u8>() + map.atomic != map.commits;
        match state.maps.iter().position(is_lost) {
            Some(map) => {
                let Map { counters, atomic, commits, .. } = &state.maps[map];
                Err(format!(
                    "a count is lost in map {map}: counters {counters:?}, atomic {atomic}, {commits} commits"
                ))
            }
            None => Ok(()),
        }
    }

    fn label(&self, state: &State, step: Step) -> Label {
        kernel::label(self, state, step)
    }

    fn summary(&self, state: &State) -> String {
        let maps = state.maps.iter().enumerate().map(|(number, map)| {
            let Map { counters, atomic, commits, .. } = map;
            let [first, second] = counters;
            format!(
                "map {number}: counters {first} and {second}, atomic {atomic}, {commits} commits"
            )
        });
        maps.collect::<Vec<_>>().join(", ")
    }
}
