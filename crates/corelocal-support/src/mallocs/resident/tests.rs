//! Tests of `resident.rs`.

use std::process::{Command, Stdio};

use super::*;

#[test]
fn fields() {
    let text = "VmHWM:\t    1234 kB\nRssAnon:\t 12 kB\nPss:  7 kB\nPss_Dirty: 6 kB\n";
    assert_eq!(field(text, "VmHWM"), Some(1234));
    assert_eq!(field(text, "Pss"), Some(7));
    assert_eq!(field(text, "Rss"), None);
}

#[test]
fn this_process_is_there() {
    let kib = Process::This.resident().expect("statm");
    let peak = Process::This.peak().expect("status");
    assert!(kib > 100 && peak > 100, "{kib} {peak}");
    assert!(Process::This.peak_anonymous().expect("status") < peak);
    if let Some(share) = Process::This.share() {
        assert!(share > 0);
    }
}

#[test]
fn the_name_of_a_process_may_be_any_bytes() {
    let mut shell = Command::new("sh");
    shell.args(["-c", r"printf 'caf\351' > /proc/$$/comm; echo; read line"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0];
    std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
    let name = fs::read(format!("/proc/{}/comm", shell.id())).unwrap_or_default();
    let peak = Process::Other(shell.id()).peak();
    // It ends at the end of its input.
    drop(shell.stdin.take());
    shell.wait().unwrap();
    if name != b"caf\xe9\n" {
        return eprintln!("skipped: the_name_of_a_process_may_be_any_bytes: it is {name:?}");
    }
    assert!(peak.is_some());
}

#[test]
fn memory_that_is_touched_is_seen() {
    let memory = || Process::This.anonymous().expect("memory of this process");
    // Other tests of this process may free as much at the same moment, but not each time.
    let is_seen = |_: u32| {
        let before = memory();
        let touched = std::hint::black_box(vec![1_u8; 32 << 20]);
        let after = memory();
        drop(touched);
        after >= before + (24 << 10)
    };
    assert!((0..20).any(is_seen));
}

#[test]
fn a_tree_of_processes() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 60 & echo; wait"]).stdout(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let mut line = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    let found = tree(child.id());
    let kib = of_tree(child.id());
    for process in found.iter().rev() {
        // SAFETY: our child, which was not waited for, and its own child, whom it waits for.
        unsafe { libc::kill(*process as libc::pid_t, libc::SIGKILL) };
    }
    child.wait().unwrap();
    if found.len() == 1 {
        return eprintln!("skipped: a_tree_of_processes: this kernel has no task/*/children");
    }
    assert!(found.len() == 2 && kib > Some(0), "{found:?} {kib:?}");
    assert_eq!(of_tree(child.id()), None);
}
