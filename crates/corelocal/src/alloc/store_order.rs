//! Which run of chunks to take: the lowest that fits, or one in the fullest huge page? The experiment behind
//! `store.rs`, which takes the lowest.
//!
//! Bitmaps alone, without memory. Runs of all lengths live for short and for long, until there are 512 MiB of
//! them; then nine of ten end; then life goes on with what is left. What counts are the huge pages that anything
//! is in, beside those that as many chunks would fill.
//!
//! `cargo test -p corelocal --lib store_order -- --nocapture` prints the figures.

use super::bits::{self, IN_A_WORD, mask};
use super::huge::IN_A_HUGE_PAGE;
use crate::scaled::scaled;
use std::vec::Vec;
use std::{eprintln, vec};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Lowest,
    /// Of all that have room; the lowest of those that are as full.
    Fullest,
}

/// What a program's runs are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// Spans of small objects, mostly.
    Small,
    /// Some of everything.
    Mixed,
    /// Many large objects.
    Large,
}

const TARGET: usize = 8192;
const WORDS: usize = 16 * TARGET / IN_A_WORD;
const STEPS: usize = 20_000;

/// A number below `end` that looks random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

struct Run {
    first: usize,
    chunks: usize,
    end: usize,
}

struct Store {
    order: Order,
    words: Vec<u64>,
    runs: Vec<Run>,
    used: usize,
    /// The highest word that was ever used: from the next one on all are empty.
    high: usize,
}

impl Store {
    /// The first bit for a run within a word, and how full its huge page is.
    fn place_in(&self, word: usize, chunks: usize, align: usize) -> Option<(usize, u32)> {
        let used = self.words[word];
        let room = bits::starts(!used, chunks) & bits::every(align);
        let halves = (0..IN_A_WORD).step_by(IN_A_HUGE_PAGE).filter_map(|half| {
            let half = mask(half, IN_A_HUGE_PAGE);
            let full = (used & half).count_ones();
            (room & half != 0).then(|| ((room & half).trailing_zeros() as usize, full))
        });
        match self.order {
            Order::Lowest => halves.min_by_key(|(bit, _)| *bit),
            Order::Fullest => halves.min_by_key(|(bit, full)| (u32::MAX - full, *bit)),
        }
    }

    fn place(&self, chunks: usize, align: usize) -> usize {
        if chunks > IN_A_WORD {
            let is_free = |word: usize| {
                (0..chunks).step_by(IN_A_WORD).all(|done| {
                    let mask = mask(0, (chunks - done).min(IN_A_WORD));
                    self.words[word + done / IN_A_WORD] & mask == 0
                })
            };
            return (0..).find(|word| is_free(*word)).unwrap() * IN_A_WORD;
        }
        let mut best: Option<(usize, u32)> = None;
        for word in 0..WORDS {
            if let Some((bit, full)) = self.place_in(word, chunks, align) {
                if best.is_none_or(|(_, before)| full > before) {
                    best = Some((word * IN_A_WORD + bit, full));
                }
                if self.order == Order::Lowest || word > self.high {
                    break;
                }
            }
        }
        best.unwrap().0
    }

    fn set(&mut self, first: usize, chunks: usize, is_used: bool) {
        for chunk in first..first + chunks {
            let bit = 1 << (chunk % IN_A_WORD);
            let word = &mut self.words[chunk / IN_A_WORD];
            assert_eq!(*word & bit == 0, is_used);
            *word ^= bit;
        }
    }

    fn begin(&mut self, chunks: usize, align: usize, end: usize) {
        let first = self.place(chunks, align);
        self.set(first, chunks, true);
        self.used += chunks;
        self.high = self.high.max((first + chunks) / IN_A_WORD);
        self.runs.push(Run { first, chunks, end });
    }

    fn end_if(&mut self, mut ends: impl FnMut(&Run) -> bool) {
        let (ended, left): (Vec<Run>, Vec<Run>) =
            core::mem::take(&mut self.runs).into_iter().partition(|run| ends(run));
        for run in ended {
            self.set(run.first, run.chunks, false);
            self.used -= run.chunks;
        }
        self.runs = left;
    }

    /// Huge pages in use, beside those that the chunks in use would fill.
    fn waste(&self) -> f64 {
        let halves = self.words.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
        let pages = halves.filter(|half| *half != 0).count();
        (pages * IN_A_HUGE_PAGE) as f64 / self.used as f64
    }

    /// Life for some time, with so many chunks at most; the mean waste.
    fn live(&mut self, load: Load, most: usize, random: &mut Random) -> f64 {
        let (mut sum, mut looks) = (0.0, 0);
        for now in 0..STEPS {
            if now % 32 == 0 {
                self.end_if(|run| run.end <= now);
            }
            if self.used < most {
                let (chunks, align) = length(load, random);
                let life = [100, 100, 100, 2000, 2000, 30_000][random.below(6)];
                self.begin(chunks, align, now + 1 + random.below(2 * life));
            }
            if now % 512 == 0 && now > STEPS / 4 {
                (sum, looks) = (sum + self.waste(), looks + 1);
            }
        }
        // Time begins again.
        self.runs.iter_mut().for_each(|run| run.end = run.end.saturating_sub(STEPS));
        sum / f64::from(looks)
    }
}

/// Chunks of a run, and their alignment.
fn length(load: Load, random: &mut Random) -> (usize, usize) {
    let large = 17 + random.below(16) * random.below(16);
    let of_hundred = match load {
        Load::Small => [95, 100, 100, 100],
        Load::Mixed => [75, 85, 90, 93],
        Load::Large => [40, 60, 70, 80],
    };
    let number = random.below(100);
    match of_hundred.iter().position(|end| number < *end) {
        Some(nth) => ([1, 4, 16, 32][nth], [1, 4, 16, 32][nth]),
        None => (large, 1),
    }
}

/// The waste at the peak, when nine of ten have ended, and afterwards.
fn live_with(order: Order, load: Load) -> [f64; 3] {
    const SEEDS: u64 = 3;
    let mut sums = [0.0; 3];
    for seed in 1..=SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut store = Store { order, words: vec![0; WORDS], runs: Vec::new(), used: 0, high: 0 };
        sums[0] += store.live(load, TARGET, &mut random);
        store.end_if(|_| random.below(10) != 0);
        sums[1] += store.waste();
        let most = store.used;
        sums[2] += store.live(load, most, &mut random);
    }
    sums.map(|sum| sum / SEEDS as f64)
}

/// To keep what is full full does not pay: it fills the gaps between long runs with short ones, wherever they
/// are, and what is high never becomes empty.
#[test]
fn the_lowest_keeps_as_few_huge_pages_as_the_fullest() {
    if scaled(100) < 100 {
        eprintln!(
            "skipped: the_lowest_keeps_as_few_huge_pages_as_the_fullest: the same on every machine"
        );
        return;
    }
    for load in [Load::Small, Load::Mixed, Load::Large] {
        let [lowest, fullest] = [Order::Lowest, Order::Fullest].map(|order| live_with(order, load));
        for (order, [peak, after, later]) in [(Order::Lowest, lowest), (Order::Fullest, fullest)] {
            eprintln!(
                "{load:?} {order:?}: {peak:.2} at the peak, {after:.2} after, {later:.2} later"
            );
        }
        for (lowest, fullest) in lowest.into_iter().zip(fullest) {
            let more = if load == Load::Small { 1.1 } else { 1.02 };
            assert!(lowest < fullest * more, "{load:?}: {lowest} {fullest}");
        }
    }
}
