//! Each policy of concurrency ids beside a naive one, written from the rules alone: random switches, forks and exits,
//! one at a time.

use std::collections::{BTreeMap, BTreeSet};

use corelocal_lab::sim::cid::{
    Cids, CpuIds, EXIT, FORK, Policy, SWITCH, Slots, State, V6_3, V6_4, V7_0,
};
use corelocal_lab::sim::{Costs, Kind, Model, Step};
use proptest::prelude::*;

const TASKS: usize = 7;
const CPUS: usize = 4;
const IDLE: u8 = 255;
const MAPS: [u8; TASKS] = [0, 0, 1, 0, 0, 0, 1];
/// The number of tasks that exist at the beginning.
const FIRST: usize = 4;

fn map_of(task: usize) -> usize {
    MAPS[task].into()
}

/// A rule for ids, told what happened.
trait Naive: Default {
    /// The cpu goes from one task to another. A task that has exited is none.
    fn switch(
        &mut self,
        cpu: usize,
        from: Option<usize>,
        to: Option<usize>,
        others: &[Option<usize>],
    );
    fn fork(&mut self, cpu: usize, child: usize, running: &[Option<usize>]);
    fn exit(&mut self, cpu: usize, task: usize, running: &[Option<usize>]);
    fn id(&self, cpu: usize, task: usize) -> Option<u16>;
}

fn lowest<'i>(used: impl Iterator<Item = &'i u16>) -> u16 {
    let used = used.collect::<BTreeSet<_>>();
    (0..).find(|id| !used.contains(id)).unwrap()
}

/// The id is the cpu.
#[derive(Default)]
struct NaiveCpu;

impl Naive for NaiveCpu {
    fn switch(&mut self, _: usize, _: Option<usize>, _: Option<usize>, _: &[Option<usize>]) {}
    fn fork(&mut self, _: usize, _: usize, _: &[Option<usize>]) {}
    fn exit(&mut self, _: usize, _: usize, _: &[Option<usize>]) {}
    fn id(&self, cpu: usize, _: usize) -> Option<u16> {
        Some(cpu as u16)
    }
}

/// 6.3: a running task has an id, which goes to the next task of the map, or the lowest free one.
#[derive(Default)]
struct Naive6_3 {
    of: BTreeMap<usize, u16>,
}

impl Naive for Naive6_3 {
    fn switch(&mut self, _: usize, from: Option<usize>, to: Option<usize>, _: &[Option<usize>]) {
        let had = from.and_then(|from| Some((map_of(from), self.of.remove(&from)?)));
        let Some(to) = to else { return };
        let of_map =
            self.of.iter().filter(|(task, _)| map_of(**task) == map_of(to)).map(|(_, id)| id);
        let id = match had {
            Some((map, id)) if map == map_of(to) => id,
            _ => lowest(of_map),
        };
        self.of.insert(to, id);
    }

    fn fork(&mut self, _: usize, _: usize, _: &[Option<usize>]) {}

    fn exit(&mut self, _: usize, task: usize, _: &[Option<usize>]) {
        self.of.remove(&task);
    }

    fn id(&self, _: usize, task: usize) -> Option<u16> {
        self.of.get(&task).copied()
    }
}

/// 6.4: a cpu keeps an id of each map. A task that moves takes its cpu's id along, if no task needs that. 6.14: a cpu
/// prefers the id that it had before, and new ids are used while there are fewer than tasks and cpus.
#[derive(Default)]
struct Naive6_4<const RECENT: bool> {
    recent: BTreeMap<(usize, usize), u16>,
    most: BTreeMap<usize, u16>,
    of_cpu: BTreeMap<(usize, usize), u16>,
    last: BTreeMap<usize, (usize, u16)>,
    exited: BTreeSet<usize>,
    forked: BTreeSet<usize>,
}

impl<const RECENT: bool> Naive6_4<RECENT> {
    fn users(&self, map: usize) -> usize {
        let exists = |task: usize| task < FIRST || self.forked.contains(&task);
        (0..TASKS)
            .filter(|&task| map_of(task) == map && exists(task) && !self.exited.contains(&task))
            .count()
    }

