//! A task that comes from another cpu, and the id that it had there.

use super::*;

impl V6_4 {
    /// Models `sched_mm_cid_migrate_to`: the next task comes from another cpu, and takes the id there with it. `None`:
    /// the switch goes on.
    pub(super) fn moves<const T: usize, const C: usize>(
        &self,
        state: &mut State<T, C>,
        cpu: usize,
        op: u8,
        costs: &mut Costs,
    ) -> Result<Option<u8>, String> {
        let (next, map) = state.task(state.cpus[cpu].next).expect("a task moves");
        let from = usize::from(state.tasks[next].cpu);
        let id = state.cpus[cpu].register & !HAS_ID;
        let other_runs =
            |state: &State<T, C>| state.runs(from, map) && !self.has(V6_4Fault::NoLook);
        match op {
            FETCH => {
                let has_recent = self.prefers_recent && state.maps[map].recent[cpu] != UNSET;
                let has_id = state.maps[map].cids[cpu] != UNSET || has_recent;
                if has_id && state.maps[map].users >= state.ever_allowed {
                    return Ok(None);
                }
                let Some(id) = Self::valid(state, map, from) else { return Ok(None) };
                if id != state.tasks[next].last_cid {
                    return Ok(None);
                }
                if other_runs(state) {
                    state.tasks[next].last_cid = UNSET;
                    return Ok(None);
                }
                state.cpus[cpu].register = if has_id { id | HAS_ID } else { id };
                Ok(Some(MARK))
            }
            MARK => Ok(self.mark(state, map, from, id, costs).then_some(LOOK)),
            LOOK if other_runs(state) => {
                state.tasks[next].last_cid = UNSET;
                Ok(None)
            }
            LOOK => Ok(Some(TAKE)),
            TAKE => Ok(Self::unset_if(state, map, from, id | LAZY, costs).then(|| {
                state.maps[map].recent[from] = UNSET;
                MOVE
            })),
            _ => {
                let has_id = state.cpus[cpu].register & HAS_ID != 0;
                if has_id && !self.has(V6_4Fault::Overwrites) {
                    state.free(map, id, costs)?;
                } else {
                    self.assign(state, map, cpu, id);
                }
                Ok(None)
            }
        }
    }
}
