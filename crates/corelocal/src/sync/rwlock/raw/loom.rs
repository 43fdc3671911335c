//! Model: readers, writers and upgradable readers in every order. Then mutants with one fault each.
//!
//! In a model a thread that was overtaken once insists, and a deadline passes at any time.

use super::*;
use crate::sync::machinery::scope::Private;
use crate::sys::futex::Deadline;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

type Raw = super::Raw<Private>;

/// The functions with which threads lock and unlock, of which a mutant replaces one.
#[derive(Clone, Copy)]
struct Algorithm {
    read: fn(&Raw),
    unlock_read: fn(&Raw),
    write: fn(&Raw),
    unlock_write: fn(&Raw),
    /// Locks for writing; returns false if it gave up.
    try_write: fn(&Raw) -> bool,
    upgrade: fn(&Raw),
}

const RIGHT: Algorithm = Algorithm {
    read: |raw| assert!(raw.read_at_once() || raw.read_cold(None)),
    unlock_read: Raw::unlock_read,
    write: |raw| assert!(raw.try_write(tag()) || raw.lock_cold(Kind::Writer, None)),
    unlock_write: |raw| raw.unlock_write_as(tag()),
    try_write: |raw| raw.try_write(tag()) || raw.lock_cold(Kind::Writer, Some(Deadline::now())),
    upgrade: |raw| assert!(raw.try_upgrade() || raw.upgrade_cold(None)),
};

/// The algorithm as in a forked child, where readers are not visitors.
const NO_VISITORS: Algorithm =
    Algorithm { read: |raw| assert!(raw.try_read() || raw.read_cold(None)), ..RIGHT };

/// In a model all threads have the same tag.
fn tag() -> u32 {
    state::tag::<Private>()
}

struct Model {
    ways: Algorithm,
    raw: Raw,
    value: UnsafeCell<u32>,
}

impl Model {
    /// Leaked: loom panics in its own drop after a deadlock.
    fn leaked(ways: Algorithm) -> &'static Model {
        let model = Model { ways, raw: Raw::new(), value: UnsafeCell::new(0) };
        Box::leak(Box::new(model))
    }

    fn add(&self) {
        // SAFETY: called by writers only.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn value(&self) -> u32 {
        // SAFETY: called by readers and writers.
        self.value.with(|value| unsafe { *value })
    }

    fn read(&self) -> u32 {
        (self.ways.read)(&self.raw);
        let value = self.value();
        (self.ways.unlock_read)(&self.raw);
        value
    }

    fn write(&self) {
        (self.ways.write)(&self.raw);
        self.add();
        (self.ways.unlock_write)(&self.raw);
    }

    /// Tries to write, and returns how often it has written: 0 or 1.
    fn try_write(&self) -> u32 {
        let begun = (self.ways.try_write)(&self.raw);
        if begun {
            self.add();
            (self.ways.unlock_write)(&self.raw);
        }
        u32::from(begun)
    }

    fn upgrade(&self) {
        assert!(self.raw.try_upgradable() || self.raw.lock_cold(Kind::Upgradable, None));
        let before = self.value();
        (self.ways.upgrade)(&self.raw);
        assert_eq!(self.value(), before, "another thread wrote in between");
        self.add();
        (self.ways.unlock_write)(&self.raw);
    }
}

/// Runs two other threads and this one. At the end the lock is free, and was written to this often.
fn explore(ways: Algorithm, others: [fn(&Model) -> u32; 2], mine: fn(&Model) -> u32) {
    explore_within(2, ways, others, mine);
}

/// With fewer preemptions, where deadlines alone yield many orders.
fn explore_within(
    preemptions: usize,
    ways: Algorithm,
    others: [fn(&Model) -> u32; 2],
    mine: fn(&Model) -> u32,
) {
    crate::explore::within(preemptions, move || {
        let model = Model::leaked(ways);
        let others = others.map(|other| thread::spawn(move || other(model)));
        let mut written = mine(model);
        written += others.into_iter().map(|other| other.join().unwrap()).sum::<u32>();
        assert_eq!(model.read(), written);
        assert!(model.raw.is_quiet(), "{:#x}", model.raw.load().0);
    });
}

