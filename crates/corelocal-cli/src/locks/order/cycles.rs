//! Cycles in a graph: for each edge that is in one, the shortest.
//!
//! Threads that go along the edges of a cycle can end up waiting for each other, unless there is a gate: something that
//! all of them hold meanwhile, so that one goes at a time.
//!
//! Invariants:
//! - A cycle visits no node twice, and is found once, whichever of its edges it was found by. One without a gate is
//!   preferred.
//! - A search looks at [`MOST_LOOKS`] edges at most, whatever the graph: another process may have made it up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most looks of a search at edges. One that begins at each of 1024 pairs, and comes by all of them twice, ends
/// before that.
pub const MOST_LOOKS: usize = 1 << 22;

/// The number of an edge's gates that count.
const MOST_GATES: usize = 8;

/// An edge of the graph: `to` was locked while `from` was held.
pub struct Edge {
    pub from: u64,
    pub to: u64,
    /// The other mutexes that were held meanwhile.
    pub gates: Vec<u64>,
}

/// A closed walk: each edge ends where the next one begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The indices of its edges.
    pub edges: Vec<usize>,
    /// The mutexes that are held along all edges.
    pub gates: Vec<u64>,
}

/// The result of a search.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The cycles: those without gates first, shorter ones before longer ones.
    pub cycles: Vec<Cycle>,
    /// The number of cycles that were found and are no longer in the list.
    pub left_out: usize,
    /// The search ended early, so there may be more.
    pub has_ended_early: bool,
    /// The number of edges that were examined.
    pub looks: usize,
}

impl Found {
    /// Keeps so many cycles, and so many edges of them in all; at least one cycle, if there is any and one may be kept.
    pub fn keep(&mut self, most: usize, mut edges: usize) {
        let fits = self.cycles.iter().take(most).enumerate().take_while(|(at, cycle)| {
            let left = edges.checked_sub(cycle.edges.len());
            edges = left.unwrap_or(0);
            left.is_some() || *at == 0
        });
        let fits = fits.count();
        self.left_out += self.cycles.len() - fits;
        self.cycles.truncate(fits);
    }
}

/// Returns the cycles. The search ends early if `is_to_end` says so.
pub fn of(edges: &[Edge], is_to_end: impl Fn() -> bool) -> Found {
    let mut search = Search::of(edges);
    let (mut known, mut found) = (BTreeSet::new(), Found::default());
    for first in 0..edges.len() {
        if is_to_end() || search.left == 0 {
            found.has_ended_early = true;
            break;
        }
        let has_gates = !edges[first].gates.is_empty();
        let path = search.shortest(first, true).filter(|path| is_simple(edges, path));
        // Without gates it would be the same search.
        let path = path.or_else(|| if has_gates { search.shortest(first, false) } else { None });
        let Some(mut path) = path else {
            continue;
        };
        // It begins with the edge that was there first.
        let start = path.iter().enumerate().min_by_key(|(_, edge)| **edge).map_or(0, |(at, _)| at);
        path.rotate_left(start);
        if known.insert(path.clone()) {
            found.cycles.push(Cycle { gates: gates(edges, &path), edges: path });
        }
    }
    found.looks = MOST_LOOKS - search.left;
    let order = |cycle: &Cycle| (!cycle.gates.is_empty(), cycle.edges.len());
    found.cycles.sort_by(|one, other| {
        order(one).cmp(&order(other)).then_with(|| one.edges.cmp(&other.edges))
    });
    found
}

/// A node, and those of the first edge's gates that are held along all of the way there: bits.
type Place = (usize, u8);

/// The way in which a search reached a place.
#[derive(Clone, Copy)]
struct Came {
    /// The number of the search, from 1 on.
    search: u32,
    /// The edge by which it came, and the place before; `None` at the start.
    by: Option<(usize, Place)>,
}

