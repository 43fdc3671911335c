//! Linux 6.4 to 6.18: ids belong to a cpu and a map, and are given back lazily.
//!
//! A cpu keeps its id of a map when it runs another one. So a switch back costs no atomic operation. An id that is no
//! longer needed is taken from a cpu by others, without its lock: when a task moves to another cpu, and by a task
//! that looks for unused ids every 100 ms ("compaction"). That task marks an id which its cpu has not used for 100 ms,
//! or one that is not below the number of ids in use.
//!
//! ```text
//!            cpu's own, under its lock                    another cpu
//!   UNSET ──lowest free──▶ id                             id ──cmpxchg──▶ id|LAZY
//!   id|LAZY ──cmpxchg──▶ UNSET, give back                 the cpu runs a task of the map? it gives the id back itself
//!                                                         else id|LAZY ──cmpxchg──▶ UNSET, give back or take over
//! ```
//! The cpu stores its current task before it looks at its id, and the other one marks the id before it looks at the
//! current task. So at least one of them sees the other.
//!
//! The model has no clock. Instead, what takes microseconds is over before 100 ms have passed: one task at a time looks
//! for unused ids, and no id counts as unused while a switch is about to take it.
//!
//! Linux 6.14 adds: a cpu prefers the id that it had before, and new ids are used only while there are fewer than
//! tasks and cpus that they may run on.
//!
//! Sources: commits 223baf9d17f2 (6.4), 02d954c0fdf9 (6.14).

mod moves;

use super::{Costs, MAPS, Phase, Policy, State, UNSET, USER};

/// Ids owned by cpus.
#[derive(Clone, Copy, Debug)]
pub struct V6_4 {
    /// The rules of 6.14.
    pub prefers_recent: bool,
    /// Whether an id is marked only when no other cpu or task is about to take it. The kernel has no such rule: it
    /// relies on a taker that is not delayed between its look and its cmpxchg.
    pub waits: bool,
    /// A planted fault.
    pub fault: Option<V6_4Fault>,
}

/// Planted faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum V6_4Fault {
    /// The cpu looks at its id before it stores its current task.
    LateCurrent,
    /// An id is taken without looking at the cpu's current task.
    NoLook,
    /// A cpu that gives up an id which others have marked does not free it.
    NeverFrees,
    /// An id that was taken from a cpu is stored over the id of the cpu that the task moves to.
    Overwrites,
    /// An id is marked by a plain store.
    PlainMark,
}

/// An id that others want to take from its cpu.
const LAZY: u16 = 0x1000;

// A switch to a task that was on another cpu begins here.
const FETCH: u8 = 1;
const MARK: u8 = 2;
const LOOK: u8 = 3;
const TAKE: u8 = 4;
const MOVE: u8 = 5;
// All switches.
const CURRENT: u8 = 6;
const PUT: u8 = 7;
const GET: u8 = 8;
const ALLOCATE: u8 = 9;
/// `LateCurrent` only.
const LATE: u8 = 10;
/// The id that was found free, in the register, is set.
const SET: u8 = 15;
// What a task does that looks for unused ids.
const MARK_UNUSED: u8 = 11;
const MARK_HIGH: u8 = 16;
const LOOK_OTHER: u8 = 12;
const TAKE_OTHER: u8 = 13;
const FREE_OTHER: u8 = 14;

/// The bit in the register that says that the destination cpu has an id.
const HAS_ID: u16 = 0x4000;

