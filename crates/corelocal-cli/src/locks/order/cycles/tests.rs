//! Tests of `cycles.rs`.

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
    of(&edges(all), || false).cycles.into_iter().map(|cycle| (cycle.edges, cycle.gates)).collect()
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
    let ring = [(1, 2, &[][..]), (2, 3, &[]), (3, 1, &[]), (5, 4, &[]), (4, 5, &[]), (3, 4, &[])];
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
    let Found { cycles, has_ended_early, .. } = of(&ring, || false);
    assert_eq!((cycles.len(), cycles[0].edges.len()), (1, 1000));
    assert!(cycles[0].gates.is_empty() && !has_ended_early);
}

/// As many as a record has room for: 256 threads, each of which holds 8 and waits for the next one's 8.
fn worst() -> Vec<Edge> {
    let edge = |thread: u64, held: u64, wanted: u64| Edge {
        from: thread * 8 + held,
        to: (thread + 1) % 256 * 8 + wanted,
        gates: Vec::new(),
    };
    let all = (0..256 * 64).map(|nth| edge(nth / 64, nth / 8 % 8, nth % 8));
    all.collect()
}

#[test]
fn a_search_is_bounded() {
    let edges = worst();
    let mut found = of(&edges, || false);
    assert!(found.looks <= MOST_LOOKS && found.has_ended_early, "{} looks", found.looks);
    assert!(!found.cycles.is_empty());
    let steps = |found: &Found| found.cycles.iter().map(|it| it.edges.len()).sum::<usize>();
    assert!(steps(&found) <= found.looks);
    let all = found.cycles.len();
    found.keep(usize::MAX, 600);
    assert_eq!((found.cycles.len(), found.left_out, steps(&found)), (2, all - 2, 512));
    found.keep(1, usize::MAX);
    assert_eq!((found.cycles.len(), found.left_out), (1, all - 1));
    // The first one has room.
    found.keep(1, 10);
    assert_eq!((found.cycles.len(), found.left_out), (1, all - 1));
    found.keep(0, 10);
    assert_eq!((found.cycles.len(), found.left_out), (0, all));
}

#[test]
fn a_search_ends_when_it_is_to() {
    let asked = std::cell::Cell::new(0);
    let is_to_end = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    let found = of(&worst(), is_to_end);
    assert!(found.has_ended_early && found.cycles.len() <= 3 && asked.get() == 4);
    // Each of them begins at one edge, and comes by each edge once at most.
    assert!(found.looks <= 3 * 256 * 64, "{}", found.looks);
}
