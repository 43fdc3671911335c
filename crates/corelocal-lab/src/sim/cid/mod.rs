//! Concurrency ids: a scheduler that switches tasks, and policies that give each running task an id.
//!
//! ```text
//!   cpu c in user mode ──switch──▶ rq lock held: the policy's steps, one at a time ──▶ user mode
//!        │                         (`Cpu::op` is the next one)
//!        └─ the running task may fork, exit, or look for unused ids: steps of `Task::op`, which a switch interrupts
//! ```
//! A task is one of several of its memory map. The policies are interchangeable: they read and write the fields of
//! [`State`] that they need.
//!
//! # Rules, in every state
//! 1. Two tasks that run in user mode have different ids if they have the same map.
//! 2. Each id is below the number of possible cpus.
//! 3. An id that is marked as allocated has one owner: a task, a cpu, or a step under way. Checked when all cpus are
//!    in user mode.
//!
//! The id of a task that does not run is of no interest. Tasks that are ready are not distinguished from tasks that
//! sleep: a scheduler that picks any of them covers both.

mod cpu_id;
mod entries;
mod slots;
mod v6_3;
mod v6_4;
mod v7_0;

use std::borrow::Cow;

pub use cpu_id::CpuIds;
pub(super) use entries::entries;
pub use entries::{Measured, measure};
pub use slots::{SlotFault, Slots};
pub use v6_3::V6_3;
pub use v6_4::{V6_4, V6_4Fault};
pub use v7_0::{V7_0, V7_0Fault};

use super::{Costs, Label, Model, Step};

/// No task, or no cpu.
const NONE: u8 = u8::MAX;
/// No id.
const UNSET: u16 = 0x8000;
/// An op: the cpu is in user mode, or the task is not in the kernel.
const USER: u8 = 0;
const MAPS: usize = 2;

/// `T` tasks, `C` cpus, and a policy.
#[derive(Clone, Copy, Debug)]
pub struct Cids<P, const T: usize, const C: usize> {
    /// How ids are given out.
    pub policy: P,
    /// The map of each task, 0 or 1.
    pub maps: [u8; T],
    /// The number of tasks that exist at the beginning. The others are forked.
    pub tasks: u8,
    /// Whether tasks may exit.
    pub exits: bool,
    /// Whether each cpu runs a task at the beginning.
    pub running: bool,
    /// The number of cpus that tasks may run on, from cpu 0 on.
    pub allowed: u8,
    /// The number of cpus that they may run on after they were confined. `C`: they are not.
    pub confined: u8,
}

/// How a policy gives out ids. Its ops are numbers from 1 on.
pub trait Policy<const T: usize, const C: usize>: Copy {
    /// The kernels that have it.
    const VERSIONS: &'static str;

    /// The first op of a switch to this task. `NONE` is the idle task.
    fn first_op(&self, state: &mut State<T, C>, cpu: usize, next: u8) -> u8;

    /// Does the cpu's op, and sets the next one.
    fn switch(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) -> Result<(), String>;

    /// Whether the op, of a cpu or a task, would only look again.
    fn only_looks(&self, state: &State<T, C>, op: u8, cpu: usize) -> bool {
        _ = (state, op, cpu);
        false
    }

    /// The ops that a task in user mode may begin, each with its argument.
    fn begins(&self, state: &State<T, C>, cpu: usize, begins: &mut dyn FnMut(u8, u8)) {
        _ = (state, cpu, begins);
    }

    /// Whether the op of this task can be done now, or waits for a lock.
    fn can_do(&self, state: &State<T, C>, task: usize) -> bool {
        _ = (state, task);
        true
    }

    /// Whether a task is not preempted before this op.
    fn is_atomic(&self, op: u8) -> bool {
        _ = op;
        false
    }

    /// Does the op of the task that runs on this cpu, and sets the next one.
    fn work(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) -> Result<(), String> {
        _ = (state, cpu, costs);
        Ok(())
    }

    /// Begins a fork of this task by the one that runs on the cpu. The default lets it run at once.
    fn fork(&self, state: &mut State<T, C>, cpu: usize, child: usize) {
        state.tasks[child].phase = Phase::Ready;
        state.tasks[child].cpu = cpu as u8;
        let map = state.map_of(child);
        state.maps[map].users += 1;
    }

