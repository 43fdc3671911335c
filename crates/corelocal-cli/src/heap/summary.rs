//! What is shown of a process: its call sites and their callers.
//!
//! Invariant: sites are sorted by their bytes.

use std::collections::HashMap;

use corelocal_support::output::path_line;
use serde::Serialize;

use super::file::Heap;
use super::sites::{self, Call, Stack, Told};

/// A process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Process {
    pub process: u64,
    /// The file it ran.
    pub program: String,
    /// The sampling rate: one object for so many bytes.
    pub rate: u64,
    pub samples: usize,
    /// Whether it is of the time when most was in use.
    pub is_peak: bool,
    /// The bytes of all sites, including those that are left out.
    pub bytes: u64,
    /// An estimate, of two decimals.
    pub objects: f64,
    pub in_use_bytes: u64,
    pub peak_bytes: u64,
    /// The time from the peak to the profile, in nanoseconds.
    pub since_peak_ns: u64,
    /// The bytes allocated since the beginning.
    pub asked_for_bytes: u64,
    pub missed: u64,
    /// The number of libraries that were unloaded before: their memory may be attributed to others.
    pub unloaded_libraries: u64,
    /// Whether the file has an end.
    pub is_whole: bool,
    pub sites: Vec<Site>,
    /// The number of sites that are left out, and below it their bytes.
    pub left_out: usize,
    pub left_out_bytes: u64,
}

/// A call site.
#[derive(Clone, Debug, Serialize)]
pub struct Site {
    pub function: String,
    pub source: Option<String>,
    pub bytes: u64,
    /// An estimate, of two decimals.
    pub objects: f64,
    /// The mean of the sizes that were asked for.
    pub bytes_each: u64,
    /// The site's share of all bytes.
    pub share: f64,
    /// The number of different call stacks that lead there.
    pub stacks: usize,
    /// The callers of most of the memory, innermost first, with their shares of the site's bytes.
    pub callers: Vec<Caller>,
}

/// A function that called, itself or through others.
#[derive(Clone, Debug, Serialize)]
pub struct Caller {
    pub function: String,
    pub source: Option<String>,
    pub share: f64,
}

impl Process {
    /// Returns it with so many sites.
    pub fn of(heap: &Heap, told: &Told, most: usize, is_peak: bool) -> Process {
        let all = told.bytes();
        let mut sites: HashMap<&Call, Vec<&Stack>> = HashMap::new();
        for stack in &told.stacks {
            if let Some(first) = told.calls_from_site(stack).next() {
                sites.entry(first).or_default().push(stack);
            }
        }
        let sum = |stacks: &[&Stack]| stacks.iter().map(|stack| stack.bytes).sum::<f64>() as u64;
        let mut sites: Vec<(u64, &Call, Vec<&Stack>)> =
            sites.into_iter().map(|(call, stacks)| (sum(&stacks), call, stacks)).collect();
        sites.sort_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
        let rest = sites.split_off(most.min(sites.len()));
        // The texts of those that are shown only.
        let sites = sites.into_iter().map(|(_, call, stacks)| Site::of(told, call, &stacks, all));
        Process {
            process: heap.process,
            program: told.program.as_deref().map_or_else(String::new, path_line),
            rate: heap.rate,
            is_peak,
            samples: told.samples,
            bytes: all as u64,
            objects: hundredths(told.stacks.iter().map(|stack| stack.objects).sum()),
            in_use_bytes: heap.in_use,
            peak_bytes: heap.peak,
            since_peak_ns: heap.now.saturating_sub(heap.peak_time),
            asked_for_bytes: heap.asked_for,
            missed: heap.missed,
            unloaded_libraries: heap.unloaded,
            is_whole: heap.is_whole,
            left_out: rest.len(),
            left_out_bytes: rest.iter().fold(0, |sum, (bytes, ..)| bytes.saturating_add(sum)),
            sites: sites.collect(),
        }
    }
}

impl Site {
    fn of(told: &Told, call: &Call, stacks: &[&Stack], all: f64) -> Site {
        let bytes: f64 = stacks.iter().map(|stack| stack.bytes).sum();
        let objects: f64 = stacks.iter().map(|stack| stack.objects).sum();
        Site {
            function: call.function.to_string(),
            source: call.source.as_deref().map(str::to_owned),
            bytes: bytes as u64,
            objects: hundredths(objects),
            bytes_each: (bytes / objects).round() as u64,
            share: share(bytes, all),
            stacks: stacks.len(),
            callers: callers(told, stacks, bytes),
        }
    }
}

/// Goes from caller to caller, each time the one by whom most came.
fn callers(told: &Told, stacks: &[&Stack], all: f64) -> Vec<Caller> {
    let mut callers = Vec::new();
    // Without those of languages' libraries in between.
    let is_own = |call: &&Call| !sites::is_plumbing(call);
    let calls = |stack| told.calls_from_site(stack).skip(1).filter(is_own).peekable();
    let mut on_the_way: Vec<_> = stacks.iter().map(|stack| (stack.bytes, calls(stack))).collect();
    loop {
        let mut sums: HashMap<&Call, f64> = HashMap::new();
        for (bytes, calls) in &mut on_the_way {
            if let Some(call) = calls.peek() {
                *sums.entry(call).or_default() += *bytes;
            }
        }
        let most = sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.cmp(a.0)));
        let Some((most, bytes)) = most else { break };
        let source = most.source.as_deref().map(str::to_owned);
        let (function, share) = (most.function.to_string(), share(bytes, all));
        callers.push(Caller { function, source, share });
        on_the_way.retain_mut(|(_, calls)| calls.next() == Some(most));
    }
    callers
}

/// Samples stand for parts of objects, too: one of half the rate for 2.54 of them.
pub fn hundredths(objects: f64) -> f64 {
    (objects * 100.0).round() / 100.0
}

fn share(bytes: f64, all: f64) -> f64 {
    if all > 0.0 { bytes / all } else { 0.0 }
}
