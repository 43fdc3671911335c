//! The models of this protocol by name, and what the policies cost.

use super::super::case::Entry;
use super::super::random::{Advance, Simulation};
use super::super::{Costs, Model, Step};
use super::{
    CONFINE, Cids, CpuIds, Policy, SlotFault, Slots, State, V6_3, V6_4, V6_4Fault, V7_0, V7_0Fault,
};

/// Returns three tasks of two maps on two cpus.
fn small<P>(policy: P) -> Cids<P, 3, 2> {
    Cids {
        policy,
        maps: [0, 0, 1],
        tasks: 3,
        exits: true,
        running: false,
        allowed: 2,
        confined: 2,
        possible: 2,
    }
}

/// Returns four tasks of one map on three cpus: as many as there are cpus at the beginning, and one that is forked.
fn one_map<P>(policy: P, tasks: u8, exits: bool) -> Cids<P, 4, 3> {
    Cids { policy, maps: [0; 4], tasks, exits, running: true, allowed: 3, confined: 3, possible: 3 }
}

pub(in crate::sim) fn entries() -> Vec<Entry> {
    let v6_4 = V6_4 { prefers_recent: false, waits: true, fault: None };
    let v7_0 = V7_0 { threshold: None, fault: None };
    let slots = Slots { freezes: 1, fault: None };
    let has = |fault| V6_4 { fault: Some(fault), ..v6_4 };
    let two = Some("two running tasks");
    let three = |policy| Cids::<V7_0, 3, 2> {
        policy,
        maps: [0; 3],
        tasks: 2,
        exits: true,
        running: false,
        allowed: 2,
        confined: 2,
        possible: 2,
    };
    vec![
        Entry::new(
            "cid/cpu-id",
            "the cpu number, 3 tasks of 2 maps on 2 cpus",
            None,
            small(CpuIds),
        ),
        Entry::new(
            "cid/6.3",
            "Linux 6.3: the lowest free id, handed over between tasks of a map",
            None,
            small(V6_3 { keeps_twice: false }),
        ),
        Entry::new("cid/6.4", "Linux 6.4: ids of cpus, given back lazily", None, small(v6_4)),
        Entry::new(
            "cid/6.14",
            "Linux 6.14: the same, which prefers ids used before",
            None,
            small(V6_4 { prefers_recent: true, ..v6_4 }),
        ),
        Entry::new(
            "cid/7.0",
            "Linux 6.19 and later: ids of tasks or cpus, 3 tasks of 2 maps on 2 cpus",
            None,
            small(v7_0),
        ),
        Entry::new(
            "cid/7.0-flip",
            "the same, a third task is forked on 2 cpus: ids go from tasks to cpus",
            None,
            Cids { exits: false, ..three(v7_0) },
        ),
        Entry::new(
            "cid/7.0-flip-back",
            "the same, tasks exit: ids go back to tasks",
            None,
            three(V7_0 { threshold: Some(2), ..v7_0 }),
        ),
        Entry::new(
            "cid/slots",
            "this library's compact slots, with slots that are frozen",
            None,
            small(slots),
        ),
        Entry::new(
            "cid/6.3-keeps-twice",
            "a hand-over leaves the id with the task that had it, too",
            Some("two owners"),
            small(V6_3 { keeps_twice: true }),
        ),
        Entry::new(
            "cid/6.4-late-current",
            "a cpu looks at its id before it stores its current task",
            two,
            small(has(V6_4Fault::LateCurrent)),
        ),
        Entry::new(
            "cid/6.4-no-look",
            "an id is taken without a look at the cpu's current task",
            two,
            small(has(V6_4Fault::NoLook)),
        ),
        Entry::new(
            "cid/6.4-late-taker",
            "an id is marked while another cpu, which has marked it before, is about to take it",
            two,
            small(V6_4 { waits: false, ..v6_4 }),
        ),
        Entry::new(
            "cid/6.4-late-taker-3",
            "the same, 3 tasks of one map on 3 cpus: two of them move at the same time",
            two,
            Cids::<V6_4, 3, 3> {
                policy: V6_4 { waits: false, ..v6_4 },
                maps: [0; 3],
                tasks: 3,
                exits: false,
                running: false,
                allowed: 3,
                confined: 3,
                possible: 3,
            },
        ),
        Entry::new(
            "cid/6.4-never-frees",
            "a cpu gives up an id that others have marked, and does not free it",
            Some("no owner"),
            small(has(V6_4Fault::NeverFrees)),
        ),
        Entry::new(
            "cid/6.4-overwrites",
            "a moved id is stored over the id that the cpu has",
            Some("no owner"),
            small(has(V6_4Fault::Overwrites)),
        ),
        Entry::new(
            "cid/6.4-plain-mark",
            "an id is marked by a plain store",
            Some("freed twice"),
            small(has(V6_4Fault::PlainMark)),
        ),
        Entry::new(
            "cid/7.0-livelock",
            "as in January 2026: a walk hands ids over for good, and waits for a cpu that waits for an id",
            Some("without progress"),
            one_map(V7_0 { fault: Some(V7_0Fault::NoTransit), ..v7_0 }, 3, false),
        ),
        Entry::new(
            "cid/7.0-misses-forked",
            "as in March 2026: the walk misses a task that is forked at the time, and its id",
            Some("without progress"),
            one_map(V7_0 { fault: Some(V7_0Fault::MissesForked), ..v7_0 }, 2, false),
        ),
        Entry::new(
            "cid/7.0-no-lock",
            "the walk looks at a task without the lock of its cpu",
            Some("no owner"),
            Cids { exits: false, ..three(V7_0 { fault: Some(V7_0Fault::NoLock), ..v7_0 }) },
        ),
        Entry::new(
            "cid/7.0-keeps-in-transit",
            "a task keeps an id in transit when it is switched out",
            Some("no owner"),
            three(V7_0 { threshold: Some(2), fault: Some(V7_0Fault::KeepsInTransit) }),
        ),
        Entry::new(
            "cid/7.0-drops-twice",
            "the walk drops the id of a task, which keeps it",
            Some("is owned, and free"),
            Cids { exits: false, ..three(V7_0 { fault: Some(V7_0Fault::DropsTwice), ..v7_0 }) },
        ),
        Entry::new(
            "cid/slots-no-fence",
            "a slot is used without a fence after it was taken",
            two,
            small(Slots { fault: Some(SlotFault::NoFence), ..slots }),
        ),
        Entry::new(
            "cid/slots-no-number",
            "a late publisher does not see that its slot was frozen",
            two,
            small(Slots { fault: Some(SlotFault::NoNumber), ..slots }),
        ),
        Entry::new(
            "cid/slots-read-outside",
            "the slot is read before the section begins",
            Some("use slot"),
            small(Slots { fault: Some(SlotFault::ReadOutside), ..slots }),
        ),
        Entry::new(
            "cid/slots-blind-release",
            "a claim is given back without a look at the owner",
            two,
            small(Slots { fault: Some(SlotFault::BlindRelease), ..slots }),
        ),
        Entry::new(
            "cid/slots-leaves-owner",
            "a frozen slot still has the owner's word of its cpu",
            two,
            small(Slots { fault: Some(SlotFault::LeavesOwner), ..slots }),
        ),
    ]
}