    /// Whether the running task can fork or exit now.
    fn can_fork(&self, state: &State<T, C>, map: usize) -> bool {
        _ = (state, map);
        true
    }

    /// Begins the exit of the task that runs on the cpu.
    fn exit(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs);

    /// The op that aborts what a task does in user mode when it is preempted or moved.
    fn preempted(&self, state: &mut State<T, C>, task: usize) {
        _ = (state, task);
    }

    /// Checks rule 3 while all cpus are in user mode, and rules of the policy.
    fn check(&self, state: &State<T, C>) -> Result<(), String> {
        _ = state;
        Ok(())
    }

    /// Whether an id is one of a task that runs in user mode.
    fn id(&self, state: &State<T, C>, task: usize) -> Option<u16> {
        let cid = state.tasks[task].cid & !FLAGS;
        (state.tasks[task].cid & UNSET == 0).then_some(cid)
    }

    /// Whether tasks of a map are interchangeable now.
    fn sorts(&self, state: &State<T, C>) -> bool {
        _ = state;
        true
    }

    /// The function and the text of an op.
    fn describe(&self, op: u8) -> (&'static str, &'static str);
}

/// Bits of an id that say who owns it, or what is about to happen to it.
const FLAGS: u16 = 0x7000;

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    phase: Phase,
    map: u8,
    /// What it does in the kernel, and to what.
    op: u8,
    argument: u8,
    /// The cpu that it runs on, or ran on last.
    cpu: u8,
    cid: u16,
    last_cid: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    Absent,
    /// Accounted, not yet in the list of tasks.
    Forked,
    Ready,
    /// Being moved to another cpu.
    Moving,
    Running,
    /// No longer current, until its cpu has switched: no other cpu may run it before.
    Leaving,
    /// It runs the end of its exit.
    Exiting,
    Gone,
}

/// A cpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    curr: u8,
    prev: u8,
    /// The next step of a switch. Not `USER`: the lock of the run queue is held.
    op: u8,
    /// The task that is being moved here.
    next: u8,
    register: u16,
}

/// A memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Map<const C: usize> {
    /// A bit for each id that is allocated.
    allocated: u64,
    /// The id of each cpu.
    cids: [u16; C],
    /// The id that each cpu had before.
    recent: [u16; C],
    users: u8,
    max: u8,
    /// Linux 6.19: the threshold of ids owned by cpus, 0 if tasks own them; the mode's bits.
    threshold: u8,
    mode: u16,
    /// The holder of the mutex.
    mutex: u8,
    /// How far a walk over all tasks or cpus has come.
    walk: u8,
}

/// All tasks, cpus and maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const T: usize, const C: usize> {
    tasks: [Task; T],
    cpus: [Cpu; C],
    maps: [Map<C>; MAPS],
    is_confined: bool,
    /// The number of cpus that tasks may run on.
    allowed: u8,
    /// The most that it has been. The kernel's count never shrinks.
    ever_allowed: u8,
}

impl<const T: usize, const C: usize> State<T, C> {
    fn map_of(&self, task: usize) -> usize {
        self.tasks[task].map.into()
    }

    /// The running task, with its map.
    fn current(&self, cpu: usize) -> Option<(usize, usize)> {
        self.task(self.cpus[cpu].curr)
    }

    /// The task before the switch under way.
    fn previous(&self, cpu: usize) -> Option<(usize, usize)> {
        self.task(self.cpus[cpu].prev)
    }

    fn task(&self, task: u8) -> Option<(usize, usize)> {
        (task != NONE).then(|| (task.into(), self.map_of(task.into())))
    }

    /// Whether the cpu runs a task of this map that takes part.
    fn runs(&self, cpu: usize, map: usize) -> bool {
        let current = self.current(cpu).filter(|&(_, of)| of == map);
        current.is_some_and(|(task, _)| self.tasks[task].phase == Phase::Running)
    }

    /// Allocates the lowest id below `end`.
    fn lowest(&mut self, map: usize, end: u8, costs: &mut Costs) -> Option<u16> {
        costs.atomics += 1;
        let map = &mut self.maps[map];
        let id = map.allocated.trailing_ones();
        (id < end.into()).then(|| {
            map.allocated |= 1 << id;
            id as u16
        })
    }

