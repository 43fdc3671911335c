//! `corelocal clock` and `corelocal clockd`: one publishes, the other reads, in processes of their own;
//! and a publisher dies.

use std::ffi::CString;
use std::io::{BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use corelocal::clock::page::{Publisher, Status, clockbound};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Call, LIMIT, corelocal, ended, json, line, skip};

const ENCODINGS: [&str; 3] = ["vmclock", "clockbound", "pvclock"];

/// A `clockd` that has begun to publish.
pub struct Daemon {
    child: Child,
    out: BufReader<ChildStdout>,
    /// What it said at first.
    pub says: String,
    /// Where it runs.
    _folder: TempDir,
}

impl Daemon {
    /// The error is what it said before it ended.
    pub fn start(file: &Path, more: &[&str]) -> Result<Daemon, String> {
        Daemon::start_ignoring(&[], file, more)
    }

    /// With these signals ignored.
    pub fn start_ignoring(
        signals: &[libc::c_int],
        file: &Path,
        more: &[&str],
    ) -> Result<Daemon, String> {
        let call = Call::new(&["clockd", "--every", "10ms", "--for", "60s", "--file"]);
        let Call { mut command, folder } = call.ignoring(signals);
        command.arg(file);
        // Unless it is told otherwise: what a chronyd on this machine says is not expected.
        let has_source = more.contains(&"--source") || more.contains(&"--chrony");
        command.args(if has_source { &[][..] } else { &["--source", "kernel"] }).args(more);
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut daemon = Daemon { child, out, says: String::new(), _folder: folder };
        daemon.says = line(&mut daemon.out);
        if daemon.says.is_empty() {
            ended(&mut daemon.child);
            let (mut err, mut why) = (daemon.child.stderr.take().expect("a pipe"), String::new());
            err.read_to_string(&mut why).expect("text");
            return Err(why);
        }
        Ok(daemon)
    }

    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: two integers; the child was not waited for, so the number is still its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    /// Waits until it says a line with this text.
    pub fn waits_to_say(&mut self, text: &str) {
        loop {
            let said = line(&mut self.out);
            assert!(!said.is_empty(), "it has ended without a word of {text}");
            if said.contains(text) {
                return;
            }
        }
    }

