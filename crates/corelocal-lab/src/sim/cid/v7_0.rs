//! Linux 6.19 and later: ids belong to tasks, or to cpus when there are more tasks than ids.
//!
//! ```text
//!   users > max ids        task mode ──▶ transit ──▶ cpu mode     the task that forks walks over all tasks
//!   users < threshold      cpu mode ──▶ transit ──▶ task mode     the task that exits walks over all cpus
//! ```
//! In task mode a task keeps its id while it sleeps, in cpu mode a cpu keeps it. So a switch costs no atomic operation
//! in either. During a transition ids have the TRANSIT bit, and are given back at the next switch: else the walk could
//! wait for the lock of a cpu that waits for an id which only the walk can free.
//!
//! The walk holds the map's mutex, and each cpu's lock for one task or cpu at a time.
//!
//! Sources: kernel/sched/sched.h (`mm_cid_schedin`, `mm_cid_schedout`), kernel/sched/core.c (`sched_mm_cid_fork`,
//! `mm_cid_fixup_tasks_to_cpus`), commits 77d7dc8bef48 (6.19), 192d852129b1 (7.0).

mod switch;
mod walk;

use super::{Costs, MAPS, NONE, Phase, Policy, State, Task, UNSET, USER};

/// Ids owned by tasks or by cpus.
#[derive(Clone, Copy, Debug)]
pub struct V7_0 {
    /// Replaces the kernel's threshold, below which ids go back to tasks: so that small models get there.
    pub threshold: Option<u8>,
    /// A planted fault.
    pub fault: Option<V7_0Fault>,
}

/// Planted faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum V7_0Fault {
    /// The code of January 2026, before the TRANSIT bit: a walk hands ids over for good.
    NoTransit,
    /// The code of March 2026: the walk goes over the list of tasks, and misses one that is forked meanwhile.
    MissesForked,
    /// The walk looks at a task without the lock of its cpu.
    NoLock,
    /// A task keeps an id in transit when it is switched out.
    KeepsInTransit,
    /// A task gives its id back when the walk drops it, and again when it ends.
    DropsTwice,
}

const ON_CPU: u16 = 0x4000;
const TRANSIT: u16 = 0x2000;

// A switch.
const CURRENT: u8 = 1;
const OUT: u8 = 2;
const MODE: u8 = 3;
const IN: u8 = 4;
const ALLOCATE: u8 = 5;
const WAIT: u8 = 6;
/// The id that was found free, in `Task::last_cid`, is set.
const SET: u8 = 17;
// A fork.
const ACCOUNT: u8 = 7;
const CHILD: u8 = 8;
const CHILD_WAIT: u8 = 9;
const CHILD_SET: u8 = 18;
const WALK_TASKS: u8 = 10;
const TO_CPUS: u8 = 11;
const LIST: u8 = 12;
// An exit.
const LEAVE: u8 = 13;
const WALK_CPUS: u8 = 14;
const TO_TASKS: u8 = 15;
const END: u8 = 16;

/// Returns `true` if the task exits, and takes part no more.
fn leaves(task: &Task) -> bool {
    matches!(task.op, WALK_CPUS | TO_TASKS | END)
}

/// Returns a quarter more than are needed, so that ids change less often.
fn limit(optimal: u8, possible: u8) -> u8 {
    (optimal + optimal / 4).min(possible)
}

/// Returns `true` if a task owns the id.
fn on_task(id: u16) -> bool {
    id & (UNSET | ON_CPU | TRANSIT) == 0
}

fn on_cpu(id: u16) -> bool {
    id & UNSET == 0 && id & ON_CPU != 0
}

fn in_transit(id: u16) -> bool {
    id & UNSET == 0 && id & TRANSIT != 0
}

fn number(id: u16) -> u16 {
    id & !(ON_CPU | TRANSIT)
}

impl V7_0 {
    fn has(&self, fault: V7_0Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Takes a step of `mm_get_cid`: finds a free id, or sets the one that it found. `Some`: that is done.
    fn find_or_set<const T: usize, const C: usize>(
        state: &mut State<T, C>,
        task: usize,
        op: u8,
        costs: &mut Costs,
    ) -> Option<u16> {
        let map = state.map_of(task);
        let found = std::mem::replace(&mut state.tasks[task].last_cid, UNSET);
        if found != UNSET {
            return state.this_one(map, found, costs).then_some(found);
        }
        let is_first = matches!(op, ALLOCATE | CHILD);
        let end = if is_first { state.maps[map].max } else { state.possible };
        state.tasks[task].last_cid = state.lowest(map, end).unwrap_or(UNSET);
        None
    }
}

impl<const T: usize, const C: usize> Policy<T, C> for V7_0 {
    const VERSIONS: &'static str = "6.19 and later";

