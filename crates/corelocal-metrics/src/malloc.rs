//! The figures of corelocal's malloc as gauges.

use corelocal::alloc::{reports, stats};
use metrics::{Unit, describe_gauge, gauge};

/// Sets gauges to the figures of corelocal's malloc of this moment, in the recorder that is installed: `malloc_in_use_bytes`,
/// `malloc_cached_bytes`, `malloc_used_bytes`, `malloc_idle_bytes`, `malloc_mapped_bytes`, `malloc_huge_bytes`,
/// `malloc_released_bytes` and `malloc_large_objects`.
///
/// To be called before each scrape, in a program whose `#[global_allocator]` is `CoreLocal`; in others all are 0. Linear in
/// the memory in use. On Linux.
///
/// ```
/// let handle = corelocal_metrics::install()?;
/// corelocal_metrics::record_malloc();
/// assert!(handle.render().contains("malloc_in_use_bytes"));
/// # Ok::<(), corelocal_metrics::Error>(())
/// ```
pub fn record_malloc() {
    let now = stats();
    let bytes = [
        ("malloc_in_use_bytes", "Objects in use by the program", reports::in_use(&now)),
        (
            "malloc_cached_bytes",
            "Free objects in caches of cores and depots",
            reports::cached(&now),
        ),
        ("malloc_used_bytes", "Spans and large objects, which contain both", now.used),
        ("malloc_idle_bytes", "Free memory that was not given back to the kernel", now.idle),
        ("malloc_mapped_bytes", "Memory mapped for objects", now.committed),
        ("malloc_huge_bytes", "Huge pages made of densely used memory", now.huge),
        ("malloc_released_bytes", "Memory given back to the kernel so far", now.released),
    ];
    for (name, what, bytes) in bytes {
        describe_gauge!(name, Unit::Bytes, what);
        gauge!(name).set(bytes as f64);
    }
    describe_gauge!("malloc_large_objects", Unit::Count, "Objects of more than 1 MiB");
    gauge!("malloc_large_objects").set(now.large_objects as f64);
}
