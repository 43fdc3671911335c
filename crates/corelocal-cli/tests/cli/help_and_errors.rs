//! Help and errors, word by word, and that no arguments whatever bring more than a sentence.

use crate::corelocal;

#[test]
fn help_and_errors() {
    let cases: [(&str, &[&str]); 26] = [
        ("help", &["--help"]),
        ("help_doctor", &["doctor", "--help"]),
        ("help_report", &["report", "--help"]),
        ("help_bench", &["bench", "--help"]),
        ("help_torture", &["torture", "--help"]),
        ("help_clock", &["clock", "--help"]),
        ("help_clockd", &["clockd", "--help"]),
        ("help_locks", &["locks", "--help"]),
        ("help_lab_explore", &["lab", "explore", "--help"]),
        ("help_trace_view", &["trace", "view", "--help"]),
        ("help_trace_export", &["trace", "export", "--help"]),
        ("help_trace_record", &["trace", "record", "--help"]),
        ("help_trace", &["trace", "--help"]),
        ("help_run", &["run", "--help"]),
        ("help_heap", &["heap", "--help"]),
        ("help_completions", &["completions", "--help"]),
        ("no_heap", &["heap", "no.heap"]),
        ("no_malloc", &["run", "--malloc", "fastmalloc", "true"]),
        ("no_program", &["run", "--malloc", "libc", "./no/such/program"]),
        // More than the kernel gives out.
        ("no_process", &["locks", "4194305"]),
        ("bench_list", &["bench", "--list"]),
        ("unknown_table", &["bench", "clok"]),
        ("no_table", &["bench"]),
        ("unknown_flag", &["bench", "clock", "--fast"]),
        ("unknown_command", &["benhc"]),
        ("one_file_for_both", &["report", "--json", "r", "--html", "r"]),
    ];
    for (name, args) in cases {
        insta::assert_snapshot!(name, corelocal(args).whole());
    }
}

/// Each shell has a script that knows the subcommands, and each subcommand that help shows has a page.
#[test]
fn completions_and_manual_pages() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = corelocal(&["completions", shell]).out;
        assert!(script.contains("clockd") && script.contains("max-error"), "{shell}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("UTF-8");
    assert_eq!(corelocal(&["man-pages", place]).code, Some(0));
    for name in ["corelocal.1", "corelocal-doctor.1", "corelocal-trace-view.1"] {
        let page = std::fs::read_to_string(folder.path().join(name)).expect("a page");
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    assert!(!folder.path().join("corelocal-man-pages.1").exists());
    let missing = folder.path().join("none");
    let failed = corelocal(&["man-pages", missing.to_str().expect("UTF-8")]);
    assert!(failed.err.contains("cannot write manual pages"), "{}", failed.err);
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let long = "x".repeat(100_000);
    let wrong: [&[&str]; 38] = [
        &[],
        &[""],
        &["--"],
        &["-"],
        &["doctor", "now"],
        &["doctor", "--json=yes"],
        &["doctor", "--strict", "--strict"],
        &["report", "clock"],
        &["report", "--json"],
        &["report", "--compare"],
        &["report", "--json", "r.json", "--json", "s.json"],
        &["bench", ""],
        &["bench", " clock"],
        &["bench", "clock", "clok"],
        &["bench", "--", "--quick"],
        &["bench", "--list", "clock"],
        &["bench", "🦀\u{1b}[31m\n"],
        &["bench", &long],
        &["bench", "--quick", "--compare", "old.json"],
        &["clock", "now"],
        &["clock", "--watch", "0"],
        &["clock", "--file", "f", "--watch", "5s"],
        &["clock", "--file", "f", "--csv", "c"],
        &["clockd", "--encoding", "morse"],
        &["clockd", "--every", "6s"],
        &["clockd", "--max-error", "5"],
        &["clockd", "--source", "ntpd"],
        &["clockd", "--chrony", "localhost"],
        &["locks"],
        &["locks", "--top", "few", "true"],
        &["locks", "--for", "0", "true"],
        &["heap"],
        &["heap", "--rate", "0", "true"],
        &["heap", "--rate", "2T", "true"],
        &["heap", "x.heap", "--top", "few"],
        &["run"],
        &["run", "--rounds", "0", "true"],
        &["run", "--malloc"],
    ];
    for args in wrong {
        let done = corelocal(args);
        assert_eq!(done.code, Some(2), "{args:?}: {}", done.whole());
        assert!(done.out.is_empty() && !done.err.is_empty(), "{args:?}: {}", done.whole());
    }
}

#[test]
fn arguments_need_not_be_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let mut call = crate::Call::new(&["bench"]);
    call.command.arg(OsStr::from_bytes(b"clock\xff"));
    let done = call.done();
    assert_eq!(done.code, Some(2), "{}", done.whole());
}

#[test]
fn version() {
    let done = corelocal(&["--version"]);
    assert_eq!(done.out, format!("corelocal {}\n", env!("CARGO_PKG_VERSION")));
}
