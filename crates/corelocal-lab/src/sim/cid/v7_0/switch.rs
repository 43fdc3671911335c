//! What a switch does with the ids of the task and of the cpu: `mm_cid_schedout`, `mm_cid_schedin`.

use super::super::{Costs, State, UNSET};
use super::{ALLOCATE, ON_CPU, TRANSIT, V7_0, V7_0Fault, in_transit, number, on_cpu, on_task};

impl V7_0 {
    /// Gives back the id that the task owns.
    pub(super) fn drop_of_task<const T: usize, const C: usize>(
        state: &mut State<T, C>,
        task: usize,
        costs: &mut Costs,
    ) -> Result<(), String> {
        let id = std::mem::replace(&mut state.tasks[task].cid, UNSET);
        if on_task(id) { state.free(state.map_of(task), id, costs) } else { Ok(()) }
    }

    /// Gives back the id that the cpu owns.
    pub(super) fn drop_of_cpu<const T: usize, const C: usize>(
        state: &mut State<T, C>,
        map: usize,
        cpu: usize,
        costs: &mut Costs,
    ) -> Result<(), String> {
        let id = state.maps[map].cids[cpu];
        if on_cpu(id) {
            state.maps[map].cids[cpu] = number(id);
            state.free(map, number(id), costs)?;
        }
        Ok(())
    }

    /// Moves an id above the limit below it, if there is room.
    pub(super) fn converge<const T: usize, const C: usize>(
        state: &mut State<T, C>,
        map: usize,
        id: u16,
        costs: &mut Costs,
    ) -> Result<u16, String> {
        match state.allocate(map, state.maps[map].max, costs) {
            Some(lower) => {
                state.free(map, number(id), costs)?;
                Ok(lower | id & ON_CPU)
            }
            None => Ok(id),
        }
    }

    /// Lets the current task run with the id, which the mode says belongs to it or to the cpu.
    pub(super) fn assign<const T: usize, const C: usize>(
        &self,
        state: &mut State<T, C>,
        cpu: usize,
        mut id: u16,
    ) {
        let (task, map) = state.current(cpu).expect("a task gets the id");
        let mode = state.cpus[cpu].register;
        if mode & ON_CPU != 0 {
            id |= ON_CPU;
        }
        if mode & TRANSIT != 0 && !self.has(V7_0Fault::NoTransit) {
            id = number(id) | TRANSIT;
        }
        state.maps[map].cids[cpu] = id;
        state.tasks[task].cid = id;
        state.resume(cpu);
    }

    /// Takes the switch's last step, with the mode in the register. Goes on to `ALLOCATE` if there is no id.
    pub(super) fn switch_in<const T: usize, const C: usize>(
        &self,
        state: &mut State<T, C>,
        cpu: usize,
        costs: &mut Costs,
    ) -> Result<(), String> {
        let (task, map) = state.current(cpu).expect("there is a task to switch to");
        let (of_task, of_cpu, mode) =
            (state.tasks[task].cid, state.maps[map].cids[cpu], state.cpus[cpu].register);
        let max = state.maps[map].max.into();
        let id = if mode & ON_CPU != 0 {
            if on_cpu(of_cpu) && on_cpu(of_task) {
                let id = if number(of_cpu) < max {
                    of_cpu
                } else {
                    Self::converge(state, map, of_cpu, costs)?
                };
                state.maps[map].cids[cpu] = id;
                state.tasks[task].cid = id;
                state.resume(cpu);
                return Ok(());
            }
            if on_task(of_task) && on_cpu(of_cpu) {
                Self::drop_of_task(state, task, costs)?;
            }
            match (on_task(of_task), on_cpu(of_cpu)) {
                (_, true) => Some(of_cpu),
                (true, false) => Some(of_task),
                _ => None,
            }
        } else {
            if on_task(of_task) && !on_cpu(of_cpu) {
                let id = if of_task < max {
                    of_task
                } else {
                    Self::converge(state, map, of_task, costs)?
                };
                state.maps[map].cids[cpu] = id;
                state.tasks[task].cid = id;
                state.resume(cpu);
                return Ok(());
            }
            if on_task(of_task) {
                Self::drop_of_cpu(state, map, cpu, costs)?;
            }
            match (on_task(of_task), on_cpu(of_cpu)) {
                (true, _) => Some(of_task),
                (false, true) => Some(number(of_cpu)),
                _ => None,
            }
        };
        match id {
            Some(id) => self.assign(state, cpu, id),
            None => state.cpus[cpu].op = ALLOCATE,
        }
        Ok(())
    }

    pub(super) fn switch_out<const T: usize, const C: usize>(
        &self,
        state: &mut State<T, C>,
        cpu: usize,
        costs: &mut Costs,
    ) -> Result<(), String> {
        let Some((prev, map)) = state.previous(cpu) else { return Ok(()) };
        let id = state.tasks[prev].cid;
        if !in_transit(id) || self.has(V7_0Fault::KeepsInTransit) {
            return Ok(());
        }
        let (id, mode) = (number(id), state.maps[map].mode);
        if mode & TRANSIT == 0 && id < state.maps[map].max.into() {
            let id = id | mode & ON_CPU;
            state.maps[map].cids[cpu] = id;
            state.tasks[prev].cid = id;
            return Ok(());
        }
        state.tasks[prev].cid = UNSET;
        state.free(map, id, costs)
    }
}
