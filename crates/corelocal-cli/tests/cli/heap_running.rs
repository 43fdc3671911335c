//! `corelocal heap --status` and `--attach`: the malloc of a process that runs.

use std::env;
use std::io::BufReader;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::heap::{CHILD, MIB, PROGRAM, library};
use crate::{Call, corelocal, json, skip};

/// A program that runs, until this is dropped.
struct Running(Child);

impl Running {
    /// Starts the program of the tests of `heap`, and waits until it says that.
    fn start(library: &std::path::Path, how: &str, says: &str, words: &str) -> Running {
        let mut program = Command::new(env::current_exe().expect("this program"));
        program.args([PROGRAM, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, how);
        program.env("LD_PRELOAD", library).env("CORELOCAL_MALLOC", words);
        let child = program.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut running = Running(child);
        let mut lines = BufReader::new(running.0.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains(says) {
            line = crate::line(&mut lines);
            assert!(!line.is_empty(), "{how}: it has ended");
        }
        // It may go on writing.
        running.0.stdout = Some(lines.into_inner());
        running
    }

    fn id(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("a child of ours");
        self.0.wait().expect("a child of ours");
    }
}

/// Whether this user may read the memory of another process; if not, that is said as the test's reason.
fn is_refused(test: &str, err: &str) -> bool {
    let is_refused = err.contains("rights of a debugger");
    if is_refused {
        skip(test, "this user may not read the memory of another process");
    }
    is_refused
}

/// A process that runs, started without a word for it.
#[test]
fn a_running_process_is_read() {
    const TEST: &str = "a_running_process_is_read";
    let Some(library) = library(TEST) else { return };
    let program = Running::start(&library, "stays", "held", "resident:1G,pressure:no");
    let process = program.id();
    let done = corelocal(&["heap", "--status", &process, "--json"]);
    let text = corelocal(&["heap", "--status", &process, "--top", "2"]);
    drop(program);
    if is_refused(TEST, &done.err) {
        return;
    }
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let answer = json(&done.out);
    let malloc = &answer["mallocs"][0];
    assert_eq!(answer["mallocs"].as_array().map(Vec::len), Some(1), "{answer:#}");
    let bytes = |of: &Value| of.as_u64().expect("a number") as usize;
    assert!((95 * MIB..140 * MIB).contains(&bytes(&malloc["in_use"])), "{answer:#}");
    assert!(bytes(&malloc["resident"]) >= 95 * MIB, "{answer:#}");
    assert!(bytes(&answer["resident"]) >= bytes(&malloc["resident"]), "{answer:#}");
    let classes = malloc["classes"].as_array().expect("classes");
    // Of 104 bytes each.
    let of_sixty = classes.iter().find(|class| bytes(&class["size"]) == 112).expect("a class");
    let (in_use, wanted) = (bytes(&of_sixty["in_use"]), 60 * MIB / 104);
    assert!((wanted..wanted + 1000).contains(&in_use), "{in_use} of {wanted}");
    assert!(bytes(&of_sixty["span_bytes"]) >= 60 * MIB, "{of_sixty:#}");
    let options = &malloc["options"];
    assert_eq!(
        (options["target"].as_u64(), options["pressure"].as_bool()),
        (Some(1 << 30), Some(false))
    );
    assert_eq!(options["background"].as_str(), Some("several"), "{options:#}");
    assert!(
        text.out.contains("in caches") && text.out.contains("more classes: --top"),
        "{}",
        text.out
    );
    let gone = corelocal(&["heap", "--status", &process]);
    assert_eq!(gone.code, Some(3), "{}", gone.whole());
    assert!(gone.err.contains("there is no process"), "{}", gone.err);
}

#[test]
fn a_process_with_another_malloc_is_refused() {
    let other = Running(Command::new("sleep").arg("60").spawn().expect("sleep starts"));
    for what in ["--status", "--attach"] {
        let done = corelocal(&["heap", what, &other.id()]);
        assert_eq!(done.code, Some(3), "{}", done.whole());
        if is_refused("a_process_with_another_malloc_is_refused", &done.err) {
            return;
        }
        assert!(done.err.contains("does not use corelocal's malloc"), "{}", done.err);
    }
}

/// Whether a process samples now.
fn samples(process: &str) -> bool {
    let answer = json(&corelocal(&["heap", "--status", process, "--json"]).out);
    !answer["mallocs"][0]["options"]["profile_rate"].is_null()
}

/// Waits until it samples or does not.
fn wait_until(process: &str, is_sampled: bool) {
    let began = Instant::now();
    while samples(process) != is_sampled {
        assert!(began.elapsed() < Duration::from_secs(60), "it still says {}", !is_sampled);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn number(of: &Value) -> f64 {
    of.as_f64().unwrap_or_else(|| panic!("{of} is no number"))
}

#[test]
fn growth_of_a_running_process_is_shown() {
    const TEST: &str = "growth_of_a_running_process_is_shown";
    let Some(library) = library(TEST) else { return };
    let program = Running::start(&library, "grows 60000", "grows", "");
    let process = program.id();
    let options = ["--for", "2s", "--rate", "16K", "--json", "--svg", "g.svg", "--pprof", "g.gz"];
    let done = Call::new(&[&["heap", "--attach", &process], &options[..]].concat()).done();
    if is_refused(TEST, &done.err) {
        return;
    }
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let answer = json(&done.out);
    let (before, after) = (&answer["before"], &answer["after"]);
    let grown = number(&after["in_use"]) - number(&before["in_use"]);
    let difference = &answer["difference"];
    let sampled = number(&difference["grown_bytes"]);
    // The program does nothing else. The two figures are not of one moment.
    let (lowest, highest) = (0.7 * sampled - 3e5, 1.3 * sampled + 3e5);
    assert!((lowest..highest).contains(&grown) && sampled > 0.0, "{answer:#}");
    assert!(number(&after["resident"]) > number(&after["in_use"]), "{answer:#}");
    assert!(number(&answer["seconds"]) >= 1.9, "{answer:#}");
    let site = &difference["sites"][0];
    assert!(site["function"].as_str().is_some_and(|it| it.contains("grows")), "{site:#}");
    assert!(site["source"].as_str().is_some_and(|it| it.contains("heap.rs:")), "{site:#}");
    // Sampling began shortly before the first moment.
    let [few, many] = ["before", "after"].map(|side| number(&difference[side]["samples"]));
    assert!(few < many / 2.0, "{difference:#}");
    assert_eq!(number(&difference["after"]["rate"]), 16_384.0, "{difference:#}");
    assert!(done.read("g.svg").contains("grows"));
    assert!(done.folder.path().join("g.gz").exists());
    wait_until(&process, false);

    // Once more, as text: what it sampled before is not counted twice.
    let text = corelocal(&["heap", "--attach", &process, "--for", "1s"]);
    for part in ["objects in use", "resident, whole process", "grows", "one for each 16.0 KiB"] {
        assert!(text.out.contains(part), "{part}: {}", text.whole());
    }
    wait_until(&process, false);
}

#[test]
fn whatever_ends_the_command_sampling_ends() {
    const TEST: &str = "whatever_ends_the_command_sampling_ends";
    let Some(library) = library(TEST) else { return };
    let program = Running::start(&library, "grows 60000", "grows", "");
    let process = program.id();
    let status = corelocal(&["heap", "--status", &process]);
    if is_refused(TEST, &status.err) {
        return;
    }
    let attached = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelocal"));
        command.args(["heap", "--attach", &process, "--for", "10m"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("the command starts");
        wait_until(&process, true);
        child
    };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let command = attached();
        // SAFETY: a child of ours that was not waited for.
        unsafe { libc::kill(command.id() as libc::pid_t, signal) };
        let output = command.wait_with_output().expect("a child of ours");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("growth in"), "{signal}: {output:?}");
        wait_until(&process, false);
    }
    // It cannot do anything about this one; the next command ends what it began.
    let mut killed = attached();
    killed.kill().expect("a child of ours");
    killed.wait().expect("a child of ours");
    std::thread::sleep(Duration::from_millis(100));
    assert!(samples(&process));
    assert_eq!(corelocal(&["heap", "--attach", &process, "--for", "100ms"]).code, Some(0));
    wait_until(&process, false);
}

#[test]
fn what_cannot_be_attached_to_is_told() {
    const TEST: &str = "what_cannot_be_attached_to_is_told";
    let Some(library) = library(TEST) else { return };
    let attach = |program: &Running| corelocal(&["heap", "--attach", &program.id(), "--for", "1s"]);
    let idle = Running::start(&library, "stays", "held", "");
    let done = attach(&idle);
    if is_refused(TEST, &done.err) {
        return;
    }
    assert_eq!(done.code, Some(3), "{}", done.whole());
    assert!(done.err.contains("took no memory from its malloc in 1 s"), "{}", done.err);
    assert!(!samples(&idle.id()));
    // Ctrl-C while it waits.
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelocal"));
    command.args(["heap", "--attach", &idle.id(), "--for", "10m"]).stderr(Stdio::piped());
    let waits = command.spawn().expect("the command starts");
    std::thread::sleep(Duration::from_secs(1));
    // SAFETY: a child of ours that was not waited for.
    unsafe { libc::kill(waits.id() as libc::pid_t, libc::SIGINT) };
    let output = waits.wait_with_output().expect("a child of ours");
    // On a busy machine the signal may come before the command notes it.
    if output.status.code().is_some() {
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && err.contains("interrupted before"), "{err}");
    }
    assert!(!samples(&idle.id()));
    let checked = Running::start(&library, "few", "begun", "check");
    let done = attach(&checked);
    assert!(done.err.contains("CORELOCAL_MALLOC=check"), "{}", done.err);
    // Its own profile stays.
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let words = format!("profile:{}/of,profile-rate:64K", folder.path().display());
    let own = Running::start(&library, "grows 60000", "grows", &words);
    let done = attach(&own);
    assert!(done.out.contains("had a profile of its own"), "{}", done.whole());
    assert!(done.out.contains("one for each 64.0 KiB") && samples(&own.id()), "{}", done.out);
    // It ends meanwhile.
    let short = Running::start(&library, "grows 2500", "grows", "");
    let done = corelocal(&["heap", "--attach", &short.id(), "--for", "60s", "--rate", "16K"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert!(done.out.contains("the process has ended"), "{}", done.whole());
    assert!(done.out.contains("grows"), "{}", done.whole());
}
