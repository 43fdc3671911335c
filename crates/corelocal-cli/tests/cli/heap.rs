//! `corelocal heap`: a program whose functions hold so much each, run for it and by the file it wrote.

use std::env;
use std::fs::File;
use std::io::{BufReader, Read as _, Write as _};
use std::os::fd::FromRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Call, corelocal, json, skip};

/// What makes the test below be the program.
pub const CHILD: &str = "CORELOCAL_TEST_HOLDS";
pub const PROGRAM: &str = "heap::holding_program";

pub const MIB: usize = 1 << 20;

#[inline(never)]
fn holds_sixty() -> Vec<Box<[u8]>> {
    (0..60 * MIB / 104).map(|_| vec![1; 104].into_boxed_slice()).collect()
}

#[inline(never)]
fn holds_thirty() -> Vec<Vec<u8>> {
    (0..30 * MIB / 1500).map(|_| vec![1; 1500]).collect()
}

#[inline(never)]
fn holds_ten() -> Vec<Vec<u8>> {
    (0..5).map(|_| vec![1; 2 * MIB]).collect()
}

/// A hundredth of a MiB more for each of so many turns.
#[inline(never)]
fn grows(turns: usize) {
    let mut held = Vec::new();
    for turn in 0..turns {
        held.extend((0..10).map(|_| vec![1_u8; MIB / 1000]));
        if turn == 0 {
            println!("grows");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::hint::black_box(&held);
}

#[inline(never)]
fn holds_nothing() {
    let freed: Vec<Vec<u8>> = (0..200 * MIB / 10_000).map(|_| vec![1; 10_000]).collect();
    std::hint::black_box(&freed);
}

/// Does nothing as a test.
#[test]
fn holding_program() {
    let Ok(how) = env::var(CHILD) else { return };
    println!("begun");
    holds_nothing();
    if how == "nothing" {
        std::process::exit(0);
    }
    if let Some(turns) = how.strip_prefix("grows ") {
        grows(turns.parse().expect("a number"));
        std::process::exit(0);
    }
    let sixty = if how == "few" { Vec::new() } else { holds_sixty() };
    let held = (sixty, holds_thirty(), holds_ten());
    std::hint::black_box(&held);
    println!("held");
    match how.as_str() {
        "few" => std::process::exit(0),
        "stays" => std::thread::sleep(Duration::from_secs(60)),
        code => std::process::exit(code.parse().expect("an exit code")),
    }
}

/// The library that is built beside the tests.
pub fn library(test: &str) -> Option<PathBuf> {
    let this = env::current_exe().expect("a path of this test");
    let folder = this.ancestors().nth(2).expect("a target directory");
    let library = folder.join("examples").join("libpreload.so");
    let why = match () {
        () if cfg!(target_feature = "crt-static") => "this is a static program",
        () if !cfg!(target_arch = "x86_64") => "stacks are not known here",
        () if !library.exists() => {
            "the malloc's shared object is not built: test corelocal-malloc, too"
        }
        () => return Some(library),
    };
    skip(test, why);
    None
}

/// `corelocal heap` with these options, of this program.
pub fn heap_of_program(library: &std::path::Path, options: &[&str], how: &str) -> Call {
    let this = env::current_exe().expect("this program");
    let this = this.to_str().expect("text");
    let program = [this, PROGRAM, "--exact", "--nocapture", "--test-threads=1"];
    let call = Call::new(&[&["heap"], options, &program].concat()).env(CHILD, how);
    call.env("CORELOCAL_MALLOC_LIBRARY", library.to_str().expect("text"))
}

/// Checks the memory of the functions, by their names, and their callers.
fn check(answer: &Value) {
    let process = &answer["processes"][0];
    let sites = process["sites"].as_array().expect("sites");
    for (name, mib) in [("holds_sixty", 60), ("holds_thirty", 30), ("holds_ten", 10)] {
        let named = |site: &&Value| {
            let of = |it: &Value| it["function"].as_str().is_some_and(|it| it.contains(name));
            // The closure in it, as a rule.
            of(site)
        };
        let bytes: f64 = sites.iter().filter(named).filter_map(|site| site["bytes"].as_f64()).sum();
        let ratio = bytes / (mib * MIB) as f64;
        // The vectors of pointers are in it, too.
        assert!((0.8..1.3).contains(&ratio), "{name}: {ratio} in {answer:#}");
        let site = sites.iter().find(named).expect("a site");
        let callers = site["callers"].as_array().expect("callers");
        let is_called = callers.iter().any(|caller| {
            caller["function"].as_str().is_some_and(|it| it.contains("holding_program"))
        });
        assert!(is_called, "{site:#}");
        assert!(site["source"].as_str().is_some_and(|it| it.contains("heap.rs:")), "{site:#}");
    }
    let text = answer.to_string();
    assert!(!text.contains("holds_nothing"), "{answer:#}");
    assert!(!text.contains("corelocal::alloc") && !text.contains("libpreload"), "{answer:#}");
}

/// A Rust program with `CoreLocal` writes its own profile, beside that of the preloaded malloc, which has little.
#[test]
fn a_program_with_core_local_is_told_of() {
    const TEST: &str = "a_program_with_core_local_is_told_of";
    let Some(library) = library(TEST) else { return };
    let this = env::current_exe().expect("a path of this test");
    let program = this.ancestors().nth(2).expect("a target directory").join("heap_profile");
    if !program.exists() {
        return skip(TEST, "the example is not built: test corelocal-examples, too");
    }
    let program = program.to_str().expect("text");
    let options = ["heap", "--json", "--rate", "4K", "-o", "heap.json", program];
    let library = library.to_str().expect("text");
    let done = Call::new(&options).env("CORELOCAL_MALLOC_LIBRARY", library).done();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.out.contains("20000 entries"), "{}", done.out);
    let answer = json(&done.read("heap.json"));
    let text = answer.to_string();
    assert!(text.contains("fill_cache") && text.contains("fill_names"), "{answer:#}");
    assert!(!text.contains("corelocal::alloc"), "{answer:#}");
    let bytes = answer["processes"][0]["bytes"].as_f64().expect("bytes");
    assert!((3e6..9e6).contains(&bytes), "{bytes}");
}

#[test]
fn a_program_is_run_and_told_of() {
    let Some(library) = library("a_program_is_run_and_told_of") else { return };
    let options =
        ["--json", "--rate", "32K", "--top", "100", "--svg", "h.svg", "--pprof", "h.pb.gz"];
    let options = [&options[..], &["--collapsed", "h.txt"]].concat();
    let done = heap_of_program(&library, &options, "7").done();
    assert_eq!(done.code, Some(7), "{}", done.whole());
    check(&json(&done.out));
    // What the program said is not in the JSON.
    assert!(done.err.contains("begun"), "{}", done.whole());
    let names = ["holds_sixty", "holds_thirty", "holds_ten", "holding_program"];
    let (svg, lines) = (done.read("h.svg"), done.read("h.txt"));
    for name in names {
        assert!(svg.contains(name) && lines.contains(name), "{name}");
    }
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"));
    let file = std::fs::File::open(done.folder.path().join("h.pb.gz")).expect("a profile");
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut profile).expect("gzip");
    let has = |text: &str| profile.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(has("inuse_space") && has("heap.rs"));
    for name in names {
        assert!(profile.windows(name.len()).any(|bytes| bytes == name.as_bytes()), "{name}");
    }
}

