//! Threads that a program did not ask for, and idle memory that goes back without one.

use std::ffi::CString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::{fs, io};

use crate::run::{Done, Malloc, TRY, all, done, only_ours, scaled};
use crate::skip;

/// One of `try-malloc`, with words for our malloc.
fn tries(malloc: &Malloc, words: &str, args: &[&str]) -> Done {
    let mut command = malloc.command(TRY);
    command.args(args).env("CORELOCAL_MALLOC", words);
    let done = done(command);
    assert!(done.well(), "{args:?} with {}, {words:?}: {}", malloc.name, done.whole());
    done
}

/// A process of one thread gets no other unless it is asked for; one of several gets one more.
#[test]
fn threads_of_a_process() {
    let Some(ours) = only_ours("threads_of_a_process") else { return };
    for (words, before, after) in [
        ("", "1", "1 threads"),
        ("background:yes", "1", "2 threads"),
        ("background:children", "1", "2 threads"),
        ("background:no", "1", "1 threads"),
        ("", "2", "3 threads"),
        ("background:yes", "2", "3 threads"),
        ("background:no", "2", "2 threads"),
    ] {
        let found = tries(&ours, words, &["count", before, "100"]).out;
        assert_eq!(found.trim(), after, "{before} with {words:?}");
    }
}

/// As POSIX had it for long, and glibc keeps it for a process of one thread: its `fork` takes no lock then.
#[test]
fn forks_in_handlers_that_interrupt_fork() {
    for malloc in all("forks_in_handlers_that_interrupt_fork") {
        tries(&malloc, "", &["forks_in_handlers", &scaled(200), "40"]);
    }
}

#[test]
fn memory_goes_back_while_a_program_of_one_thread_goes_on() {
    let Some(ours) = only_ours("memory_goes_back_while_a_program_of_one_thread_goes_on") else {
        return;
    };
    for (words, threads) in
        [("", "1 threads"), ("background:no", "1 threads"), ("background:yes", "2 threads")]
    {
        assert_eq!(tries(&ours, words, &["little_work", "300"]).out.trim(), threads, "{words:?}");
    }
}

/// No span is empty, and no cache becomes empty or full.
#[test]
fn memory_between_objects_goes_back_while_caches_serve_all() {
    let test = "memory_between_objects_goes_back_while_caches_serve_all";
    let Some(ours) = only_ours(test) else { return };
    for size in ["16384", "65536"] {
        tries(&ours, "", &["holes", "200", size]);
    }
}

/// It has a table of descriptors of its own, and says what is wrong on standard error all the same.
#[test]
fn a_fault_that_the_thread_finds_is_told() {
    const TEST: &str = "a_fault_that_the_thread_finds_is_told";
    let Some(ours) = only_ours(TEST) else { return };
    let mut command = ours.command(TRY);
    command.arg("freed_twice").env("CORELOCAL_MALLOC", "background:yes");
    let done = done(command);
    if done.well() {
        return said_or_skipped(TEST, &done, "");
    }
    assert_eq!(done.status.signal(), Some(libc::SIGABRT), "{}", done.whole());
    assert!(done.err.contains("freed, but it is free already"), "{}", done.whole());
}

/// Neither the policy nor the pin of the thread that makes it.
#[test]
fn the_thread_has_a_policy_and_cpus_of_its_own() {
    const TEST: &str = "the_thread_has_a_policy_and_cpus_of_its_own";
    let Some(ours) = only_ours(TEST) else { return };
    said_or_skipped(TEST, &tries(&ours, "", &["real_time"]), "of its own");
}

#[test]
fn a_thread_that_is_refused_is_made_later() {
    const TEST: &str = "a_thread_that_is_refused_is_made_later";
    let Some(ours) = only_ours(TEST) else { return };
    said_or_skipped(TEST, &tries(&ours, "", &["refused_thread"]), "later");
}

/// A process that moved its root to another user's folder reads nothing that this user made up. The opening of a
/// FIFO would wait for a writer for ever.
#[test]
fn files_of_a_foreign_root_are_not_opened() {
    const TEST: &str = "files_of_a_foreign_root_are_not_opened";
    let Some(ours) = only_ours(TEST) else { return };
    let cage = tempfile::TempDir::new().expect("a temporary folder");
    let files = [
        "proc/thread-self/cgroup",
        "proc/thread-self/mountinfo",
        "proc/thread-self/statm",
        "proc/pressure/memory",
        "sys/kernel/mm/transparent_hugepage/enabled",
        "sys/devices/system/node/has_cpu",
        "sys/devices/system/cpu/possible",
    ];
    for file in files {
        let path = cage.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        let path = CString::new(path.to_str().expect("text")).expect("no NUL");
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }
    let done = tries(&ours, "", &["in_a_cage", cage.path().to_str().expect("text")]);
    said_or_skipped(TEST, &done, "out again");
}

/// A control group of version 1 with a limit of memory, for one process; removed at the end.
struct Group(PathBuf);

impl Group {
    fn new(bytes: u64) -> io::Result<Group> {
        let folder = format!("/sys/fs/cgroup/memory/corelocal-test-{}", std::process::id());
        let group = Group(PathBuf::from(folder));
        fs::create_dir(&group.0)?;
        fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        _ = fs::remove_dir(&self.0);
    }
}

/// What a target keeps goes back near the limit of the control group, by a thread and without one.
#[test]
fn nothing_idle_is_kept_near_a_limit() {
    const TEST: &str = "nothing_idle_is_kept_near_a_limit";
    let Some(ours) = only_ours(TEST) else { return };
    let group = match Group::new(320 << 20) {
        Ok(group) => group,
        Err(why) => return skip(TEST, &format!("no control group can be made: {why}")),
    };
    for words in ["resident:1G", "resident:1G,background:yes"] {
        // The shell moves itself, and becomes the program.
        let mut command = ours.command("sh");
        let script = "echo $$ > \"$1/cgroup.procs\" && exec \"$2\" near_limit 300";
        command.args(["-c", script, "sh"]).arg(&group.0).arg(TRY).env("CORELOCAL_MALLOC", words);
        let done = done(command);
        assert!(done.well(), "{words}: {}", done.whole());
    }
}

fn said_or_skipped(test: &str, done: &Done, expected: &str) {
    match done.out.trim().strip_prefix("skipped: ") {
        Some(reason) => skip(test, reason),
        None => assert_eq!(done.out.trim(), expected),
    }
}
