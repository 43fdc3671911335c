//! Load for the tracer's reader: so many events of several types, at a rate, on several threads.
//!
//! ```sh
//! cargo build --release -p corelocal --features std --example trace_load
//! corelocal trace record -o big.trace target/release/examples/trace_load 10000000 1000000
//! ```

use std::thread;
use std::time::{Duration, Instant};

use corelocal::{event, span};

/// Events of a thread between two looks at the clock.
const BATCH: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u64>());
    let mut next = |default| numbers.next().transpose().map(|number| number.unwrap_or(default));
    let (events, per_second, threads) = (next(10_000_000)?, next(1_000_000)?, next(2)?.max(1));
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || run(thread, events / threads, per_second / threads));
        }
    });
    Ok(())
}

/// Records events and spans, three of four events with a number.
fn run(thread: u64, events: u64, per_second: u64) {
    let began = Instant::now();
    for batch in 0..events / BATCH {
        for nth in (batch * BATCH..(batch + 1) * BATCH).step_by(4) {
            let _span = span!(load::request, thread = thread);
            event!(load::number, nth = nth);
            event!(load::path, path = "/index.html", bytes = nth as u32);
        }
        let due = Duration::from_nanos((batch + 1) * BATCH * 1_000_000_000 / per_second.max(1));
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
}
