use super::*;
use crate::alloc::layout::class::CLASSES;
use crate::alloc::layout::range::{Range, kind_of};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashSet};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::vec;
use std::vec::Vec;

fn place(class: usize) -> Place {
    Place::new(Range::make().unwrap(), class)
}

/// The class of tests that rebuild lists from all spans there are: no other test uses it, and one of them runs at a
/// time.
const ALONE: usize = CLASSES - 5;
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Held for reading by tests with lists of their own, and for writing by those that release spans of all lists of the
/// process: these would move spans of the former to the process's lists.
pub(in crate::alloc) static RELEASE: RwLock<()> = RwLock::new(());

/// Lists that no other test has.
struct OwnSpans {
    spans: Spans,
    _no_release: RwLockReadGuard<'static, ()>,
}

impl Deref for OwnSpans {
    type Target = Spans;

    fn deref(&self) -> &Spans {
        &self.spans
    }
}

fn spans() -> OwnSpans {
    let _no_release = RELEASE.read().unwrap_or_else(PoisonError::into_inner);
    OwnSpans { spans: Spans::new(), _no_release }
}

#[test]
fn objects_of_a_span_are_apart_and_descend() {
    for class in (1..=CLASSES).filter(|class| *class != ALONE) {
        let (place, spans) = (place(class), spans());
        let shape = place.shape();
        let mut all = vec![0; shape.capacity];
        // The lower ones first.
        let half = shape.capacity.div_ceil(2);
        assert_eq!(spans.take(place, &mut all[..half]), half);
        let rest = &mut all[half..];
        assert_eq!(spans.take(place, rest), rest.len());
        assert!(
            all.chunks(half)
                .all(|taken| taken.windows(2).all(|two| two[0] - two[1] == shape.size as u64))
        );
        assert!(all[half..].last().is_none_or(|second| second - all[0] == shape.size as u64));
        let mut more = [0];
        assert_eq!(spans.take(place, &mut more), 1);
        assert!(!all.contains(&more[0]));
        all.iter().chain(&more).for_each(|object| spans.give(place, &[*object]));
        assert!(spans.heads.iter().all(|head| head.load(R) == 0), "all went back to the store");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a set: an object is allocated once, a freed one can be allocated again, and the fullest span comes
    /// first.
    #[test]
    fn as_a_set_of_objects(
        class in (1..=CLASSES).prop_filter("of one test alone", |class| *class != ALONE),
        steps in prop::collection::vec((0..100usize, any::<bool>(), any::<prop::sample::Index>()), 1..100),
    ) {
        let (place, spans) = (place(class), spans());
        let mut out: Vec<u64> = Vec::new();
        for (count, takes, which) in steps {
            if takes {
                let mut to = vec![0; count];
                let taken = spans.take(place, &mut to);
                prop_assert!(taken > 0 || count == 0);
                out.extend(&to[..taken]);
            } else {
                for _ in 0..count.min(out.len()) {
                    let object = out.swap_remove(which.index(out.len()));
                    spans.give(place, &[object]);
                }
            }
            let distinct: HashSet<u64> = out.iter().copied().collect();
            prop_assert_eq!(distinct.len(), out.len());
            // According to their records.
            let records: BTreeSet<usize> = out.iter().map(|object| find(place, *object as usize)).collect();
            let counted: u32 = records.iter().map(|chunk| place.range.record(*chunk).out.load(R)).sum();
            prop_assert_eq!(counted as usize, out.len());
        }
        out.iter().for_each(|object| spans.give(place, &[*object]));
        prop_assert!(spans.heads.iter().all(|head| head.load(R) == 0));
    }
}

/// Lists that were lost in the middle of an operation.
#[test]
fn lists_are_made_anew() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (place, spans) = (place(ALONE), spans());
    let mut objects = vec![0; 3 * place.shape().capacity];
    let mut taken = 0;
    while taken < objects.len() {
        taken += spans.take(place, &mut objects[taken..]);
    }
    // One of three is allocated.
    let (kept, given): (Vec<_>, Vec<_>) =
        objects.iter().enumerate().partition(|(nth, _)| nth % 3 == 0);
    given.iter().for_each(|(_, object)| spans.give(place, &[**object]));
    let garbage = Spans::new();
    garbage.heads[2].store(77, R);
    for chunk in starts(place) {
        place.range.record(chunk).next.store(99, R);
        place.range.record(chunk).out.store(1, R);
    }
    garbage.rebuild(place);
    let mut again = vec![0; given.len()];
    let mut taken = 0;
    while taken < again.len() {
        taken += garbage.take(place, &mut again[taken..]);
    }
    again.sort_unstable();
    let mut expected: Vec<u64> = given.iter().map(|(_, object)| **object).collect();
    expected.sort_unstable();
    assert_eq!(again, expected);
    kept.iter().for_each(|(_, object)| garbage.give(place, &[**object]));
    again.iter().for_each(|object| garbage.give(place, &[*object]));
    assert_eq!(count(place), (0, 0));
}

/// A fork stops a thread that names a fresh span: the child's objects of it lie in chunks that are all named.
#[test]
fn a_span_that_is_named_in_part() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let place = place(ALONE);
    let shape = place.shape();
    for named in 0..=shape.chunks {
        let chunk = page_heap::claim_on(place.range, 0, shape.chunks, shape.chunks).unwrap().first;
        clear(place.range.record(chunk));
        let mut lost = [0];
        assert_eq!(take_from(place, chunk, &mut lost), 1);
        naming(place, chunk).take(named).for_each(drop);
        let spans = spans();
        spans.rebuild(place);
        let mut objects = vec![0; shape.capacity - 1];
        assert_eq!(spans.take(place, &mut objects), shape.capacity - 1);
        for object in &objects {
            let ends = [*object, *object + shape.size as u64 - 1];
            let kinds = ends.map(|end| kind_of(end as *mut u8));
            assert_eq!(kinds, [Some(ALONE); 2], "{named} of {}", shape.chunks);
        }
        name(place, chunk);
        objects.iter().chain(&lost).for_each(|object| spans.give(place, &[*object]));
        assert_eq!(count(place), (0, 0));
    }
}

#[test]
fn a_span_that_sprouts_is_found_by_what_comes_back() {
    for class in [1, 20, CLASSES - 1] {
        let (place, spans) = (place(class), spans());
        let mut to = [0; 8];
        let (taken, one_more) = sprout(place, &mut to);
        assert!(taken > 0);
        let mut out: Vec<u64> = to[..taken].to_vec();
        if let Some(object) = one_more {
            assert!(!out.contains(&(object as u64)));
            spans.give(place, &[object as u64]);
            // It is on a list now, unless it was released.
            assert!(spans.heads.iter().any(|head| head.load(R) != 0));
        }
        out.drain(..).for_each(|object| spans.give(place, &[object]));
        assert!(spans.heads.iter().all(|head| head.load(R) == 0));
    }
}