    fn begin(&self, state: &mut State<T, C>, map: usize) {
        self.update(state, map);
        Self::complete_transit(state, map);
    }

    fn first_op(&self, state: &mut State<T, C>, cpu: usize, next: u8) -> u8 {
        // The lock of this cpu is the task's from now on.
        if let Some((next, _)) = state.task(next) {
            state.tasks[next].cpu = cpu as u8;
        }
        CURRENT
    }

    fn switch(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) -> Result<(), String> {
        match state.cpus[cpu].op {
            CURRENT => {
                state.set_current(cpu);
                state.cpus[cpu].op = OUT;
            }
            OUT => {
                self.switch_out(state, cpu, costs)?;
                match state.current(cpu) {
                    Some((task, _)) if !leaves(&state.tasks[task]) => state.cpus[cpu].op = MODE,
                    _ => state.resume(cpu),
                }
            }
            MODE => {
                let (_, map) = state.current(cpu).expect("there is a task to switch to");
                state.cpus[cpu].register = state.maps[map].mode;
                state.cpus[cpu].op = IN;
            }
            IN => self.switch_in(state, cpu, costs)?,
            op => {
                let (task, _) = state.current(cpu).expect("there is a task to switch to");
                if let Some(id) = Self::find_or_set(state, task, op, costs) {
                    self.assign(state, cpu, id);
                } else {
                    let is_found = state.tasks[task].last_cid != UNSET;
                    state.cpus[cpu].op = if is_found { SET } else { WAIT };
                }
            }
        }
        Ok(())
    }

    fn only_looks(&self, state: &State<T, C>, op: u8, cpu: usize) -> bool {
        matches!(op, WAIT | CHILD_WAIT)
            && state
                .current(cpu)
                .is_some_and(|(_, map)| state.lowest(map, state.possible).is_none())
    }

    /// Names tasks, as a walk does, by their place, and a fork its child.
    fn sorts(&self, state: &State<T, C>) -> bool {
        state.maps.iter().all(|map| map.mutex == NONE)
            && state.tasks.iter().all(|task| task.op != LIST)
    }

    fn can_fork(&self, state: &State<T, C>, map: usize) -> bool {
        state.maps[map].mutex == NONE
    }

    fn fork(&self, state: &mut State<T, C>, cpu: usize, child: usize) {
        let (task, map) = state.current(cpu).expect("a task forks while it runs");
        state.maps[map].mutex = task as u8;
        (state.tasks[task].op, state.tasks[task].argument) = (ACCOUNT, child as u8);
    }

    fn exit(&self, state: &mut State<T, C>, cpu: usize, _: &mut Costs) {
        let (task, map) = state.current(cpu).expect("a task exits while it runs");
        state.maps[map].mutex = task as u8;
        state.tasks[task].op = LEAVE;
    }

    fn can_do(&self, state: &State<T, C>, task: usize) -> bool {
        let walk = usize::from(state.maps[state.map_of(task)].walk);
        let has_lock =
            |cpu: u8| state.cpus[usize::from(cpu)].op != USER && !self.has(V7_0Fault::NoLock);
        match state.tasks[task].op {
            WALK_TASKS => {
                let next = self.next_task(state, task);
                next == T || !has_lock(state.tasks[next].cpu)
            }
            WALK_CPUS => walk >= C || !has_lock(walk as u8),
            _ => true,
        }
    }

