//! Areas in random scripts, beside a naive model.

use corelocal::cid;
use corelocal::percpu::Area;
use corelocal::percpu::area::{Cell, Error};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Take,
    Drop(usize),
    Forget(usize),
    Add(usize, usize, u64),
    AddFetch(usize, usize, u64),
    Exchange(usize, usize, u64),
    Store(usize, usize, u64, u64),
    Update(usize, usize, u64),
    FrozenWord(usize, usize, u32, u64),
    FrozenCell(usize, u32, [u64; 3]),
    DrainWord(usize, usize),
    DrainCell(usize),
    Freeze(u32),
    Trim,
}

fn op() -> impl Strategy<Value = Op> {
    let (cell, word, n, slot) = (0..8usize, 0..3usize, 0..50u64, 0..4u32);
    let at = (cell.clone(), word);
    prop_oneof![
        6 => Just(Op::Take),
        2 => cell.clone().prop_map(Op::Drop),
        1 => cell.clone().prop_map(Op::Forget),
        4 => (at.clone(), n.clone()).prop_map(|((c, w), n)| Op::Add(c, w, n)),
        4 => (at.clone(), n.clone()).prop_map(|((c, w), n)| Op::AddFetch(c, w, n)),
        4 => (at.clone(), n.clone()).prop_map(|((c, w), n)| Op::Exchange(c, w, n)),
        4 => (at.clone(), n.clone(), n.clone()).prop_map(|((c, w), e, n)| Op::Store(c, w, e, n)),
        4 => (at.clone(), n.clone()).prop_map(|((c, w), n)| Op::Update(c, w, n)),
        2 => (at.clone(), slot.clone(), n.clone())
            .prop_map(|((c, w), s, n)| Op::FrozenWord(c, w, s, n)),
        2 => (cell.clone(), slot.clone(), [n.clone(), n.clone(), n])
            .prop_map(|(c, s, n)| Op::FrozenCell(c, s, n)),
        1 => at.prop_map(|(c, w)| Op::DrainWord(c, w)),
        1 => cell.prop_map(Op::DrainCell),
        2 => slot.prop_map(Op::Freeze),
        1 => Just(Op::Trim),
    ]
}

/// What the cores have of one word of a cell, but for those that have what they had from the beginning.
#[derive(Clone, Debug, PartialEq)]
struct Bag {
    initial: u64,
    words: Vec<u64>,
}

impl Bag {
    /// Takes one word for another; the initial one is there as often as you like.
    fn replace(&mut self, old: u64, new: u64) -> bool {
        if old != self.initial {
            let Some(at) = self.words.iter().position(|word| *word == old) else { return false };
            self.words.remove(at);
        }
        if new != self.initial {
            self.words.push(new);
        }
        self.words.sort_unstable();
        true
    }
}