impl V6_4 {
    fn has(&self, fault: V6_4Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Returns the id of the cpu, if it has one that no other cpu has marked.
    fn valid<const T: usize, const C: usize>(
        state: &State<T, C>,
        map: usize,
        cpu: usize,
    ) -> Option<u16> {
        let id = state.maps[map].cids[cpu];
        (id & (UNSET | LAZY) == 0).then_some(id)
    }

    fn unset_if<const T: usize, const C: usize>(
        state: &mut State<T, C>,
        map: usize,
        cpu: usize,
        expected: u16,
        costs: &mut Costs,
    ) -> bool {
        costs.atomics += 1;
        let matches = state.maps[map].cids[cpu] == expected;
        if matches {
            state.maps[map].cids[cpu] = UNSET;
        }
        matches
    }

    /// Returns `true` if a switch is about to take the id of this cpu.
    fn a_switch_takes<const T: usize, const C: usize>(state: &State<T, C>, cpu: usize) -> bool {
        state.cpus.iter().any(|of| {
            let from = state.task(of.next).map(|(next, _)| usize::from(state.tasks[next].cpu));
            matches!(of.op, LOOK | TAKE) && from == Some(cpu)
        })
    }

    fn mark<const T: usize, const C: usize>(
        &self,
        state: &mut State<T, C>,
        map: usize,
        cpu: usize,
        id: u16,
        costs: &mut Costs,
    ) -> bool {
        costs.atomics += 1;
        let takes = |of: &super::Task| {
            matches!(of.op, LOOK_OTHER | TAKE_OTHER) && usize::from(of.argument) == cpu
        };
        if self.waits && (Self::a_switch_takes(state, cpu) || state.tasks.iter().any(takes)) {
            return false;
        }
        let marks = state.maps[map].cids[cpu] == id || self.has(V6_4Fault::PlainMark);
        if marks {
            state.maps[map].cids[cpu] = id | LAZY;
        }
        marks
    }

    /// Gives the cpu's id.
    fn assign<const T: usize, const C: usize>(
        &self,
        state: &mut State<T, C>,
        map: usize,
        cpu: usize,
        id: u16,
    ) {
        state.maps[map].cids[cpu] = id;
        if self.prefers_recent {
            state.maps[map].recent[cpu] = id;
        }
    }

    /// Allocates the id that 6.14 prefers: the recent one, or a new one.
    fn preferred<const T: usize, const C: usize>(
        &self,
        state: &mut State<T, C>,
        map: usize,
        cpu: usize,
        costs: &mut Costs,
    ) -> Option<u16> {
        if !self.prefers_recent {
            return None;
        }
        let most = state.ever_allowed.min(state.maps[map].users);
        state.maps[map].max = state.maps[map].max.min(most);
        let recent = state.maps[map].recent[cpu];
        if recent != UNSET
            && recent < state.maps[map].max.into()
            && state.this_one(map, recent, costs)
        {
            return Some(recent);
        }
        while state.maps[map].max < most {
            let new = state.maps[map].max.into();
            state.maps[map].max += 1;
            if state.this_one(map, new, costs) {
                return Some(new);
            }
        }
        None
    }

    fn end_of_ids<const T: usize, const C: usize>(&self, state: &State<T, C>) -> u8 {
        if self.prefers_recent { state.ever_allowed } else { state.possible }
    }
}

impl<const T: usize, const C: usize> Policy<T, C> for V6_4 {
    const VERSIONS: &'static str = "6.4 to 6.18";

    fn first_op(&self, state: &mut State<T, C>, cpu: usize, next: u8) -> u8 {
        let moves = state.task(next).is_some_and(|(next, _)| {
            usize::from(state.tasks[next].cpu) != cpu && state.tasks[next].last_cid != UNSET
        });
        match moves {
            true => FETCH,
            false if self.has(V6_4Fault::LateCurrent) => PUT,
            false => CURRENT,
        }
    }