    fn allocate(&mut self, map: usize, cpu: usize) -> u16 {
        let used = self
            .of_cpu
            .iter()
            .filter(|((of, _), _)| *of == map)
            .map(|(_, &id)| id)
            .collect::<BTreeSet<_>>();
        if RECENT {
            let limit = self.users(map).min(CPUS) as u16;
            let most = self.most.entry(map).or_default();
            *most = limit.min(*most);
            let recent = self.recent.get(&(map, cpu)).copied();
            if let Some(recent) = recent.filter(|recent| recent < most && !used.contains(recent)) {
                return recent;
            }
            while *most < limit {
                *most += 1;
                if !used.contains(&(*most - 1)) {
                    return *most - 1;
                }
            }
        }
        lowest(used.iter())
    }
}

impl<const RECENT: bool> Naive for Naive6_4<RECENT> {
    fn switch(
        &mut self,
        cpu: usize,
        _: Option<usize>,
        to: Option<usize>,
        running: &[Option<usize>],
    ) {
        let Some(to) = to else { return };
        let map = map_of(to);
        let has_id = self.of_cpu.contains_key(&(map, cpu)) || self.recent.contains_key(&(map, cpu));
        let last = self.last.get(&to).copied().filter(|&(from, _)| from != cpu);
        if let Some((from, id)) = last.filter(|_| !has_id || self.users(map) < CPUS) {
            let needed = running[from].is_some_and(|task| map_of(task) == map);
            if self.of_cpu.get(&(map, from)) == Some(&id) && !needed {
                self.of_cpu.remove(&(map, from));
                self.recent.remove(&(map, from));
                if !has_id {
                    self.of_cpu.insert((map, cpu), id);
                }
            }
        }
        let id = self.of_cpu.get(&(map, cpu)).copied().unwrap_or_else(|| self.allocate(map, cpu));
        self.of_cpu.insert((map, cpu), id);
        if RECENT {
            self.recent.insert((map, cpu), id);
        }
        self.last.insert(to, (cpu, id));
    }

    fn fork(&mut self, _: usize, child: usize, _: &[Option<usize>]) {
        self.forked.insert(child);
    }

    fn exit(&mut self, cpu: usize, task: usize, _: &[Option<usize>]) {
        self.of_cpu.remove(&(map_of(task), cpu));
        self.last.remove(&task);
        self.exited.insert(task);
    }

    fn id(&self, _: usize, task: usize) -> Option<u16> {
        self.last.get(&task).map(|&(_, id)| id)
    }
}

/// 7.0: ids of tasks, or of cpus while there are too many tasks. The ids of tasks that run at a change belong to
/// neither, and go where the mode says when they are switched out.
#[derive(Default)]
struct Naive7_0 {
    maps: [Naive7_0Map; 2],
    forked: BTreeSet<usize>,
    exited: BTreeSet<usize>,
}

#[derive(Default)]
struct Naive7_0Map {
    by_cpu: bool,
    of_task: BTreeMap<usize, u16>,
    of_cpu: BTreeMap<usize, u16>,
    of_running: BTreeMap<usize, u16>,
    /// Tasks that ran last with an id of a cpu.
    ran_by_cpu: BTreeMap<usize, u16>,
}

const THRESHOLD: usize = 4;

impl Naive7_0 {
    fn users(&self, map: usize) -> usize {
        let exists = |task: usize| task < FIRST || self.forked.contains(&task);
        (0..TASKS)
            .filter(|&task| map_of(task) == map && exists(task) && !self.exited.contains(&task))
            .count()
    }

    fn limit(&self, map: usize) -> u16 {
        let optimal = self.users(map).min(CPUS);
        (optimal + optimal / 4).min(CPUS) as u16
    }

    fn allocate(&self, map: usize) -> u16 {
        let Naive7_0Map { of_task, of_cpu, of_running, .. } = &self.maps[map];
        lowest(of_task.values().chain(of_cpu.values()).chain(of_running.values()))
    }

    /// A lower id, if this one is above the limit and one below is free.
    fn converge(&self, map: usize, id: u16) -> u16 {
        let (limit, lower) = (self.limit(map), self.allocate(map));
        if id >= limit && lower < limit { lower } else { id }
    }
}

