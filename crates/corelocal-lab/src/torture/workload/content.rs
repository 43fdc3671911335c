//! An object's content, as a few numbers that fit on the victim's board.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

/// The maximum number of numbers. No workload's object holds more, not even a broken one by accident.
const MOST: usize = 15;

/// An object's content: a few numbers, in the order of its model.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Content {
    len: usize,
    numbers: [i64; MOST],
}

impl Content {
    /// As many of the numbers as fit.
    pub fn of(numbers: impl IntoIterator<Item = i64>) -> Content {
        let mut content = Content::default();
        numbers.into_iter().for_each(|number| content.push(number));
        content
    }

    /// Adds a number, if it fits.
    pub fn push(&mut self, number: i64) {
        if let Some(place) = self.numbers.get_mut(self.len) {
            *place = number;
            self.len += 1;
        }
    }

    /// Returns the numbers.
    pub fn numbers(&self) -> &[i64] {
        &self.numbers[..self.len]
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.numbers(), f)
    }
}

/// Storage for a content, in memory that other threads see.
#[repr(C)]
#[derive(Default)]
pub struct Cells {
    len: AtomicI64,
    numbers: [AtomicI64; MOST],
}

impl Cells {
    /// Stores a content. Async-signal-safe.
    pub fn store(&self, content: &Content) {
        for (cell, number) in self.numbers.iter().zip(content.numbers()) {
            cell.store(*number, Ordering::Relaxed);
        }
        self.len.store(content.len as i64, Ordering::Relaxed);
    }

    /// Loads a content from another process, word by word: `word` reads the one at this index.
    ///
    /// # Errors
    /// Those of `word`.
    pub fn load<E>(word: impl Fn(usize) -> Result<i64, E>) -> Result<Content, E> {
        let len = usize::try_from(word(0)?).unwrap_or(0).min(MOST);
        let mut content = Content { len, ..Content::default() };
        for (i, number) in content.numbers[..len].iter_mut().enumerate() {
            *number = word(1 + i)?;
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_loaded() {
        for len in [0, 1, MOST, MOST + 3] {
            let content = Content::of((1..).take(len));
            assert_eq!(content.numbers().len(), len.min(MOST));
            let cells = Cells::default();
            cells.store(&Content::of([7; MOST]));
            cells.store(&content);
            let words: Vec<i64> = [&cells.len]
                .into_iter()
                .chain(&cells.numbers)
                .map(|cell| cell.load(Ordering::Relaxed))
                .collect();
            assert_eq!(Cells::load(|word| words.get(word).copied().ok_or(())), Ok(content));
        }
    }
}