    fn switch(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) -> Result<(), String> {
        let op = state.cpus[cpu].op;
        if op <= MOVE {
            let to_switch = if self.has(V6_4Fault::LateCurrent) { PUT } else { CURRENT };
            state.cpus[cpu].op = self.moves(state, cpu, op, costs)?.unwrap_or(to_switch);
            return Ok(());
        }
        // With a late store, the tasks of the switch are still the current one and the next.
        let is_late = self.has(V6_4Fault::LateCurrent) && op != CURRENT;
        let (prev, next) = match is_late {
            true => (state.current(cpu), state.task(state.cpus[cpu].next)),
            false => (state.previous(cpu), state.current(cpu)),
        };
        let end = |state: &mut State<T, C>| match is_late {
            true => state.cpus[cpu].op = LATE,
            false => state.resume(cpu),
        };
        match op {
            CURRENT => {
                state.set_current(cpu);
                state.cpus[cpu].op = PUT;
            }
            PUT => {
                if let Some((prev, map)) = prev {
                    state.tasks[prev].cid = UNSET;
                    let id = state.maps[map].cids[cpu];
                    let is_marked = id & UNSET == 0 && id & LAZY != 0;
                    let gives_up = is_marked && Self::unset_if(state, map, cpu, id, costs);
                    if gives_up && !self.has(V6_4Fault::NeverFrees) {
                        state.free(map, id, costs)?;
                    }
                }
                match next {
                    Some(_) => state.cpus[cpu].op = GET,
                    None => end(state),
                }
            }
            GET => {
                let (next, map) = next.expect("there is a task to switch to");
                if let Some(id) = Self::valid(state, map, cpu) {
                    (state.tasks[next].cid, state.tasks[next].last_cid) = (id, id);
                    end(state);
                    return Ok(());
                }
                let id = state.maps[map].cids[cpu];
                if id & UNSET == 0 && Self::unset_if(state, map, cpu, id, costs) {
                    state.free(map, id, costs)?;
                }
                state.cpus[cpu].op = ALLOCATE;
            }
            ALLOCATE | SET => {
                let (next, map) = next.expect("there is a task to switch to");
                let found = std::mem::take(&mut state.cpus[cpu].register);
                let id = match op {
                    ALLOCATE => self.preferred(state, map, cpu, costs),
                    _ => state.this_one(map, found, costs).then_some(found),
                };
                let Some(id) = id else {
                    // Another cpu may set it first: look again.
                    let free = (op == ALLOCATE).then(|| state.lowest(map, self.end_of_ids(state)));
                    state.cpus[cpu].register = free.flatten().unwrap_or(0);
                    state.cpus[cpu].op = if free.flatten().is_some() { SET } else { ALLOCATE };
                    return Ok(());
                };
                self.assign(state, map, cpu, id);
                (state.tasks[next].cid, state.tasks[next].last_cid) = (id, id);
                end(state);
            }
            _ => {
                state.set_current(cpu);
                state.resume(cpu);
            }
        }
        Ok(())
    }

    fn only_looks(&self, state: &State<T, C>, op: u8, cpu: usize) -> bool {
        let late = self.has(V6_4Fault::LateCurrent);
        let next = if late { state.task(state.cpus[cpu].next) } else { state.current(cpu) };
        op == ALLOCATE
            && next.is_some_and(|(_, map)| state.lowest(map, self.end_of_ids(state)).is_none())
    }

    fn begins(&self, state: &State<T, C>, cpu: usize, begins: &mut dyn FnMut(u8, u8)) {
        let (_, map) = state.current(cpu).expect("a task looks for ids while it runs");
        // Map 0 is enough, and keeps the number of states low.
        if map != 0 {
            return;
        }
        // One task at a time, every 100 ms.
        if state.tasks.iter().any(|task| task.op != USER) {
            return;
        }
        for other in 0..C {
            let Some(id) = Self::valid(state, map, other) else { continue };
            if !state.runs(other, map) && !Self::a_switch_takes(state, other) {
                begins(MARK_UNUSED, other as u8);
            }
            if u32::from(id) >= state.ids_in_use(map) {
                begins(MARK_HIGH, other as u8);
            }
        }
    }

    /// Interrupts are off while an id has no owner.
    fn is_atomic(&self, op: u8) -> bool {
        op == FREE_OTHER
    }