impl Naive for Naive7_0 {
    fn switch(&mut self, cpu: usize, from: Option<usize>, to: Option<usize>, _: &[Option<usize>]) {
        if let Some(from) = from {
            let limit = self.limit(map_of(from));
            let map = &mut self.maps[map_of(from)];
            if let Some(id) = map.of_running.remove(&from).filter(|&id| id < limit) {
                if map.by_cpu {
                    map.of_cpu.insert(cpu, id);
                    map.ran_by_cpu.insert(from, id);
                } else {
                    map.of_task.insert(from, id);
                }
            }
        }
        let Some(to) = to else { return };
        let map = map_of(to);
        let (owned, ran_by_cpu) = match self.maps[map].by_cpu {
            true => (
                self.maps[map].of_cpu.get(&cpu).copied(),
                self.maps[map].ran_by_cpu.contains_key(&to),
            ),
            false => (self.maps[map].of_task.get(&to).copied(), true),
        };
        let id = match owned {
            Some(id) if ran_by_cpu => self.converge(map, id),
            Some(id) => id,
            None => self.allocate(map),
        };
        let map = &mut self.maps[map];
        if map.by_cpu {
            map.of_cpu.insert(cpu, id);
            map.ran_by_cpu.insert(to, id);
        } else {
            map.of_task.insert(to, id);
        }
    }

    fn fork(&mut self, _: usize, child: usize, running: &[Option<usize>]) {
        self.forked.insert(child);
        let map = map_of(child);
        if self.maps[map].by_cpu {
            return;
        }
        if self.users(map) <= self.limit(map).into() {
            let id = self.allocate(map);
            self.maps[map].of_task.insert(child, id);
            return;
        }
        let map = &mut self.maps[map];
        map.by_cpu = true;
        let runs = |task: &usize| running.contains(&Some(*task));
        map.of_running
            .extend(std::mem::take(&mut map.of_task).into_iter().filter(|(task, _)| runs(task)));
    }

    fn exit(&mut self, cpu: usize, task: usize, running: &[Option<usize>]) {
        self.exited.insert(task);
        let users = self.users(map_of(task));
        let map = &mut self.maps[map_of(task)];
        map.of_task.remove(&task);
        map.of_running.remove(&task);
        map.ran_by_cpu.remove(&task);
        if map.by_cpu && users < THRESHOLD {
            map.by_cpu = false;
            map.ran_by_cpu.clear();
            for (of, id) in std::mem::take(&mut map.of_cpu) {
                let current =
                    running[of].filter(|&current| of != cpu && map_of(current) == map_of(task));
                map.of_running.extend(current.map(|current| (current, id)));
            }
        }
    }

    fn id(&self, cpu: usize, task: usize) -> Option<u16> {
        let map = &self.maps[map_of(task)];
        let owned = if map.by_cpu { map.of_cpu.get(&cpu) } else { map.of_task.get(&task) };
        map.of_running.get(&task).or(owned).copied().filter(|_| !self.exited.contains(&task))
    }
}

/// Runs the model and the rule, one event at a time.
fn compare<N: Naive, P: Policy<TASKS, CPUS>>(
    policy: P,
    choices: &[u16],
) -> Result<(), TestCaseError> {
    let model = Cids::<P, TASKS, CPUS> {
        policy,
        maps: MAPS,
        tasks: FIRST as u8,
        exits: true,
        running: false,
        allowed: CPUS as u8,
        confined: CPUS as u8,
        possible: CPUS as u8,
    };
    let mut naive = N::default();
    let mut state = model.initial();
    let mut steps: Vec<Step> = Vec::new();
    for &choice in choices {
        let before = model.running(&state).map(|running| running.map(|(task, _)| task));
        steps.clear();
        (0..CPUS as u8).for_each(|cpu| model.steps_of(&state, cpu, &mut steps));
        let exits = choice % 16 == 0;
        steps.retain(|step| [SWITCH, FORK].contains(&step.what) || step.what == EXIT && exits);
        if steps.is_empty() {
            continue;
        }
        let step = steps[usize::from(choice) % steps.len()];
        let cpu = usize::from(step.actor);
        // A task that has exited is left at once.
        let alive = before[cpu].filter(|&task| naive.id(cpu, task).is_some());
        match step.what {
            SWITCH => {
                naive.switch(cpu, alive, (step.with != IDLE).then_some(step.with.into()), &before)
            }
            FORK => naive.fork(cpu, step.with.into(), &before),
            _ => naive.exit(cpu, before[cpu].unwrap(), &before),
        }
        run(&model, &mut state, step);
        if step.what == EXIT {
            run(&model, &mut state, Step::must(step.actor, SWITCH).with(IDLE));
        }
        for (cpu, running) in model.running(&state).into_iter().enumerate() {
            let Some((task, id)) = running else { continue };
            prop_assert_eq!(id, naive.id(cpu, task), "cpu {}, task {} after {:?}", cpu, task, step);
        }
    }
    Ok(())
}

