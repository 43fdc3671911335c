//! Events whose sources are made up, and the real ones at rest.

use super::*;
use crate::clock;
use crate::clock::counter::Fence;
use std::vec::Vec;

const HOUR: u64 = 3_600_000_000_000;

fn quiet() -> Seen {
    Seen {
        realtime: Range { least: 1 << 60, width: 40 },
        boottime: Range { least: u64::MAX - 20, width: 40 },
        disruptions: Some(5),
        generation: Some(1 << 63),
        pvclock: Some((8, false)),
        counter: Some(Fence::FENCED),
    }
}

/// What happens at each of some looks.
fn changes(looks: &[Seen]) -> Vec<Vec<Change>> {
    let events = Events::new();
    let mut last = events.epoch(0);
    looks
        .iter()
        .map(|seen| {
            events.look(|| *seen);
            let epoch = events.epoch(0);
            let changes: Vec<_> = epoch.since(&last).map(|(change, _)| change).collect();
            let grew = epoch.number() > last.number();
            assert_eq!(grew, changes.iter().any(|change| !change.is_hint()), "{epoch:?} {last:?}");
            last = epoch;
            changes
        })
        .collect()
}

#[test]
fn nothing_happens_at_rest() {
    let shaky = |by: u64, width| Range { least: (1u64 << 60).wrapping_add(by), width };
    let looks = [
        quiet(),
        quiet(),
        Seen { realtime: shaky(50, 4), ..quiet() },
        Seen { realtime: shaky(0u64.wrapping_sub(5000), 10_000), ..quiet() },
        // The checking thread was delayed for a millisecond, then for an hour.
        Seen { realtime: shaky(0u64.wrapping_sub(1_000_000), 1_000_000), ..quiet() },
        Seen { realtime: shaky(0u64.wrapping_sub(HOUR), HOUR), ..quiet() },
        // The sources are gone.
        Seen { disruptions: None, generation: None, pvclock: None, ..quiet() },
        quiet(),
    ];
    assert!(changes(&looks).iter().all(Vec::is_empty));
}

#[test]
fn each_change_is_told_once_with_its_cause() {
    let set = Seen { realtime: Range { least: (1 << 60) + HOUR, width: 40 }, ..quiet() };
    let by_a_little = Seen { realtime: Range { least: (1 << 60) + HOUR - 2000, width: 40 }, ..set };
    let slept = Seen { boottime: Range { least: HOUR, width: 300 }, ..by_a_little };
    let moved = Seen { disruptions: Some(6), ..slept };
    let restored = Seen { generation: Some(2), disruptions: Some(7), ..moved };
    let stopped = Seen { pvclock: Some((10, true)), ..restored };
    let cleared = Seen { pvclock: Some((10, false)), ..restored };
    let unstable = Seen { counter: None, ..cleared };
    let looks = [
        (quiet(), &[][..]),
        (set, &[Change::Realtime]),
        (set, &[]),
        (by_a_little, &[Change::Realtime]),
        (slept, &[Change::Suspend]),
        (moved, &[Change::Disruption]),
        (restored, &[Change::Disruption, Change::Restore]),
        (stopped, &[Change::Stopped, Change::Republished]),
        (cleared, &[]),
        (unstable, &[Change::Counter]),
        (unstable, &[]),
        (cleared, &[Change::Counter]),
    ];
    let seen: Vec<Seen> = looks.iter().map(|(seen, _)| *seen).collect();
    for (told, (seen, expected)) in changes(&seen).iter().zip(looks) {
        assert_eq!(told, expected, "{seen:?}");
    }
}

/// The first look was held up for milliseconds: what it knows is little, and the next one knows better.
#[test]
fn a_first_look_that_took_long_is_no_reason() {
    let early = Range { least: (1 << 60) - 7_000_000, width: 7_000_001 };
    let late = Range { least: 1 << 60, width: 7_000_000 };
    for first in [early, late] {
        let first = Seen { realtime: first, ..quiet() };
        let set = Seen { realtime: Range { least: (1 << 60) + 3000, width: 40 }, ..quiet() };
        let told = changes(&[first, quiet(), quiet(), set]);
        let expected: [&[Change]; 4] = [&[], &[], &[], &[Change::Realtime]];
        assert_eq!(told, expected);
    }
}

/// A thread that looked before the clock was set, and was then delayed, does not undo what others have seen since.
#[test]
fn a_late_looker_changes_nothing() {
    let events = Events::new();
    events.look(quiet);
    let set = Seen { realtime: Range { least: (1 << 60) + HOUR, width: 40 }, ..quiet() };
    events.look(|| {
        events.look(|| set);
        quiet()
    });
    events.look(|| set);
    assert_eq!(events.epoch(0).count(Change::Realtime), 1);
    assert_eq!(events.epoch(0).upsets(), 0);
}

#[test]
fn the_word_tells_what_ticks_are_counted_in() {
    for counter in [None, Some(Fence::FENCED), Some(Fence::BY_ITSELF)] {
        let events = Events::new();
        let word = events.word(|| events.look(|| Seen { counter, ..quiet() }));
        assert_eq!(word.counter(), counter);
        events.happened(Change::Suspend);
        events.happened(Change::Stopped);
        let later = events.word(|| unreachable!());
        assert_eq!(later.counter(), counter);
        assert_eq!(number(later.0, 7), number(word.0, 7) + 1);
        let number = events.epoch(7).number();
        events.look(|| Seen { counter: Some(Fence::FENCED), ..quiet() });
        let changed = counter != Some(Fence::FENCED);
        assert_eq!(events.epoch(7).number() - number, u64::from(changed));
    }
}

#[test]
fn every_change_has_a_place_and_a_sentence() {
    for (at, change) in Change::ALL.into_iter().enumerate() {
        assert_eq!(change as usize, at);
        assert!(!std::format!("{change}").is_empty());
    }
    let events = Events::new();
    events.happened(Change::Realtime);
    assert_eq!(std::format!("{:?}", events.epoch(3)), r#"{"number": 4, Backend: 3, Realtime: 1}"#);
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_hypervisors_page_tells_marker_and_generation() {
    use crate::clock::page::vmclock::{Content, Page, flags};
    let page = Page::new();
    page.write(&Content { disruptions: 3, ..Content::default() });
    assert_eq!(sources::with_device::read(&page), (Some(3), None));
    let flags = flags::GENERATION_PRESENT;
    page.write(&Content { disruptions: 4, generation: 9, flags, ..Content::default() });
    assert_eq!(sources::with_device::read(&page), (Some(4), Some(9)));
}

#[cfg(not(miri))]
#[test]
fn a_real_machine_at_rest() {
    // Other tests of this process break converters, and settle.
    let before = clock::check();
    for _ in 0..10_000 {
        clock::check();
    }
    let after = clock::check();
    assert!(after.number() >= before.number());
    assert_eq!(after.count(Change::Suspend), before.count(Change::Suspend), "{after:?}");
    assert!(clock::status().epoch >= after.number());
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_watcher_is_not_ready_at_rest() {
    let mut watcher = clock::Watcher::new().unwrap();
    let mut poll = libc::pollfd { fd: watcher.fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    let ready = unsafe { libc::poll(&mut poll, 1, 0) };
    let epoch = watcher.look();
    assert_eq!(ready, 0, "{epoch:?}");
}