    /// Allocates this id, if it is free.
    fn this_one(&mut self, map: usize, id: u16, costs: &mut Costs) -> bool {
        costs.atomics += 1;
        let was = self.maps[map].allocated;
        self.maps[map].allocated |= 1 << id;
        was & (1 << id) == 0
    }

    fn has_free(&self, map: usize, end: u8) -> bool {
        self.maps[map].allocated.trailing_ones() < end.into()
    }

    /// Marks the id as free. `Err` if it is.
    fn free(&mut self, map: usize, id: u16, costs: &mut Costs) -> Result<(), String> {
        costs.atomics += 1;
        let bit = 1 << (id & !FLAGS);
        if self.maps[map].allocated & bit == 0 {
            return Err(format!("id {} of map {map} is freed twice", id & !FLAGS));
        }
        self.maps[map].allocated &= !bit;
        Ok(())
    }

    /// Ends the switch: the task runs in user mode.
    fn resume(&mut self, cpu: usize) {
        if let Some((prev, _)) = self.previous(cpu) {
            let phase = &mut self.tasks[prev].phase;
            *phase = if *phase == Phase::Exiting { Phase::Gone } else { Phase::Ready };
        }
        let cpu = &mut self.cpus[cpu];
        (cpu.op, cpu.prev, cpu.next, cpu.register) = (USER, NONE, NONE, 0);
    }

    /// Makes the task that is next the current one, as `context_switch` does: with the run queue's lock.
    fn set_current(&mut self, cpu: usize) {
        let Cpu { curr, next, .. } = self.cpus[cpu];
        if let Some((prev, _)) = self.task(curr) {
            let phase = &mut self.tasks[prev].phase;
            *phase = if *phase == Phase::Exiting { Phase::Exiting } else { Phase::Leaving };
        }
        if let Some((next, _)) = self.task(next) {
            self.tasks[next].phase = Phase::Running;
            self.tasks[next].cpu = cpu as u8;
        }
        (self.cpus[cpu].curr, self.cpus[cpu].prev, self.cpus[cpu].next) = (next, curr, NONE);
    }

    /// One more than the largest id that is allocated.
    fn high_water(&self, map: usize) -> u32 {
        u64::BITS - self.maps[map].allocated.leading_zeros()
    }

    /// Rule 3, for policies in which `owners` lists the owners of all ids.
    fn allocated_are_owned(
        &self,
        map: usize,
        owners: impl Iterator<Item = u16>,
    ) -> Result<(), String> {
        let mut owned = 0u64;
        for id in owners.map(|id| id & !FLAGS) {
            if owned & (1 << id) != 0 {
                return Err(format!("id {id} of map {map} has two owners"));
            }
            owned |= 1 << id;
        }
        match self.maps[map].allocated ^ owned {
            0 => Ok(()),
            different => {
                let id = different.trailing_zeros();
                let what = if owned & (1 << id) == 0 {
                    "is allocated, and has no owner"
                } else {
                    "is owned, and free"
                };
                Err(format!("id {id} of map {map} {what}"))
            }
        }
    }
}

// `Step::what`, where it is no op.
const SWITCH: u8 = 200;
const FORK: u8 = 201;
const EXIT: u8 = 202;
const CONFINE: u8 = 203;
/// Added to an op that a task begins.
const BEGIN: u8 = 100;

impl<P: Policy<T, C>, const T: usize, const C: usize> Model for Cids<P, T, C> {
    type State = State<T, C>;

