//! This library's compact slots: on kernels without concurrency ids, a cpu gets the lowest free slot at its first use.
//!
//! ```text
//!   offsets[cpu]   the cpu's slot, or "nothing" and a number ─── read within critical sections
//!   owners[slot]   free → claim of a cpu → frozen by a task → free
//! ```
//! A task that freezes a slot takes it from its cpu, ends all sections by a fence, and then has the slot to itself.
//! Here a slot is a task's id while the task is in a section, or has the slot frozen.
//!
//! Source: `corelocal::cid`, file directory.rs, whose invariants these are.

use super::{Costs, MAPS, Phase, Policy, State, UNSET, USER};

/// Slots of cpus.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// The maximum number of times that slots of map 0 are frozen.
    pub freezes: u8,
    /// A planted fault.
    pub fault: Option<SlotFault>,
}

/// Planted faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotFault {
    /// The freezer uses the slot without a fence.
    NoFence,
    /// "Nothing" has no number: a late publisher does not see that the slot was frozen meanwhile.
    NoNumber,
    /// The offset is read before the section begins.
    ReadOutside,
    /// A claim that could not be published is given back without a look at the slot's owner.
    BlindRelease,
    /// The freezer takes the slot from its cpu, and forgets the owner's word.
    LeavesOwner,
}

const CURRENT: u8 = 1;
const ENTER: u8 = 2;
const COMMIT: u8 = 3;
const CLAIM: u8 = 4;
const PUBLISH: u8 = 5;
const RELEASE: u8 = 6;
const FREEZE: u8 = 7;
const REVOKE: u8 = 8;
const FENCE: u8 = 9;
const USE: u8 = 10;
const THAW: u8 = 11;

/// The bit in an owner's word that marks a frozen slot.
const FROZEN: u16 = 0x4000;

/// Returns the argument of a publisher: a cpu, and a slot.
fn pair(cpu: u8, slot: u8) -> u8 {
    cpu | slot << 4
}

/// Returns a claim of this cpu, with the number of the "nothing" that it found.
fn claim(cpu: u8, nothing: u16) -> u16 {
    u16::from(cpu) | (nothing & !UNSET) << 4
}

impl Slots {
    fn has(&self, fault: SlotFault) -> bool {
        self.fault == Some(fault)
    }
}

impl<const T: usize, const C: usize> Policy<T, C> for Slots {
    const VERSIONS: &'static str = "4.18 and later";

    fn first_op(&self, _: &mut State<T, C>, _: usize, _: u8) -> u8 {
        CURRENT
    }

    fn switch(&self, state: &mut State<T, C>, cpu: usize, _: &mut Costs) -> Result<(), String> {
        let next = state.task(state.cpus[cpu].next);
        state.set_current(cpu);
        state.resume(cpu);
        // It does not matter where a task ran last.
        if let Some((next, _)) = next {
            state.tasks[next].cpu = 0;
        }
        Ok(())
    }

    fn begins(&self, state: &State<T, C>, cpu: usize, begins: &mut dyn FnMut(u8, u8)) {
        let (_, map) = state.current(cpu).expect("a task works while it runs");
        begins(ENTER, 0);
        if map == 0 && state.maps[map].walk < self.freezes {
            let owners = state.maps[map].recent.iter().enumerate();
            let claimed = owners.filter(|&(_, &owner)| owner & (UNSET | FROZEN) == 0);
            claimed.for_each(|(slot, _)| begins(FREEZE, slot as u8));
        }
    }

    fn preempted(&self, state: &mut State<T, C>, task: usize) {
        if state.tasks[task].op == COMMIT && !self.has(SlotFault::ReadOutside) {
            (state.tasks[task].op, state.tasks[task].argument, state.tasks[task].cid) =
                (USER, 0, UNSET);
        }
    }

