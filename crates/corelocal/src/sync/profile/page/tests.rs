//! Tests of `page.rs`.

use super::*;
use crate::sync::profile::kind::Kind;
use crate::sys::forks;
use crate::sys::memory::pages;

/// A page that is never unmapped.
pub(in crate::sync::profile) fn page() -> &'static Page {
    let at = pages::map(LEN).unwrap().cast::<Page>();
    // SAFETY: zeroed pages, which are never unmapped.
    let page = unsafe { &*at };
    page.generation.store(forks::generation().into(), Relaxed);
    page
}

#[test]
fn each_lock_has_its_record_until_there_is_no_room() {
    let page = page();
    let key = |at: usize| Key::new(Kind::Mutex, 0x7f00_0000_0000 + at * 8);
    assert!(page.known_record_of(key(0)).is_none());
    let found = (0..4 * LOCKS).filter(|at| page.record_of(key(*at)).is_some()).count();
    assert!(found > LOCKS - REACH && found <= LOCKS, "{found}");
    for at in 0..4 * LOCKS {
        let (known, record) = (page.known_record_of(key(at)), page.record_of(key(at)));
        assert_eq!(known.is_some(), record.is_some());
        assert!(known.is_none_or(|known| known.key() == Some(key(at))));
    }
    let other = Key::new(Kind::Read, 0x7f00_0000_0000);
    assert!(page.known_record_of(other).is_none());
}

#[test]
fn traces_run_out() {
    let page = page();
    let words: std::vec::Vec<_> = (0..TRACES + 3).map(|_| AtomicU64::new(0)).collect();
    let given = words.iter().filter(|word| page.trace_at(word).is_some()).count();
    assert_eq!((given, page.traces_missed()), (TRACES, 3));
    let same = |word| core::ptr::from_ref(page.trace_at(word).unwrap());
    assert_eq!(same(&words[0]), same(&words[0]));
    assert!(page.trace(0).is_none() && page.trace(u64::MAX).is_none());
}

#[test]
fn files_are_listed_while_there_is_room() {
    let page = page();
    let mut bytes = std::boxed::Box::new([0; FILES_BYTES]);
    assert_eq!(page.read_files(&mut bytes), 0);
    assert!(page.add_file(b"one") && page.add_file(b"another one"));
    let len = page.read_files(&mut bytes);
    assert_eq!(&bytes[..len], b"one\nanother one\n");
    while page.add_file(&[b'x'; 1000]) {}
    assert!(page.read_files(&mut bytes) > FILES_BYTES - 1001);
    page.files_len.store(u64::MAX, Relaxed);
    assert_eq!(page.read_files(&mut bytes), FILES_BYTES);
}

#[test]
fn on_as_long_as_somebody_wants_it() {
    let page = page();
    assert!(!page.is_on() && !page.is_complete());
    page.want_no_more();
    page.want(7);
    page.want(8);
    page.want_no_more();
    assert!(page.is_on() && page.began.load(Relaxed) == 7);
    page.want_no_more();
    assert!(!page.is_on());
    page.complete();
    assert!(page.is_complete());
}