fn bags(cell: &Cell<'_, 3>, image: [u64; 3]) -> [Bag; 3] {
    [0, 1, 2].map(|word| {
        let initial = image[word];
        let mut words: Vec<u64> =
            cell.iter().map(|(_, words)| words[word]).filter(|word| *word != initial).collect();
        words.sort_unstable();
        Bag { initial, words }
    })
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each operation changes one word of one cell, and in the way it says; a cell that was just taken holds
    /// the image; and what is counted is right.
    #[test]
    fn behaves_like_bags_of_integers(
        script in proptest::collection::vec(op(), 1..80),
        image in proptest::array::uniform3(0..3u64),
        is_poisoned in any::<bool>(),
        limit in 1..10u64,
    ) {
        let area: Area<3> = Area::with_image(image).poison(is_poisoned).limit(limit);
        let mut cells: Vec<(Cell<'_, 3>, [Bag; 3])> = Vec::new();
        let (mut forgotten, mut peak) = (0, 0);
        for op in script {
            let len = cells.len().max(1);
            let at = |cell: usize| cell % len;
            match op {
                Op::Take => {
                    let given = cells.len() as u64 + forgotten;
                    match area.take() {
                        Ok(cell) => {
                            prop_assert!(given < limit);
                            cells.push((cell, image.map(|initial| Bag { initial, words: Vec::new() })));
                            peak = peak.max(given + 1);
                        }
                        Err(error) => {
                            prop_assert_eq!(error, Error::Full { limit });
                            prop_assert_eq!(given, limit);
                        }
                    }
                }
                _ if cells.is_empty() => {}
                Op::Drop(cell) => drop(cells.swap_remove(at(cell))),
                Op::Forget(cell) => {
                    std::mem::forget(cells.swap_remove(at(cell)).0);
                    forgotten += 1;
                }
                Op::Add(cell, word, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let before = bags(cell, image);
                    cell.word(word).unwrap().add(n);
                    // Which one it was is not told.
                    let olds = before[word].words.iter().copied().chain([image[word]]);
                    let after = bags(cell, image);
                    let is_one = |old: u64| {
                        let mut bag = model[word].clone();
                        bag.replace(old, old + n) && bag == after[word]
                    };
                    let mut olds = olds.filter(|old| is_one(*old));
                    let old = olds.next();
                    prop_assert!(old.is_some());
                    prop_assert!(model[word].replace(old.unwrap(), old.unwrap() + n));
                }
                Op::AddFetch(cell, word, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let (part, new) = cell.word(word).unwrap().add_fetch_at(n);
                    prop_assert!(model[word].replace(new - n, new));
                    prop_assert!(cell.iter().any(|(of, words)| of == part && words[word] == new));
                }
                Op::Exchange(cell, word, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let old = cell.word(word).unwrap().exchange(n);
                    prop_assert!(model[word].replace(old, n));
                }
                Op::Store(cell, word, expected, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    if cell.word(word).unwrap().store_if_equal(expected, n).is_ok() {
                        prop_assert!(model[word].replace(expected, n));
                    }
                }
                Op::Update(cell, word, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let update = |word: u64| (word < 1000).then_some(word + n);
                    if let Ok(old) = cell.word(word).unwrap().fetch_update(update) {
                        prop_assert!(model[word].replace(old, old + n));
                    }
                }
                Op::FrozenWord(cell, word, slot, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let replace = |word: &mut u64| std::mem::replace(word, n);
                    let old = cell.word(word).unwrap().with_frozen(slot, replace);
                    if let Ok(old) = old {
                        prop_assert!(model[word].replace(old, n));
                    }
                }
                Op::FrozenCell(cell, slot, n) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let replace = |words: &mut [u64; 3]| std::mem::replace(words, n);
                    if let Ok(old) = cell.with_frozen(slot, replace) {
                        for word in 0..3 {
                            prop_assert!(model[word].replace(old[word], n[word]));
                        }
                    }
                }
                Op::DrainWord(cell, word) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let mut taken = Vec::new();
                    let drained = cell.word(word).unwrap().drain(|_, word| taken.push(word));
                    prop_assert!(drained.is_ok());
                    taken.sort_unstable();
                    prop_assert_eq!(taken, std::mem::take(&mut model[word].words));
                }
                Op::DrainCell(cell) => {
                    let (cell, model) = &mut cells[at(cell)];
                    let mut taken = Vec::new();
                    prop_assert!(cell.drain(|_, words| taken.push(words)).is_ok());
                    for word in 0..3 {
                        let changed = |words: &[u64; 3]| words[word];
                        let mut taken: Vec<u64> = taken.iter().map(changed).collect();
                        taken.retain(|taken| *taken != image[word]);
                        taken.sort_unstable();
                        prop_assert_eq!(taken, std::mem::take(&mut model[word].words));
                    }
                }
                Op::Freeze(slot) => drop(cid::freeze(slot)),
                Op::Trim => prop_assert!(area.trim().is_ok()),
            }
            for (cell, model) in &cells {
                prop_assert!(bags(cell, image) == *model, "{:?}, not {:?}", cell, model);
            }
            let memory = area.memory();
            let given = cells.len() as u64 + forgotten;
            prop_assert_eq!((memory.cells, memory.peak, memory.corrupted), (given, peak, 0));
        }
    }
}