    fn actors(&self) -> Vec<Cow<'static, str>> {
        (0..C).map(|cpu| format!("cpu {cpu}").into()).collect()
    }

    fn initial(&self) -> State<T, C> {
        let phase =
            |task| if task < usize::from(self.tasks) { Phase::Ready } else { Phase::Absent };
        let users = |map: u8| {
            (0..usize::from(self.tasks)).filter(|&task| self.maps[task] == map).count() as u8
        };
        let map = |map| {
            let max = self.allowed.min(users(map));
            let [cids, recent] = [[UNSET; C]; 2];
            let (users, mutex) = (users(map), NONE);
            Map { allocated: 0, cids, recent, users, max, threshold: 0, mode: 0, mutex, walk: 0 }
        };
        let mut state = State {
            tasks: std::array::from_fn(|task| Task {
                phase: phase(task),
                map: self.maps[task],
                op: USER,
                argument: 0,
                cpu: 0,
                cid: UNSET,
                last_cid: UNSET,
            }),
            cpus: [Cpu { curr: NONE, prev: NONE, op: USER, next: NONE, register: 0 }; C],
            maps: [map(0), map(1)],
            is_confined: false,
            allowed: self.allowed,
            ever_allowed: self.allowed,
        };
        let running = if self.running { self.tasks.min(self.allowed) } else { 0 };
        for cpu in 0..running {
            let mut step = Step::may(cpu, SWITCH).with(cpu);
            loop {
                self.take(&mut state, step, &mut Costs::default())
                    .expect("a policy can run a task on each cpu");
                let op = state.cpus[usize::from(cpu)].op;
                if op == USER {
                    break;
                }
                step = Step::must(cpu, op);
            }
        }
        state
    }

    fn steps_of(&self, state: &State<T, C>, actor: u8, steps: &mut Vec<Step>) {
        let cpu = usize::from(actor);
        let Cpu { curr, op, .. } = state.cpus[cpu];
        if op != USER {
            let looks = self.policy.only_looks(state, op, cpu);
            steps.push(if looks { Step::retry(actor, op) } else { Step::must(actor, op) });
            return;
        }
        if let Some((task, _)) =
            state.current(cpu).filter(|&(task, _)| self.policy.is_atomic(state.tasks[task].op))
        {
            steps.push(Step::must(actor, state.tasks[task].op).with(task as u8));
            return;
        }
        if actor == 0 && !state.is_confined && usize::from(self.confined) < C {
            steps.push(Step::may(actor, CONFINE));
        }
        if actor < state.allowed {
            for (task, is) in state.tasks.iter().enumerate() {
                if is.phase == Phase::Ready {
                    steps.push(Step::may(actor, SWITCH).with(task as u8));
                }
            }
        }
        let Some((task, map)) = state.current(cpu) else { return };
        let Task { phase, op, .. } = state.tasks[task];
        // A task that ends leaves its cpu, and one on a cpu that it may not use does so.
        let leaves = phase == Phase::Exiting || actor >= state.allowed;
        let to_idle = if leaves { Step::must(actor, SWITCH) } else { Step::may(actor, SWITCH) };
        steps.push(to_idle.with(NONE));
        if phase != Phase::Running {
            return;
        }
        if op != USER {
            if self.policy.can_do(state, task) {
                let looks = self.policy.only_looks(state, op, cpu);
                steps.push(
                    if looks { Step::retry(actor, op) } else { Step::must(actor, op) }.with(curr),
                );
            }
            return;
        }
        self.policy.begins(state, cpu, &mut |op, argument| {
            steps.push(Step::may(actor, BEGIN + op).with(argument));
        });
        if self.policy.can_fork(state, map) {
            let children = state
                .tasks
                .iter()
                .position(|child| child.phase == Phase::Absent && usize::from(child.map) == map);
            steps.extend(children.map(|child| Step::may(actor, FORK).with(child as u8)));
            if self.exits {
                steps.push(Step::may(actor, EXIT));
            }
        }
    }

    fn take(&self, state: &mut State<T, C>, step: Step, costs: &mut Costs) -> Result<(), String> {
        let cpu = usize::from(step.actor);
        match step.what {
            CONFINE => (state.is_confined, state.allowed) = (true, self.confined),
            SWITCH => {
                costs.units += 1;
                if let Some((prev, _)) = state.current(cpu) {
                    self.policy.preempted(state, prev);
                }
                state.cpus[cpu].next = step.with;
                state.cpus[cpu].op = self.policy.first_op(state, cpu, step.with);
                if let Some((next, _)) = state.task(step.with) {
                    state.tasks[next].phase = Phase::Moving;
                }
            }
            FORK => self.policy.fork(state, cpu, step.with.into()),
            EXIT => self.policy.exit(state, cpu, costs),
            op if op > BEGIN => {
                let (task, _) = state.current(cpu).expect("a task begins an op while it runs");
                (state.tasks[task].op, state.tasks[task].argument) = (op - BEGIN, step.with);
            }
            _ if state.cpus[cpu].op != USER => self.policy.switch(state, cpu, costs)?,
            _ => self.policy.work(state, cpu, costs)?,
        }
        Ok(())
    }

    fn invariant(&self, state: &State<T, C>) -> Result<(), String> {
        let in_user_mode =
            (0..C).filter(|&cpu| state.cpus[cpu].op == USER && state.cpus[cpu].curr != NONE);
        let mut seen = [0u64; MAPS];
        for cpu in in_user_mode {
            let (task, map) = state.current(cpu).expect("this cpu runs a task");
            if state.tasks[task].phase != Phase::Running {
                continue;
            }
            let Some(id) = self.policy.id(state, task) else { continue };
            if usize::from(id) >= C {
                return Err(format!("task {task} has id {id} on a machine with {C} cpus"));
            }
            if seen[map] & (1 << id) != 0 {
                return Err(format!("two running tasks of map {map} have id {id}"));
            }
            seen[map] |= 1 << id;
        }
        self.policy.check(state)
    }

    /// The tasks of a map are interchangeable: they are sorted.
    fn representative(&self, state: State<T, C>) -> State<T, C> {
        if !self.policy.sorts(&state) {
            return state;
        }
        let mut order: [u8; T] = std::array::from_fn(|task| task as u8);
        order.sort_by_key(|&task| (self.maps[usize::from(task)], state.tasks[usize::from(task)]));
        // A map's tasks are where the model has tasks of the map.
        let mut sorted = state;
        let mut renamed = [NONE; T];
        let mut next = order.iter();
        for map in 0..MAPS as u8 {
            for place in (0..T).filter(|&place| self.maps[place] == map) {
                let task = usize::from(*next.next().expect("there is a task for each place"));
                sorted.tasks[place] = state.tasks[task];
                renamed[task] = place as u8;
            }
        }
        let rename = |task: &mut u8| {
            if *task != NONE {
                *task = renamed[usize::from(*task)];
            }
        };
        for cpu in &mut sorted.cpus {
            [&mut cpu.curr, &mut cpu.prev, &mut cpu.next].into_iter().for_each(rename);
        }
        sorted
    }

    fn label(&self, state: &State<T, C>, step: Step) -> Label {
        let cpu = usize::from(step.actor);
        let name =
            |task: u8| if task == NONE { "the idle task".into() } else { format!("task {task}") };
        let running = name(state.cpus[cpu].curr);
        match step.what {
            SWITCH => Label::new(
                "__schedule",
                "all",
                format!("takes the lock, and picks {}", name(step.with)),
            ),
            FORK => {
                Label::new("copy_process", "all", format!("{running} forks task {}", step.with))
            }
            EXIT => Label::new("do_exit", "all", format!("{running} exits")),
            CONFINE => Label::new(
                "sched_setaffinity",
                "2.5.8 and later",
                format!("confines all tasks to {} cpus", self.confined),
            ),
            op => {
                let (function, text) =
                    self.policy.describe(if op > BEGIN { op - BEGIN } else { op });
                let begins = if op > BEGIN { "begins: " } else { "" };
                let text = format!("{running} {begins}{text}");
                let text = if op > BEGIN && step.with != 0 {
                    format!("{text} ({})", step.with)
                } else {
                    text
                };
                Label::new(function, P::VERSIONS, text)
            }
        }
    }

    fn summary(&self, state: &State<T, C>) -> String {
        let cpus = (0..C).map(|cpu| match state.current(cpu) {
            None => format!("cpu {cpu}: idle"),
            Some((task, _)) => match self.policy.id(state, task) {
                Some(id) if state.cpus[cpu].op == USER => {
                    format!("cpu {cpu}: task {task} with id {id}")
                }
                _ => format!("cpu {cpu}: task {task}"),
            },
        });
        let maps = (0..MAPS).filter(|&map| state.maps[map].users > 0).map(|map| {
            let ids = (0..C).filter(|id| state.maps[map].allocated & (1 << id) != 0);
            let ids = ids.map(|id| id.to_string()).collect::<Vec<_>>().join(" ");
            format!("map {map} has ids {{{ids}}}")
        });
        cpus.chain(maps).collect::<Vec<_>>().join(", ")
    }
}