/// Takes the step, and all that follow from it.
fn run<P: Policy<TASKS, CPUS>>(
    model: &Cids<P, TASKS, CPUS>,
    state: &mut State<TASKS, CPUS>,
    step: Step,
) {
    let mut next = Some(step);
    let mut steps = Vec::new();
    while let Some(step) = next {
        model.take(state, step, &mut Costs::default()).unwrap();
        model.invariant(state).unwrap();
        steps.clear();
        model.steps_of(state, step.actor, &mut steps);
        next = steps.iter().copied().find(|step| step.kind == Kind::Must && step.what != SWITCH);
    }
}

/// Slots: a cpu gets the lowest one that no cpu of the map has, at the first use, and loses it when it is frozen.
fn compare_slots(choices: &[u16]) -> Result<(), TestCaseError> {
    let model = Cids::<Slots, TASKS, CPUS> {
        policy: Slots { freezes: 100, fault: None },
        maps: MAPS,
        tasks: FIRST as u8,
        exits: false,
        running: false,
        allowed: CPUS as u8,
        confined: CPUS as u8,
        possible: CPUS as u8,
    };
    let mut naive: BTreeMap<(usize, usize), u16> = BTreeMap::new();
    let mut state = model.initial();
    let mut steps: Vec<Step> = Vec::new();
    for &choice in choices {
        steps.clear();
        (0..CPUS as u8).for_each(|cpu| model.steps_of(&state, cpu, &mut steps));
        let step = steps[usize::from(choice) % steps.len()];
        let cpu = usize::from(step.actor);
        let map = model.running(&state)[cpu].map(|(task, _)| map_of(task));
        match (model.label(&state, step).function, map) {
            ("section", Some(map)) => {
                let used = naive.iter().filter(|((of, _), _)| *of == map).map(|(_, slot)| slot);
                let free = lowest(used);
                naive.entry((map, cpu)).or_insert(free);
            }
            ("Directory::revoke", Some(map)) => {
                naive.retain(|&(of, _), slot| of != map || *slot != u16::from(step.with))
            }
            _ => {}
        }
        run(&model, &mut state, step);
        for (map, cpu) in (0..2).flat_map(|map| (0..CPUS).map(move |cpu| (map, cpu))) {
            prop_assert_eq!(
                state.id_of_cpu(map, cpu),
                naive.get(&(map, cpu)).copied(),
                "after {:?}",
                step
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn slots(choices in choices()) {
        compare_slots(&choices)?;
    }

    #[test]
    fn cpu_ids(choices in choices()) {
        compare::<NaiveCpu, _>(CpuIds, &choices)?;
    }

    #[test]
    fn ids_of_6_3(choices in choices()) {
        compare::<Naive6_3, _>(V6_3 { keeps_twice: false }, &choices)?;
    }

    #[test]
    fn ids_of_6_4(choices in choices()) {
        compare::<Naive6_4<false>, _>(V6_4 { prefers_recent: false, waits: true, fault: None }, &choices)?;
    }

    #[test]
    fn ids_of_6_14(choices in choices()) {
        compare::<Naive6_4<true>, _>(V6_4 { prefers_recent: true, waits: true, fault: None }, &choices)?;
    }

    #[test]
    fn ids_of_7_0(choices in choices()) {
        compare::<Naive7_0, _>(V7_0 { threshold: Some(THRESHOLD as u8), fault: None }, &choices)?;
    }
}

fn choices() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..300)
}
