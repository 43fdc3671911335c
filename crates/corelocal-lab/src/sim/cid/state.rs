//! The tasks, cpus and maps that all policies of concurrency ids work on.
//!
//! Each policy uses some of the fields. The others keep their first value, so that they add no states.

use super::Costs;

/// The number that stands for no task, or no cpu.
pub(super) const NONE: u8 = u8::MAX;
/// The id that stands for none.
pub(super) const UNSET: u16 = 0x8000;
/// An op: the cpu is in user mode, or the task is not in the kernel.
pub(super) const USER: u8 = 0;
pub(super) const MAPS: usize = 2;

/// Bits of an id: its kind of owner, and what is about to happen to it.
pub(super) const FLAGS: u16 = 0x7000;

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    pub(super) phase: Phase,
    pub(super) map: u8,
    /// The op that it runs in the kernel, and below it the operand.
    pub(super) op: u8,
    pub(super) argument: u8,
    /// The cpu that it runs on, or ran on last.
    pub(super) cpu: u8,
    pub(super) cid: u16,
    pub(super) last_cid: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    Absent,
    /// Accounted, not yet in the list of tasks.
    Forked,
    Ready,
    /// Being moved to another cpu.
    Moving,
    Running,
    /// The task is no longer current, but its cpu has not switched: no other cpu may run it.
    Leaving,
    /// The task runs the end of its exit.
    Exiting,
    Gone,
}

/// A cpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    pub(super) curr: u8,
    pub(super) prev: u8,
    /// The next step of a switch. Not `USER`: the lock of the run queue is held.
    pub(super) op: u8,
    /// The task that is being moved here.
    pub(super) next: u8,
    pub(super) register: u16,
}

/// A memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Map<const C: usize> {
    /// A bit for each id that is allocated.
    pub(super) allocated: u64,
    /// The id of each cpu.
    pub(super) cids: [u16; C],
    /// The id that each cpu had before.
    pub(super) recent: [u16; C],
    pub(super) users: u8,
    pub(super) max: u8,
    /// Linux 6.19: the threshold of ids owned by cpus, 0 if tasks own them; the mode's bits.
    pub(super) threshold: u8,
    pub(super) mode: u16,
    /// The holder of the mutex.
    pub(super) mutex: u8,
    /// The progress of a walk over all tasks or cpus.
    pub(super) walk: u8,
}

/// The state of all tasks, cpus and maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<const T: usize, const C: usize> {
    pub(super) tasks: [Task; T],
    pub(super) cpus: [Cpu; C],
    pub(super) maps: [Map<C>; MAPS],
    pub(super) is_confined: bool,
    /// The number of possible cpus.
    pub(super) possible: u8,
    /// The number of cpus that tasks may run on.
    pub(super) allowed: u8,
    /// The most that it has been. The kernel's count never shrinks.
    pub(super) ever_allowed: u8,
}

impl<const T: usize, const C: usize> State<T, C> {
    /// Returns the id or the slot that the cpu has for the map, if it has one.
    pub fn id_of_cpu(&self, map: usize, cpu: usize) -> Option<u16> {
        let id = self.maps[map].cids[cpu];
        (id & UNSET == 0).then_some(id & !FLAGS)
    }

    /// Returns the number of ids of the map that are allocated.
    pub fn ids_in_use(&self, map: usize) -> u32 {
        self.maps[map].allocated.count_ones()
    }

    pub(super) fn map_of(&self, task: usize) -> usize {
        self.tasks[task].map.into()
    }

    /// Returns the running task, with its map.
    pub(super) fn current(&self, cpu: usize) -> Option<(usize, usize)> {
        self.task(self.cpus[cpu].curr)
    }

    /// Returns the task before the switch under way.
    pub(super) fn previous(&self, cpu: usize) -> Option<(usize, usize)> {
        self.task(self.cpus[cpu].prev)
    }

    pub(super) fn task(&self, task: u8) -> Option<(usize, usize)> {
        (task != NONE).then(|| (task.into(), self.map_of(task.into())))
    }

    /// Returns `true` if the cpu runs a task of this map that takes part.
    pub(super) fn runs(&self, cpu: usize, map: usize) -> bool {
        let current = self.current(cpu).filter(|&(_, of)| of == map);
        current.is_some_and(|(task, _)| self.tasks[task].phase == Phase::Running)
    }

    /// Returns the lowest free id below `end`. Another cpu may allocate it first ([`State::this_one`]).
    pub(super) fn lowest(&self, map: usize, end: u8) -> Option<u16> {
        let id = self.maps[map].allocated.trailing_ones();
        (id < end.into()).then_some(id as u16)
    }

    /// Allocates the lowest id below `end` in one step, as under a lock.
    pub(super) fn allocate(&mut self, map: usize, end: u8, costs: &mut Costs) -> Option<u16> {
        let id = self.lowest(map, end)?;
        self.this_one(map, id, costs).then_some(id)
    }

    /// Allocates this id, if it is free.
    pub(super) fn this_one(&mut self, map: usize, id: u16, costs: &mut Costs) -> bool {
        costs.atomics += 1;
        let was = self.maps[map].allocated;
        self.maps[map].allocated |= 1 << id;
        was & (1 << id) == 0
    }

    /// Marks the id as free. `Err` if it is.
    pub(super) fn free(&mut self, map: usize, id: u16, costs: &mut Costs) -> Result<(), String> {
        costs.atomics += 1;
        let bit = 1 << (id & !FLAGS);
        if self.maps[map].allocated & bit == 0 {
            return Err(format!("id {} of map {map} is freed twice", id & !FLAGS));
        }
        self.maps[map].allocated &= !bit;
        Ok(())
    }

    /// Ends the switch: the task runs in user mode.
    pub(super) fn resume(&mut self, cpu: usize) {
        if let Some((prev, _)) = self.previous(cpu) {
            let phase = &mut self.tasks[prev].phase;
            *phase = if *phase == Phase::Exiting { Phase::Gone } else { Phase::Ready };
        }
        let cpu = &mut self.cpus[cpu];
        (cpu.op, cpu.prev, cpu.next, cpu.register) = (USER, NONE, NONE, 0);
    }

    /// Makes the task that is next the current one, as `context_switch` does: with the run queue's lock.
    pub(super) fn set_current(&mut self, cpu: usize) {
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

    /// Returns one more than the largest id that is allocated.
    pub(super) fn high_water(&self, map: usize) -> u32 {
        u64::BITS - self.maps[map].allocated.leading_zeros()
    }

    /// Checks rule 3, for policies in which `owners` lists the owners of all ids.
    pub(super) fn allocated_are_owned(
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
