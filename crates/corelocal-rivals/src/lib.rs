//! Clocks that calibrate themselves in a constructor, for 20 ms and more before `main`.
//!
//! Linked into the command they would do so in each of its processes, those of the other tables too.
//! So they are in a shared object of their own, which only the table of clocks loads
//! (`corelocal-cli/src/tables/clock/foreign.rs`).
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

            /// Nanoseconds since the first call.
            // SAFETY: the name is ours alone.
            #[unsafe(export_name = $nanos)]
            pub extern "C" fn nanos() -> u64 {
                static FIRST: OnceLock<$module::Instant> = OnceLock::new();
                let now = $module::Instant::now();
                now.duration_since(*FIRST.get_or_init(|| now)).as_nanos() as u64
            }

            /// Whether it reads the cpu's counter.
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
