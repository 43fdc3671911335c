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
mod policy;
mod slots;
mod state;
mod v6_3;
mod v6_4;
mod v7_0;

use std::borrow::Cow;

pub use cpu_id::CpuIds;
pub(super) use entries::entries;
pub use entries::{Measured, measure, settled};
pub use policy::Policy;
pub use slots::{SlotFault, Slots};
pub use state::{Cpu, Map, State, Task};
use state::{MAPS, NONE, Phase, UNSET, USER};
pub use v6_3::V6_3;
pub use v6_4::{V6_4, V6_4Fault};
pub use v7_0::{V7_0, V7_0Fault};

use super::{Costs, Label, Model, Step};

/// `T` tasks, `C` cpus, of which fewer may be possible, and a policy.
#[derive(Clone, Copy, Debug)]
pub struct Cids<P, const T: usize, const C: usize> {
    /// The policy that gives out ids.
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
    /// The number of cpus that they may run on after they were confined. As many as `allowed`: they are not.
    pub confined: u8,
    /// The number of possible cpus of the machine, at most `C`.
    pub possible: u8,
}

/// [`Step::what`]: switches to the task that `with` names, 255 for the idle one.
pub const SWITCH: u8 = 200;
/// [`Step::what`]: forks the task that `with` names.
pub const FORK: u8 = 201;
/// [`Step::what`]: ends the running task.
pub const EXIT: u8 = 202;
const CONFINE: u8 = 203;
/// [`Step::what`]: added to an op that a task begins, such as to look for unused ids.
pub const BEGIN: u8 = 100;

impl<P: Policy<T, C>, const T: usize, const C: usize> Cids<P, T, C> {
    /// Returns the running task of each cpu, and its id, while no switch is under way.
    pub fn running(&self, state: &State<T, C>) -> [Option<(usize, Option<u16>)>; C] {
        std::array::from_fn(|cpu| {
            let (task, _) = state.current(cpu)?;
            Some((task, self.policy.id(state, task)))
        })
    }
}

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
            let [cids, recent] = [[UNSET; C]; 2];
            let (users, mutex) = (users(map), NONE);
            Map { allocated: 0, cids, recent, users, max: 0, threshold: 0, mode: 0, mutex, walk: 0 }
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
            possible: self.possible,
            allowed: self.allowed,
            ever_allowed: self.allowed,
        };
        (0..MAPS).for_each(|map| self.policy.begin(&mut state, map));
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
        if actor == 0 && !state.is_confined && self.confined < self.allowed {
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
            if id >= self.possible.into() {
                let possible = self.possible;
                return Err(format!("task {task} has id {id} on a machine with {possible} cpus"));
            }
            if seen[map] & (1 << id) != 0 {
                return Err(format!("two running tasks of map {map} have id {id}"));
            }
            seen[map] |= 1 << id;
        }
        self.policy.check(state)
    }

    /// Sorts the tasks of each map, which are interchangeable.
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
                let text = if op > BEGIN {
                    format!("{running} begins: {text}")
                } else if state.cpus[cpu].op == USER {
                    format!("{running}: {text}")
                } else {
                    let is_before = self.policy.is_before_current(op);
                    let to = if is_before { state.cpus[cpu].next } else { state.cpus[cpu].curr };
                    format!("to {}: {text}", name(to))
                };
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
