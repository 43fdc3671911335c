//! `corelocal lab`: lists, searches, pages, and what a wrong or stopped one says.

use std::io::Read as _;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::{Call, corelocal, json};

const INCOMPLETE: i32 = 3;

#[test]
fn models_are_listed() {
    let done = corelocal(&["lab", "list"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    for name in ["pvclock/2015", "cid/7.0-livelock", "futex/no-barrier"] {
        assert!(done.out.contains(name), "{}", done.whole());
    }
}

#[test]
fn a_fault_is_found_and_drawn() {
    let done = corelocal(&["lab", "explore", "futex/no-barrier", "--html", "page.html"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    for part in [
        "fault found: T0 sleeps for ever",
        "step  T0",
        "futex_hb_waiters_pending",
        "becomes visible",
    ] {
        assert!(done.out.contains(part), "{part}: {}", done.whole());
    }
    let page = done.read("page.html");
    assert!(page.contains("<svg") && page.contains("futex_hb_waiters_pending"), "{page}");
}

#[test]
fn a_protocol_is_searched_as_json() {
    let done = corelocal(&["lab", "explore", "pvclock", "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let findings = json(&done.out);
    let findings = findings.as_array().expect("a list");
    assert!(findings.len() > 10 && findings.iter().all(|finding| finding["is_as_listed"] == true));
    let faulty =
        findings.iter().find(|finding| finding["model"] == "pvclock/2015").expect("a model");
    assert_eq!(faulty["failure"], "Violation");
    assert!(faulty["schedule"]["lines"].as_array().expect("steps").len() > 5);
}

#[test]
fn bounds_are_told() {
    let few = corelocal(&["lab", "explore", "cid/7.0", "--states", "1000"]);
    assert_eq!(few.code, Some(INCOMPLETE), "{}", few.whole());
    assert!(few.out.contains("raise --states"), "{}", few.whole());
    let bounded = corelocal(&["lab", "explore", "cid/7.0", "--preemptions", "0"]);
    assert_eq!(bounded.code, Some(0), "{}", bounded.whole());
    assert!(bounded.out.contains("up to 0 preemptions"), "{}", bounded.whole());
    // Within a bound a planted fault need not be found.
    let fault = corelocal(&["lab", "explore", "futex/no-barrier", "--preemptions", "0"]);
    assert_eq!(fault.code, Some(INCOMPLETE), "{}", fault.whole());
    assert!(fault.out.contains("nothing wrong so far"), "{}", fault.whole());
}

#[test]
fn an_unknown_model_is_told() {
    for command in ["explore", "simulate"] {
        let done = corelocal(&["lab", command, "futex/no-barier"]);
        assert_eq!(done.code, Some(2), "{}", done.whole());
        assert!(done.err.contains("do you mean futex/no-barrier?"), "{}", done.whole());
    }
}

#[test]
fn a_page_that_cannot_be_written_is_told_first() {
    let done = corelocal(&[
        "lab",
        "explore",
        "cid/slots",
        "--no-symmetry",
        "--html",
        "no/such/folder/page.html",
    ]);
    assert_eq!(done.code, Some(1), "{}", done.whole());
    assert!(done.err.contains("page.html"), "{}", done.whole());
}

#[test]
fn simulations_repeat() {
    let run = |seed| {
        json(
            &corelocal(&[
                "lab", "simulate", "cid/6.4", "--steps", "10000", "--seed", seed, "--json",
            ])
            .out,
        )
    };
    let trace = |seed| run(seed)[0]["trace"].as_u64().expect("a number");
    assert_eq!(trace("7"), trace("7"));
    assert_ne!(trace("7"), trace("8"));
    // A failure after so many steps is told without them.
    let late = ["lab", "simulate", "cid/6.4-no-look", "--steps", "1000000", "--seed", "8"];
    let late = corelocal(&[&late[..], &["--json"]].concat());
    assert_eq!(late.code, Some(0), "{}", late.whole());
    let late = json(&late.out);
    assert!(
        late[0]["steps"].as_u64() > Some(100_000) && late[0]["failure"]["message"].is_string(),
        "{late}"
    );
}

#[test]
fn a_process_is_planned() {
    let done = corelocal(&[
        "lab",
        "plan",
        "--cpus",
        "384",
        "--allowed",
        "368-383",
        "--threads",
        "64",
        "--json",
    ]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let answers = json(&done.out);
    let policies = answers[0]["policies"].as_array().expect("a list");
    let usual: Vec<_> = policies.iter().map(|policy| policy["usual"].as_u64()).collect();
    assert_eq!(usual, [384, 16, 16, 16, 16].map(Some));
    let here = corelocal(&["lab", "plan", "--this-machine"]);
    assert!(here.code == Some(0) && here.out.contains(" ←"), "{}", here.whole());
}

#[test]
fn containers_are_planned_from_a_file() {
    let good = "cpus = 64\nkernel = \"6.19\"\n\n[[container]]\nname = \"web\"\nallowed = \"0-3\"\nonce_allowed = \"0-63\"\n\
                threads = 64\n";
    let done = Call::new(&["lab", "plan", "plan.toml", "--html", "plan.html"])
        .file("plan.toml", good)
        .done();
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert!(
        done.out.contains("web: 64 threads, 4 of 64 cpus allowed (once 64)"),
        "{}",
        done.whole()
    );
    assert!(
        done.out.contains("Linux 6.19 and later: start the process within its 4 cpus"),
        "{}",
        done.whole()
    );
    assert!(done.read("plan.html").contains("<h2>web</h2>"));
    let wrong = [
        ("cpus = 64\n\n[[container]]\nnaem = 1\n", "line 4"),
        (&*good.replace("0-3", "0-64"), "container web"),
    ];
    for (text, part) in wrong {
        let done = Call::new(&["lab", "plan", "plan.toml"]).file("plan.toml", text).done();
        assert_eq!(done.code, Some(2), "{}", done.whole());
        assert!(done.err.contains(part) && done.err.contains("plan.toml"), "{}", done.whole());
    }
}

#[test]
fn scenarios_are_run() {
    let list = corelocal(&["lab", "run", "--list"]);
    assert_eq!((list.code, list.out.lines().count() >= 12), (Some(0), true), "{}", list.whole());
    let shipped = corelocal(&["lab", "run", "lost-wake"]);
    assert!(
        shipped.code == Some(0) && shipped.out.contains("futex_hb_waiters_pending"),
        "{}",
        shipped.whole()
    );
    // A shipped one, printed and changed: what is expected no longer happens.
    let text = corelocal(&["lab", "run", "lost-wake", "--print"]).out.replace("faults", "# faults");
    let done = Call::new(&["lab", "run", "mine.toml"]).file("mine.toml", &text).done();
    assert_eq!(done.code, Some(1), "{}", done.whole());
}

#[test]
fn wrong_scenarios_show_the_line() {
    let head = "title = \"x\"\n\n[futex]\nkernel = \"6.17\"\n\n[[futex.thread]]\n";
    let wrong = [
        (format!("{head}program = [\n  \"store 0 1\",\n  \"wake 0 two private\",\n]\n"), "line 9"),
        (head.replace("6.17", "6.99") + "program = []\n", "line 4"),
        ("title = \"x\"\n[cid]\npolicy = \"6.4\"\ntasks = [0]\ncpus = 9\n".into(), "line 5"),
        ("title = \"x\"\n[cid\n".into(), "line 2"),
        ("title = \"x\"\n".into(), "[futex], [cid] and [pvclock]"),
        (format!("{head}program = []\n"), "empty program"),
    ];
    for (text, part) in wrong {
        let done = Call::new(&["lab", "run", "wrong.toml"]).file("wrong.toml", &text).done();
        assert_eq!(done.code, Some(2), "{}", done.whole());
        assert!(
            done.err.contains("wrong.toml") && done.err.contains(part),
            "{part}: {}",
            done.whole()
        );
    }
    let none = corelocal(&["lab", "run", "none.toml"]);
    assert!(none.code == Some(2) && none.err.contains("--list"), "{}", none.whole());
    let near = corelocal(&["lab", "run", "condvr"]);
    assert!(near.err.contains("the nearest name is condvar"), "{}", near.whole());
    let not_shipped = corelocal(&["lab", "run", "mine.toml", "--print"]);
    assert!(
        not_shipped.code == Some(2) && not_shipped.err.contains("--list"),
        "{}",
        not_shipped.whole()
    );
}

#[test]
fn a_stopped_simulation_says_what_it_did() {
    let steps = u64::MAX.to_string();
    let mut call = Call::new(&["lab", "simulate", "pvclock", "--json", "--steps", &steps]);
    call.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = call.command.spawn().expect("the program starts");
    // Signals are noted from the first millisecond on.
    thread::sleep(Duration::from_millis(700));
    // SAFETY: a child of ours, which has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3));
    let answers = json(&String::from_utf8_lossy(&output.stdout));
    let answers = answers.as_array().expect("a list");
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(answers[0]["steps"].as_u64().is_some_and(|steps| steps > 0), "{answers:?}");
}

#[test]
fn a_stopped_search_says_what_is_known() {
    let mut call = Call::new(&["lab", "explore", "cid/slots", "--no-symmetry"]);
    call.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = call.command.spawn().expect("the program starts");
    // Signals are noted from the first millisecond on; the search takes seconds.
    thread::sleep(Duration::from_millis(700));
    // SAFETY: a child of ours, which has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let status = crate::ended(&mut child);
    let mut out = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    assert_eq!(status.code(), Some(INCOMPLETE), "{out}");
    assert!(out.contains("stopped after"), "{out}");
}

/// The drawings of docs/kernel-halves.md are what the command writes now.
#[test]
fn drawings_are_current() {
    let drawings = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/drawings");
    let folder = tempfile::tempdir().expect("a folder");
    for model in ["rseq/vfork-section", "cid/7.0-livelock", "futex/no-barrier", "pvclock/2015"] {
        let file = model.replace('/', "-") + ".svg";
        let made = folder.path().join(&file);
        let done = corelocal(&["lab", "explore", model, "--svg", made.to_str().expect("UTF-8")]);
        assert_eq!(done.code, Some(0), "{}", done.whole());
        let read = |path: &std::path::Path| std::fs::read_to_string(path).expect("a drawing");
        assert!(
            read(&made) == read(&std::path::Path::new(drawings).join(&file)),
            "docs/drawings/{file} is old: corelocal lab explore {model} --svg docs/drawings/{file}"
        );
    }
    let two = corelocal(&["lab", "explore", "pvclock", "--svg", "no.svg"]);
    assert_eq!(two.code, Some(2), "{}", two.whole());
    assert!(two.err.contains("one model"), "{}", two.whole());
}
