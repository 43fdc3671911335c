//! Cycles in a graph: for each edge that is in one, the shortest.
//!
//! Threads that go along the edges of a cycle can end up waiting for each other, unless there is a gate: something that
//! all of them hold meanwhile, so that one goes at a time.
//!
//! Invariants: a cycle visits no node twice, and is found once, whichever of its edges it was found by. One without a
//! gate is preferred.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// From one node to another one.
pub struct Edge {
    pub from: u64,
    pub to: u64,
    /// What is held meanwhile.
    pub gates: Vec<u64>,
}

/// Edges of which each one ends where the next one begins, and the last one where the first one does.
#[derive(Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Places in the list of edges.
    pub edges: Vec<usize>,
    /// What is held along all of them.
    pub gates: Vec<u64>,
}

/// The cycles: those without gates first, and shorter ones.
pub fn of(edges: &[Edge]) -> Vec<Cycle> {
    let mut leaving: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, edge) in edges.iter().enumerate() {
        leaving.entry(edge.from).or_default().push(at);
    }
    let mut known = BTreeSet::new();
    let mut cycles = Vec::new();
    for first in 0..edges.len() {
        let path = shortest(edges, &leaving, first, true).filter(|path| is_simple(edges, path));
        let Some(mut path) = path.or_else(|| shortest(edges, &leaving, first, false)) else {
            continue;
        };
        // It begins with the edge that was there first.
        let start = path.iter().enumerate().min_by_key(|(_, edge)| **edge).map_or(0, |(at, _)| at);
        path.rotate_left(start);
        if known.insert(path.clone()) {
            cycles.push(Cycle { gates: gates(edges, &path), edges: path });
        }
    }
    cycles.sort_by_key(|cycle| (!cycle.gates.is_empty(), cycle.edges.len(), cycle.edges.clone()));
    cycles
}

/// A node, and those of the first edge's gates that are held along all of the way there.
type Place = (u64, u8);

/// The shortest way from an edge back to its beginning; with a gate along all of it only if `is_free` is false.
fn shortest(
    edges: &[Edge],
    leaving: &BTreeMap<u64, Vec<usize>>,
    first: usize,
    is_free: bool,
) -> Option<Vec<usize>> {
    let gates = &edges[first].gates;
    // Which of the first edge's gates are held along an edge too.
    let mask = |edge: &Edge| {
        let bits = gates.iter().take(8).enumerate();
        bits.filter(|(_, gate)| edge.gates.contains(gate))
            .fold(0_u8, |mask, (at, _)| mask | 1 << at)
    };
    let (start, goal) = (&edges[first], edges[first].from);
    let begin = (start.to, if is_free { mask(start) } else { 0 });
    // By which edge, and from where.
    let mut came: BTreeMap<Place, Option<(usize, Place)>> = BTreeMap::from([(begin, None)]);
    let mut queue = VecDeque::from([begin]);
    while let Some(here) = queue.pop_front() {
        // Who locks what it holds waits for itself, whatever else it holds.
        if here.0 == goal && (here.1 == 0 || start.from == start.to) {
            let mut path = Vec::new();
            let mut at = here;
            while let Some((edge, before)) = came[&at] {
                path.push(edge);
                at = before;
            }
            path.push(first);
            path.reverse();
            return Some(path);
        }
        for &next in leaving.get(&here.0).into_iter().flatten() {
            let there = (edges[next].to, here.1 & mask(&edges[next]));
            if let Entry::Vacant(fresh) = came.entry(there) {
                fresh.insert(Some((next, here)));
                queue.push_back(there);
            }
        }
    }
    None
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
mod tests {
    use super::*;

    fn edges(all: &[(u64, u64, &[u64])]) -> Vec<Edge> {
        let edge = |(from, to, gates): &(u64, u64, &[u64])| Edge {
            from: *from,
            to: *to,
            gates: gates.to_vec(),
        };
        all.iter().map(edge).collect()
    }

    fn found(all: &[(u64, u64, &[u64])]) -> Vec<(Vec<usize>, Vec<u64>)> {
        of(&edges(all)).into_iter().map(|cycle| (cycle.edges, cycle.gates)).collect()
    }

    #[test]
    fn orders_that_agree_are_no_cycle() {
        assert!(found(&[]).is_empty());
        assert!(found(&[(1, 2, &[]), (2, 3, &[]), (1, 3, &[])]).is_empty());
    }

    #[test]
    fn each_is_found_once_and_the_shortest_first() {
        assert_eq!(found(&[(1, 1, &[9])]), [(vec![0], vec![])]);
        assert_eq!(found(&[(2, 1, &[]), (1, 2, &[])]), [(vec![0, 1], vec![])]);
        let ring =
            [(1, 2, &[][..]), (2, 3, &[]), (3, 1, &[]), (5, 4, &[]), (4, 5, &[]), (3, 4, &[])];
        assert_eq!(found(&ring), [(vec![3, 4], vec![]), (vec![0, 1, 2], vec![])]);
        // Two that share an edge.
        let both = [(1, 2, &[][..]), (2, 1, &[]), (2, 3, &[]), (3, 1, &[])];
        assert_eq!(found(&both), [(vec![0, 1], vec![]), (vec![0, 2, 3], vec![])]);
    }

    #[test]
    fn a_gate_along_all_of_it_is_named() {
        assert_eq!(found(&[(1, 2, &[8, 9]), (2, 1, &[9])]), [(vec![0, 1], vec![9])]);
        assert_eq!(found(&[(1, 2, &[8]), (2, 1, &[9])]), [(vec![0, 1], vec![])]);
        // The longer way round has none.
        let ways = [(1, 2, &[9][..]), (2, 1, &[9]), (2, 3, &[]), (3, 1, &[9])];
        assert_eq!(found(&ways), [(vec![0, 2, 3], vec![]), (vec![0, 1], vec![9])]);
    }

    #[test]
    fn large_ones_take_no_time() {
        let mut ring: Vec<Edge> = (0..1000)
            .map(|at| Edge { from: at, to: (at + 1) % 1000, gates: vec![7, 8, 9, 10] })
            .collect();
        ring[500].gates.clear();
        let cycles = of(&ring);
        assert_eq!((cycles.len(), cycles[0].edges.len()), (1, 1000));
        assert!(cycles[0].gates.is_empty());
    }
}