#[test]
fn a_table_and_the_peak() {
    let Some(library) = library("a_table_and_the_peak") else { return };
    let table = heap_of_program(&library, &["--top", "3"], "0").done();
    assert_eq!(table.code, Some(0), "{}", table.whole());
    // The program's output is its own.
    assert!(table.out.contains("begun") && !table.out.contains("MiB"), "{}", table.whole());
    for text in ["Heap of", "holds_sixty", "MiB", "--peak shows the call sites"] {
        assert!(table.err.contains(text), "{text}: {}", table.whole());
    }
    let peak = heap_of_program(&library, &["--peak"], "0").done();
    assert!(peak.err.contains("holds_nothing"), "{}", peak.whole());
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let file = folder.path().join("report");
    let name = file.to_str().expect("text");
    let aside = heap_of_program(&library, &["-o", name], "0").done();
    assert!(aside.out.contains("begun") && !aside.err.contains("Heap of"), "{}", aside.whole());
    assert!(std::fs::read_to_string(&file).expect("a report").contains("holds_sixty"));
    let aside =
        heap_of_program(&library, &["--json", "-o", name, "--rate", "32K", "--top", "100"], "0")
            .done();
    assert!(aside.out.contains("begun"), "{}", aside.whole());
    check(&json(&std::fs::read_to_string(&file).expect("a report")));
}

