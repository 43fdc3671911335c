//! What a policy of concurrency ids does at a switch, a fork and an exit.

use super::Costs;
use super::state::{FLAGS, Phase, State, UNSET};

/// A policy that gives out ids. Its ops are numbers from 1 on.
pub trait Policy<const T: usize, const C: usize>: Copy {
    /// The kernels that have it.
    const VERSIONS: &'static str;

    /// Sets what the policy keeps of a map, for its tasks at the beginning.
    fn begin(&self, state: &mut State<T, C>, map: usize) {
        _ = (state, map);
    }

    /// Returns the first op of a switch to this task. `NONE` is the idle task.
    fn first_op(&self, state: &mut State<T, C>, cpu: usize, next: u8) -> u8;

    /// Does the cpu's op, and sets the next one.
    fn switch(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) -> Result<(), String>;

    /// Returns `true` if the op, of a cpu or a task, would only look again.
    fn only_looks(&self, state: &State<T, C>, op: u8, cpu: usize) -> bool {
        _ = (state, op, cpu);
        false
    }

    /// Calls `begins` with the ops that a task in user mode may begin, each with its argument.
    fn begins(&self, state: &State<T, C>, cpu: usize, begins: &mut dyn FnMut(u8, u8)) {
        _ = (state, cpu, begins);
    }

    /// Returns `true` if the op of this task can be done now, or waits for a lock.
    fn can_do(&self, state: &State<T, C>, task: usize) -> bool {
        _ = (state, task);
        true
    }

    /// Returns `true` if a task is not preempted before this op.
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

    /// Returns `true` if the running task can fork or exit now.
    fn can_fork(&self, state: &State<T, C>, map: usize) -> bool {
        _ = (state, map);
        true
    }

    /// Begins the exit of the task that runs on the cpu.
    fn exit(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs);

    /// Begins the op that aborts what a task does in user mode when it is preempted or moved.
    fn preempted(&self, state: &mut State<T, C>, task: usize) {
        _ = (state, task);
    }

    /// Checks rule 3 while all cpus are in user mode, and rules of the policy.
    fn check(&self, state: &State<T, C>) -> Result<(), String> {
        _ = state;
        Ok(())
    }

    /// Returns whether an id is one of a task that runs in user mode.
    fn id(&self, state: &State<T, C>, task: usize) -> Option<u16> {
        let cid = state.tasks[task].cid & !FLAGS;
        (state.tasks[task].cid & UNSET == 0).then_some(cid)
    }

    /// Returns `true` if tasks of a map are interchangeable now.
    fn sorts(&self, state: &State<T, C>) -> bool {
        _ = state;
        true
    }

    /// Returns `true` if this op of a switch comes before the next task is the current one, or makes it so.
    fn is_before_current(&self, op: u8) -> bool {
        op == 1
    }

    /// Returns the function and the text of an op.
    fn describe(&self, op: u8) -> (&'static str, &'static str);
}
