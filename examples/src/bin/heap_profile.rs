//! The global allocator, and a profile of the heap: which call sites have how much memory.
//!
//! ```sh
//! cargo build -p corelocal-examples --bin heap_profile
//! corelocal heap --rate 16K target/debug/heap_profile
//! CORELOCAL_MALLOC=profile:/tmp/example,profile-rate:16K target/debug/heap_profile    # without the command
//! corelocal heap /tmp/example.*.heap
//! ```

use std::collections::HashMap;
use std::sync::OnceLock;

use corelocal::alloc::{CoreLocal, profile};

#[global_allocator]
static MEMORY: CoreLocal = CoreLocal::with_background();

/// In use until the program has ended: then the profile is written.
static CACHE: OnceLock<HashMap<u64, Box<[u8]>>> = OnceLock::new();
static NAMES: OnceLock<Vec<String>> = OnceLock::new();

fn main() {
    let cache = CACHE.get_or_init(|| fill_cache(20_000));
    let names = NAMES.get_or_init(|| fill_names(5_000));
    if !profile::is_on() {
        println!("no profile: start it with `corelocal heap`, or CORELOCAL_MALLOC=profile:PREFIX");
    }
    println!("{} entries, {} names", cache.len(), names.len());
}

fn fill_cache(entries: u64) -> HashMap<u64, Box<[u8]>> {
    (0..entries).map(|key| (key, vec![0; 200].into_boxed_slice())).collect()
}

fn fill_names(names: u32) -> Vec<String> {
    (0..names).map(|number| format!("customer number {number}")).collect()
}
