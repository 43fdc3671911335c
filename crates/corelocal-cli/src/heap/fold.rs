//! Of many processes, the ones that are told in full; the others are counted by program.
//!
//! Invariant: the first process is told in full, and each other one is either told or counted.

use std::collections::BTreeMap;

use super::summary::Process;

/// A process with less than this part of what the largest one has is small.
const SMALL: u64 = 20;

/// Processes of one program that are shown as one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    pub program: String,
    pub processes: usize,
    pub bytes: u64,
    /// The number of the one with the most, and what it has.
    pub largest: (u64, u64),
}

/// Returns what is told in full, in the same order, and the rest, most bytes first.
pub fn fold(processes: &[Process]) -> (Vec<&Process>, Vec<Folded>) {
    let most = processes.iter().map(|process| process.bytes).max().unwrap_or(0);
    let mut shown: Vec<&Process> = Vec::new();
    let mut folded: BTreeMap<&str, Folded> = BTreeMap::new();
    for process in processes {
        let is_small = process.bytes < most / SMALL;
        let is_told = shown.iter().any(|other| are_alike(other, process));
        if shown.is_empty() || !(is_small || is_told) {
            shown.push(process);
            continue;
        }
        let others = folded.entry(&process.program).or_default();
        others.program.clone_from(&process.program);
        others.processes += 1;
        others.bytes = others.bytes.saturating_add(process.bytes);
        if others.processes == 1 || process.bytes > others.largest.1 {
            others.largest = (process.process, process.bytes);
        }
    }
    let mut folded: Vec<Folded> = folded.into_values().collect();
    folded.sort_by_key(|it| std::cmp::Reverse(it.bytes));
    (shown, folded)
}

/// Returns `true` if the report of one says what that of the other says: one program, the same place with the most
/// bytes, and between half and twice as many bytes.
fn are_alike(a: &Process, b: &Process) -> bool {
    let first = |process: &Process| process.sites.first().map(|site| site.function.clone());
    a.program == b.program
        && first(a) == first(b)
        && a.bytes <= b.bytes.saturating_mul(2)
        && b.bytes <= a.bytes.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::super::summary::Site;
    use super::*;

    fn process(number: u64, program: &str, site: &str, bytes: u64) -> Process {
        let site = Site {
            function: site.to_owned(),
            source: None,
            bytes,
            objects: 1.0,
            bytes_each: bytes,
            share: 1.0,
            stacks: 1,
            callers: Vec::new(),
        };
        let (program, sites) = (program.to_owned(), vec![site]);
        Process { process: number, program, bytes, sites, ..Process::default() }
    }

    #[test]
    fn what_is_equal_or_small_is_counted() {
        let processes = [
            process(1, "/sh", "read", 10),
            process(2, "/server", "cache", 900),
            process(3, "/server", "cache", 800),
            process(4, "/server", "index", 700),
            process(5, "/server", "cache", 100),
            process(6, "/ls", "sort", 44),
            process(7, "/sh", "read", 30),
        ];
        let (shown, folded) = fold(&processes);
        let shown: Vec<u64> = shown.iter().map(|process| process.process).collect();
        // The fifth has too little to be like the second, and enough to be told.
        assert_eq!(shown, [1, 2, 4, 5]);
        let counted: Vec<_> =
            folded.iter().map(|it| (&*it.program, it.processes, it.bytes, it.largest)).collect();
        assert_eq!(
            counted,
            [("/server", 1, 800, (3, 800)), ("/ls", 1, 44, (6, 44)), ("/sh", 1, 30, (7, 30))]
        );
        let (shown, folded) = fold(&[]);
        assert!(shown.is_empty() && folded.is_empty());
    }
}