#[test]
fn a_program_is_asked_to_end() {
    let Some(library) = library("a_program_is_asked_to_end") else { return };
    let options = ["--for", "10s", "--json", "--rate", "32K", "--top", "100"];
    let begun = Instant::now();
    let done = heap_of_program(&library, &options, "stays").done();
    // It is killed if it has not ended ten seconds after it was asked to, which happens on a busy machine.
    let was_killed = done.code == Some(128 + libc::SIGKILL) && begun.elapsed().as_secs() >= 20;
    assert!(was_killed || done.code == Some(128 + libc::SIGTERM), "{}", done.whole());
    check(&json(&done.out));
}

/// A command in the foreground of a terminal of its own.
struct OnTerminal {
    corelocal: Child,
    terminal: File,
    err: BufReader<ChildStderr>,
}

impl OnTerminal {
    fn start(mut command: Command) -> OnTerminal {
        let (mut outer, mut inner) = (-1, -1);
        let none = std::ptr::null_mut();
        // SAFETY: two words to write to; the settings are the default.
        let made = unsafe { libc::openpty(&mut outer, &mut inner, none, none.cast(), none.cast()) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: new descriptors, which nothing else owns.
        let (terminal, inner) = unsafe { (File::from_raw_fd(outer), File::from_raw_fd(inner)) };
        command.stdin(inner).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: two system calls.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let mut corelocal = command.spawn().expect("the command starts");
        let err = BufReader::new(corelocal.stderr.take().expect("a pipe"));
        OnTerminal { corelocal, terminal, err }
    }

    /// Reads up to this line, and waits until a signal would write a profile: shells and Python handle SIGINT themselves, but
    /// not the others. Returns the program's id.
    fn until(&mut self, line: &str) -> libc::pid_t {
        while crate::line(&mut self.err).trim_end() != line {}
        let of = self.corelocal.id();
        let catches = || {
            let children = format!("/proc/{of}/task/{of}/children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            let program = children.split_whitespace().next()?.to_owned();
            let status = std::fs::read_to_string(format!("/proc/{program}/status")).ok()?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim();
            let caught = u64::from_str_radix(caught, 16).ok()?;
            let all = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
            let is_ready = all.iter().all(|signal| caught >> (signal - 1) & 1 == 1);
            is_ready.then(|| program.parse().ok())?
        };
        let began = Instant::now();
        loop {
            if let Some(program) = catches() {
                return program;
            }
            if self.corelocal.try_wait().expect("a child").is_some() {
                let mut err = String::new();
                self.err.read_to_string(&mut err).expect("text");
                panic!("it has ended after {:?}: {err}", began.elapsed());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ctrl-C, and what comes of it.
    fn interrupt(mut self) -> (Option<i32>, String, String) {
        self.terminal.write_all(b"\x03").expect("a terminal");
        self.end()
    }

    /// What comes of it: the exit code, and what was written.
    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.err.read_to_string(&mut err).expect("text");
        let mut pipe = self.corelocal.stdout.take().expect("a pipe");
        pipe.read_to_string(&mut out).expect("text");
        (self.corelocal.wait().expect("a child").code(), out, err)
    }
}

/// A server that is ended with Ctrl-C has a profile.
#[test]
fn a_key_of_the_terminal_ends_it() {
    let Some(library) = library("a_key_of_the_terminal_ends_it") else { return };
    let options = ["--json", "--rate", "32K", "--top", "100"];
    let Call { command, folder: _folder } = heap_of_program(&library, &options, "stays");
    let mut running = OnTerminal::start(command);
    running.until("held");
    let (code, out, err) = running.interrupt();
    assert_eq!(code, Some(128 + libc::SIGINT), "{err}");
    check(&json(&out));
}

/// So has one that another process ends.
#[test]
fn a_signal_to_the_program_ends_it() {
    let Some(library) = library("a_signal_to_the_program_ends_it") else { return };
    let library = library.to_str().expect("text");
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let script = "echo held >&2; exec sleep 60";
        let call = Call::new(&["heap", "--json", "--rate", "1", "--", "sh", "-c", script]);
        let Call { command, folder: _folder } = call.env("CORELOCAL_MALLOC_LIBRARY", library);
        let mut running = OnTerminal::start(command);
        let program = running.until("held");
        // SAFETY: a child of a child of ours, which waits for it.
        assert_eq!(unsafe { libc::kill(program, signal) }, 0);
        let (code, out, err) = running.end();
        assert_eq!(code, Some(128 + signal), "{err}");
        let processes = json(&out)["processes"].as_array().map_or(0, Vec::len);
        assert_eq!(processes, 1, "{out}{err}");
    }
}

/// What a program does about Ctrl-C is its own affair.
#[test]
fn interrupts_of_python_are_its_own() {
    let Some(library) = library("interrupts_of_python_are_its_own") else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("interrupts_of_python_are_its_own", "python3 is not installed");
    }
    // It says so where it catches them.
    let script = "import sys, time\ntry:\n print('held', file=sys.stderr)\n time.sleep(60)\n\
                  except KeyboardInterrupt: sys.exit(7)\n";
    let call = Call::new(&["heap", "--json", "--", "python3", "-c", script]);
    let library = library.to_str().expect("text");
    let Call { command, folder: _folder } = call.env("CORELOCAL_MALLOC_LIBRARY", library);
    let mut running = OnTerminal::start(command);
    running.until("held");
    let (code, out, err) = running.interrupt();
    assert_eq!(code, Some(7), "{err}");
    // It may be behind a script.
    let processes = json(&out)["processes"].as_array().map_or(0, Vec::len);
    assert!(processes > 0, "{out}{err}");
}

/// The malloc's thread begins while another function allocates, which does not have its memory.
#[test]
fn the_mallocs_own() {
    let Some(library) = library("the_mallocs_own") else { return };
    let options = ["--rate", "128", "--collapsed", "h.txt"];
    let done = heap_of_program(&library, &options, "nothing").done();
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let stacks = done.read("h.txt");
    // What could not be written is no success; the program's own failure says more.
    for (how, code) in [("nothing", 1), ("7", 7)] {
        let options = ["--svg", "/no/such/folder/x.svg"];
        let done = heap_of_program(&library, &options, how).done();
        assert_eq!(done.code, Some(code), "{}", done.whole());
        assert!(done.err.contains("/no/such/folder"), "{}", done.whole());
    }
    let is_of_thread = |stack: &str| stack.contains("[the malloc itself];pthread_create");
    assert!(stacks.lines().any(is_of_thread), "{stacks}");
    assert!(!stacks.contains("holds_nothing"), "{stacks}");
}

#[test]
fn files_that_it_wrote() {
    let Some(library) = library("files_that_it_wrote") else { return };
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let this = env::current_exe().expect("this program");
    let mut program = std::process::Command::new(this);
    program.args([PROGRAM, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, "0");
    let words = format!("profile:{}/of,profile-rate:32K", folder.path().display());
    program.env("LD_PRELOAD", library).env("CORELOCAL_MALLOC", words);
    assert!(program.output().expect("this program starts").status.success());
    let files = std::fs::read_dir(folder.path()).expect("the folder").flatten();
    let files: Vec<String> =
        files.map(|file| file.path().to_str().expect("text").to_owned()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    // Options may come after a file.
    let done = corelocal(&["heap", file, "--json", "--top", "100"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    check(&json(&done.out));
    // Two are told one after the other.
    let done = corelocal(&["heap", "--top", "1", file, file]);
    assert_eq!(done.out.matches("Heap of").count(), 2, "{}", done.whole());
    // Cut off in the middle, it is told as far as it goes.
    let bytes = std::fs::read(file).expect("a file of ours");
    std::fs::write(file, &bytes[..bytes.len() / 2]).expect("a file of ours");
    let done = corelocal(&["heap", file]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert!(done.out.contains("the file is truncated"), "{}", done.whole());
    let done = corelocal(&["heap", file, "--svg", "/no/such/folder/x.svg"]);
    assert_eq!(done.code, Some(1), "{}", done.whole());
}

#[test]
fn two_profiles_are_compared() {
    let Some(library) = library("two_profiles_are_compared") else { return };
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let file_of = |how: &str| {
        let this = env::current_exe().expect("this program");
        let mut program = std::process::Command::new(this);
        program.args([PROGRAM, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, how);
        let place = folder.path().join(how);
        std::fs::create_dir(&place).expect("a new folder");
        let words = format!("profile:{}/of,profile-rate:128K", place.display());
        program.env("LD_PRELOAD", &library).env("CORELOCAL_MALLOC", words);
        assert!(program.output().expect("this program starts").status.success());
        let file = std::fs::read_dir(&place).expect("the folder").flatten().next().expect("a file");
        file.path().to_str().expect("text").to_owned()
    };
    let (few, all) = (file_of("few"), file_of("0"));
    let options = ["--json", "--svg", "d.svg", "--pprof", "d.pb.gz", "--collapsed", "d.txt"];
    let done = corelocal(&[&["heap", "--diff", &few, &all], &options[..]].concat());
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let answer = json(&done.out);
    let grown = |name: &str| -> f64 {
        let sites = answer["difference"]["sites"].as_array().expect("sites");
        let named = |site: &&Value| site["function"].as_str().is_some_and(|it| it.contains(name));
        sites.iter().filter(named).filter_map(|site| site["grown_bytes"].as_f64()).sum()
    };
    let sixty = grown("holds_sixty") / (60 * MIB) as f64;
    assert!((0.8..1.3).contains(&sixty), "{sixty} in {answer:#}");
    // What is there both times is no growth: exactly so where objects are always sampled.
    assert!(grown("holds_ten").abs() < (MIB / 2) as f64, "{answer:#}");
    let lines = done.read("d.txt");
    let line = lines.lines().find(|line| line.contains("holds_sixty")).expect("a stack");
    assert_eq!(line.rsplit(' ').nth(1), Some("0"), "{line}");
    assert!(done.read("d.svg").contains("holds_sixty"));
    assert!(done.folder.path().join("d.pb.gz").metadata().is_ok_and(|file| file.len() > 100));
    // The other way round it shrinks.
    let done = corelocal(&["heap", &few, "--diff", &all]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    for text in ["changes", "holds_sixty", "may be sampling error", "growth  -"] {
        assert!(done.out.contains(text), "{text}: {}", done.whole());
    }
    for (args, words) in [
        (&["heap", "--diff", &few, "ls", "/"][..], "--diff BEFORE AFTER"),
        (&["heap", "--diff", &few, &all, &all], "--diff BEFORE AFTER"),
        (&["heap", "--diff", "/no/such.heap", &all], "/no/such.heap"),
    ] {
        let done = corelocal(args);
        assert_eq!((done.code, done.out.as_str()), (Some(3), ""), "{}", done.whole());
        assert!(done.err.contains(words), "{words}: {}", done.whole());
    }
}

#[test]
fn what_is_no_profile_is_refused() {
    for (content, words) in [
        ("", "not a heap profile"),
        ("text", "not a heap profile"),
        ("CLHEAP9\n", "another version"),
        ("CLHEAP1\n", "empty or truncated"),
        ("CLHEAP1\n\u{1}\0\0\0\u{7f}\u{7f}\u{7f}\u{7f}", "empty or truncated"),
    ] {
        let done = Call::new(&["heap", "x.heap"]).file("x.heap", content).done();
        assert_eq!((done.code, done.out.as_str()), (Some(3), ""), "{}", done.whole());
        assert!(done.err.contains(words), "{}", done.whole());
    }
    let done = corelocal(&["heap", "no/such/file.heap"]);
    assert_eq!(done.code, Some(3), "{}", done.whole());
    assert!(done.err.contains("CORELOCAL_MALLOC=profile"), "{}", done.whole());
}

/// The working directory may be another user's, with a file that is called as a program.
#[test]
fn a_bare_name_is_a_program() {
    let profile = "CLHEAP1\n";
    let read = |name: &str, options: &[&str]| {
        let call = Call::new(&[&["heap"], options, &[name]].concat());
        let name = name.rsplit('/').next().expect("a name");
        call.env("CORELOCAL_MALLOC_LIBRARY", "/no/such/library.so").file(name, profile).done()
    };
    for (name, options) in [("true", &[][..]), ("true", &["--"]), ("./x.heap.old", &[])] {
        let done = read(name, options);
        let is_read = done.err.contains("empty or truncated");
        assert_eq!(is_read, name.contains('/'), "{name}: {}", done.whole());
        // Else it looks for the malloc to run the program with.
        let is_run = done.err.contains("/no/such/library.so");
        assert_eq!(is_run, !is_read, "{name}: {}", done.whole());
    }
    let done = read("x.heap", &[]);
    assert!(done.code == Some(3) && done.err.contains("empty or truncated"), "{}", done.whole());
}
