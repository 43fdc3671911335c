//! What ticks, their conversion, and a time with bounds cost here, in alternating rounds.
//!
//! ```sh
//! cargo run --release -p corelocal --example ticks_cost
//! ```

use std::hint::black_box;
use std::time::Instant;

use corelocal::clock::{self, Converter, Stamp, Ticks};

const ROUNDS: usize = 201;
/// With the times of them, most of a cache of the first level.
const TICKS: usize = 1536;

/// An array at the beginning of a line of the cache, some lines behind that of a page, so that no two arrays
/// of a contestant collide.
#[repr(align(4096))]
struct Lines<T, const BEHIND: usize> {
    _before: [u64; BEHIND],
    values: [T; TICKS],
}

impl<T: Copy + Default, const BEHIND: usize> Lines<T, BEHIND> {
    fn new() -> Self {
        Lines { _before: [0; BEHIND], values: [T::default(); TICKS] }
    }
}

struct Contestant<'a> {
    name: &'static str,
    /// How many are done in a call.
    each: usize,
    run: Box<dyn FnMut() + 'a>,
}

fn main() {
    clock::settle();
    let mut converter = Converter::new();
    let epoch = clock::epoch();
    let mut ticks = Lines::<Ticks, 0>::new();
    ticks.values.fill_with(Ticks::now);
    // They are looked at later.
    std::thread::sleep(std::time::Duration::from_millis(5));
    converter.refresh();
    let (mut monotonic, mut realtime) = (Lines::<u64, 16>::new(), Lines::<u64, 32>::new());
    let (mut reference, mut copy) = (Lines::<u64, 48>::new(), Lines::<Ticks, 64>::new());
    let (converter, ticks) = (&converter, &ticks.values);
    println!("{:?}, {:?}", clock::status().backend, clock::now_bounded());
    let mut refreshed = Converter::new();
    let mut contestants = vec![
        Contestant {
            name: "Ticks::now",
            each: 1,
            run: Box::new(|| {
                black_box(Ticks::now());
            }),
        },
        Contestant {
            name: "Ticks::now_ordered",
            each: 1,
            run: Box::new(|| {
                black_box(Ticks::now_ordered());
            }),
        },
        Contestant {
            name: "Stamp::now",
            each: 1,
            run: Box::new(|| {
                black_box(Stamp::now());
            }),
        },
        Contestant {
            name: "clock::monotonic",
            each: 1,
            run: Box::new(|| {
                black_box(clock::monotonic());
            }),
        },
        Contestant {
            name: "clock::now_bounded",
            each: 1,
            run: Box::new(|| {
                let _ = black_box(clock::now_bounded());
            }),
        },
        Contestant {
            name: "clock::check",
            each: 1,
            run: Box::new(|| {
                black_box(clock::check());
            }),
        },
        Contestant {
            name: "Converter::refresh",
            each: 1,
            run: Box::new(move || refreshed.refresh()),
        },
        Contestant {
            name: "Converter::monotonic_all",
            each: TICKS,
            run: Box::new(|| {
                let done = converter.monotonic_all(epoch, black_box(ticks), &mut monotonic.values);
                black_box(done).expect("known ticks");
                black_box(&monotonic.values);
            }),
        },
        Contestant {
            name: "Converter::realtime_all",
            each: TICKS,
            run: Box::new(|| {
                let done = converter.realtime_all(epoch, black_box(ticks), &mut realtime.values);
                let _ = black_box(done);
                black_box(&realtime.values);
            }),
        },
        Contestant {
            name: "a copy of them",
            each: TICKS,
            run: Box::new(|| {
                copy.values.copy_from_slice(black_box(ticks));
                black_box(&copy.values);
            }),
        },
        Contestant {
            name: "one by one, in 128 bits",
            each: TICKS,
            run: Box::new(|| {
                let (first, rate) = black_box((ticks[0].as_raw(), 0x00c4_1a63_b2d4_0001u64));
                for (tick, time) in black_box(ticks).iter().zip(&mut reference.values) {
                    let ahead = u128::from(tick.as_raw() - first);
                    *time = ((ahead * u128::from(rate)) >> 53) as u64;
                }
                black_box(&reference.values);
            }),
        },
    ];
    let mut costs = vec![Vec::with_capacity(ROUNDS); contestants.len()];
    for round in 0..ROUNDS {
        // In changing order.
        for at in 0..contestants.len() {
            let at = (at + round) % contestants.len();
            let contestant = &mut contestants[at];
            // Enough of arrays that the caches' warming up does not count.
            let calls = if contestant.each == 1 { 20_000 } else { 1_000 };
            let start = Instant::now();
            for _ in 0..calls {
                (contestant.run)();
            }
            let elapsed = start.elapsed().as_nanos() as f64;
            costs[at].push(elapsed / (calls * contestant.each) as f64);
        }
    }
    for (contestant, costs) in contestants.iter().zip(&mut costs) {
        costs.sort_by(f64::total_cmp);
        let quartile = |of: usize| costs[ROUNDS * of / 4];
        let name = contestant.name;
        println!("{name:28} {:7.3} ns  ({:.3} to {:.3})", quartile(2), quartile(1), quartile(3));
    }
}
