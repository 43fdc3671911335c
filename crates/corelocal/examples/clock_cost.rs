//! What reading a clock costs here: ours beside the vDSO and the bare instructions, in alternating rounds.
//!
//! ```sh
//! cargo run --release -p corelocal --example clock_cost
//! CORELOCAL_CLOCK=anchor cargo run --release -p corelocal --example clock_cost
//! ```

use std::hint::black_box;
use std::time::Instant;

use corelocal::clock;

const ROUNDS: usize = 201;
const READS: u32 = 20_000;

fn vdso(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

macro_rules! contestants {
    ($($name:literal: $read:expr;)*) => {
        [$(($name, (|| {
            let start = Instant::now();
            for _ in 0..READS {
                black_box($read);
            }
            start.elapsed().as_nanos() as f64 / f64::from(READS)
        }) as fn() -> f64)),*]
    };
}

fn main() {
    let first = Instant::now();
    black_box(clock::monotonic());
    let first = first.elapsed();
    let settling = Instant::now();
    clock::settle();
    let settling = settling.elapsed();
    let contestants = contestants! {
        "clock_gettime(MONOTONIC)": vdso(libc::CLOCK_MONOTONIC);
        "std::time::Instant::now": Instant::now();
        "clock_gettime(MONOTONIC_COARSE)": vdso(libc::CLOCK_MONOTONIC_COARSE);
        "rdtsc": tsc::bare();
        "lfence; rdtsc": tsc::after_lfence();
        "rdtscp": tsc::with_cpu();
        "clock::monotonic": clock::monotonic();
        "clock::monotonic_unordered": clock::monotonic_unordered();
        "clock::realtime": clock::realtime();
        "clock::Instant::now": clock::Instant::now();
        "clock::coarse": clock::coarse();
        "clock::epoch": clock::epoch();
    };
    let mut costs = vec![Vec::with_capacity(ROUNDS); contestants.len()];
    for round in 0..ROUNDS {
        // In changing order.
        for at in 0..contestants.len() {
            let at = (at + round) % contestants.len();
            costs[at].push(contestants[at].1());
        }
    }
    let status = clock::status();
    println!("{:?} by {:?}, fence {:?}", status.backend, status.source, status.fence);
    println!("first reading {first:?}, settling {settling:?}, {status:?}");
    for ((name, _), costs) in contestants.iter().zip(&mut costs) {
        costs.sort_by(f64::total_cmp);
        let quartile = |of: usize| costs[ROUNDS * of / 4];
        println!("{name:32} {:6.2} ns  ({:.2} to {:.2})", quartile(2), quartile(1), quartile(3));
    }
}

#[cfg(target_arch = "x86_64")]
mod tsc {
    use std::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};

    pub fn bare() -> u64 {
        // SAFETY: every cpu of 64 bits has it.
        unsafe { _rdtsc() }
    }

    pub fn after_lfence() -> u64 {
        // SAFETY: as above.
        unsafe {
            _mm_lfence();
            _rdtsc()
        }
    }

    pub fn with_cpu() -> u64 {
        let mut cpu = 0;
        // SAFETY: for a look at the cost, on cpus that have it.
        unsafe { __rdtscp(&mut cpu) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tsc {
    pub fn bare() -> u64 {
        0
    }

    pub fn after_lfence() -> u64 {
        0
    }

    pub fn with_cpu() -> u64 {
        0
    }
}