    fn work(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) -> Result<(), String> {
        let (task, map) = state.current(cpu).expect("a task works while it runs");
        let child = usize::from(state.tasks[task].argument);
        state.tasks[task].op = match state.tasks[task].op {
            ACCOUNT => {
                costs.locks += 1;
                state.maps[map].users += 1;
                state.tasks[child].phase = Phase::Forked;
                state.tasks[child].cpu = cpu as u8;
                let changes = self.update(state, map);
                state.maps[map].walk = 0;
                if changes {
                    self.hand_to_cpu(state, task, cpu);
                    WALK_TASKS
                } else if state.maps[map].mode & ON_CPU == 0 {
                    CHILD
                } else {
                    TO_CPUS
                }
            }
            op @ (CHILD | CHILD_WAIT | CHILD_SET) => {
                match Self::find_or_set(state, task, op, costs) {
                    Some(id) => {
                        state.tasks[child].cid = id;
                        TO_CPUS
                    }
                    None if state.tasks[task].last_cid != UNSET => CHILD_SET,
                    None => CHILD_WAIT,
                }
            }
            WALK_TASKS => {
                let next = self.next_task(state, task);
                if next == T {
                    TO_CPUS
                } else {
                    costs.locks += 1;
                    let on = usize::from(state.tasks[next].cpu);
                    let runs = state.cpus[on].curr == next as u8;
                    if on_task(state.tasks[next].cid) && runs {
                        self.hand_to_cpu(state, next, on);
                    } else if on_task(state.tasks[next].cid) {
                        let id = state.tasks[next].cid;
                        Self::drop_of_task(state, next, costs)?;
                        if self.has(V7_0Fault::DropsTwice) {
                            state.tasks[next].cid = id;
                        }
                    }
                    state.maps[map].walk = next as u8 + 1;
                    WALK_TASKS
                }
            }
            TO_CPUS => {
                Self::complete_transit(state, map);
                LIST
            }
            LIST => {
                state.tasks[child].phase = Phase::Ready;
                USER
            }
            LEAVE => {
                costs.locks += 1;
                let id = state.tasks[task].cid;
                state.tasks[task].cid = if in_transit(id) { number(id) } else { id };
                Self::drop_of_task(state, task, costs)?;
                state.maps[map].users -= 1;
                state.tasks[task].cid = UNSET;
                state.maps[map].walk = 0;
                if self.update(state, map) { WALK_CPUS } else { TO_TASKS }
            }
            WALK_CPUS => {
                let walk = usize::from(state.maps[map].walk);
                if walk == C {
                    TO_TASKS
                } else {
                    costs.locks += 1;
                    Self::hand_to_task(state, map, walk, costs)?;
                    state.maps[map].walk += 1;
                    WALK_CPUS
                }
            }
            TO_TASKS => {
                Self::complete_transit(state, map);
                END
            }
            _ => {
                state.tasks[task].phase = Phase::Exiting;
                USER
            }
        };
        if state.tasks[task].op == USER {
            state.tasks[task].argument = 0;
        }
        Ok(())
    }

    fn check(&self, state: &State<T, C>) -> Result<(), String> {
        if state.cpus.iter().any(|cpu| cpu.op != USER) {
            return Ok(());
        }
        (0..MAPS).try_for_each(|map| {
            let of_tasks =
                state.tasks.iter().filter(|task| usize::from(task.map) == map).map(|task| task.cid);
            let of_cpus = state.maps[map].cids.iter().copied().filter(|&id| on_cpu(id));
            state.allocated_are_owned(
                map,
                of_tasks.filter(|&id| on_task(id) || in_transit(id)).chain(of_cpus),
            )
        })
    }

    fn id(&self, state: &State<T, C>, task: usize) -> Option<u16> {
        let id = state.tasks[task].cid;
        (id & UNSET == 0).then(|| number(id))
    }

    fn describe(&self, op: u8) -> (&'static str, &'static str) {
        match op {
            CURRENT => ("context_switch", "stores the current task"),
            OUT => ("mm_cid_schedout", "an id in transit of the previous task is given back"),
            MODE => ("mm_cid_schedin", "read the mode"),
            IN => ("mm_cid_schedin", "take its own id or the cpu's, as the mode says"),
            ALLOCATE => ("mm_get_cid", "find a free id below the limit"),
            SET => ("mm_get_cid", "allocate it, unless another cpu was faster"),
            WAIT => ("mm_get_cid", "wait for a free id, with the lock of the run queue"),
            ACCOUNT => ("sched_mm_cid_fork", "accounts the new task, and decides the mode"),
            CHILD => ("mm_get_cid", "finds a free id for the new task"),
            CHILD_SET => ("mm_get_cid", "allocates it, unless another cpu was faster"),
            CHILD_WAIT => ("mm_get_cid", "waits for a free id for the new task"),
            WALK_TASKS => {
                ("mm_cid_fixup_task_to_cpu", "moves the next task's id to its cpu, or drops it")
            }
            TO_CPUS => ("mm_cid_complete_transit", "ends the transition, and unlocks the mutex"),
            LIST => ("wake_up_new_task", "puts the new task into the list of tasks, and wakes it"),
            LEAVE => ("sched_mm_cid_exit", "gives its id back, and decides the mode"),
            WALK_CPUS => {
                ("mm_cid_fixup_cpus_to_tasks", "moves the next cpu's id to its task, or drops it")
            }
            TO_TASKS => ("mm_cid_complete_transit", "ends the transition, and unlocks the mutex"),
            _ => ("do_exit", "ends"),
        }
    }
}
