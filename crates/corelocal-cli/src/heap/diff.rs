//! What came and went between two profiles of one program, by call sites.
//!
//! Samples are a matter of chance, so two profiles of the same differ, too. A sample that stands for `w` bytes is as
//! often there as not as a Poisson process has it, which makes `w * w` of variance; what differs by less than twice
//! the root of all of these may be chance. Of one process, objects that are in both profiles were sampled once, so it
//! is less than that.
//!
//! Invariants:
//! - Sites are in the order of how much they grew or shrank, either way.
//! - Both profiles are of one program, by its path: so functions mean the same.

use std::collections::{BTreeMap, HashMap};

use anyhow::bail;
use corelocal_support::output::path_line;
use serde::Serialize;

use super::file::{Heap, Sample};
use super::flame;
use super::sites::{Call, Told};
use super::summary::hundredths;

/// The difference of two profiles.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    pub program: String,
    pub before: Side,
    pub after: Side,
    /// Whether they are of the times when most was in use.
    pub is_peak: bool,
    pub grown_bytes: i64,
    /// Two standard errors of the growth: a change within them is not significant.
    pub chance_bytes: u64,
    pub sites: Vec<Growth>,
    /// The number of sites that are left out, and below it their growth.
    pub left_out: usize,
    pub left_out_bytes: i64,
}

/// One of the two profiles.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Side {
    pub process: u64,
    /// The sampling rate: one object for so many bytes.
    pub rate: u64,
    pub samples: usize,
    pub bytes: u64,
    /// An estimate, of two decimals.
    pub objects: f64,
    pub missed: u64,
    /// The number of libraries that were unloaded before: their memory may be attributed to others.
    pub unloaded_libraries: u64,
    pub is_whole: bool,
}

/// A call site and its growth.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    pub function: String,
    pub source: Option<String>,
    pub grown_bytes: i64,
    pub chance_bytes: u64,
    pub before_bytes: u64,
    pub after_bytes: u64,
    /// The growth of the number of objects, a fraction as [`Side::objects`] is.
    pub grown_objects: f64,
}

impl Growth {
    /// Returns `true` if it is more than chance makes.
    pub fn is_sure(&self) -> bool {
        self.grown_bytes.unsigned_abs() > self.chance_bytes
    }
}

/// The sums of a site in one profile.
#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: f64,
    objects: f64,
    variance: f64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.bytes += other.bytes;
        self.objects += other.objects;
        self.variance += other.variance;
    }
}

impl Difference {
    /// Returns it with so many sites.
    ///
    /// # Errors
    /// When the profiles are of two programs.
    pub fn of(
        before: &(Heap, Told),
        after: &(Heap, Told),
        most: usize,
        is_peak: bool,
    ) -> anyhow::Result<Difference> {
        let program = |told: &Told| told.program.as_deref().map(path_line);
        let (was, is) = (program(&before.1), program(&after.1));
        if was != is {
            let name =
                |it: Option<String>| it.unwrap_or_else(|| "a program without a name".to_owned());
            bail!(
                "the first profile is of {}, the second of {}: only profiles of the same program can be compared",
                name(was),
                name(is)
            );
        }
        let (first, second) = (sums(before), sums(after));
        let mut all: Vec<&Call> = first.keys().chain(second.keys()).copied().collect();
        all.sort();
        all.dedup();
        let of = |sums: &HashMap<&Call, Sum>, call| sums.get(call).copied().unwrap_or_default();
        let mut sites: Vec<Growth> =
            all.into_iter().map(|call| growth(call, of(&first, call), of(&second, call))).collect();
        // The order of names stays where bytes are the same.
        sites.sort_by_key(|site| std::cmp::Reverse(site.grown_bytes.unsigned_abs()));
        let rest = sites.split_off(most.min(sites.len()));
        let whole = |sums: &HashMap<&Call, Sum>| {
            sums.values().fold(Sum::default(), |mut all, sum| {
                all.add(*sum);
                all
            })
        };
        let (first, second) = (whole(&first), whole(&second));
        Ok(Difference {
            program: is.unwrap_or_default(),
            before: Side::of(before, first),
            after: Side::of(after, second),
            is_peak,
            grown_bytes: (second.bytes - first.bytes).round() as i64,
            chance_bytes: chance(first, second),
            sites,
            left_out: rest.len(),
            left_out_bytes: rest.iter().fold(0, |sum, site| site.grown_bytes.saturating_add(sum)),
        })
    }
}

