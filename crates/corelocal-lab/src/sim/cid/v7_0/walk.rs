//! How the mode changes, and what the walks over tasks and cpus do to their ids.

use super::super::{Costs, NONE, Phase, State, Task, UNSET};
use super::{ON_CPU, TRANSIT, V7_0, V7_0Fault, in_transit, leaves, limit, number, on_cpu, on_task};

impl V7_0 {
    /// Models `mm_update_max_cids`: the limit and the mode that follow from the number of tasks. True if the mode
    /// changes.
    pub(super) fn update<const T: usize, const C: usize>(
        &self,
        state: &mut State<T, C>,
        map: usize,
    ) -> bool {
        let (possible, allowed) = (state.possible, state.ever_allowed);
        let map = &mut state.maps[map];
        let optimal = allowed.min(map.users);
        map.max = limit(optimal, possible);
        let was_on_cpu = map.threshold > 0;
        if !was_on_cpu && map.users > map.max {
            let threshold = (optimal - optimal / 4).min(possible / 2).max(1);
            map.threshold = self.threshold.unwrap_or(threshold);
        } else if was_on_cpu && map.users < map.threshold {
            map.threshold = 0;
        }
        let changes = was_on_cpu != (map.threshold > 0);
        if changes {
            map.mode = if map.threshold > 0 { ON_CPU | TRANSIT } else { TRANSIT };
        }
        changes
    }

    /// Models `mm_cid_complete_transit`: ends the transition, if there is one, and unlocks the mutex.
    pub(super) fn complete_transit<const T: usize, const C: usize>(
        state: &mut State<T, C>,
        map: usize,
    ) {
        let map = &mut state.maps[map];
        map.mode &= !TRANSIT;
        (map.mutex, map.walk) = (NONE, 0);
    }

    /// Does what the walk does to the id of a task that runs on its cpu.
    pub(super) fn hand_to_cpu<const T: usize, const C: usize>(
        &self,
        state: &mut State<T, C>,
        task: usize,
        cpu: usize,
    ) {
        let map = state.map_of(task);
        if on_task(state.tasks[task].cid) {
            let bit = if self.has(V7_0Fault::NoTransit) { ON_CPU } else { TRANSIT };
            state.tasks[task].cid |= bit;
            state.maps[map].cids[cpu] = state.tasks[task].cid;
        }
    }

    /// Returns the next task of the walk, or one past the last.
    pub(super) fn next_task<const T: usize, const C: usize>(
        &self,
        state: &State<T, C>,
        walker: usize,
    ) -> usize {
        let map = state.map_of(walker);
        let takes_part = |task: &Task| match task.phase {
            Phase::Ready | Phase::Moving | Phase::Running | Phase::Leaving => true,
            Phase::Forked => !self.has(V7_0Fault::MissesForked),
            _ => false,
        };
        let from = usize::from(state.maps[map].walk);
        let rest = (from..T).find(|&task| {
            let is = &state.tasks[task];
            task != walker && state.map_of(task) == map && takes_part(is) && !leaves(is)
        });
        rest.unwrap_or(T)
    }

    /// Does what the walk does to the id of a cpu.
    pub(super) fn hand_to_task<const T: usize, const C: usize>(
        state: &mut State<T, C>,
        map: usize,
        cpu: usize,
        costs: &mut Costs,
    ) -> Result<(), String> {
        let current = state.current(cpu).filter(|&(task, of)| {
            of == map && state.tasks[task].phase == Phase::Running && !leaves(&state.tasks[task])
        });
        let of_cpu = state.maps[map].cids[cpu];
        match current {
            Some((task, _)) if on_cpu(of_cpu) => {
                let id = number(of_cpu) | TRANSIT;
                (state.tasks[task].cid, state.maps[map].cids[cpu]) = (id, id);
            }
            _ if on_cpu(of_cpu) => Self::drop_of_cpu(state, map, cpu, costs)?,
            Some((task, _))
                if state.tasks[task].cid & UNSET == 0 && !in_transit(state.tasks[task].cid) =>
            {
                state.tasks[task].cid |= TRANSIT;
                state.maps[map].cids[cpu] = state.tasks[task].cid;
            }
            _ => {}
        }
        Ok(())
    }
}
