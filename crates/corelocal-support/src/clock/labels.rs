//! What the clock's back-ends, sources and doubts are called where a reader sees them.

use corelocal::clock::{Backend, Fence, Source, Status};

/// Returns a back-end's name, as `CORELOCAL_CLOCK` and `--json` have it.
pub fn name(backend: Backend) -> &'static str {
    match backend {
        Backend::KernelPage => "kernel-page",
        Backend::Paravirtual => "paravirtual",
        Backend::Anchor => "anchor",
        _ => "vdso",
    }
}

/// Returns what a back-end reads.
pub fn reads(backend: Backend) -> &'static str {
    match backend {
        Backend::KernelPage => "the vDSO's own data",
        Backend::Paravirtual => "KVM's page for its guest",
        Backend::Anchor => "the cpu's counter, between samples of the vDSO",
        _ => "the vDSO",
    }
}

/// Returns by what readings are ordered, as the end of a sentence.
pub fn ordering(fence: Option<Fence>) -> &'static str {
    match fence {
        Some(Fence::Lfence) => ", ordered by lfence",
        Some(Fence::Rdtscp) => ", ordered by rdtscp",
        Some(Fence::Isb) => ", ordered by isb",
        Some(Fence::Cntvctss) => ", ordered by cntvctss",
        _ => "",
    }
}

/// Returns what serves, in half a sentence.
pub fn serving(status: &Status) -> String {
    let source = match status.source {
        Source::Tsc | Source::Cntvct => " by the cpu's counter",
        Source::Pvclock => " by KVM's page",
        _ => "",
    };
    let fence = ordering(status.fence);
    let source = if status.backend == Backend::KernelPage { source } else { "" };
    format!("{}{source}{fence}", reads(status.backend))
}

/// Returns why better back-ends were given up; empty if none was.
pub fn fallbacks(status: &Status) -> String {
    let times = |count| if count == 1 { String::new() } else { format!(", {count} times") };
    let causes: Vec<String> =
        status.fallbacks.iter().map(|(cause, count)| format!("{cause}{}", times(count))).collect();
    if causes.is_empty() { String::new() } else { format!("given up: {}", causes.join("; ")) }
}
