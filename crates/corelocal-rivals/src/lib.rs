//! Clocks that calibrate themselves in a constructor, for 20 ms and more before `main`, and a tracer that has one of them.
//!
//! Linked into the command they would do so in each of its processes, those of the other tables too.
//! So they are in a shared object of their own, which only the tables of clocks and of tracers load
//! (`corelocal-cli/src/tables/object.rs`).
//!
//! Each clock has three functions: a loop that reads it so many times, one reading in nanoseconds since
//! the first one, and whether it reads the cpu's counter here or falls back to the system's clock.

use std::hint::black_box;
use std::sync::OnceLock;

macro_rules! clock {
    ($module:ident, $reads:literal, $nanos:literal, $fast:literal) => {
        mod $module {
            use super::{OnceLock, black_box};

            /// Reads the clock so many times.
            // SAFETY: the name is ours alone.
            #[unsafe(export_name = $reads)]
            pub extern "C" fn reads(times: u64) {
                for _ in 0..times {
                    black_box($module::Instant::now());
                }
            }

            /// Returns the nanoseconds since the first call.
            // SAFETY: the name is ours alone.
            #[unsafe(export_name = $nanos)]
            pub extern "C" fn nanos() -> u64 {
                static FIRST: OnceLock<$module::Instant> = OnceLock::new();
                let now = $module::Instant::now();
                now.duration_since(*FIRST.get_or_init(|| now)).as_nanos() as u64
            }

            /// Returns `true` if it reads the cpu's counter.
            // SAFETY: the name is ours alone.
            #[unsafe(export_name = $fast)]
            pub extern "C" fn fast() -> bool {
                $module::is_tsc_available()
            }
        }
    };
}

clock!(minstant, "corelocal_minstant_reads", "corelocal_minstant_nanos", "corelocal_minstant_fast");
clock!(fastant, "corelocal_fastant_reads", "corelocal_fastant_nanos", "corelocal_fastant_fast");

/// Begins and ends so many spans of fastrace, in a root span for each thousand, for no reporter.
// SAFETY: the name is ours alone.
#[unsafe(export_name = "corelocal_fastrace_spans")]
pub extern "C" fn fastrace_spans(times: u64) {
    use fastrace::prelude::*;

    struct Nowhere;
    impl fastrace::collector::Reporter for Nowhere {
        fn report(&mut self, spans: Vec<SpanRecord>) {
            black_box(spans);
        }
    }
    static IS_SET: std::sync::Once = std::sync::Once::new();
    IS_SET.call_once(|| fastrace::set_reporter(Nowhere, fastrace::collector::Config::default()));
    let mut left = times;
    while left > 0 {
        let spans = left.min(1000);
        let root = Span::root("root", SpanContext::random());
        let _parent = root.set_local_parent();
        for _ in 0..spans {
            drop(black_box(LocalSpan::enter_with_local_parent("span")));
        }
        left -= spans;
    }
}
