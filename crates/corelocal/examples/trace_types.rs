//! Events with fields of all types and odd names, tasks, and losses, for comparisons of what other programs read of them.
//!
//! ```sh
//! cargo run -p corelocal --features std --example trace_types -- types.trace 100000
//! ```
#![allow(mixed_script_confusables, non_snake_case, uncommon_codepoints)]

use corelocal::trace::{self, Options};
use corelocal::{event, span, task_span};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().unwrap_or_else(|| "types.trace".into());
    let events: u64 = args.next().map_or(Ok(1000), |events| events.parse())?;
    trace::start(Options::to_disk(&file).max_bytes(16 << 20))?;
    let _outer = span!(types::outer, events = events);
    for nth in 0..events {
        // All bits take part: a multiple of an odd number.
        let bits = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let text = ["", "a", "some words", "Äpfel"][nth as usize % 4];
        event!(
            types::all,
            nth = nth,
            a = bits as u8,
            b = bits as u16,
            c = bits as u32,
            d = bits,
            e = bits as i8,
            f = bits as i16,
            g = bits as i32,
            h = bits as i64,
            i = (bits as i16) as f32 / 8.0,
            j = (bits as i32) as f64 / 1024.0,
            yes = bits & 1 == 1,
            text = text,
            blob = &bits.to_le_bytes()[..nth as usize % 9],
            list = &[bits as i64, -1, nth as i64][..nth as usize % 4],
            floats = [0.5, (bits as i16) as f64 / 4.0],
        );
        if nth % 1000 == 0 {
            odd(nth);
            drop(task_span!(types::task, nth = nth));
            // A burst must not fill the memory before it is written.
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    let lost = trace::status().map_or(0, |status| status.lost);
    if lost > 0 {
        return Err(format!("{lost} events were lost").into());
    }
    // More than there is memory for, faster than it is written: some are lost.
    let long = "x".repeat(450);
    while trace::status().is_some_and(|status| status.lost == 0) {
        for nth in 0..10_000_u64 {
            event!(types::burst, nth = nth, text = &*long);
        }
    }
    trace::flush()?;
    event!(types::after, nth = 0_u64);
    Ok(())
}

/// Names that formats have for themselves, names that differ in case only, letters beyond ASCII, what has no room.
fn odd(nth: u64) {
    let long = "long ".repeat(120);
    event!(
        types::größe,
        r#type = nth,
        cpu = "mine",
        parent = 7_u8,
        len_of_1 = 1_u16,
        time_ns = -1_i8
    );
    event!(types::case, Mixed = nth, mixed = "other", MIXED = 0.5_f32);
    event!(
        types::cut,
        nth = nth,
        numbers = &[nth; 100],
        text = &*long,
        absent = nth,
        blob = &[1_u8, 2]
    );
    let _outer = span!(types::parent, nth = nth);
    let task = task_span!(types::request, nth = nth);
    let _entered = task.enter();
    let _inner = span!(types::step, nth = nth);
    event!(types::within, nth = nth);
}
