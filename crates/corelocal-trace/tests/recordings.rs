//! Recordings of this process, whole and damaged.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use corelocal::event;
use corelocal::trace::{self, Options, format};
use corelocal_trace::{Event, ParseError, Recording, Value};
use proptest::prelude::*;

/// A dump of this process, which records once: numbers from two threads, and an event with all types of fields.
fn dump() -> &'static [u8] {
    static DUMP: OnceLock<Vec<u8>> = OnceLock::new();
    DUMP.get_or_init(|| {
        trace::start(Options::flight_recorder().max_bytes(1 << 20)).expect("a recording");
        event!(
            test::fields,
            a = 200_u8,
            b = 60_000_u16,
            c = 7_u32,
            d = u64::MAX,
            e = -1_i8,
            f = -2_i16,
            g = -3_i32,
            h = i64::MIN,
            i = 0.5_f32,
            j = -1.5_f64,
            yes = true,
            text = "héllo",
            blob = &[1_u8, 2][..],
            array = [1_u32, 2],
        );
        let record =
            |from: u32| (from..from + 5000).for_each(|nth| event!(test::number, nth = nth));
        record(0);
        std::thread::Builder::new()
            .name("second".into())
            .spawn(move || record(5000))
            .expect("a thread")
            .join()
            .expect("no panic");
        let mut bytes = Vec::new();
        trace::dump_to(&mut bytes).expect("a dump");
        bytes
    })
}

#[test]
fn events_come_in_order() {
    let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_nanos() as u64;
    let recording = Recording::parse(dump().to_vec()).expect("a recording");
    assert_eq!((recording.problems(), recording.lost()), (&[][..], 0));
    assert_eq!(recording.process(), u64::from(std::process::id()));
    let mut events = recording.events();
    let all: Vec<Event<'_>> = events.by_ref().collect();
    assert_eq!(events.problems(), []);
    assert!(all.windows(2).all(|pair| pair[0].time <= pair[1].time));
    assert!(all[0].time > before - 60_000_000_000, "{} and {before}", all[0].time);
    let numbers: Vec<_> = all.iter().filter(|event| event.name == "test::number").collect();
    let values: Vec<_> = numbers.iter().map(|event| event.fields[0].clone()).collect();
    assert!(values.into_iter().eq((0..10_000).map(|nth| ("nth", Value::Unsigned(nth)))));
    assert_eq!(&*numbers[9999].thread_name, "second");
    assert_ne!(numbers[0].thread, numbers[9999].thread);
    let fields = all.iter().find(|event| event.name == "test::fields").expect("an event");
    use Value::*;
    let expected = [
        Unsigned(200),
        Unsigned(60_000),
        Unsigned(7),
        Unsigned(u64::MAX),
        Signed(-1),
        Signed(-2),
        Signed(-3),
        Signed(i64::MIN),
        Float(0.5),
        Float(-1.5),
        Bool(true),
        Str("héllo".into(), false),
        Bytes(vec![1, 2], false),
        Array(vec![Unsigned(1), Unsigned(2)], false),
    ];
    assert!(fields.fields.iter().map(|field| field.1.clone()).eq(expected), "{fields:?}");
}

#[test]
fn other_files() {
    assert_eq!(Recording::parse(Vec::new()).err(), Some(ParseError::NotARecording));
    assert_eq!(
        Recording::parse(b"#!/bin/sh and more".to_vec()).err(),
        Some(ParseError::NotARecording)
    );
    let short = dump()[..100].to_vec();
    assert_eq!(Recording::parse(short).err(), Some(ParseError::TooShort { len: 100 }));
}

/// Of two threads that register a site at once, one draws a number that no site has.
#[test]
fn an_unused_number_is_no_damage() {
    let mut bytes = dump().to_vec();
    let add = |bytes: &mut [u8], at: usize, more: u64| {
        let word: &mut [u8; 8] = (&mut bytes[at..at + 8]).try_into().expect("a word");
        *word = (u64::from_le_bytes(*word) + more).to_le_bytes();
        u64::from_le_bytes(*word) as usize
    };
    add(&mut bytes, format::header::SITES, 1);
    let end = add(&mut bytes, format::header::BUFFERS_AT, format::SITE_LEN as u64);
    let place = end - format::SITE_LEN;
    bytes.splice(place..place, [0; format::SITE_LEN]);
    let recording = Recording::parse(bytes).expect("a recording");
    assert_eq!(recording.problems(), []);
    let whole = Recording::parse(dump().to_vec()).expect("a recording").events().count();
    assert_eq!(recording.events().count(), whole);
}

/// A file that was cut short delivers a prefix of each buffer.
#[test]
fn a_prefix() {
    let whole = Recording::parse(dump().to_vec()).expect("a recording").events().count();
    let mut last = 0;
    for part in 1..=20 {
        let len = format::HEADER_LEN + (dump().len() - format::HEADER_LEN) * part / 20;
        let recording = Recording::parse(dump()[..len].to_vec()).expect("a recording");
        let count = recording.events().count();
        assert!(last <= count && count <= whole, "{part}: {last}, {count}");
        assert!(recording.problems().is_empty() || part < 20, "{part}");
        last = count;
    }
    assert_eq!(last, whole);
}

/// How many files are damaged: `PROPTEST_CASES`, or 10,000.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Damaged files: no panic, and no more events than their bytes have room for.
    #[test]
    fn damaged(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 1..40), cut in any::<prop::sample::Index>()) {
        let mut bytes = dump().to_vec();
        let words = bytes.len() / 8;
        for (index, word) in places {
            // Half of them near the beginning, where sizes are.
            let at = if word % 2 == 0 { index.index(words) } else { index.index(words.min(1200)) };
            let word = if word % 3 == 0 { word % 70_000 } else { word };
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let len = bytes.len();
        if cut.index(3) == 0 {
            bytes.truncate(cut.index(len));
        }
        if let Ok(recording) = Recording::parse(bytes) {
            let mut events = recording.events();
            prop_assert!(events.by_ref().count() <= len / 16);
            prop_assert!(recording.problems().len() + events.problems().len() <= len);
        }
    }
}
