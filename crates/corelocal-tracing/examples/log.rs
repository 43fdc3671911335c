//! The same lines with the default timer and with ours, and what a timestamp costs in each.
//!
//! ```sh
//! cargo run --release -p corelocal-tracing --example log
//! ```

use std::time::Instant;

use corelocal_tracing::{Uptime, Utc};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

fn cost(timer: &impl FormatTime) -> f64 {
    const TIMES: u32 = 100_000;
    let mut text = String::with_capacity(64);
    let start = Instant::now();
    for _ in 0..TIMES {
        text.clear();
        let _ = timer.format_time(&mut Writer::new(&mut text));
    }
    start.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

fn main() {
    corelocal::clock::settle();
    let least = |timer: &dyn Fn() -> f64| (0..9).map(|_| timer()).fold(f64::MAX, f64::min);
    let (theirs, ours) = (least(&|| cost(&SystemTime)), least(&|| cost(&Utc::new())));
    tracing_subscriber::fmt().with_timer(Utc::new()).init();
    tracing::info!("a timestamp takes {ours:.0} ns, the default one {theirs:.0} ns");
    tracing::info!("with Uptime {:.0} ns", least(&|| cost(&Uptime::new())));
}
