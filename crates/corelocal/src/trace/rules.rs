//! Which sites are on: patterns of names, of which the last one that matches decides.
//!
//! A rule switches sites on, off, or to a part of their events, taken by chance. The rules are in the header of the
//! recording, so that other processes see them. They hold for sites that are reached later, too.
//!
//! # Invariants
//! 1. One thread at a time changes rules; others that want to give up after a while.
//! 2. The version is odd while rules change. A site that is registered meanwhile is switched again by the thread that
//!    changes them.

use core::fmt;
use core::sync::atomic::{Ordering, fence};

use super::format::{HEADER_LEN, Level, MOST_RULES, RULE_LEN, header};
use super::memory::{Recording, rules_are_changed};
use super::site::{self, Site};

const ON: u8 = 1;
const OFF: u8 = 2;
const PART: u8 = 3;
/// The offset of the sampling interval in a sampling rule.
const EVERY: usize = RULE_LEN - 4;
/// The unit of the version, which stands above the number of rules in the word.
const VERSION: u64 = 1 << 16;
/// The number of looks at whether another thread is ready.
const LOOKS: u32 = 10_000;

/// The reason why sites were not switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchError {
    /// This process records nothing.
    NotRecording,
    /// The pattern is longer than 126 bytes, or 122 with a part; it has a zero byte; or it names no level behind `@`.
    BadPattern,
    /// There are 24 rules. One for `*` replaces them all.
    TooManyRules,
    /// Another thread switches sites.
    Busy,
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SwitchError::NotRecording => "this process records nothing: call corelocal::trace::start",
            SwitchError::BadPattern => {
                "a pattern of names has at most 126 bytes (122 with a part), and no zero byte; behind `@` it is error, warn, \
                 info, debug or trace"
            }
            SwitchError::TooManyRules => {
                "there are too many patterns of names: switch `*` on or off first, which replaces all"
            }
            SwitchError::Busy => "another thread switches sites; try again",
        })
    }
}

impl core::error::Error for SwitchError {}

/// A rule: its number of `MOST_RULES`.
#[derive(Clone, Copy)]
struct Rule(usize);

impl Rule {
    fn byte(self, recording: &Recording, at: usize) -> u8 {
        const { assert!(header::FIRST_RULE + MOST_RULES * RULE_LEN <= HEADER_LEN) };
        recording.byte(header::FIRST_RULE + self.0 * RULE_LEN + at).load(Ordering::Relaxed)
    }

    /// Returns the pattern, in an array that a zero byte ends.
    fn pattern(self, recording: &Recording) -> [u8; RULE_LEN] {
        let mut pattern = core::array::from_fn(|at| match at + 1 {
            RULE_LEN => 0,
            at => self.byte(recording, at),
        });
        pattern[RULE_LEN - 1] = 0;
        pattern
    }

    /// Returns how many events there are for each that is recorded; 0: none is.
    fn every(self, recording: &Recording) -> u32 {
        match self.byte(recording, 0) {
            ON => 1,
            PART => u32::from_le_bytes([0, 1, 2, 3].map(|nth| self.byte(recording, EVERY + nth))),
            _ => 0,
        }
    }

