//! How many concurrency ids a process uses, by rules: for each kernel's policy, the most and the usual number.
//!
//! The rules follow from the models, and a simulation of the models never exceeds them (`tests/sim/plan.rs`). Where the
//! rules leave a range, [`simulated`] says what random schedules reach.
//!
//! | kernel | ids at most | usually |
//! |---|---|---|
//! | before 6.3 | numbers of the allowed cpus | the same |
//! | 6.3 | min(threads, allowed cpus) | the same |
//! | 6.4 to 6.13 | cpus that were ever allowed: an idle cpu keeps its id for 100 ms | min(threads, allowed cpus) |
//! | 6.14 to 6.18 | the same | min(threads, cpus ever allowed) |
//! | 6.19 and later | possible cpus, while ids change hands | each thread's while there are few, then each cpu's |

use serde::Serialize;

use super::cid::{self, Cids, V6_4, V7_0, settled};

/// A kernel's policy for ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Policy {
    /// The cpu number, before 6.3.
    CpuNumbers,
    /// 6.3.
    LowestFree,
    /// 6.4 to 6.13.
    Lazy,
    /// 6.14 to 6.18.
    Recent,
    /// 6.19 and later.
    TasksOrCpus,
}

impl Policy {
    /// All policies, in order of age.
    pub const ALL: [Policy; 5] =
        [Policy::CpuNumbers, Policy::LowestFree, Policy::Lazy, Policy::Recent, Policy::TasksOrCpus];

    /// Returns the policy of a kernel version.
    pub fn of(major: u32, minor: u32) -> Policy {
        match (major, minor) {
            (..6, _) | (6, 0..3) => Policy::CpuNumbers,
            (6, 3) => Policy::LowestFree,
            (6, 4..14) => Policy::Lazy,
            (6, 14..19) => Policy::Recent,
            _ => Policy::TasksOrCpus,
        }
    }

    /// Returns the kernels that have it.
    pub fn kernels(self) -> &'static str {
        match self {
            Policy::CpuNumbers => "before 6.3",
            Policy::LowestFree => "6.3",
            Policy::Lazy => "6.4 to 6.13",
            Policy::Recent => "6.14 to 6.18",
            Policy::TasksOrCpus => "6.19 and later",
        }
    }
}

/// A process on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// The number of possible cpus of the machine.
    pub possible: u32,
    /// The numbers of the cpus that the process may run on.
    pub allowed: Vec<u32>,
    /// The number of cpus that it was ever allowed to run on.
    pub ever_allowed: u32,
    /// The number of threads.
    pub threads: u32,
}

/// The number of ids that a process uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ids {
    /// The largest id that can occur, plus one.
    pub most: u32,
    /// The largest id after a second, plus one.
    pub usual: u32,
    /// Slots of this library, which are compact: at most one for each id in use.
    pub slots: u32,
    /// The advice, if a change helps.
    pub advice: Option<String>,
}

/// Returns the ids of a process under a policy.
pub fn ids(policy: Policy, process: &Process) -> Ids {
    let Process { possible, threads, .. } = *process;
    let allowed = process.allowed.len() as u32;
    let ever = process.ever_allowed.max(allowed).min(possible);
    let busy = threads.min(allowed);
    let highest = process.allowed.iter().max().map_or(0, |cpu| cpu + 1);
    let optimal = threads.min(ever);
    let limit = (optimal + optimal / 4).min(possible);
    let (most, usual, slots) = match policy {
        Policy::CpuNumbers => (highest, highest, allowed),
        Policy::LowestFree => (busy, busy, busy),
        Policy::Lazy => (ever, busy, busy),
        Policy::Recent => (ever, optimal, optimal),
        Policy::TasksOrCpus if threads <= limit => (possible, threads, threads),
        Policy::TasksOrCpus => (possible, limit.min(ever), limit.min(ever)),
    };
    let advice = match policy {
        Policy::CpuNumbers if highest > allowed => Some(format!(
            "an array by cpu number needs {highest} entries for {allowed} cpus: use compact slots, as this library does"
        )),
        Policy::Recent | Policy::TasksOrCpus if ever > allowed && usual > busy => Some(format!(
            "start the process within its {allowed} cpus: confined later, it keeps ids for the {ever} that it had"
        )),
        _ if threads >= 4 * allowed => Some(format!(
            "{threads} threads share {allowed} cpus: memory by thread would be {} times that by core",
            threads / allowed.max(1)
        )),
        _ => None,
    };
    Ids { most, usual, slots, advice }
}

