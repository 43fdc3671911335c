//! The cpu number as id: what programs use where the kernel has no concurrency ids (Linux 4.18 to 6.2).

use super::{Costs, NONE, Policy, State, UNSET};

/// The cpu number is the id.
#[derive(Clone, Copy, Debug)]
pub struct CpuIds;

const UPDATE: u8 = 1;

impl<const T: usize, const C: usize> Policy<T, C> for CpuIds {
    const VERSIONS: &'static str = "4.18 and later";

    fn first_op(&self, _: &mut State<T, C>, _: usize, _: u8) -> u8 {
        UPDATE
    }

    fn switch(&self, state: &mut State<T, C>, cpu: usize, _: &mut Costs) -> Result<(), String> {
        state.set_current(cpu);
        if state.cpus[cpu].curr != NONE {
            state.tasks[usize::from(state.cpus[cpu].curr)].cid = cpu as u16;
        }
        state.resume(cpu);
        Ok(())
    }

    fn exit(&self, state: &mut State<T, C>, cpu: usize, _: &mut Costs) {
        let (task, map) = state.current(cpu).expect("a task exits while it runs");
        state.tasks[task].phase = super::Phase::Exiting;
        state.tasks[task].cid = UNSET;
        state.maps[map].users -= 1;
    }

    fn describe(&self, _: u8) -> (&'static str, &'static str) {
        ("rseq_update_cpu_node_id", "stores the current task, which gets the number of its cpu")
    }
}
