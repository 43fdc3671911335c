//! The number of states agrees with that of another model checker on the same model.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;

use corelocal_lab::sim::cid::{Cids, V6_3, V7_0};
use corelocal_lab::sim::explore::{Limits, explore};
use corelocal_lab::sim::futex::{ANY, Age, Futexes, Kernel, Mapping, Op, Scope};
use corelocal_lab::sim::pvclock::{PER_CPU, Pvclock, STABLE_INSIDE, WRITES, WRITES_2015};
use corelocal_lab::sim::{Costs, Model, Step};
use stateright::{Checker, Property};

/// A model of ours as one of stateright's.
struct Ours<M>(M);

/// A state, without the `Debug` that stateright wants for its own diagrams.
#[derive(Clone, PartialEq, Eq)]
struct State<S>(S);

impl<S: Hash> Hash for State<S> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

impl<S> fmt::Debug for State<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl<M: Model + 'static> stateright::Model for Ours<M> {
    type State = State<M::State>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State(self.0.initial())]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Step>) {
        (0..self.0.actors().len() as u8)
            .for_each(|actor| self.0.steps_of(&state.0, actor, actions));
    }

    fn next_state(&self, state: &Self::State, step: Step) -> Option<Self::State> {
        let mut after = state.clone();
        self.0.take(&mut after.0, step, &mut Costs::default()).expect("the model is correct");
        Some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("is correct", |model: &Self, state: &Self::State| {
            model.0.invariant(&state.0).is_ok()
        })]
    }
}

fn agrees<M: Model + Clone + Send + Sync + 'static>(model: M) -> usize
where
    M::State: Send + Sync,
{
    let ours = explore(&model, Limits { symmetry: false, ..Limits::default() }, &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(ours.failure.is_none());
    let theirs = stateright::Model::checker(Ours(model)).spawn_bfs().join();
    theirs.assert_properties();
    assert_eq!(ours.progress.states, theirs.unique_state_count());
    ours.progress.states
}

#[test]
fn pvclock_has_as_many_states() {
    let page_0 = Pvclock {
        writes: WRITES,
        wait_for_all: true,
        adjusts: false,
        may_die: false,
        reader: STABLE_INSIDE,
        updates: 2,
    };
    assert!(agrees(page_0) > 1_000);
    assert!(
        agrees(Pvclock { writes: WRITES_2015, wait_for_all: false, reader: PER_CPU, ..page_0 })
            > 10_000
    );
    assert!(agrees(Pvclock { wait_for_all: false, adjusts: true, ..page_0 }) > 10_000);
}

#[test]
fn ids_have_as_many_states() {
    let small = |policy| Cids::<V6_3, 3, 2> {
        policy,
        maps: [0, 0, 1],
        tasks: 3,
        exits: true,
        running: false,
        allowed: 2,
        confined: 2,
        possible: 2,
    };
    assert!(agrees(small(V6_3 { keeps_twice: false })) > 1_000);
    let flip = Cids::<V7_0, 3, 2> {
        policy: V7_0 { threshold: None, fault: None },
        maps: [0; 3],
        tasks: 2,
        exits: false,
        running: false,
        allowed: 2,
        confined: 2,
        possible: 2,
    };
    assert!(agrees(flip) > 10_000);
}

#[test]
fn futexes_have_as_many_states() {
    let waiter = || vec![Op::WaitWhile(0, 0, Scope::Private)];
    let waker = vec![Op::Store(0, 1), Op::Wake(0, 2, ANY, Scope::Private)];
    for age in [Age::Private, Age::PerProcess] {
        let model = Futexes {
            kernel: Kernel::of(age),
            processes: [0; 3],
            programs: [waiter(), waiter(), waker.clone()],
            mappings: [Mapping::Anonymous; 3],
            store_buffers: true,
            timeouts: true,
        };
        assert!(agrees(model) > 1_000);
    }
}