    fn store(self, recording: &Recording, every: u32, pattern: &[u8]) {
        let kind = match every {
            0 => OFF,
            1 => ON,
            _ => PART,
        };
        let mut bytes = [0; RULE_LEN];
        bytes[0] = kind;
        bytes[1..=pattern.len()].copy_from_slice(pattern);
        if kind == PART {
            bytes[EVERY..].copy_from_slice(&every.to_le_bytes());
        }
        let first = header::FIRST_RULE + self.0 * RULE_LEN;
        for (at, byte) in bytes.into_iter().enumerate() {
            recording.byte(first + at).store(byte, Ordering::Relaxed);
        }
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Returns `true` if a rule concerns a site. `@level` stands for this level and more severe ones, if sites are switched
/// on, and for this level and finer ones, if they are switched off.
fn concerns(pattern: &[u8], every: u32, site: &Site) -> bool {
    match pattern.strip_prefix(b"@") {
        Some(name) => site
            .level()
            .zip(level(name))
            .is_some_and(|(level, named)| if every == 0 { level >= named } else { level <= named }),
        None => matches(pattern, site.name().as_bytes()),
    }
}

fn level(name: &[u8]) -> Option<Level> {
    Level::ALL.into_iter().find(|level| level.name().as_bytes().eq_ignore_ascii_case(name))
}

/// Returns how many events of a site there are for each that is recorded; 0: none is.
pub(super) fn say(recording: &Recording, site: &Site) -> u32 {
    // Acquire: partner is the Release in `add`.
    let count = recording.word(header::RULES).load(Ordering::Acquire) % VERSION;
    let rules = (0..(count as usize).min(MOST_RULES)).rev().map(Rule);
    let decides =
        |rule: &Rule| concerns(until_zero(&rule.pattern(recording)), rule.every(recording), site);
    rules.into_iter().find(decides).map_or(1, |rule| rule.every(recording))
}

/// Switches the site as the rules say.
pub(super) fn apply(recording: &Recording, site: &Site) {
    let version = || recording.word(header::RULES).load(Ordering::Acquire) / VERSION;
    loop {
        let before = version();
        site.switch(say(recording, site));
        recording.note(site);
        // Partner: the fence in `add`.
        fence(Ordering::SeqCst);
        let now = version();
        // In between, or in a signal handler that interrupts that thread, the other one does it. (2)
        if now == before || now % 2 == 1 {
            return;
        }
    }
}

/// Adds a rule. Returns how many registered sites match its pattern.
pub(super) fn add(pattern: &str, every: u32) -> Result<usize, SwitchError> {
    let recording = Recording::here().ok_or(SwitchError::NotRecording)?;
    let is_changed = rules_are_changed().ok_or(SwitchError::NotRecording)?;
    let pattern = pattern.as_bytes();
    let most = if every > 1 { EVERY - 2 } else { RULE_LEN - 2 };
    let is_no_level = pattern.strip_prefix(b"@").is_some_and(|name| level(name).is_none());
    if pattern.len() > most || pattern.contains(&0) || is_no_level {
        return Err(SwitchError::BadPattern);
    }
    let mut looks = 0;
    // Acquire and, below, Release: of the rules, between threads that change them. (1)
    while is_changed.swap(1, Ordering::Acquire) != 0 {
        looks += 1;
        if looks == LOOKS {
            return Err(SwitchError::Busy);
        }
        // SAFETY: no preconditions.
        unsafe { libc::sched_yield() };
    }
    let changed = change(&recording, pattern, every);
    is_changed.store(0, Ordering::Release);
    changed?;
    // Partner: the fences in `apply` and `Site::register`.
    fence(Ordering::SeqCst);
    let matching = |site: &&Site| concerns(pattern, every, site);
    Ok(site::all().inspect(|site| apply(&recording, site)).filter(matching).count())
}

/// Changes the rules: the new one comes last, in place of one with the same pattern.
fn change(recording: &Recording, pattern: &[u8], every: u32) -> Result<(), SwitchError> {
    let word = recording.word(header::RULES);
    let before = word.load(Ordering::Relaxed);
    let count = if pattern == b"*" { 0 } else { (before % VERSION) as usize };
    let same = (0..count).find(|&nth| until_zero(&Rule(nth).pattern(recording)) == pattern);
    if count == MOST_RULES && same.is_none() {
        return Err(SwitchError::TooManyRules);
    }
    let odd = before + VERSION;
    word.store(odd, Ordering::Relaxed);
    // A thread that sees a change below sees the odd version, or a later one.
    fence(Ordering::Release);
    let mut last = count;
    if let Some(same) = same {
        last -= 1;
        for nth in same..last {
            let (every, pattern) =
                (Rule(nth + 1).every(recording), Rule(nth + 1).pattern(recording));
            Rule(nth).store(recording, every, until_zero(&pattern));
        }
    }
    Rule(last).store(recording, every, pattern);
    let version = (odd / VERSION + 1) * VERSION;
    // Release: partner is the Acquire in `say`.
    word.store(version + last as u64 + 1, Ordering::Release);
    Ok(())
}

/// Returns `true` if the pattern matches all of the name: `*` stands for any bytes.
#[doc(hidden)]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    // The last `*`, and where in the name what it stands for ends.
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(byte) if *byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((star_at, end)) = star else { return false };
                star = Some((star_at, end + 1));
                (at, in_name) = (star_at + 1, end + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, name, is_match) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a::b", true),
            ("a::*", "a::b", true),
            ("a::*", "b::a::c", false),
            ("*::b", "a::b::b", true),
            ("*b*d*", "abcd", true),
            ("a*bc", "abcbc", true),
            ("a*bc", "abcb", false),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is_match, "{pattern} {name}");
        }
    }
}
