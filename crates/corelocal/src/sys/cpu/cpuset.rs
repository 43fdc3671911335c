//! Sets of cpu or node numbers: a fixed bitmap, so that no heap is needed, in the kernel's own list
//! notation, `0-3,8` (what `/sys/devices/system/cpu/possible` holds and `taskset -c` takes).
//! The notation is read in `cpulist`.
//!
//! Invariant: a set never contains a number at or above its capacity.

use super::cpulist::{ParseListError, Parser};
use core::fmt;

/// A set of small numbers: `WORDS * 64` of them, all zero at first.
///
/// ```
/// use corelocal::sys::topology::CpuSet;
///
/// let set = CpuSet::parse(b"0-3,8\n").unwrap();
/// assert_eq!(set.count(), 5);
/// assert_eq!(set.max(), Some(8));
/// assert_eq!(set.to_string(), "0-3,8");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdSet<const WORDS: usize>([u64; WORDS]);

/// A set of cpus. Its capacity, 8192, is the largest `NR_CPUS` that x86-64 Linux can be built with.
pub type CpuSet = IdSet<128>;

/// A set of NUMA nodes. Its capacity, 1024, is the largest `MAX_NUMNODES` of Linux.
pub type NodeSet = IdSet<16>;

impl<const WORDS: usize> IdSet<WORDS> {
    /// The numbers a set can hold are `0..CAPACITY`.
    pub const CAPACITY: usize = WORDS * 64;

    /// Returns the empty set.
    pub const fn new() -> Self {
        IdSet([0; WORDS])
    }

    /// Returns the set `0..end`; an `end` above the capacity counts as the capacity.
    pub const fn first(end: usize) -> Self {
        let mut set = Self::new();
        let mut word = 0;
        while word < WORDS {
            let below = end.saturating_sub(word * 64);
            set.0[word] = if below >= 64 { u64::MAX } else { (1 << below) - 1 };
            word += 1;
        }
        set
    }

    /// Returns the set whose bitmap is `words`, lowest numbers first: the layout of the kernel's masks.
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        IdSet(words)
    }

    /// Adds `id`; `false`, and no change, if it is beyond the capacity.
    pub fn insert(&mut self, id: usize) -> bool {
        match self.0.get_mut(id / 64) {
            Some(word) => {
                *word |= 1 << (id % 64);
                true
            }
            None => false,
        }
    }

    /// Returns `true` if `id` is in the set.
    pub fn contains(&self, id: usize) -> bool {
        self.0.get(id / 64).is_some_and(|word| word & (1 << (id % 64)) != 0)
    }

    /// Returns how many numbers are in the set.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns `true` if nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Returns the largest number in the set.
    pub fn max(&self) -> Option<usize> {
        let word = self.0.iter().rposition(|&word| word != 0)?;
        Some(word * 64 + 63 - self.0[word].leading_zeros() as usize)
    }

    /// Returns the numbers in the set, ascending.
    pub fn iter(&self) -> Iter<'_> {
        Iter { words: &self.0, index: 0, rest: self.0.first().copied().unwrap_or(0) }
    }

    /// Returns the set of a list such as `0-3,8`, ended by an optional newline. Nothing is the empty set, as
    /// in the kernel's files.
    ///
    /// # Errors
    /// [`ParseListError`] says where the list stops making sense.
    pub fn parse(list: &[u8]) -> Result<Self, ParseListError> {
        let mut parser = Parser::new();
        for &byte in list {
            parser.feed(byte)?;
        }
        parser.finish()
    }
}

impl<const WORDS: usize> Default for IdSet<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WORDS: usize> core::str::FromStr for IdSet<WORDS> {
    type Err = ParseListError;

    fn from_str(list: &str) -> Result<Self, ParseListError> {
        Self::parse(list.as_bytes())
    }
}

/// The list notation, `0-3,8`; the empty set is the empty string.
impl<const WORDS: usize> fmt::Display for IdSet<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if(|&next| next == last + 1) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last != first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl<const WORDS: usize> fmt::Debug for IdSet<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl<'a, const WORDS: usize> IntoIterator for &'a IdSet<WORDS> {
    type Item = usize;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The numbers of an [`IdSet`], ascending.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    words: &'a [u64],
    index: usize,
    /// The bits of `words[index]` that were not returned yet.
    rest: u64,
}

impl Iterator for Iter<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while self.rest == 0 {
            self.index += 1;
            self.rest = *self.words.get(self.index)?;
        }
        let bit = self.rest.trailing_zeros() as usize;
        self.rest &= self.rest - 1;
        Some(self.index * 64 + bit)
    }
}

#[cfg(test)]
mod tests;