fn reads(model: &Model) -> u32 {
    model.read();
    0
}

fn writes(model: &Model) -> u32 {
    model.write();
    1
}

fn tries_to_write(model: &Model) -> u32 {
    model.try_write()
}

fn upgrades(model: &Model) -> u32 {
    model.upgrade();
    1
}

fn tries_to_read(model: &Model) -> u32 {
    if model.raw.try_read() || model.raw.read_cold(Some(Deadline::now())) {
        model.value();
        model.raw.unlock_read();
    }
    0
}

fn tries_to_upgrade(model: &Model) -> u32 {
    if !model.raw.try_upgradable() && !model.raw.lock_cold(Kind::Upgradable, Some(Deadline::now()))
    {
        return 0;
    }
    let upgraded = model.raw.try_upgrade() || model.raw.upgrade_cold(Some(Deadline::now()));
    if upgraded {
        model.add();
        model.raw.unlock_write();
    } else {
        model.raw.unlock_upgradable();
    }
    u32::from(upgraded)
}

/// As a writer, then as an upgradable reader, then as a reader.
fn downgrades(model: &Model) -> u32 {
    (model.ways.write)(&model.raw);
    model.add();
    let value = model.value();
    model.raw.downgrade_to_upgradable();
    assert_eq!(model.value(), value);
    model.raw.downgrade_upgradable();
    assert_eq!(model.value(), value);
    model.raw.unlock_read();
    1
}

#[test]
fn loom_writers_take_turns() {
    explore(RIGHT, [writes, writes], writes);
}

#[test]
fn loom_readers_and_a_writer() {
    explore(RIGHT, [reads, reads], writes);
}

#[test]
fn loom_writers_and_a_reader() {
    explore(RIGHT, [writes, reads], writes);
    explore(RIGHT, [writes, reads], reads);
}

#[test]
fn loom_no_visitors() {
    explore(NO_VISITORS, [reads, reads], writes);
    explore(NO_VISITORS, [writes, reads], writes);
}

#[test]
fn loom_nobody_writes_before_the_upgrade() {
    explore(RIGHT, [upgrades, reads], writes);
}

#[test]
fn loom_two_upgrade_one_after_the_other() {
    explore(RIGHT, [upgrades, upgrades], reads);
}

#[test]
fn loom_nobody_writes_after_a_downgrade() {
    explore(RIGHT, [downgrades, reads], writes);
}

#[test]
fn loom_a_writer_gives_up() {
    explore_within(1, RIGHT, [tries_to_write, reads], writes);
    explore_within(1, RIGHT, [tries_to_write, writes], writes);
    explore_within(1, RIGHT, [tries_to_write, reads], reads);
}

#[test]
fn loom_a_reader_gives_up() {
    explore_within(1, RIGHT, [tries_to_read, reads], writes);
    explore_within(1, RIGHT, [tries_to_read, writes], writes);
}

