//! Livelocks: cycles of steps that are no progress, which go on for ever under weak fairness.
//!
//! Weak fairness: an actor that must take a step, and could in every state of the cycle, takes one. So a cycle is no
//! livelock if such an actor takes no step in it: the actor would end it.
//!
//! A cycle without progress has steps of kind `Retry` only. Strongly connected components of the graph of these steps
//! are enough: an actor that could go on in every state of the component could so in every state of each cycle
//! within.

use super::explore::Search;
use super::{Kind, Model, Step, steps};

/// Returns the first state of a livelock, and its steps.
pub(super) fn find<M: Model>(search: &Search<M>) -> Option<(usize, Vec<Step>)> {
    let components = Components::of(&search.retries, search.states.len());
    let mut edges: Vec<(u32, u32, Step)> = Vec::new();
    for &(from, to, step) in &search.retries {
        if components.of[from as usize] == components.of[to as usize] {
            edges.push((components.of[from as usize], from, step));
        }
    }
    edges.sort_by_key(|&(component, from, _)| (component, from));
    let by_component = edges.chunk_by(|a, b| a.0 == b.0);
    by_component.filter(|edges| is_fair(search, edges)).min_by_key(|edges| edges[0].1).map(
        |edges| {
            let first = edges[0].1 as usize;
            (first, edges.iter().map(|edge| edge.2).collect())
        },
    )
}

/// Returns `true` if no actor that must go on, and could in every state, is left out.
fn is_fair<M: Model>(search: &Search<M>, edges: &[(u32, u32, Step)]) -> bool {
    let mut could: Vec<bool> = vec![true; search.actors.into()];
    edges.iter().for_each(|edge| could[usize::from(edge.2.actor)] = false);
    let mut possible = Vec::new();
    for states in edges.chunk_by(|a, b| a.1 == b.1) {
        steps(search.model, search.actors, &search.states[states[0].1 as usize], &mut possible);
        for (actor, could) in could.iter_mut().enumerate() {
            let goes_on = |step: &Step| usize::from(step.actor) == actor && step.kind == Kind::Must;
            *could &= possible.iter().any(goes_on);
        }
    }
    !could.contains(&true)
}

/// Strongly connected components, by Tarjan's algorithm without recursion.
struct Components {
    /// The number of each state's component.
    of: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Components {
    fn of(edges: &[(u32, u32, Step)], states: usize) -> Components {
        // The explorer appends the steps of a state when it looks at the state, so they are sorted.
        let mut first = vec![0; states + 1];
        edges.iter().for_each(|edge| first[edge.0 as usize + 1] += 1);
        (1..first.len()).for_each(|at| first[at] += first[at - 1]);
        let (mut order, mut low, mut of) =
            (vec![NONE; states], vec![NONE; states], vec![NONE; states]);
        let (mut next, mut found) = (0, 0);
        let (mut open, mut work) = (Vec::new(), Vec::new());
        for root in 0..states {
            if order[root] != NONE || first[root] == first[root + 1] {
                continue;
            }
            work.push((root, first[root]));
            while let Some((state, edge)) = work.pop() {
                if edge == first[state] && order[state] == NONE {
                    (order[state], low[state]) = (next, next);
                    next += 1;
                    open.push(state);
                }
                if edge < first[state + 1] {
                    let to = edges[edge].1 as usize;
                    work.push((state, edge + 1));
                    if order[to] == NONE {
                        work.push((to, first[to]));
                    } else if of[to] == NONE {
                        low[state] = low[state].min(order[to]);
                    }
                    continue;
                }
                if low[state] == order[state] {
                    while let Some(member) = open.pop() {
                        of[member] = found;
                        if member == state {
                            break;
                        }
                    }
                    found += 1;
                }
                if let Some(&(before, _)) = work.last() {
                    low[before] = low[before].min(low[state]);
                }
            }
        }
        Components { of }
    }
}