    /// Models `sched_mm_cid_remote_clear`: the task takes the id of the cpu that `argument` names.
    fn work(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) -> Result<(), String> {
        let (task, map) = state.current(cpu).expect("a task looks for ids while it runs");
        let other = usize::from(state.tasks[task].argument);
        state.tasks[task].op = match state.tasks[task].op {
            MARK_UNUSED | MARK_HIGH => match Self::valid(state, map, other) {
                Some(id) if self.mark(state, map, other, id, costs) => LOOK_OTHER,
                _ => USER,
            },
            LOOK_OTHER if state.runs(other, map) && !self.has(V6_4Fault::NoLook) => USER,
            LOOK_OTHER => TAKE_OTHER,
            TAKE_OTHER => {
                let id = state.maps[map].cids[other];
                let is_marked = id & UNSET == 0 && id & LAZY != 0;
                if is_marked && Self::unset_if(state, map, other, id, costs) {
                    state.tasks[task].argument = (id & !LAZY) as u8;
                    FREE_OTHER
                } else {
                    USER
                }
            }
            _ => {
                state.free(map, state.tasks[task].argument.into(), costs)?;
                USER
            }
        };
        if state.tasks[task].op == USER {
            state.tasks[task].argument = 0;
        }
        Ok(())
    }

    fn exit(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) {
        let (task, map) = state.current(cpu).expect("a task exits while it runs");
        let id = state.maps[map].cids[cpu];
        if id & UNSET == 0 && Self::unset_if(state, map, cpu, id, costs) {
            // A double free shows as a rule that is broken later.
            _ = state.free(map, id, costs);
        }
        (state.tasks[task].cid, state.tasks[task].last_cid) = (UNSET, UNSET);
        state.tasks[task].phase = Phase::Exiting;
        state.maps[map].users -= 1;
    }

    fn check(&self, state: &State<T, C>) -> Result<(), String> {
        let is_busy = |task: &super::Task| task.op == FREE_OTHER;
        if state.cpus.iter().any(|cpu| cpu.op != USER) || state.tasks.iter().any(is_busy) {
            return Ok(());
        }
        (0..MAPS).try_for_each(|map| {
            let owned = state.maps[map].cids.iter().copied().filter(|id| id & UNSET == 0);
            state.allocated_are_owned(map, owned)
        })
    }

    fn is_before_current(&self, op: u8) -> bool {
        op <= CURRENT || self.has(V6_4Fault::LateCurrent)
    }

    fn describe(&self, op: u8) -> (&'static str, &'static str) {
        match op {
            FETCH => (
                "sched_mm_cid_migrate_to",
                "the task comes from another cpu; does that still need its id?",
            ),
            MARK => ("sched_mm_cid_migrate_to", "the other cpu's id is marked (cmpxchg)"),
            LOOK => ("sched_mm_cid_migrate_to", "does the other cpu run a task of the map?"),
            TAKE => ("sched_mm_cid_migrate_to", "the other cpu's id is taken (cmpxchg)"),
            MOVE => {
                ("sched_mm_cid_migrate_to", "the id that was taken is this cpu's, or given back")
            }
            CURRENT | LATE => ("context_switch", "stores the current task"),
            PUT => ("mm_cid_put_lazy", "the id of the previous task is given back if it is marked"),
            GET => ("mm_cid_get", "take the cpu's id, if it has one that is not marked"),
            ALLOCATE => ("__mm_cid_get", "find the lowest free id for the cpu"),
            SET => ("__mm_cid_get", "allocate it, unless another cpu was faster"),
            MARK_UNUSED => (
                "sched_mm_cid_remote_clear_old",
                "mark the id of a cpu that did not use it for 100 ms (cmpxchg)",
            ),
            MARK_HIGH => (
                "sched_mm_cid_remote_clear_weight",
                "mark the id of a cpu, which is not below the number in use (cmpxchg)",
            ),
            LOOK_OTHER => ("sched_mm_cid_remote_clear", "does that cpu run a task of the map?"),
            TAKE_OTHER => ("sched_mm_cid_remote_clear", "take the marked id (cmpxchg)"),
            _ => ("__mm_cid_put", "give the id back"),
        }
    }
}