impl Side {
    fn of((heap, told): &(Heap, Told), sum: Sum) -> Side {
        Side {
            process: heap.process,
            rate: heap.rate,
            samples: told.samples,
            bytes: sum.bytes as u64,
            objects: hundredths(sum.objects),
            missed: heap.missed,
            unloaded_libraries: heap.unloaded,
            is_whole: heap.is_whole,
        }
    }
}

fn growth(call: &Call, before: Sum, after: Sum) -> Growth {
    Growth {
        function: call.function.to_string(),
        source: call.source.as_deref().map(str::to_owned),
        grown_bytes: (after.bytes - before.bytes).round() as i64,
        chance_bytes: chance(before, after),
        before_bytes: before.bytes as u64,
        after_bytes: after.bytes as u64,
        grown_objects: hundredths(after.objects - before.objects),
    }
}

fn chance(before: Sum, after: Sum) -> u64 {
    (2.0 * (before.variance + after.variance).sqrt()).round() as u64
}

/// Adds them up by site.
fn sums((heap, told): &(Heap, Told)) -> HashMap<&Call, Sum> {
    let mut sums: HashMap<&Call, Sum> = HashMap::new();
    for stack in &told.stacks {
        let Some(site) = told.calls_from_site(stack).next() else { continue };
        let sample = Sample { size: stack.size, ..Sample::default() };
        // An object that is sampled anyway is no matter of chance.
        let weight = if stack.size >= heap.rate { 0.0 } else { sample.bytes(heap.rate) };
        let (bytes, objects) = (stack.bytes, stack.objects);
        sums.entry(site).or_default().add(Sum { bytes, objects, variance: bytes * weight });
    }
    sums
}

/// Returns a line for each stack: functions, outermost first, bytes before and bytes after; tools for flame graphs draw
/// from these what grew and what shrank.
pub fn collapsed(before: &Told, after: &Told) -> String {
    let mut lines: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (nth, told) in [before, after].into_iter().enumerate() {
        for line in flame::collapsed([told]).lines() {
            let Some((names, bytes)) = line.rsplit_once(' ') else { continue };
            lines.entry(names.to_owned()).or_default()[nth] = bytes.parse().unwrap_or(0);
        }
    }
    let line = |(names, [before, after]): (String, [u64; 2])| format!("{names} {before} {after}\n");
    lines.into_iter().map(line).collect()
}

#[cfg(test)]
pub mod tests {
    use super::super::file::{parse, tests};
    use super::super::sites;
    use super::*;

    fn profile(sizes: &[u64]) -> (Heap, Told) {
        let heap = parse(&tests::file(sizes)).expect("a profile");
        let told = sites::told(&heap, false);
        (heap, told)
    }

    #[test]
    fn what_came_and_went() {
        let (before, after) = (profile(&[100, 200]), profile(&[100, 200, 2 << 20]));
        let grown = Difference::of(&before, &after, 10, false).expect("one program");
        let [site] = &grown.sites[..] else { panic!("one site") };
        // What is sampled anyway is exact, and no chance is added by it.
        assert_eq!((site.grown_bytes, site.grown_objects), (2 << 20, 1.0));
        assert_eq!(grown.grown_bytes, 2 << 20);
        // Four samples of half a MiB each.
        let chance = site.chance_bytes as f64 / f64::from(2 * 2 * (512 << 10));
        assert!((chance - 1.0).abs() < 0.01, "{chance}");
        assert!(!site.is_sure());
        let shrunk = Difference::of(&after, &before, 10, false).expect("one program");
        assert_eq!(shrunk.sites[0].grown_bytes, -(2 << 20));
        let none = Difference::of(&before, &before, 0, false).expect("one program");
        assert_eq!((none.grown_bytes, none.left_out, none.left_out_bytes), (0, 1, 0));
    }

    #[test]
    fn two_programs_are_not_compared() {
        let (before, mut after) = (profile(&[100]), profile(&[100]));
        after.1.program = Some("/bin/other".into());
        let said = Difference::of(&before, &after, 10, false).expect_err("two").to_string();
        assert!(said.contains("/bin/other") && said.contains("same program"), "{said}");
    }

    #[test]
    fn lines_of_both() {
        let (before, after) = (profile(&[1 << 20]), profile(&[3 << 20]));
        let lines = collapsed(&before.1, &after.1);
        assert!(lines.ends_with(" 1048576 3145728\n"), "{lines}");
        assert_eq!(collapsed(&Told::default(), &Told::default()), "");
        let svg = String::from_utf8(flame::svg(&lines, "x").expect("a picture")).expect("text");
        assert!(svg.contains("x: 3.00 MiB"), "{svg}");
    }
}
