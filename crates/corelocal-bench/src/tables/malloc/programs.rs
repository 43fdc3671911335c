//! Loads of programs of one thread that live on small objects: a scripting language that builds binary trees, and a term
//! rewriter.
//!
//! Invariants:
//! 1. Each gives back all that it took.
//! 2. Each proves by a sum that its objects kept their contents.

use std::time::Instant;

use anyhow::ensure;

use super::did::Did;
use super::heap::{Piece, Random, give, take};

/// A node of a tree as a scripting language has it: a header with a list of all objects, and a part of its own for the two
/// children.
const HEADER: usize = 56;
const PART: usize = 32;
/// Nodes of a tree: of depth 10.
const NODES: usize = (1 << 11) - 1;

/// Reads a word of a piece.
///
/// # Safety
/// - The piece has so many words, and the word was written.
unsafe fn word(piece: Piece, nth: usize) -> u64 {
    // SAFETY: by the contract.
    unsafe { piece.into_word().cast::<u64>().add(nth).read() }
}

/// Writes a word of a piece.
///
/// # Safety
/// - The piece has so many words, and is not shared.
unsafe fn set_word(piece: Piece, nth: usize, value: u64) {
    // SAFETY: by the contract.
    unsafe { piece.into_word().cast::<u64>().add(nth).write(value) };
}

/// Builds binary trees from the bottom, adds up their nodes, and sweeps them: newest first, as a collector does that keeps
/// a list of all objects. Three trees live at a time.
///
/// # Errors
/// A sum is wrong.
pub fn trees(times: u64) -> anyhow::Result<Did> {
    let rounds = (times / (2 * NODES as u64)).max(1);
    let began = Instant::now();
    let mut lists = [Piece::NONE; 3];
    for round in 0..rounds {
        let oldest = round as usize % lists.len();
        sweep(std::mem::replace(&mut lists[oldest], Piece::NONE));
        let mut list = Piece::NONE;
        let root = tree(10, &mut list);
        ensure!(sum(root) == NODES as u64, "a tree lost a node");
        lists[oldest] = list;
    }
    lists.into_iter().for_each(sweep);
    Ok(Did::alone(2 * NODES as u64 * rounds, began.elapsed()))
}

/// Returns a tree of this depth, whose objects are put on the list.
fn tree(depth: u32, list: &mut Piece) -> Piece {
    let children = match depth {
        0 => [Piece::NONE; 2],
        depth => [tree(depth - 1, list), tree(depth - 1, list)],
    };
    let (header, part) = (take(HEADER), take(PART));
    // SAFETY: both are new, of seven and four words.
    unsafe {
        set_word(header, 0, list.into_word() as u64);
        set_word(header, 1, part.into_word() as u64);
        set_word(header, 2, 1);
        children.iter().enumerate().for_each(|(nth, child)| {
            set_word(part, nth, child.into_word() as u64);
        });
    }
    *list = header;
    header
}

fn sum(node: Piece) -> u64 {
    if !node.is_some() {
        return 0;
    }
    // SAFETY: `tree` wrote these words.
    unsafe {
        let part = Piece::from_word(word(node, 1) as *mut u8);
        let children = [0, 1].map(|nth| Piece::from_word(word(part, nth) as *mut u8));
        word(node, 2) + sum(children[0]) + sum(children[1])
    }
}

fn sweep(mut list: Piece) {
    while list.is_some() {
        // SAFETY: `tree` wrote the words; each object is on one list once.
        unsafe {
            let (next, part) = (word(list, 0), word(list, 1));
            give(Piece::from_word(part as *mut u8));
            give(list);
            list = Piece::from_word(next as *mut u8);
        }
    }
}

/// Terms that live at a time.
const TERMS: usize = 20_000;

/// Rewrites terms: of many live ones a random one is replaced by one of another size, its arguments are copied, and now and
/// then a vector of terms grows and goes. An operation is an object.
///
/// # Errors
/// A term has another content than it got.
pub fn rewriter(times: u64) -> anyhow::Result<Did> {
    let mut random = Random::new(5);
    // A header of two words, and up to eight arguments.
    let size = |random: &mut Random| 16 + 8 * (1 + random.below(8));
    let term = |size: usize, value: u64| {
        let piece = take(size);
        // SAFETY: new, of three words at least.
        unsafe {
            set_word(piece, 0, size as u64);
            (1..size / 8).for_each(|nth| set_word(piece, nth, value));
        }
        piece
    };
    let mut terms: Vec<Piece> =
        (0..TERMS as u64).map(|value| term(size(&mut random), value)).collect();
    let mut is_right = true;
    let began = Instant::now();
    let mut ops = 0;
    while ops < times {
        let at = random.below(TERMS);
        let old = terms[at];
        // SAFETY: a live term: its first word is its size, and the others have its value.
        unsafe {
            let (words, value) = (word(old, 0) as usize / 8, at as u64);
            is_right &= word(old, words - 1) == value;
            give(old);
        }
        terms[at] = term(size(&mut random), at as u64);
        ops += 1;
        if ops % 16 == 0 {
            // Arguments that are collected, and dropped again.
            let some: Vec<Piece> = (0..6).map(|nth| term(24 + 16 * nth, nth as u64)).collect();
            // SAFETY: made above.
            some.into_iter().for_each(|term| unsafe { give(term) });
            ops += 6;
        }
    }
    let wall = began.elapsed();
    // SAFETY: live terms.
    terms.into_iter().for_each(|term| unsafe { give(term) });
    ensure!(is_right, "a term has another content than it got");
    Ok(Did::alone(ops, wall))
}
