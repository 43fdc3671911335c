//! The global allocator, and a profile of the heap: which call sites have how much memory.
//!
//! ```sh
//! CORELOCAL_MALLOC=profile:/tmp/example,profile-rate:16K cargo run -p corelocal-examples --bin heap_profile
//! corelocal heap /tmp/example.*.heap
//! ```

use std::collections::HashMap;

use corelocal::alloc::{CoreLocal, profile};

#[global_allocator]
static MEMORY: CoreLocal = CoreLocal;

fn main() {
    let cache = fill_cache(20_000);
    let names = fill_names(5_000);
    if profile::is_on() {
        match profile::dump_next() {
            Ok(()) => println!("the profile is written"),
            Err(error) => println!("the profile cannot be written: {error:?}"),
        }
    } else {
        println!("no profile: start it with CORELOCAL_MALLOC=profile:PREFIX");
    }
    println!("{} entries, {} names", cache.len(), names.len());
}

fn fill_cache(entries: u64) -> HashMap<u64, Box<[u8]>> {
    (0..entries).map(|key| (key, vec![0; 200].into_boxed_slice())).collect()
}

fn fill_names(names: u32) -> Vec<String> {
    (0..names).map(|number| format!("customer number {number}")).collect()
}
