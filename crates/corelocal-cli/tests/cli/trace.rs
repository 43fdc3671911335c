//! `corelocal trace`: a recording of this test's process, whole, cut short, and no recording at all.

use std::path::PathBuf;
use std::sync::OnceLock;

use corelocal::event;
use corelocal::trace::{self, Options};
use tempfile::TempDir;

use crate::{corelocal, json};

const UNREADABLE: i32 = 3;

/// A folder with a recording: this process records once.
fn folder() -> &'static TempDir {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        trace::start(Options::flight_recorder().max_bytes(1 << 20)).expect("a recording");
        event!(test::first, path = "/a\u{1b}[31m", len = 7_u32, blob = &[1_u8, 0xab][..]);
        (0..10_000_u32).for_each(|nth| event!(test::number, nth = nth));
        trace::dump(folder.path().join("whole.trace")).expect("a dump");
        folder
    })
}

fn file(name: &str) -> String {
    folder().path().join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn events_are_shown() {
    let whole = corelocal(&["trace", "view", &file("whole.trace"), "--name", "test::"]);
    assert_eq!(whole.code, Some(0), "{}", whole.whole());
    let lines: Vec<&str> = whole.out.lines().collect();
    assert_eq!(lines.len(), 10_001);
    // A control character of the program does not reach the terminal.
    assert!(
        lines[0].contains(r#"test::first path="/a\u{1b}[31m" len=7 blob=01ab"#),
        "{}",
        lines[0]
    );
    assert!(lines[10_000].ends_with("test::number nth=9999"), "{}", lines[10_000]);
    let last = corelocal(&["trace", "view", &file("whole.trace"), "--last", "2", "--json"]);
    let last: Vec<_> = last.out.lines().map(json).collect();
    assert_eq!(last.len(), 2);
    assert_eq!(
        (&last[1]["name"], &last[1]["fields"]["nth"]),
        (&"test::number".into(), &9999.into())
    );
    let thread = last[1]["thread"].to_string();
    let by_thread = corelocal(&[
        "trace",
        "view",
        &file("whole.trace"),
        "--thread",
        &thread,
        "--name",
        "test::f",
    ]);
    assert_eq!(by_thread.out.lines().count(), 1, "{}", by_thread.whole());
}

#[test]
fn what_is_whole_of_a_damaged_file() {
    let bytes = std::fs::read(file("whole.trace")).expect("a recording");
    let cut = PathBuf::from(file("cut.trace"));
    std::fs::write(&cut, &bytes[..bytes.len() - 20_000]).expect("a file");
    let done = corelocal(&["trace", "view", cut.to_str().expect("UTF-8")]);
    assert_eq!(done.code, Some(UNREADABLE), "{}", done.err);
    assert!(done.err.contains("the file ends within a buffer"), "{}", done.err);
    assert!(done.out.lines().count() > 5_000, "{}", done.err);
}

#[test]
fn chrome_json() {
    let to = file("whole.json");
    let done =
        corelocal(&["trace", "export", &file("whole.trace"), "--to", "chrome-json", "-o", &to]);
    assert_eq!((done.code, &*done.out), (Some(0), ""), "{}", done.whole());
    assert!(done.err.contains("ui.perfetto.dev"), "{}", done.whole());
    let page = json(&std::fs::read_to_string(&to).expect("a file"));
    let events = page["traceEvents"].as_array().expect("a list");
    let of = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
    let numbers = of("test::number");
    assert!(numbers.iter().enumerate().all(|(nth, event)| event["args"]["nth"] == nth));
    let times: Vec<f64> = numbers.iter().filter_map(|event| event["ts"].as_f64()).collect();
    assert!(times.len() == 10_000 && times.windows(2).all(|pair| pair[0] <= pair[1]));
    assert_eq!(of("test::first")[0]["args"]["path"], "/a\u{1b}[31m");
    assert!(!of("thread_name").is_empty());
    let full = corelocal(&["trace", "export", &file("whole.trace"), "-o", "/dev/full"]);
    assert_eq!(full.code, Some(1), "{}", full.whole());
}

#[test]
fn other_files() {
    let own = std::env::current_exe().expect("this program");
    for name in [own.to_str().expect("UTF-8"), "no/such.trace", "/dev/null"] {
        let done = corelocal(&["trace", "view", name]);
        assert_eq!((done.code, &*done.out), (Some(UNREADABLE), ""), "{}", done.whole());
        assert!(done.err.contains(name) && done.err.contains("cannot read"), "{}", done.whole());
    }
}