    fn work(&self, state: &mut State<T, C>, cpu: usize, costs: &mut Costs) -> Result<(), String> {
        let (task, map) = state.current(cpu).expect("a task works while it runs");
        let argument = state.tasks[task].argument;
        let (id, slot) = (argument & 15, argument >> 4);
        let has = |fault| self.has(fault);
        let (tasks, maps) = (&mut state.tasks, &mut state.maps);
        let (me, map) = (&mut tasks[task], &mut maps[map]);
        let next = |me: &mut super::Task, op, argument| {
            (me.op, me.argument) = (op, argument);
            if op == USER {
                me.last_cid = UNSET;
            }
        };
        match me.op {
            ENTER => match map.cids[cpu] {
                slot if slot & UNSET == 0 => {
                    me.cid = slot;
                    next(me, COMMIT, 0);
                }
                nothing => {
                    me.last_cid = nothing;
                    next(me, CLAIM, pair(cpu as u8, 0));
                }
            },
            COMMIT => {
                me.cid = UNSET;
                next(me, USER, 0);
            }
            CLAIM => {
                costs.atomics += 1;
                let free = map.recent.iter().position(|&owner| owner == UNSET);
                // All are frozen: the program uses a shared slot meanwhile.
                let Some(slot) = free else {
                    next(me, USER, 0);
                    return Ok(());
                };
                map.recent[slot] = claim(id, me.last_cid);
                map.allocated |= 1 << slot;
                next(me, PUBLISH, pair(id, slot as u8));
            }
            PUBLISH => {
                costs.atomics += 1;
                if map.cids[usize::from(id)] == me.last_cid {
                    map.cids[usize::from(id)] = slot.into();
                    next(me, USER, 0);
                } else {
                    me.op = RELEASE;
                }
            }
            RELEASE => {
                costs.atomics += 1;
                let owner = &mut map.recent[usize::from(slot)];
                if *owner == claim(id, me.last_cid) || has(SlotFault::BlindRelease) {
                    *owner = UNSET;
                    map.allocated &= !(1 << slot);
                }
                next(me, USER, 0);
            }
            FREEZE => {
                costs.atomics += 1;
                let owner = &mut map.recent[usize::from(argument)];
                if *owner & (UNSET | FROZEN) != 0 {
                    next(me, USER, 0);
                    return Ok(());
                }
                let of = (*owner & 15) as u8;
                if !has(SlotFault::LeavesOwner) {
                    *owner = FROZEN | u16::from(of);
                }
                map.walk += 1;
                next(me, REVOKE, pair(of, argument));
            }
            REVOKE => {
                costs.atomics += 1;
                // The next number: a publisher that has seen the last one fails.
                let number =
                    if has(SlotFault::NoNumber) { UNSET } else { UNSET | u16::from(map.walk) };
                let offset = &mut map.cids[usize::from(id)];
                if *offset & UNSET != 0 || *offset == slot.into() {
                    *offset = number;
                }
                me.op = if has(SlotFault::NoFence) { USE } else { FENCE };
                if me.op == USE {
                    me.cid = slot.into();
                }
            }
            FENCE => {
                me.cid = slot.into();
                me.op = USE;
                tasks
                    .iter_mut()
                    .filter(|task| task.op == COMMIT && task.phase == Phase::Running)
                    .for_each(|task| {
                        (task.op, task.cid) = (USER, UNSET);
                    });
            }
            USE => {
                me.cid = UNSET;
                me.op = THAW;
            }
            _ => {
                costs.atomics += 1;
                map.recent[usize::from(slot)] = UNSET;
                map.allocated &= !(1 << slot);
                next(me, USER, 0);
            }
        }
        Ok(())
    }

    fn can_fork(&self, _: &State<T, C>, _: usize) -> bool {
        false
    }

    fn exit(&self, _: &mut State<T, C>, _: usize, _: &mut Costs) {}

    /// Checks that a task that has frozen a slot has it to itself, whether it runs or not.
    fn check(&self, state: &State<T, C>) -> Result<(), String> {
        (0..MAPS).try_for_each(|map| {
            let mut seen = 0u64;
            for task in state
                .tasks
                .iter()
                .filter(|task| usize::from(task.map) == map && task.cid & UNSET == 0)
            {
                if seen & (1 << task.cid) != 0 {
                    return Err(format!("two tasks use slot {} of map {map}", task.cid));
                }
                seen |= 1 << task.cid;
            }
            Ok(())
        })
    }

    fn describe(&self, op: u8) -> (&'static str, &'static str) {
        match op {
            CURRENT => (
                "context_switch",
                "stores the current task; a section of the previous one is aborted",
            ),
            ENTER => ("section", "reads the slot of its cpu"),
            COMMIT => ("section", "commits to the slot, and leaves the section"),
            CLAIM => ("Directory::assign", "claims the lowest free slot (cmpxchg)"),
            PUBLISH => {
                ("Directory::assign", "publishes the slot, if nothing has changed (cmpxchg)")
            }
            RELEASE => ("Directory::assign", "gives its claim back, if it still has it (cmpxchg)"),
            FREEZE => ("Directory::revoke", "freezes a slot (cmpxchg)"),
            REVOKE => ("Directory::revoke", "takes the slot from its cpu (cmpxchg)"),
            FENCE => ("membarrier", "ends all sections (PRIVATE_EXPEDITED_RSEQ)"),
            USE => ("freeze", "has the slot to itself, and is done with it"),
            _ => ("Directory::thaw", "frees the slot"),
        }
    }
}
