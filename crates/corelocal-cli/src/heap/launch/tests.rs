//! Tests of `launch.rs`.

use super::*;
use std::fs;
use std::io::Read as _;

#[test]
fn one_profile_of_each_program() {
    let heap = |process, in_use, program: &str| Heap {
        process,
        in_use,
        is_whole: in_use > 0,
        maps: format!("1-2 r-xp 0 0:0 1 /bin/{program}\n"),
        ..Heap::default()
    };
    let mut heaps = Vec::new();
    for it in [
        heap(1, 15, "sh"),
        heap(1, 7, "ls"),
        heap(1, 3, "ls"),
        heap(1, 9, "sh"),
        heap(1, 0, "sh"),
        heap(2, 0, "sh"),
    ] {
        keep(&mut heaps, it);
    }
    let kept: Vec<(u64, u64)> = heaps.iter().map(|heap| (heap.process, heap.in_use)).collect();
    assert_eq!(kept, [(1, 9), (1, 3), (2, 0)]);
}

#[test]
fn profiles_are_in_the_order_in_which_they_were_written() {
    let numbers = ["/x/of.12.2.heap", "/x/of.12.10.heap", "/x/of.12.x.heap", "/x/of", "/"]
        .map(|path| number(Path::new(path)));
    assert_eq!(numbers, [Some(2), Some(10), None, None, None]);
}

#[test]
fn what_is_written_after_the_answer_does_not_count() {
    let paths = |names: &[&str]| -> Vec<PathBuf> { names.iter().map(PathBuf::from).collect() };
    let answers = paths(&["/x/of.5.9.heap", "/x/of.5.10.heap"]);
    let before = ["/x/of.5.8.heap", "/x/of.5.9.heap", "/x/of.5.10.heap", "/x/of.6.0.heap"];
    let mut all = paths(&[&before[..], &["/x/of.5.11.heap"]].concat());
    without_later_ones(&mut all, &answers);
    assert_eq!(all, paths(&before));
    // Where none was asked, all count.
    without_later_ones(&mut all, &[]);
    assert_eq!(all.len(), 4);
}

#[test]
fn only_the_process_that_is_asked_answers() {
    let folder = Folder::new("test").expect("a folder");
    let whole = folder.path().join("whole");
    fs::write(&whole, file::tests::file(&[100])).expect("a new file");
    // A worker writes a profile, too, and earlier.
    let script = "trap 'cp whole of.1.7.heap; sleep 0.5; cp whole of.$$.1.heap' 61; \
                  cp whole of.$$.0.heap; echo; while :; do sleep 0.05; done";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(folder.path()).stdout(Stdio::piped());
    let mut child = shell.spawn().expect("a shell");
    std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut [0]).expect("a line");
    let process = child.id();
    let answers = ask(&mut child, &folder);
    child.kill().expect("a child");
    child.wait().expect("a child");
    assert_eq!(answers, [folder.path().join(format!("of.{process}.1.heap"))]);
    let mut profiles = folder.profiles();
    without_later_ones(&mut profiles, &answers);
    assert!(profiles.contains(&folder.path().join("of.1.7.heap")));
}

#[test]
fn words_of_the_environment() {
    let words = |before| words(before, Path::new("/x"), 7).into_string().expect("text");
    let ours = "profile:/x/of,profile-rate:7,profile-signal:61";
    assert_eq!(words(""), ours);
    assert_eq!(words("stats,,profile-rate:9,profile:/y"), format!("stats,{ours}"));
    for before in ["check", "stats,check", "check,guard"] {
        let said = may_be_profiled(before).expect_err("no profile").to_string();
        assert!(said.contains(&format!("={before} ")) && said.contains("unset"), "{said}");
    }
    for before in ["", "stats", "checks", "guard,profile"] {
        assert!(may_be_profiled(before).is_ok(), "{before}");
    }
}

#[test]
fn handlers_are_seen() {
    let me = std::process::id();
    // The standard library has one for overflows of stacks.
    let me = Signals::of(me);
    assert!(me.catches(libc::SIGSEGV) && !me.is_default(libc::SIGSEGV));
    assert!(!me.catches(ASKS) && me.is_default(ASKS));
    // It ignores SIGPIPE.
    assert!(!me.catches(libc::SIGPIPE) && !me.is_default(libc::SIGPIPE));
    // Nothing is known of a process that does not exist.
    let none = Signals::of(u32::MAX);
    assert!(none.catches(ASKS) && !none.is_default(ASKS));
}

#[test]
fn the_name_of_a_process_need_not_be_text() {
    let mut shell = Command::new("sh");
    shell.args(["-c", r"printf 'caf\351' > /proc/$$/comm; echo begun; read line"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
    let said = shell.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 6]);
    let name = proc_files::text(shell.id(), "comm");
    let is_seen_to_catch = Signals::of(shell.id()).catches(ASKS);
    // It ends at the end of its input.
    drop(shell.stdin.take());
    shell.wait().expect("it ends");
    said.expect("it begins");
    if name != "caf\u{fffd}\n" {
        return eprintln!("skipped: the_name_of_a_process_need_not_be_text: it is {name:?}");
    }
    assert!(!is_seen_to_catch);
}
