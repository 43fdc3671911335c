//! A writer that dies between two stores, in a test: it unwinds there, and what it stored stays.

use core::time::Duration;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::layout::Layout as _;
use super::lock_file::Annex;
use super::{Encoding, Period, ReadError, State, Status, clockbound, pvclock, vmclock};

std::thread_local! {
    /// The number of stores after which this thread's writer stops; negative: it does not stop.
    static STORES_LEFT: Cell<i64> = const { Cell::new(-1) };
}

struct Died;

/// Called after each store of a writer.
pub(super) fn point() {
    let left = STORES_LEFT.get();
    if left == 1 {
        STORES_LEFT.set(-1);
        resume_unwind(std::boxed::Box::new(Died));
    }
    STORES_LEFT.set((left - 1).max(-1));
}

/// Runs `writer` until it has made `stores` stores. Whether it was stopped there.
fn after(stores: u32, writer: impl FnOnce()) -> bool {
    STORES_LEFT.set(i64::from(stores));
    let result = catch_unwind(AssertUnwindSafe(writer));
    STORES_LEFT.set(-1);
    match result {
        Ok(()) => false,
        Err(cause) if cause.is::<Died>() => true,
        Err(cause) => resume_unwind(cause),
    }
}

/// Returns a content in which every word tells the number of its publication.
fn numbered<P: Encoding>(n: u64) -> P::Content {
    P::Content::from(&State {
        counter: n,
        time: Duration::new(n, n as u32),
        period: Period { fraction: n, shift: 0 },
        max_error_ns: n,
        estimated_error_ns: Some(n),
        drift_ppb: n as u32,
        status: Status::Synchronized,
        disruptions: n,
        is_hypervisors_marker: true,
        tai_offset: Some(n as i16),
        generation: Some(n),
        published: Duration::new(n, n as u32),
        ..State::default()
    })
}

/// Lets a writer die after each of its stores, and another one take over.
fn die_everywhere<P: Encoding>(page: &P, annex: Option<&Annex>) {
    page.publish(annex, &numbered::<P>(1));
    let mut deaths = 0;
    for stores in 1.. {
        let before = page.read(annex).unwrap();
        let died = after(stores, || page.publish(annex, &numbered::<P>(2)));
        let left = page.read(annex);
        match left {
            // Before the number was odd, or after it was even again.
            Ok((mark, content)) => {
                assert!(!page.mark(annex).is_odd());
                let is_new = mark.number != before.0.number;
                assert_eq!(content, if is_new { numbered::<P>(2) } else { before.1 }, "{stores}");
            }
            Err(doubt) => {
                assert_eq!(doubt, ReadError::Odd);
                assert!(page.mark(annex).is_odd() && !page.is_current(annex, before.0));
                deaths += 1;
            }
        }
        // A new writer may die in the same way, again and again.
        for again in 1..4 {
            after(again, || page.publish(annex, &numbered::<P>(3)));
            if let Ok((_, content)) = page.read(annex) {
                assert_eq!(Some(content), left.ok().map(|(_, content)| content));
            }
        }
        page.publish(annex, &numbered::<P>(1));
        let (mark, content) = page.read(annex).unwrap();
        assert_eq!(content, numbered::<P>(1));
        assert!(
            mark != before.0 && page.is_current(annex, mark) && !page.is_current(annex, before.0)
        );
        if !died {
            break;
        }
    }
    assert!(deaths >= 4, "{deaths}");
}

#[test]
fn a_writer_that_dies_at_any_store_leaves_no_torn_content() {
    die_everywhere(&pvclock::Page::new(), None);
    die_everywhere(&vmclock::Page::new(), None);
    die_everywhere(&clockbound::Page::new(), None);
    die_everywhere(&clockbound::Page::new(), Some(&annex()));
}

fn annex() -> Annex {
    // SAFETY: atomics, of which zero is a value.
    unsafe { core::mem::zeroed() }
}

#[test]
fn numbers_come_around() {
    let page = clockbound::Page::new();
    let annex = annex();
    page.set_generation(0xfffd);
    page.publish(Some(&annex), &numbered::<clockbound::Page>(1));
    // From 0xfffd, which is odd: a dead writer's.
    assert_eq!(page.mark(None).number, 2);
    page.set_generation(0xfffc);
    page.publish(Some(&annex), &numbered::<clockbound::Page>(1));
    assert_eq!(page.mark(None).number, 0xfffe);
    let (old, _) = page.read(Some(&annex)).unwrap();
    page.publish(Some(&annex), &numbered::<clockbound::Page>(1));
    assert_eq!(page.mark(None).number, 2);
    // All the way around: only the wide number tells.
    for _ in 0..0x7fff - 1 {
        page.publish(Some(&annex), &numbered::<clockbound::Page>(2));
    }
    assert_eq!(page.mark(None).number, old.number);
    assert!(!page.is_current(Some(&annex), old));
}
