//! `corelocal trace`: a recording of this test's process, whole, cut short, and no recording at all.

use std::path::PathBuf;
use std::sync::OnceLock;

use corelocal::trace::{self, Options};
use corelocal::{event, span, task_span};
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
        let outer = span!(test::outer, list = [1_u16, 2]);
        (0..10_000_u32).for_each(|nth| event!(test::number, nth = nth));
        drop(task_span!(test::task, yes = true));
        drop(outer);
        trace::dump(folder.path().join("whole.trace")).expect("a dump");
        folder
    })
}

fn file(name: &str) -> String {
    folder().path().join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn events_are_shown() {
    let whole = corelocal(&["trace", "view", &file("whole.trace"), "--name", "test::*r*"]);
    assert_eq!(whole.code, Some(0), "{}", whole.whole());
    let lines: Vec<&str> = whole.out.lines().collect();
    assert_eq!(lines.len(), 10_003);
    // A control character of the program does not reach the terminal.
    assert!(
        lines[0].contains(r#"test::first path="/a\u{1b}[31m" len=7 blob=01ab"#),
        "{}",
        lines[0]
    );
    assert!(lines[1].ends_with("begin test::outer list=[1, 2]"), "{}", lines[1]);
    assert!(lines[10_001].ends_with("test::number nth=9999"), "{}", lines[10_001]);
    assert!(lines[10_002].contains("end test::outer after "), "{}", lines[10_002]);
    // Events are indented by the spans that they are in, and times are accepted as they are shown.
    assert!(lines[1].contains("  begin test::outer") && lines[2].contains("   test::number"));
    let since = &lines[10_001][..29];
    let later = corelocal(&[
        "trace",
        "view",
        &file("whole.trace"),
        "--since",
        since,
        "--name",
        "test::*r*",
    ]);
    assert_eq!(later.out.lines().count(), 2, "{since}: {}", later.whole());
    for (filter, count) in [
        (&["--field", "nth=77"][..], 1),
        (&["--field", "path=/a\u{1b}[31m", "--field", "len=7"], 1),
        (&["--field", "nth=x"], 0),
        (&["--span", "test::outer"], 10_002),
        (&["--level", "WARN"], 0),
    ] {
        let found = corelocal(&[&["trace", "view", &file("whole.trace")], filter].concat());
        assert_eq!(found.out.lines().count(), count, "{filter:?}: {}", found.err);
    }
    let stats = corelocal(&["trace", "view", &file("whole.trace"), "--stats"]);
    let line = |name: &str| {
        let found = stats.out.lines().find(|line| line.ends_with(name));
        found.unwrap_or_else(|| panic!("{name}: {}", stats.whole())).to_owned()
    };
    assert!(line("  test::number").starts_with("event      10000"), "{}", stats.out);
    assert!(line("  test::outer").starts_with("span           1"), "{}", stats.out);
    let last = corelocal(&["trace", "view", &file("whole.trace"), "--last", "5", "--json"]);
    let last: Vec<_> = last.out.lines().map(json).collect();
    let names: Vec<_> =
        last.iter().map(|event| format!("{} {}", event["what"], event["name"])).collect();
    let expected = [
        "event test::number",
        "event test::number",
        "begin test::task",
        "end test::task",
        "end test::outer",
    ];
    assert_eq!(
        names,
        expected.map(|name| name.replace(' ', "\" \"")).map(|name| format!("\"{name}\""))
    );
    assert_eq!(last[1]["fields"]["nth"], 9999);
    let outer = &last[4]["span"];
    assert!(*outer != 0 && last[1]["span"] == *outer && last[2]["parent"] == *outer);
    let thread = last[1]["thread"].to_string();
    let until =
        corelocal(&["trace", "view", &file("whole.trace"), "--until", "2020-01-01T00:00:00Z"]);
    assert_eq!((until.code, &*until.out), (Some(0), ""), "{}", until.err);
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
    let count = done.out.lines().count();
    assert!(count > 5_000, "{}", done.err);
    // The recovered file is whole, and has the same events.
    let recovered = file("recovered.trace");
    let done = corelocal(&["trace", "recover", cut.to_str().expect("UTF-8"), "-o", &recovered]);
    assert_eq!(done.code, Some(UNREADABLE), "{}", done.err);
    assert!(done.err.contains(&format!("{count} events")), "{}", done.err);
    let done = corelocal(&["trace", "view", &recovered]);
    assert_eq!((done.code, done.out.lines().count()), (Some(0), count), "{}", done.err);
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
    let phases =
        |name: &str| of(name).iter().map(|event| event["ph"].to_string()).collect::<String>();
    // An end needs no name, but has it.
    assert_eq!(
        (phases("test::outer"), phases("test::task")),
        ("\"B\"\"E\"".into(), "\"b\"\"e\"".into())
    );
    let full =
        corelocal(&["trace", "export", &file("whole.trace"), "--to", "text", "-o", "/dev/full"]);
    assert_eq!(full.code, Some(1), "{}", full.whole());
}

/// An export takes standard output, keeps recordings, and leaves no part of a file on a full disk.
#[test]
fn exports_keep_what_is_there() {
    let whole = file("whole.trace");
    let done = corelocal(&["trace", "export", &whole, "--to", "json-lines", "-o", "-"]);
    assert!(done.code == Some(0) && done.out.lines().count() == 10_005, "{}", done.err);
    let before = std::fs::read(&whole).expect("a recording");
    let done = corelocal(&["trace", "export", &whole, "-o", &whole]);
    assert!(done.code == Some(1) && done.err.contains("is a recording"), "{}", done.whole());
    assert_eq!(std::fs::read(&whole).expect("a recording"), before);
    for format in ["perfetto", "chrome-json", "json-lines", "text", "ctf", "parquet"] {
        let folder = tempfile::tempdir().expect("a folder");
        let script = format!(
            "ulimit -f 40; exec {} trace export {whole} --to {format} -o out",
            env!("CARGO_BIN_EXE_corelocal")
        );
        let mut command = std::process::Command::new("sh");
        let done = command.args(["-c", &script]).current_dir(folder.path()).output();
        let done = done.expect("a command");
        assert_eq!(
            done.status.code(),
            Some(1),
            "{format}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "{format}");
    }
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

#[test]
fn perfetto_is_split_by_size() {
    let to = file("split.perfetto-trace");
    let export = ["trace", "export", &file("whole.trace"), "-o", &to];
    let one = corelocal(&export);
    assert_eq!(one.code, Some(0), "{}", one.whole());
    let len = |path: &str| std::fs::metadata(path).map(|meta| meta.len()).unwrap_or_default();
    let whole = len(&to);
    let split = corelocal(&[&export[..], &["--split", "300000"]].concat());
    assert!(split.err.contains("and 1 more"), "{}", split.whole());
    let parts = [len(&to), len(&format!("{to}.2"))];
    assert!(
        parts[0] > 300_000 && parts[0] < 301_000 && parts[0] + parts[1] > whole,
        "{whole}: {parts:?}"
    );
}

#[test]
fn page() {
    let to = file("page.html");
    let done = corelocal(&["trace", "report", &file("whole.trace"), "-o", &to]);
    assert_eq!((done.code, &*done.out), (Some(0), ""), "{}", done.whole());
    let page = std::fs::read_to_string(&to).expect("a page");
    for text in
        ["Recording of process", "test::outer", "test::task", "10\u{202f}000", "No event was lost"]
    {
        assert!(page.contains(text), "{text}");
    }
    // It loads nothing, and a control character of the program is not in it.
    assert!(!page.contains("http") && !page.contains('\u{1b}'));
    let full = corelocal(&["trace", "report", &file("whole.trace"), "-o", "/dev/full"]);
    assert_eq!(full.code, Some(1), "{}", full.whole());
}

#[test]
fn parquet() {
    let to = file("out.parquet");
    let done = corelocal(&["trace", "export", &file("whole.trace"), "--to", "parquet", "-o", &to]);
    if cfg!(feature = "export") {
        assert_eq!(done.code, Some(0), "{}", done.whole());
        let bytes = std::fs::read(&to).expect("a file");
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        let refused = corelocal(&[
            "trace",
            "export",
            &file("whole.trace"),
            "--to",
            "otlp",
            "-o",
            "http://127.0.0.1:9/",
        ]);
        assert_eq!(refused.code, Some(1), "{}", refused.whole());
    } else {
        assert!(done.code == Some(1) && done.err.contains("--features export"), "{}", done.whole());
    }
}

/// The formats of other programs have the same events.
#[test]
fn common_trace_format() {
    for (format, is_readable) in [("ctf", true), ("ctf2", false)] {
        let to = file(format);
        let done = corelocal(&["trace", "export", &file("whole.trace"), "--to", format, "-o", &to]);
        assert_eq!(done.code, Some(0), "{}", done.whole());
        let again =
            corelocal(&["trace", "export", &file("whole.trace"), "--to", format, "-o", &to]);
        assert!(again.code == Some(1) && again.err.contains("not empty"), "{}", again.whole());
        let shown = std::process::Command::new("babeltrace2").arg(&to).output();
        let Ok(shown) = shown else {
            return crate::skip("common_trace_format", "there is no babeltrace2");
        };
        if !shown.status.success() && !is_readable {
            return crate::skip(
                "common_trace_format",
                "babeltrace2 is older than 2.1, and cannot read version 2",
            );
        }
        let (out, err) =
            (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
        let lines: Vec<&str> = out.lines().filter(|line| line.contains(" test::")).collect();
        assert_eq!(lines.len(), 10_005, "{err}");
        let first = lines[0];
        assert!(first.contains("len_of_blob = 2") && first.contains("cut = \"\""), "{first}");
        assert!(
            lines[1].contains("test::outer:begin")
                && lines[1].contains("list = [ [0] = 1, [1] = 2 ]"),
            "{}",
            lines[1]
        );
        let numbers = lines[2..].iter().take(10_000).enumerate();
        assert!({ numbers }.all(|(nth, line)| line.ends_with(&format!("{{ nth = {nth} }}"))));
    }
}

/// What the children of the tests below are told by.
/// How many events such a child records in a row.
const BURST: &str = "CORELOCAL_TEST_TRACE_BURST";
const CHILD: &str = "CORELOCAL_TEST_TRACE_CHILD";

/// A program that records: this one again.
fn program(events: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "trace::child", "--nocapture"]).env(CHILD, events);
    command.env_remove("CORELOCAL_TRACE");
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command
}

/// Not a test: the children's program. It forks, and both record so many events.
#[test]
fn child() {
    let Some(events) = std::env::var(CHILD).ok().and_then(|events| events.parse::<u64>().ok())
    else {
        return;
    };
    let burst = std::env::var(BURST).ok().and_then(|burst| burst.parse().ok()).unwrap_or(1);
    let record = |name: &str| {
        for nth in 0..events {
            event!(child::number, nth = nth, by = name);
            // A process that is looked at runs until it is killed.
            if events == u64::MAX {
                (0..burst).for_each(|_| event!(child::other));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    };
    if events < u64::MAX {
        // SAFETY: the child records, and ends.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            record("forked");
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(forked, std::ptr::null_mut(), 0) };
    }
    record("first");
}

#[test]
fn programs_are_recorded_to_disk() {
    let program = std::env::current_exe().expect("this program");
    let record = crate::Call::new(&[
        "trace",
        "record",
        "-o",
        "out.trace",
        "--only",
        "child::*",
        "--",
        program.to_str().expect("UTF-8"),
        "--exact",
        "trace::child",
        "--nocapture",
    ]);
    let done = record.env(CHILD, "50000").done();
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let files: Vec<_> =
        std::fs::read_dir(done.folder.path()).expect("a folder").flatten().collect();
    assert_eq!(files.len(), 2, "{files:?} {}", done.err);
    let mut all = Vec::new();
    for file in files {
        let events = corelocal(&["trace", "view", file.path().to_str().expect("UTF-8"), "--json"]);
        assert_eq!(events.code, Some(0), "{}", events.err);
        let events: Vec<_> = events.out.lines().map(json).collect();
        let is_whole = events.iter().enumerate().all(|(nth, event)| event["fields"]["nth"] == nth);
        assert!(is_whole && events.len() == 50_000, "{} events; {}", events.len(), done.err);
        all.push(events[0]["fields"]["by"].to_string());
    }
    all.sort();
    assert_eq!(all, ["\"first\"", "\"forked\""]);
    let none = crate::Call::new(&["trace", "record", "--", "true"]).done();
    assert!(none.code == Some(0) && none.err.contains("nothing was recorded"), "{}", none.whole());
    let left: Vec<_> = std::fs::read_dir(none.folder.path()).expect("a folder").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    let wrong = corelocal(&["trace", "record", "-o", "/no/such/file", "--", "true"]);
    assert_eq!(wrong.code, Some(1), "{}", wrong.whole());
}

/// What is at the place of the output stays unless it is a recording, and that until there is a new one.
#[test]
fn records_keep_what_is_there() {
    let program = std::env::current_exe().expect("this program");
    let program = program.to_str().expect("UTF-8");
    let record = |folder: &std::path::Path, program: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_corelocal"));
        command.args(["trace", "record", "-o", "out.trace", "--"]).args(program);
        command.current_dir(folder).env(CHILD, "100").output().expect("a command")
    };
    let child = [program, "--exact", "trace::child", "--nocapture"];
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.trace");
    std::fs::write(&path, "notes").expect("a file");
    for program in [&child[..], &["/no/such/program"]] {
        let done = record(folder.path(), program);
        assert!(!done.status.success());
        assert_eq!(std::fs::read(&path).expect("a file"), b"notes");
    }
    std::fs::remove_file(&path).expect("a file");
    assert!(record(folder.path(), &child).status.success());
    let first = std::fs::read(&path).expect("a recording");
    assert!(!record(folder.path(), &["/no/such/program"]).status.success());
    assert_eq!(std::fs::read(&path).expect("a recording"), first);
    assert!(record(folder.path(), &child).status.success());
    let old = std::fs::read(folder.path().join("out.trace.old")).expect("the first one");
    assert!(old == first && std::fs::read(&path).expect("a recording") != first);
    let names = std::fs::read_dir(folder.path()).expect("a folder").flatten();
    let parts = names.filter(|name| name.file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(parts.count(), 0);
}

/// Waits until a recording in this folder has a whole buffer of events in its file.
fn wait_for_a_buffer(folder: &std::path::Path) {
    use corelocal::trace::format::{BUFFER_LEN, HEADER_LEN, MOST_SITES, SITE_LEN};
    let is_there = || {
        let files = std::fs::read_dir(folder).expect("a folder").flatten();
        let longest = files.filter_map(|file| Some(file.metadata().ok()?.len())).max();
        longest.is_some_and(|len| len >= (HEADER_LEN + MOST_SITES * SITE_LEN + BUFFER_LEN) as u64)
    };
    let began = std::time::Instant::now();
    while !is_there() {
        assert!(began.elapsed().as_secs() < 120, "no events in the file");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A signal is passed on, and the rest is copied.
#[test]
fn interrupted_records_are_complete() {
    let program = std::env::current_exe().expect("this program");
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_corelocal"));
        command.args(["trace", "record", "-o", "out.trace", "--"]).arg(&program);
        command.args(["--exact", "trace::child", "--nocapture"]);
        command.env(CHILD, u64::MAX.to_string()).current_dir(folder.path());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let mut record = Killed(command.spawn().expect("a command"));
        wait_for_a_buffer(folder.path());
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::kill(record.0.id() as i32, signal) }, 0);
        let mut said = String::new();
        let mut err = record.0.stderr.take().expect("a pipe");
        std::io::Read::read_to_string(&mut err, &mut said).expect("text");
        let status = record.0.wait().expect("a child");
        assert_eq!(status.code(), Some(128 + signal), "{said}");
        assert!(said.contains("events in out.trace, 0 lost"), "{said}");
        let view =
            corelocal(&["trace", "view", folder.path().join("out.trace").to_str().expect("UTF-8")]);
        assert_eq!(view.code, Some(0), "{}", view.err);
        assert!(view.out.lines().count() > 500 && view.err.is_empty(), "{}", view.err);
    }
}

/// Where the file cannot be written whole, the summary and the exit code say so.
#[test]
fn records_on_a_full_disk_say_what_is_missing() {
    let program = std::env::current_exe().expect("this program");
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = std::process::Command::new("sh");
    // In blocks of 512 or 1024 bytes: room for the header and some buffers, and the program's memory is not bounded by it.
    let script = format!(
        "ulimit -f 5000; exec {} trace record --max-bytes 256K -o out.trace -- \"$@\"",
        env!("CARGO_BIN_EXE_corelocal")
    );
    command.args(["-c", &script, "sh"]).arg(&program).args([
        "--exact",
        "trace::child",
        "--nocapture",
    ]);
    command.env(CHILD, "200000").current_dir(folder.path());
    let done = command.output().expect("a command");
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{err}");
    let recording =
        corelocal_trace::Recording::open(folder.path().join("out.trace")).expect("a recording");
    let first = recording.events().filter(|event| event.name == "child::number").count() as u64;
    assert_eq!(first + recording.lost(), 200_000, "{err}");
    assert!(err.contains(&format!("{} lost", recording.lost())) && recording.lost() > 0, "{err}");
    assert_eq!(recording.problems(), []);
}

/// A child that is killed at the end, also of a test that fails.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn running_processes() {
    let child = program(&u64::MAX.to_string()).env("CORELOCAL_TRACE", "on").spawn();
    let child = Killed(child.expect("a child"));
    let process = child.0.id().to_string();
    let began = std::time::Instant::now();
    let mut listed = corelocal(&["trace", "list", &process]);
    while !listed.out.contains("child::other()") && began.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        listed = corelocal(&["trace", "list", &process]);
    }
    assert!(listed.out.contains("yes       event -"), "{}", listed.whole());
    assert!(listed.out.contains("test::first, not reached yet"), "{}", listed.whole());
    assert!(listed.out.contains("child::number(nth: u64, by: str)"), "{}", listed.whole());
    let status = corelocal(&["trace", "status", &process, "--json"]);
    let status = json(&status.out);
    assert!(status["events"].as_u64() > Some(0) && status["lost"] == 0, "{status}");

    let off = corelocal(&["trace", "disable", &process, "*number"]);
    assert!(off.code == Some(0) && off.out.contains("1 sites"), "{}", off.whole());
    let dump = |name: &str| {
        let to = file(name);
        let done = corelocal(&["trace", "dump", &process, "-o", &to]);
        assert_eq!(done.code, Some(0), "{}", done.whole());
        let shown = corelocal(&["trace", "view", &to]);
        assert_eq!(shown.code, Some(0), "{}", shown.err);
        ["child::number", "child::other"].map(|name| shown.out.matches(name).count())
    };
    let first = dump("first.trace");
    std::thread::sleep(std::time::Duration::from_millis(100));
    let second = dump("second.trace");
    assert!(first[0] == second[0] && first[1] < second[1], "{first:?} {second:?}");
    let on = corelocal(&["trace", "enable", &process, "*"]);
    assert_eq!(on.code, Some(0), "{}", on.whole());
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(dump("third.trace")[0] > second[0]);
    let part = corelocal(&["trace", "enable", &process, "*number", "--every", "1000"]);
    assert!(part.out.contains("on for one event of 1000"), "{}", part.whole());
    let listed = corelocal(&["trace", "list", &process]);
    assert!(listed.out.contains("1 of 1000 event"), "{}", listed.whole());
    let level = corelocal(&["trace", "disable", &process, "@fine"]);
    assert!(level.code == Some(1) && level.err.contains("debug or trace"), "{}", level.whole());
    let wrong = corelocal(&["trace", "disable", &process, &"x".repeat(200)]);
    assert!(wrong.code == Some(1) && wrong.err.contains("126 bytes"), "{}", wrong.whole());
    drop(child);

    let own = std::process::id().to_string();
    folder();
    let here = corelocal(&["trace", "status", &own]);
    assert!(here.out.contains("recording") && here.code == Some(0), "{}", here.whole());
    for (process, why) in [("1", "process 1"), ("4294967295", "no process")] {
        let none = corelocal(&["trace", "status", process]);
        assert!(none.code == Some(1) && none.err.contains(why), "{}", none.whole());
    }
}

/// What is followed is what is there in the end: nothing twice, and nothing left out.
#[test]
fn recordings_are_followed() {
    let cases = [
        ("disk", libc::SIGTERM, 1),
        ("disk", libc::SIGKILL, 1),
        ("disk", libc::SIGTERM, 200),
        ("file", libc::SIGKILL, 1),
    ];
    for (mode, signal, burst) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join("followed.trace");
        let to = to.to_str().expect("UTF-8");
        let child = program(&u64::MAX.to_string())
            .env("CORELOCAL_TRACE", format!("{mode}={to},flush=100ms,max-file-bytes=2M,files=50"))
            .env(BURST, burst.to_string())
            .spawn();
        let mut child = Killed(child.expect("a child"));
        while corelocal_trace::Recording::open(to).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let mut view = std::process::Command::new(env!("CARGO_BIN_EXE_corelocal"));
        view.args(["trace", "view", "--follow", "--json", to]);
        let out = std::fs::File::create(folder.path().join("lines")).expect("a file");
        let view = view.stdout(out).stderr(std::process::Stdio::piped()).spawn();
        let mut view = Killed(view.expect("a command"));
        std::thread::sleep(std::time::Duration::from_millis(1500));
        // On a busy machine it takes longer until a second file is there.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while burst > 1 && !folder.path().join("followed.trace.1").exists() {
            assert!(std::time::Instant::now() < end, "one file after a minute");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::kill(child.0.id() as i32, signal) }, 0);
        child.0.wait().expect("a child");
        if signal == libc::SIGKILL {
            // Nothing says that it has ended.
            std::thread::sleep(std::time::Duration::from_millis(500));
            // SAFETY: a child of ours.
            assert_eq!(unsafe { libc::kill(view.0.id() as i32, libc::SIGINT) }, 0);
        }
        assert_eq!(view.0.wait().expect("a child").code(), Some(0), "{signal}");
        let lines = std::fs::read_to_string(folder.path().join("lines")).expect("text");
        let mut whole = String::new();
        let mut files = 0;
        for file in std::fs::read_dir(folder.path()).expect("a folder").flatten() {
            if file.file_name().to_string_lossy().starts_with("followed.trace") {
                let file = file.path();
                whole +=
                    &corelocal(&["trace", "view", "--json", file.to_str().expect("UTF-8")]).out;
                files += 1;
            }
        }
        assert_eq!(files > 1, burst > 1, "{files} files");
        let sorted = |text: &str| {
            let lines = text.lines().map(|line| {
                let mut event = json(line);
                // What is known of both clocks improves while the process runs.
                event["time"] = 0.into();
                event.to_string()
            });
            let mut lines: Vec<String> = lines.collect();
            lines.sort();
            lines
        };
        assert!(lines.lines().count() > 500, "{signal}: {lines}");
        // Not by `assert_eq`: there are many.
        assert!(sorted(&lines) == sorted(&whole), "{signal}");
    }
}

/// Without shared memory the table says why our rows are missing.
#[test]
fn no_shared_memory() {
    let call = crate::Call::new(&["bench", "trace", "--quick"]);
    match call.done_refused(libc::SYS_memfd_create, libc::ENOSYS) {
        Err(why) => crate::skip("no_shared_memory", &why),
        Ok(done) => {
            assert_eq!(done.code, Some(0), "{}", done.whole());
            assert!(done.out.contains("no shared memory for a recording"), "{}", done.whole());
        }
    }
}