/// The state of searches in one graph.
struct Search<'a> {
    edges: &'a [Edge],
    /// The two nodes of each edge, as indices into `leaving`.
    ends: Vec<(usize, usize)>,
    /// The edges that leave a node.
    leaving: Vec<Vec<usize>>,
    /// Visit marks, by node and gate set.
    came: Vec<Came>,
    sets: usize,
    search: u32,
    /// The number of edges that may still be examined.
    left: usize,
}

impl<'a> Search<'a> {
    fn of(edges: &'a [Edge]) -> Search<'a> {
        let mut nodes: BTreeMap<u64, usize> = BTreeMap::new();
        let mut number = |node: u64| {
            let next = nodes.len();
            *nodes.entry(node).or_insert(next)
        };
        let ends: Vec<(usize, usize)> =
            edges.iter().map(|edge| (number(edge.from), number(edge.to))).collect();
        let mut leaving = vec![Vec::new(); nodes.len()];
        for (at, (from, _)) in ends.iter().enumerate() {
            leaving[*from].push(at);
        }
        let gates = edges.iter().map(|edge| edge.gates.len()).max().unwrap_or(0).min(MOST_GATES);
        let sets = 1 << gates;
        let came = vec![Came { search: 0, by: None }; nodes.len() * sets];
        Search { edges, ends, leaving, came, sets, search: 0, left: MOST_LOOKS }
    }

    /// Returns the shortest way from an edge back to its beginning; with a gate along all of it only if `is_free` is
    /// false.
    fn shortest(&mut self, first: usize, is_free: bool) -> Option<Vec<usize>> {
        let edges = self.edges;
        let gates = &edges[first].gates;
        // Which of the first edge's gates are held along an edge too.
        let mask = |edge: &Edge| {
            let bits = gates.iter().take(MOST_GATES).enumerate();
            bits.filter(|(_, gate)| edge.gates.contains(gate))
                .fold(0_u8, |mask, (at, _)| mask | 1 << at)
        };
        self.search += 1;
        let (goal, start) = self.ends[first];
        let begin = (start, if is_free { mask(&edges[first]) } else { 0 });
        self.come(begin, None);
        let mut queue = VecDeque::from([begin]);
        while let Some(here) = queue.pop_front() {
            // A thread that locks what it holds waits for itself, whatever else it holds.
            if here.0 == goal && (here.1 == 0 || start == goal) {
                return Some(self.path(first, here));
            }
            for at in 0..self.leaving[here.0].len() {
                self.left = self.left.checked_sub(1)?;
                let next = self.leaving[here.0][at];
                let there = (self.ends[next].1, here.1 & mask(&edges[next]));
                if self.come(there, Some((next, here))) {
                    queue.push_back(there);
                }
            }
        }
        None
    }

    /// Returns `true` if this search comes to a place for the first time.
    fn come(&mut self, place: Place, by: Option<(usize, Place)>) -> bool {
        let search = self.search;
        let came = &mut self.came[place.0 * self.sets + usize::from(place.1)];
        let is_first = came.search != search;
        if is_first {
            *came = Came { search, by };
        }
        is_first
    }

    /// Returns the way from an edge to a place.
    fn path(&self, first: usize, to: Place) -> Vec<usize> {
        let (mut path, mut at) = (Vec::new(), to);
        while let Some((edge, before)) = self.came[at.0 * self.sets + usize::from(at.1)].by {
            path.push(edge);
            at = before;
        }
        path.push(first);
        path.reverse();
        path
    }
}

fn is_simple(edges: &[Edge], path: &[usize]) -> bool {
    let nodes: BTreeSet<u64> = path.iter().map(|edge| edges[*edge].from).collect();
    nodes.len() == path.len()
}

fn gates(edges: &[Edge], path: &[usize]) -> Vec<u64> {
    let all = path.iter().map(|edge| &edges[*edge]);
    match path {
        [_] => Vec::new(),
        [first, ..] => {
            let mut gates = edges[*first].gates.clone();
            all.for_each(|edge| gates.retain(|gate| edge.gates.contains(gate)));
            gates
        }
        [] => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