    /// What it said in the end, and its exit code.
    pub fn end(mut self) -> (String, Option<i32>) {
        let status = ended(&mut self.child);
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("text");
        (rest, status.code())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn folder() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temporary folder");
    let page = folder.path().join("page");
    (folder, page)
}

/// A publisher that takes this machine's clock for right; `None` where the encoding is not for it.
fn trusting(test: &str, encoding: &str, page: &Path) -> Option<Daemon> {
    match Daemon::start(page, &["--encoding", encoding, "--max-error", "5ms"]) {
        Ok(daemon) => Some(daemon),
        Err(why) => {
            assert!(why.contains("cannot publish as"), "{why}");
            skip(test, &why);
            None
        }
    }
}

pub fn read(page: &Path) -> (Option<i32>, Value) {
    let done = corelocal(&["clock", "--json", "--file", page.to_str().expect("text")]);
    assert!(done.err.is_empty(), "{}", done.whole());
    (done.code, json(&done.out))
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

#[test]
fn what_is_published_is_read_with_bounds() {
    for encoding in ENCODINGS {
        let (_folder, page) = folder();
        let Some(daemon) = trusting("what_is_published_is_read_with_bounds", encoding, &page)
        else {
            continue;
        };
        assert!(daemon.says.contains(&format!("as {encoding}, every 10ms")), "{}", daemon.says);
        let before = now();
        let (code, said) = read(&page);
        let after = now();
        assert_eq!((code, &said["encoding"]), (Some(0), &Value::from(encoding)), "{said}");
        assert!(said["age_s"].as_f64().is_some_and(|age| (0.0..30.0).contains(&age)), "{said}");
        let nanos = |name: &str| Duration::from_nanos(said[name].as_u64().unwrap_or(0));
        if encoding == "pvclock" {
            assert_eq!(said["scale"], "CLOCK_MONOTONIC");
        } else {
            let (earliest, latest) = (nanos("earliest_ns"), nanos("latest_ns"));
            let slack = Duration::from_millis(1);
            assert!(nanos("time_ns") + slack >= before && nanos("time_ns") <= after + slack);
            assert!(latest - earliest >= Duration::from_millis(10), "{said}");
            assert!(earliest <= after && latest >= before, "{said}");
            assert_eq!(said["status"], "synchronized");
        }
        if encoding != "clockbound" {
            let ahead = said["ahead"]["low"].as_i64().zip(said["ahead"]["high"].as_i64());
            let (low, high) = ahead.expect("a comparison");
            assert!(low < 1_000_000 && high > -1_000_000, "{said}");
        }
        let text = corelocal(&["clock", "--file", page.to_str().expect("text")]);
        assert!(text.out.contains(encoding) && text.code == Some(0), "{}", text.whole());
    }
}

#[test]
fn one_writer_at_a_time() {
    for encoding in ENCODINGS {
        let (_folder, page) = folder();
        let Some(daemon) = trusting("one_writer_at_a_time", encoding, &page) else { continue };
        let second = Daemon::start(&page, &["--encoding", encoding]).err().expect("a refusal");
        let who = format!("process {} publishes there already", daemon.child.id());
        assert!(second.contains(&who), "{second}");
        // It still does.
        assert_eq!(read(&page).0, Some(0));
    }
}

#[test]
fn a_killed_writer_is_followed_by_another() {
    for encoding in ENCODINGS {
        let (_folder, page) = folder();
        let Some(daemon) = trusting("a_killed_writer_is_followed_by_another", encoding, &page)
        else {
            continue;
        };
        daemon.signal(libc::SIGKILL);
        assert_eq!(daemon.end().1, None);
        // What it published last is still to be had, unless it died in a publication.
        let (code, said) = read(&page);
        let died_within = said["doubt"].as_str().is_some_and(|doubt| doubt.contains("middle"));
        assert!(code == Some(0) || died_within, "{said}");
        let next = trusting("a_killed_writer_is_followed_by_another", encoding, &page);
        let next = next.expect("the first one could");
        assert!(next.says.contains("continuing"), "{}", next.says);
        let (code, said) = read(&page);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(said["recoveries"], u64::from(died_within));
    }
}

#[test]
fn a_writer_that_died_in_a_publication() {
    // Where the number is that is odd meanwhile; see the library's clock/page/clockbound.rs.
    const GENERATION: u64 = 14;
    let (_folder, page) = folder();
    let args = ["--encoding", "clockbound", "--max-error", "40us"];
    let daemon = Daemon::start(&page, &args).expect("an encoding for every machine");
    daemon.signal(libc::SIGKILL);
    daemon.end();
    let file = std::fs::File::options().write(true).open(&page).expect("a page");
    file.write_all_at(&7_u16.to_ne_bytes(), GENERATION).expect("a page");
    let (code, said) = read(&page);
    let doubt = said["doubt"].as_str().unwrap_or_default();
    assert!(code == Some(1) && doubt.contains("in the middle of a publication"), "{said}");

    let next = Daemon::start(&page, &args).expect("it recovers");
    assert!(next.says.contains("died during a publication; continuing its page"), "{}", next.says);
    let (code, said) = read(&page);
    assert_eq!((code, &said["recoveries"]), (Some(0), &Value::from(1)), "{said}");
    assert_eq!(said["disruptions"], 1, "{said}");
}

#[test]
fn a_signal_ends_it_cleanly() {
    for (signal, name) in [(libc::SIGTERM, "SIGTERM"), (libc::SIGINT, "SIGINT")] {
        let (_folder, page) = folder();
        let daemon = Daemon::start(&page, &["--encoding", "clockbound", "--max-error", "40us"]);
        let daemon = daemon.expect("an encoding for every machine");
        daemon.signal(signal);
        let (rest, code) = daemon.end();
        assert_eq!(code, Some(0), "{rest}");
        assert!(rest.starts_with(&format!("ended by {name} after ")), "{rest}");
        let (code, said) = read(&page);
        assert_eq!((code, &said["status"]), (Some(0), &Value::from("free-running")), "{said}");
    }
}

#[test]
fn a_removed_file_comes_back() {
    let (_folder, page) = folder();
    let args = ["--encoding", "clockbound", "--max-error", "40us"];
    let _daemon = Daemon::start(&page, &args).expect("an encoding for every machine");
    std::fs::remove_file(&page).expect("a file");
    let began = Instant::now();
    while !page.exists() || read(&page).0 != Some(0) {
        assert!(began.elapsed() < LIMIT, "it does not come back");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_clock_that_nobody_keeps_right_is_not_believed() {
    let (_folder, page) = folder();
    let daemon = match Daemon::start(&page, &["--encoding", "clockbound"]) {
        Ok(daemon) => daemon,
        Err(why) => {
            assert!(why.contains("adjtimex"), "{why}");
            return skip("a_clock_that_nobody_keeps_right_is_not_believed", &why);
        }
    };
    let (code, said) = read(&page);
    if daemon.says.contains("right to within") {
        assert_eq!(code, Some(0), "{said}");
    } else {
        assert_eq!((code, &said["status"]), (Some(1), &Value::from("unknown")), "{said}");
        assert!(said["doubt"].is_string() && said["earliest_ns"].is_null(), "{said}");
    }
}

/// The command believes a page with the hypervisor's marker only if it could compare that.
#[test]
fn a_hypervisors_marker_is_compared() {
    let (_folder, page) = folder();
    let name = CString::new(page.to_str().expect("text")).expect("no zero byte");
    let mut publisher = Publisher::<clockbound::Page>::create(&name).expect("a page");
    let mut published = clockbound::Content {
        as_of: Duration::ZERO,
        void_after: Duration::MAX / 2,
        bound_ns: 1_000,
        status: Status::Synchronized,
        ..clockbound::Content::default()
    };
    publisher.publish(&published).expect("published");
    let (code, said) = read(&page);
    assert!(code == Some(0) && said["earliest_ns"].is_u64(), "{said}");
    // A marker that no machine has, or none that can be read.
    (published.disruptions, published.marker_counts) = (u64::MAX / 3, true);
    publisher.publish(&published).expect("published");
    let (code, said) = read(&page);
    assert!(code == Some(1) && said["earliest_ns"].is_null(), "{said}");
    assert!(said["doubt"].is_string() && said["time_ns"].is_u64(), "{said}");
}

#[test]
fn what_is_no_page_is_neither_read_nor_overwritten() {
    let call = Call::new(&["clock", "--file", "notes"]).file("notes", "not a clock\n");
    let done = call.done();
    assert_eq!(done.code, Some(1), "{}", done.whole());
    assert!(done.err.contains("cannot read a clock from notes"), "{}", done.err);
    let missing = corelocal(&["clock", "--file", "notes"]);
    assert!(missing.code == Some(1) && missing.err.contains("no such file"), "{}", missing.err);

    let call = Call::new(&["clockd", "--encoding", "clockbound", "--file", "notes"]);
    let done = call.file("notes", "not a clock\n").done();
    assert_eq!(done.code, Some(1), "{}", done.whole());
    assert!(done.err.contains("cannot publish to notes"), "{}", done.err);
    assert_eq!(done.read("notes"), "not a clock\n");
    let done = corelocal(&["clockd", "--encoding", "clockbound", "--file", "no/such/page"]);
    assert!(done.code == Some(1) && done.err.contains("no/such/page"), "{}", done.whole());
}

#[test]
fn a_watch_and_its_files() {
    let watched = |time: &str| {
        let args = ["clock", "--watch", time, "--json", "--csv", "c.csv", "--html", "c.html"];
        let done = corelocal(&args);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", done.whole());
        let (said, csv) = (json(&done.out), done.read("c.csv"));
        (done, said, csv)
    };
    // On a busy machine an observer may not run within a short watch.
    let is_sampled = |said: &serde_json::Value, csv: &str| {
        let rows = said["backends"].as_array().expect("back-ends");
        let have_samples =
            rows.iter().all(|row| row["state"] == "absent" || !row["drift"].is_null());
        have_samples && csv.lines().count() > 4 && csv.contains(",quanta,")
    };
    let mut watches = ["700ms", "5s", "30s"].into_iter().map(watched);
    let (done, said, csv) =
        watches.find(|(_, said, csv)| is_sampled(said, csv)).expect("samples within 30 s");
    let rows = said["backends"].as_array().expect("back-ends");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["backend"].as_str()).collect();
    assert_eq!(names, ["kernel-page", "paravirtual", "anchor", "vdso"]);
    let serving = rows.iter().filter(|row| row["state"] == "serves").count();
    assert_eq!(serving, 1, "{said}");
    for row in rows {
        assert!(row["what"].as_str().is_some_and(|what| !what.is_empty()), "{row}");
        let is_there = row["state"] != "absent";
        assert_eq!(row["ordered_ns"].as_f64().is_some_and(|ns| ns > 0.0), is_there, "{row}");
        // To the nanosecond what the vDSO says, or the vDSO itself.
        if is_there && (row["backend"] == "kernel-page" || row["backend"] == "vdso") {
            assert_eq!(row["agreement"]["outside"], 0, "{row}");
            assert_eq!(row["drift"]["farthest_ns"], 0.0, "{row}");
        }
    }
    assert!(csv.starts_with("seconds,clock,") && csv.contains(",vdso,"), "{csv}");
    let page = done.read("c.html");
    assert!(page.ends_with("</html>") && page.contains("<svg"));
    assert!(!page.contains("<script") && !page.contains("src="));
}

#[test]
fn a_table_and_the_back_end_that_is_allowed() {
    let call = Call::new(&["clock", "--watch", "200ms"]).env("COLUMNS", "80");
    let done = call.done();
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", done.whole());
    for words in ["kernel-page", "paravirtual", "anchor", "vdso", "serves", "drift in"] {
        assert!(done.out.contains(words), "no {words}:\n{}", done.out);
    }
    assert!(!done.out.contains('\u{1b}'), "{}", done.out);
    let one_file = corelocal(&["clock", "--csv", "c", "--html", "c"]);
    assert_eq!(one_file.code, Some(2), "{}", one_file.whole());
    let nowhere = corelocal(&["clock", "--watch", "200ms", "--csv", "no/such/c"]);
    assert_eq!(nowhere.code, Some(1), "{}", nowhere.whole());
    assert!(nowhere.err.contains("mkdir -p no/such"), "{}", nowhere.err);
}

/// A place that no other user can take: in a directory of the user's own.
#[test]
fn the_usual_place_of_a_user() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::os::unix::process::CommandExt as _;
    const TEST: &str = "the_usual_place_of_a_user";
    const USER: u32 = 65534;
    let runtime = TempDir::new().expect("a temporary folder");
    // SAFETY: no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let clockd = |place: Option<&Path>| {
        let args = ["clockd", "--encoding", "clockbound", "--max-error", "40us", "--for", "50ms"];
        let Call { mut command, folder } = Call::new(&args);
        match place {
            Some(place) => command.env("XDG_RUNTIME_DIR", place),
            None => command.env_remove("XDG_RUNTIME_DIR"),
        };
        if is_root {
            // Root has a place of its own, which other processes may use meanwhile.
            command.uid(USER).gid(USER).current_dir("/");
        }
        let output = command.stdin(Stdio::null()).output();
        drop(folder);
        output
    };
    if is_root {
        chown(runtime.path(), Some(USER), Some(USER)).expect("root may");
    }
    std::fs::set_permissions(runtime.path(), std::fs::Permissions::from_mode(0o700)).expect("ours");
    let Ok(none) = clockd(None) else {
        return skip(TEST, "another user cannot start the command where it lies");
    };
    let why = String::from_utf8_lossy(&none.stderr);
    assert!(none.status.code() == Some(1) && why.contains("XDG_RUNTIME_DIR"), "{why}");
    assert!(why.contains("--file"), "{why}");
    let done = clockd(Some(runtime.path())).expect("it could be started before");
    let said = String::from_utf8_lossy(&done.stdout);
    let page = runtime.path().join("corelocal/clockbound");
    assert!(done.status.success() && said.contains(page.to_str().expect("text")), "{done:?}");
    assert!(page.with_file_name("clockbound.lock").exists());
}

/// Of another user it is shown, but not believed; and its file may be cut short at any moment.
#[test]
fn a_page_of_another_user_is_not_believed() {
    let (_folder, page) = folder();
    let args = ["--encoding", "clockbound", "--max-error", "40us"];
    let daemon = Daemon::start(&page, &args).expect("an encoding for every machine");
    daemon.signal(libc::SIGTERM);
    daemon.end();
    assert_eq!(read(&page).0, Some(0));
    if let Err(error) = std::os::unix::fs::chown(&page, Some(65534), None) {
        return skip("a_page_of_another_user_is_not_believed", &format!("chown: {error}"));
    }
    let (code, said) = read(&page);
    assert_eq!((code, &said["user"]), (Some(1), &Value::from(65534)), "{said}");
    let doubt = said["doubt"].as_str().unwrap_or_default();
    assert!(doubt.contains("user 65534") && said["earliest_ns"].is_number(), "{said}");
}
