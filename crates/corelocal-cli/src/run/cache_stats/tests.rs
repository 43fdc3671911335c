//! Tests of `cache_stats.rs`.

use super::*;

/// Of a program that did much.
pub fn tally() -> Tally {
    Tally {
        processes: 1,
        has_program: true,
        allocated: Some(5_310_000),
        freed: Some(5_300_000),
        refills: 1100,
        spills: 104,
    }
}

#[test]
fn processes_are_added_up() {
    let place = Place::new(Wanted::Hits).expect("a folder");
    assert_eq!(place.read(1), None);
    let folder = place.folder.path().to_owned();
    let text = |process| {
        format!(r#"{{"process":{process},"allocated":10,"freed":8,"refills":2,"spills":1}}"#)
    };
    for process in [11, 12] {
        fs::write(folder.join(format!("of.{process}.0")), text(process)).expect("a new file");
    }
    fs::write(folder.join("of.13.0"), "{\"process\":13,").expect("a new file");
    let tally = place.read(12).expect("two told");
    assert_eq!((tally.processes, tally.has_program, tally.refills), (2, true, 4));
    assert_eq!((tally.hits(), tally.room()), (Some(0.8), Some(0.875)));
    assert!(place.read(13).is_some_and(|tally| !tally.has_program));
    drop(place);
    assert!(!folder.exists());
}

#[test]
fn words_of_the_environment() {
    let words = |wanted, before: Option<&str>| {
        let place = Place::new(wanted)?;
        let words = place.words(before.map(OsString::from));
        Some(words.to_str()?.replace(place.folder.path().to_str()?, "F"))
    };
    assert_eq!(words(Wanted::Nothing, None), None);
    assert_eq!(words(Wanted::Misses, Some("")).as_deref(), Some("tally:F/of"));
    assert_eq!(
        words(Wanted::Hits, Some("guard,stats")).as_deref(),
        Some("tally:F/of,count,guard,stats")
    );
}

#[test]
fn shares() {
    assert_eq!(tally().hits().map(percent).as_deref(), Some("99.97 %"));
    assert_eq!([1.0, 0.99999, 0.5, 0.0].map(percent), ["100 %", "99.99 %", "50.00 %", "0.00 %"]);
    let mut uncounted = tally();
    uncounted.allocated = None;
    assert_eq!(uncounted.hits(), None);
    uncounted.allocated = Some(0);
    assert_eq!(uncounted.hits(), None);
}