#[test]
fn loom_an_upgrade_gives_up() {
    explore_within(1, RIGHT, [tries_to_upgrade, reads], writes);
    explore_within(1, RIGHT, [tries_to_upgrade, reads], reads);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_last_reader_that_wakes_nobody() {
    let unlock_read = |raw: &Raw| {
        raw.state.fetch_sub(READER, Ordering::Release);
    };
    explore(Algorithm { unlock_read, ..RIGHT }, [reads, reads], writes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_reader_without_release() {
    let unlock_read = |raw: &Raw| {
        let before = State(raw.state.fetch_sub(READER, Ordering::Relaxed));
        if before.awaits_readers() {
            Raw::wake_after_readers(&raw.state, before);
        }
    };
    explore(Algorithm { unlock_read, ..RIGHT }, [reads, reads], writes);
}

/// As a reader with this outcome of its visit.
fn reads_after_a_visit(raw: &Raw, was_open: bool) {
    if !was_open {
        assert!(raw.read_cold(None));
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_visitor_that_stays() {
    let read = |raw: &Raw| {
        raw.state.fetch_add(READER, Ordering::Acquire);
    };
    explore(Algorithm { read, ..RIGHT }, [reads, reads], writes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_visitor_without_acquire() {
    let read = |raw: &Raw| {
        let before = State(raw.state.fetch_add(READER, Ordering::Relaxed));
        let is_open = before.is_open_in_first_generation() || raw.visitor_leaves();
        reads_after_a_visit(raw, is_open);
    };
    explore(Algorithm { read, ..RIGHT }, [reads, reads], writes);
}

/// A writer waits for it, and sleeps on.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_visitor_that_leaves_in_silence() {
    let read = |raw: &Raw| {
        let before = State(raw.state.fetch_add(READER, Ordering::Acquire));
        let is_open = before.is_open_in_first_generation();
        if !is_open {
            raw.state.fetch_sub(READER, Ordering::Release);
        }
        reads_after_a_visit(raw, is_open);
    };
    explore(Algorithm { read, ..RIGHT }, [writes, reads], reads);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_writer_that_wakes_readers_only() {
    let unlock_write = |raw: &Raw| {
        raw.change_any(Ordering::Release, |state| state.let_go().without(ASLEEP));
        half_word_wait::wake::<Private>(&raw.state, Half::Readers, u32::MAX);
    };
    explore(Algorithm { unlock_write, ..RIGHT }, [writes, reads], writes);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_writer_that_wakes_one_reader() {
    let unlock_write = |raw: &Raw| {
        raw.change_any(Ordering::Release, |state| state.let_go().without(ASLEEP));
        half_word_wait::wake::<Private>(&raw.state, Half::Readers, 1);
        half_word_wait::wake::<Private>(&raw.state, Half::Writers, 1);
    };
    explore(Algorithm { unlock_write, ..RIGHT }, [reads, reads], writes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_writer_without_release() {
    let unlock_write = |raw: &Raw| {
        let before = raw.change_any(Ordering::Relaxed, |state| state.let_go().without(ASLEEP));
        if before.has(ASLEEP) {
            Raw::wake_everybody(&raw.state);
        }
    };
    explore(Algorithm { unlock_write, ..RIGHT }, [writes, reads], writes);
}

/// It closes the lock, and leaves it closed.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_writer_that_gives_up_without_a_word() {
    let try_write = |raw: &Raw| {
        if raw.try_write(tag()) {
            return true;
        }
        let state = raw.change_any(Ordering::Relaxed, |state| {
            if state.has(WRITING) { state } else { state.with(CLOSED | WRITERS_ASLEEP) }
        });
        half_word_wait::wait::<Private>(&raw.state, Half::Writers, state.0, Some(Deadline::now()));
        false
    };
    explore(Algorithm { try_write, ..RIGHT }, [tries_to_write, reads], reads);
}

/// Of two writers that slept, the first one leaves as if there were no other sleepers.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_writer_that_forgets_the_others() {
    let write = |raw: &Raw| {
        while !raw.try_write(tag()) {
            let state = raw.load();
            if state.is_free() {
                continue;
            }
            let said = state.with(WRITERS_ASLEEP);
            if raw.change(state, said, Ordering::Relaxed).is_ok() {
                half_word_wait::wait::<Private>(&raw.state, Half::Writers, said.0, None);
            }
        }
    };
    explore(Algorithm { write, ..RIGHT }, [writes, writes], writes);
}

/// A reader that entered meanwhile sees the value change.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_an_upgrade_beside_readers() {
    let upgrade = |raw: &Raw| {
        raw.change_any(Ordering::Acquire, |state| state.upgraded());
    };
    explore(Algorithm { upgrade, ..RIGHT }, [upgrades, reads], reads);
}

/// The last reader wakes a writer, which cannot begin, instead of the upgrading reader.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_an_upgrade_that_does_not_say_so() {
    let upgrade = |raw: &Raw| {
        while !raw.try_upgrade() {
            let state = raw.load();
            if state.readers() > 0 {
                half_word_wait::wait::<Private>(&raw.state, Half::Writers, state.0, None);
            }
        }
    };
    explore(Algorithm { upgrade, ..RIGHT }, [upgrades, reads], reads);
}
