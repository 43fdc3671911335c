//! A simulation of each policy never has more ids than the rules of `lab plan` say.

use corelocal_lab::sim::cid::{Cids, Policy, V6_3, V6_4, V7_0, measure};
use corelocal_lab::sim::plan::{self, Process, ids};

const THREADS: usize = 16;
const CPUS: usize = 8;

fn within<P: Policy<THREADS, CPUS>>(
    policy: P,
    by: plan::Policy,
    threads: u8,
    allowed: u8,
    confined: u8,
) {
    let model = Cids::<P, THREADS, CPUS> {
        policy,
        maps: std::array::from_fn(|thread| if thread < usize::from(threads) { 0 } else { 2 }),
        tasks: threads,
        exits: false,
        running: false,
        allowed,
        confined,
        possible: CPUS as u8,
    };
    for seed in 0..4 {
        let measured = measure(&model, seed, 50_000).expect("a correct policy");
        let process = Process {
            possible: CPUS as u32,
            allowed: (0..allowed.into()).collect(),
            ever_allowed: allowed.into(),
            threads: threads.into(),
        };
        let told =
            format!("{by:?}, {threads} threads, {allowed} cpus, then {confined}: {measured:?}");
        // After the confinement tasks leave the other cpus one by one.
        assert!(measured.ids.0.max(measured.ids.1) <= ids(by, &process).most, "{told}");
    }
}

#[test]
fn simulations_stay_within_the_rules() {
    for (threads, allowed, confined) in [(16, 8, 2), (16, 4, 4), (3, 8, 8), (3, 8, 2), (8, 8, 1)] {
        let lazy = V6_4 { prefers_recent: false, waits: true, fault: None };
        within(V6_3 { keeps_twice: false }, plan::Policy::LowestFree, threads, allowed, confined);
        within(lazy, plan::Policy::Lazy, threads, allowed, confined);
        within(
            V6_4 { prefers_recent: true, ..lazy },
            plan::Policy::Recent,
            threads,
            allowed,
            confined,
        );
        within(
            V7_0 { threshold: None, fault: None },
            plan::Policy::TasksOrCpus,
            threads,
            allowed,
            confined,
        );
    }
}
