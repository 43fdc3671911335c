//! Linux 6.3: the lowest free id, under a lock of the map, and a hand-over between tasks of one map without one.
//!
//! A task has its id while it runs. A switch to a task of the same map passes the id on; any other one gives the id
//! back and takes one, each under the lock. So a map with `n` tasks on `c` cpus uses ids below `min(n, c)`.
//!
//! Source: commit af7f588d8f73, "sched: Introduce per-memory-map concurrency ID".

use super::{Costs, Phase, Policy, State, UNSET};

/// The first concurrency ids.
#[derive(Clone, Copy, Debug)]
pub struct V6_3 {
    /// A planted fault: the hand-over leaves the id with the task that had it, too.
    pub keeps_twice: bool,
}

const HAND_OVER: u8 = 1;
const PUT: u8 = 2;
const GET: u8 = 3;

impl<const T: usize, const C: usize> Policy<T, C> for V6_3 {
    const VERSIONS: &'static str = "6.3";

    fn first_op(&self, _: &mut State<T, C>, _: usize, _: u8) -> u8 {
        HAND_OVER
    }

    fn switch(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) -> Result<(), String> {
        match state.cpus[cpu].op {
            HAND_OVER => {
                state.set_current(cpu);
                // A task that has exited has given its id back.
                let active = |&(task, _): &(usize, usize)| state.tasks[task].cid != UNSET;
                let prev = state.previous(cpu).filter(active);
                match (prev, state.current(cpu)) {
                    (Some((prev, of)), Some((next, map))) if of == map => {
                        state.tasks[next].cid = state.tasks[prev].cid;
                        if !self.keeps_twice {
                            state.tasks[prev].cid = UNSET;
                        }
                        state.resume(cpu);
                    }
                    (Some(_), _) => state.cpus[cpu].op = PUT,
                    (None, Some(_)) => state.cpus[cpu].op = GET,
                    (None, None) => state.resume(cpu),
                }
            }
            PUT => {
                let (prev, map) = state.previous(cpu).expect("there is a task before this one");
                locked(costs, |costs| state.free(map, state.tasks[prev].cid, costs))?;
                state.tasks[prev].cid = UNSET;
                match state.current(cpu) {
                    Some(_) => state.cpus[cpu].op = GET,
                    None => state.resume(cpu),
                }
            }
            _ => {
                let (next, map) = state.current(cpu).expect("there is a task to switch to");
                let id = locked(costs, |costs| state.allocate(map, state.possible, costs));
                state.tasks[next].cid = id.ok_or("there are more running tasks than cpus")?;
                state.resume(cpu);
            }
        }
        Ok(())
    }

    fn exit(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) {
        let (task, map) = state.current(cpu).expect("a task exits while it runs");
        let id = state.tasks[task].cid;
        // A double free shows as a rule that is broken later.
        _ = locked(costs, |costs| state.free(map, id, costs));
        state.tasks[task].cid = UNSET;
        state.tasks[task].phase = Phase::Exiting;
        state.maps[map].users -= 1;
    }

    fn check(&self, state: &State<T, C>) -> Result<(), String> {
        if state.cpus.iter().any(|cpu| cpu.op != super::USER) {
            return Ok(());
        }
        (0..super::MAPS).try_for_each(|map| {
            let tasks =
                state.tasks.iter().filter(|task| usize::from(task.map) == map && task.cid != UNSET);
            state.allocated_are_owned(map, tasks.map(|task| task.cid))
        })
    }

    fn describe(&self, op: u8) -> (&'static str, &'static str) {
        match op {
            HAND_OVER => {
                ("switch_mm_cid", "stores the current task; one of the same map gets the id")
            }
            PUT => {
                ("mm_cid_put", "the id of the previous task is given back, under the map's lock")
            }
            _ => ("mm_cid_get", "get the lowest free id, under the map's lock"),
        }
    }
}

/// Operations under the map's lock, which need no atomics of their own.
fn locked<R>(costs: &mut Costs, operate: impl FnOnce(&mut Costs) -> R) -> R {
    costs.locks += 1;
    operate(&mut Costs::default())
}
