//! The kernel's list notation for cpus and nodes, `0-3,8`, into a set.
//!
//! The parser takes one byte at a time: a list is parsed as it is read, however long it is (sparse
//! machines have long ones), and no buffer for it is needed.
//!
//! Invariant: `number` and `from` are below the set's capacity, so arithmetic on them cannot
//! overflow and no list, however hostile, costs more than its length times the capacity.

use super::cpuset::IdSet;
use core::fmt;

/// The error in a list of cpus or nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseListError {
    /// Offset, in bytes, of the first byte that does not fit.
    pub at: usize,
    /// The kind of the error.
    pub problem: ListProblem,
}

/// The kinds of errors in a list of cpus or nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListProblem {
    /// A number must stand here.
    NumberExpected,
    /// This byte has no place in a list.
    Unexpected(u8),
    /// The number is too large for the set; the field is the set's capacity.
    TooLarge(usize),
    /// A range ends before it begins.
    Reversed,
}

impl fmt::Display for ParseListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.problem {
            ListProblem::NumberExpected => write!(f, "a number is missing at byte {at}")?,
            ListProblem::Unexpected(byte) => {
                write!(f, "unexpected '{}' at byte {at}", byte.escape_ascii())?;
            }
            ListProblem::TooLarge(capacity) => {
                write!(f, "the number at byte {at} is above {}", capacity - 1)?;
            }
            ListProblem::Reversed => write!(f, "the range at byte {at} ends before it begins")?,
        }
        write!(f, "; write a list such as 0-3,8")
    }
}

impl core::error::Error for ParseListError {}

/// A list being parsed, byte by byte.
pub(crate) struct Parser<const WORDS: usize> {
    set: IdSet<WORDS>,
    at: usize,
    /// The digits read since the last separator, as a number below the capacity.
    number: Option<usize>,
    /// The number before the dash of the range being read.
    from: Option<usize>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Start,
    Inside,
    /// The newline was read, after which the text must end.
    Ended,
}

impl<const WORDS: usize> Parser<WORDS> {
    pub(crate) fn new() -> Self {
        Parser { set: IdSet::new(), at: 0, number: None, from: None, state: State::Start }
    }

    pub(crate) fn feed(&mut self, byte: u8) -> Result<(), ParseListError> {
        match (byte, &self.state) {
            (_, State::Ended) => return Err(self.error(ListProblem::Unexpected(byte))),
            (b'\n', State::Start) => self.state = State::Ended,
            (b'\n', State::Inside) => {
                self.end_item()?;
                self.state = State::Ended;
            }
            (b'0'..=b'9', _) => {
                let number = self.number.unwrap_or(0) * 10 + usize::from(byte - b'0');
                if number >= IdSet::<WORDS>::CAPACITY {
                    return Err(self.error(ListProblem::TooLarge(IdSet::<WORDS>::CAPACITY)));
                }
                self.number = Some(number);
                self.state = State::Inside;
            }
            (b'-', _) if self.number.is_some() && self.from.is_none() => {
                self.from = self.number.take();
            }
            (b',', State::Inside) => self.end_item()?,
            (b'-' | b',', _) if self.number.is_none() => {
                return Err(self.error(ListProblem::NumberExpected));
            }
            _ => return Err(self.error(ListProblem::Unexpected(byte))),
        }
        self.at += 1;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<IdSet<WORDS>, ParseListError> {
        if self.state == State::Inside {
            self.end_item()?;
        }
        Ok(self.set)
    }

    /// Takes over the number or range that has just ended.
    fn end_item(&mut self) -> Result<(), ParseListError> {
        let Some(last) = self.number.take() else {
            return Err(self.error(ListProblem::NumberExpected));
        };
        let first = self.from.take().unwrap_or(last);
        if last < first {
            return Err(self.error(ListProblem::Reversed));
        }
        for id in first..=last {
            self.set.insert(id);
        }
        Ok(())
    }

    fn error(&self, problem: ListProblem) -> ParseListError {
        ParseListError { at: self.at, problem }
    }
}
