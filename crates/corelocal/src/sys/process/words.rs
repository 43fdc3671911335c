//! Environment variables of the library, and words in them that mean nothing: those are said once, with the nearest
//! known one.
//!
//! # Invariants
//! 1. Nothing is allocated, and no function of libc is called: the malloc reads its variable during its first call.
//! 2. A variable is reported on once in a process, by the thread that comes first.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicBool, Ordering};

/// A variable, whose value is words with commas between them.
pub(crate) struct Variable {
    name: &'static CStr,
    /// The known words as users write them. Capital letters stand for a value.
    known: &'static [&'static str],
    is_reported: AtomicBool,
}

impl Variable {
    pub(crate) const fn new(name: &'static CStr, known: &'static [&'static str]) -> Variable {
        Variable { name, known, is_reported: AtomicBool::new(false) }
    }

    /// Says on standard error which words of the value are not known. A word of one of the known names, without a
    /// value, is.
    pub(crate) fn report(&self, value: &[u8], is_known: impl Fn(&[u8]) -> bool) {
        let is_wrong = |word: &[u8]| {
            !word.is_empty()
                && !self.known.iter().any(|it| it.as_bytes() == word)
                && !is_known(word)
        };
        let mut wrong = value.split(|byte| *byte == b',').filter(|word| is_wrong(word)).peekable();
        // Relaxed: only this flag matters.
        if wrong.peek().is_some() && !self.is_reported.swap(true, Ordering::Relaxed) {
            wrong.for_each(|word| self.complain(word));
        }
    }

    fn complain(&self, word: &[u8]) {
        const MOST: usize = 60;
        let shown = word[..word.len().min(MOST)].escape_ascii();
        let name = self.name.to_str().unwrap_or_default();
        #[cfg(not(any(loom, miri)))]
        crate::sys::file::stderr::Line::print(format_args!(
            "corelocal: {name}: `{shown}` is not known and does nothing; the nearest is `{}`\n",
            nearest(word, self.known)
        ));
        #[cfg(any(loom, miri))]
        let _ = (shown, name);
    }
}

/// Returns the number of a signal: by its number, or its name with or without `SIG`.
pub fn signal(text: &[u8]) -> Option<c_int> {
    match text.strip_prefix(b"SIG").unwrap_or(text) {
        b"HUP" => Some(libc::SIGHUP),
        b"QUIT" => Some(libc::SIGQUIT),
        b"USR1" => Some(libc::SIGUSR1),
        b"USR2" => Some(libc::SIGUSR2),
        b"WINCH" => Some(libc::SIGWINCH),
        digits => {
            let number: c_int = core::str::from_utf8(digits).ok()?.parse().ok()?;
            (1..=64).contains(&number).then_some(number)
        }
    }
}

/// Returns the known word that is nearest in letters.
#[cfg_attr(any(loom, miri), allow(dead_code))]
fn nearest(word: &[u8], known: &[&'static str]) -> &'static str {
    let distance = |it: &&&str| {
        let it = it.as_bytes();
        (distance(name_of(word), name_of(it)), distance(word, it))
    };
    known.iter().min_by_key(distance).copied().unwrap_or_default()
}

/// Returns what stands before a value.
#[cfg_attr(any(loom, miri), allow(dead_code))]
fn name_of(word: &[u8]) -> &[u8] {
    word.split(|byte| matches!(byte, b':' | b'=')).next().unwrap_or(word)
}

/// Counts letters to change, to add or to leave out (Levenshtein). Only the first ones are looked at.
#[cfg_attr(any(loom, miri), allow(dead_code))]
fn distance(a: &[u8], b: &[u8]) -> usize {
    const MOST: usize = 32;
    let (a, b) = (&a[..a.len().min(MOST)], &b[..b.len().min(MOST)]);
    let mut row: [usize; MOST + 1] = core::array::from_fn(|nth| nth);
    for (nth, from) in a.iter().enumerate() {
        let mut before = core::mem::replace(&mut row[0], nth + 1);
        for (at, to) in b.iter().enumerate() {
            let changed = before + usize::from(!from.eq_ignore_ascii_case(to));
            before = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(before + 1);
        }
    }
    row[b.len()]
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, n) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "ABC", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("chekc", "check", 2),
        ] {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), n, "{a} {b}");
            assert_eq!(distance(b.as_bytes(), a.as_bytes()), n, "{b} {a}");
        }
        let long = [b'x'; 1000];
        assert_eq!(distance(&long, b"x"), 31);
    }

    #[test]
    fn nearest_words() {
        let known =
            &["check", "guard", "guard:N", "profile", "profile:PREFIX", "stats-signal:SIGNAL"];
        for (word, near) in [
            ("chekc", "check"),
            ("gaurd", "guard"),
            ("guard:x", "guard:N"),
            ("GUARD", "guard"),
            ("prof", "profile"),
            ("stats-sgnal:USR1", "stats-signal:SIGNAL"),
            ("profile-", "profile"),
        ] {
            assert_eq!(nearest(word.as_bytes(), known), near, "{word}");
        }
    }
}