/// The most tasks and cpus that are simulated.
pub const SIMULATED: usize = 64;

/// Schedules, each of so many steps.
const SEEDS: u64 = 4;
const STEPS: u64 = 200_000;

/// Returns one more than the largest id with which a thread runs after a while, in random schedules: the least and the
/// most of several. `None` where the rules leave no range, or the process is too large.
///
/// Threads run, sleep and move at random, and unused ids are looked for at random, too. A process that was confined has run
/// on all its cpus before.
pub fn simulated(policy: Policy, process: &Process) -> Option<(u32, u32)> {
    let fewest = process.threads.min(process.allowed.len() as u32);
    if ids(policy, process).most == fewest {
        return None;
    }
    let lazy = V6_4 { prefers_recent: policy == Policy::Recent, waits: true, fault: None };
    match policy {
        Policy::CpuNumbers | Policy::LowestFree => None,
        Policy::Lazy | Policy::Recent => range(lazy, process),
        Policy::TasksOrCpus => range(V7_0 { threshold: None, fault: None }, process),
    }
}

fn range<P: cid::Policy<SIMULATED, SIMULATED>>(policy: P, process: &Process) -> Option<(u32, u32)> {
    let is_small =
        |count: u32| u8::try_from(count).ok().filter(|&count| usize::from(count) <= SIMULATED);
    let tasks = is_small(process.threads)?;
    let confined = is_small(process.allowed.len() as u32)?;
    let allowed = is_small(process.ever_allowed.max(process.allowed.len() as u32))?;
    let model = Cids::<P, SIMULATED, SIMULATED> {
        policy,
        // The others never exist.
        maps: std::array::from_fn(|task| if task < usize::from(tasks) { 0 } else { u8::MAX }),
        tasks,
        exits: false,
        running: false,
        allowed,
        confined,
        // How many more cpus there are makes no difference.
        possible: process.possible.min(SIMULATED as u32) as u8,
    };
    let ends: Result<Vec<u32>, String> =
        (0..SEEDS).map(|seed| settled(&model, seed, STEPS)).collect();
    let ends = ends.ok()?;
    Some((*ends.iter().min()?, *ends.iter().max()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(allowed: std::ops::Range<u32>, threads: u32) -> Process {
        let allowed: Vec<u32> = allowed.collect();
        Process { possible: 384, ever_allowed: allowed.len() as u32, allowed, threads }
    }

    #[test]
    fn kernels_have_policies() {
        let versions = [(5, 10), (6, 2), (6, 3), (6, 12), (6, 18), (6, 19), (7, 2)];
        let policies = versions.map(|(major, minor)| Policy::of(major, minor));
        use Policy::*;
        assert_eq!(
            policies,
            [CpuNumbers, CpuNumbers, LowestFree, Lazy, Recent, TasksOrCpus, TasksOrCpus]
        );
    }

    #[test]
    fn a_small_part_of_a_large_machine() {
        let high = process(368..384, 64);
        let usual = Policy::ALL.map(|policy| ids(policy, &high).usual);
        assert_eq!(usual, [384, 16, 16, 16, 16]);
        assert_eq!(ids(Policy::CpuNumbers, &high).slots, 16);
        assert!(ids(Policy::CpuNumbers, &high).advice.is_some());
    }

    #[test]
    fn few_threads() {
        let few = process(0..16, 3);
        assert_eq!(Policy::ALL.map(|policy| ids(policy, &few).usual), [16, 3, 3, 3, 3]);
    }

    #[test]
    fn simulations_where_rules_leave_a_range() {
        let late = Process { possible: 8, ever_allowed: 8, ..process(0..2, 16) };
        for policy in Policy::ALL {
            let most = ids(policy, &late).most;
            match simulated(policy, &late) {
                None => assert_eq!(most, 2, "{policy:?}"),
                Some((least, last)) => {
                    assert!(1 <= least && least <= last && last <= most, "{policy:?}")
                }
            }
        }
        let large = process(0..100, 200);
        assert_eq!(simulated(Policy::TasksOrCpus, &large), None);
    }

    #[test]
    fn confined_later() {
        let late = Process { ever_allowed: 8, ..process(0..2, 16) };
        let late = Process { possible: 8, ..late };
        assert_eq!(Policy::ALL.map(|policy| ids(policy, &late).usual), [2, 2, 2, 8, 8]);
        assert!(ids(Policy::TasksOrCpus, &late).advice.is_some());
    }
}