/// The measurements of a policy in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The largest id of a running task of map 0, plus one, before and after tasks are confined.
    pub ids: (u32, u32),
    /// The number of atomic operations per switch, and below it of locks.
    pub atomics: f64,
    /// Locks taken per switch.
    pub locks: f64,
}

/// Returns one more than the largest id with which a task of map 0 runs in the second half of a random schedule. Tasks
/// that are confined have run on all cpus for as long before.
pub fn settled<P: Policy<T, C>, const T: usize, const C: usize>(
    model: &Cids<P, T, C>,
    seed: u64,
    steps: u64,
) -> Result<u32, String> {
    /// The number of steps between two looks, which take longer than a step.
    const EACH: u64 = 16;
    let free = Cids { confined: model.allowed, ..*model };
    let mut before = Simulation::new(&free, seed);
    if model.confined < model.allowed {
        for _ in 0..steps {
            if let Advance::Failed(_, message) = before.advance() {
                return Err(message);
            }
        }
        model.take(&mut before.state, Step::may(0, CONFINE), &mut Costs::default())?;
    }
    let mut simulation = Simulation::new(model, seed + 1);
    simulation.state = before.state;
    let mut end = 0;
    for step in 0..steps {
        if let Advance::Failed(_, message) = simulation.advance() {
            return Err(message);
        }
        if step >= steps / 2 && step % EACH == 0 {
            let running = model.running(&simulation.state);
            let ids = running.into_iter().flatten().filter_map(|(_, id)| id);
            end = end.max(ids.map(|id| u32::from(id) + 1).max().unwrap_or(0));
        }
    }
    Ok(end)
}

/// Runs a policy at random, and tells the ids that were in use and what the switches cost.
pub fn measure<P: Policy<T, C>, const T: usize, const C: usize>(
    model: &Cids<P, T, C>,
    seed: u64,
    steps: u64,
) -> Result<Measured, String> {
    let mut simulation = Simulation::new(model, seed);
    let mut measured = Measured::default();
    for _ in 0..steps {
        if let Advance::Failed(_, message) = simulation.advance() {
            return Err(message);
        }
        let state: &State<T, C> = &simulation.state;
        let ids = if state.is_confined { &mut measured.ids.1 } else { &mut measured.ids.0 };
        *ids = (*ids).max(state.high_water(0));
    }
    let switches = simulation.costs.units.max(1) as f64;
    measured.atomics = simulation.costs.atomics as f64 / switches;
    measured.locks = simulation.costs.locks as f64 / switches;
    Ok(measured)
}
