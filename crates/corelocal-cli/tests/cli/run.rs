//! `corelocal run`: what it passes on, what it tells, and what it refuses.

use std::fs;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{Call, Done, corelocal, ended, json, line, skip};

/// A malloc that is libc's, in a library of its own.
pub const MALLOC: &str = "
#include <stddef.h>
void *__libc_malloc(size_t); void __libc_free(void *);
void *__libc_calloc(size_t, size_t); void *__libc_realloc(void *, size_t);
void *malloc(size_t size) { return __libc_malloc(size); }
void free(void *p) { __libc_free(p); }
void *calloc(size_t n, size_t size) { return __libc_calloc(n, size); }
void *realloc(void *p, size_t size) { return __libc_realloc(p, size); }
";

/// Its library, in a folder that goes away with it; or it is said why there is none.
pub fn library(test: &str) -> Option<(TempDir, PathBuf)> {
    let folder = TempDir::new().expect("a temporary folder");
    let (source, library) = (folder.path().join("m.c"), folder.path().join("libm-test.so"));
    fs::write(&source, MALLOC).expect("a new file");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    match compiler.output() {
        Ok(done) if done.status.success() => {}
        Ok(done) => {
            skip(test, &format!("cc makes no library: {}", String::from_utf8_lossy(&done.stderr)));
            return None;
        }
        Err(why) => {
            skip(test, &format!("cc cannot be run: {why}"));
            return None;
        }
    }
    if corelocal(&["run", "--malloc", library.to_str()?, "true"]).code != Some(0) {
        skip(test, "the library cannot be preloaded: another libc than glibc");
        return None;
    }
    Some((folder, library))
}

#[test]
fn several_commands_are_compared() {
    const TEST: &str = "several_commands_are_compared";
    let Some((_folder, library)) = library(TEST) else { return };
    let library = library.to_str().expect("a name in UTF-8");
    let compare =
        ["run", "--compare", "--rounds", "2", "--no-hits", "--malloc", library, "--json", "--"];
    let with = |words: &[&str]| corelocal(&[&compare[..], words].concat());
    let done = with(&["true", ":::", "sh", "-c", "exit 3", ":::", "sh", "-c", "exit 4"]);
    assert_eq!(done.code, Some(3), "{}", done.whole());
    let answers = json(&done.out);
    let commands: Vec<_> = answers.as_array().unwrap().iter().map(|one| &one["command"]).collect();
    assert_eq!(commands.len(), 3, "{answers:#}");
    assert_eq!(commands[1].as_array().unwrap().len(), 3);
    // Nothing is run if one of them cannot be.
    let done = with(&["sh", "-c", "echo ran", ":::", "no-such-program"]);
    assert_eq!((done.code, done.out.as_str()), (Some(127), ""), "{}", done.whole());
    let done = with(&["true", ":::"]);
    assert_eq!(done.code, Some(125), "{}", done.whole());
    assert!(done.err.contains("no program beside :::"), "{}", done.err);
    // Alone, a program has the word as an argument.
    let done = corelocal(&["run", "--malloc", library, "echo", ":::"]);
    assert_eq!(done.out, ":::\n", "{}", done.whole());
}

/// As `rivals/build` leaves it.
#[test]
fn a_library_beside_the_command_is_found() {
    const TEST: &str = "a_library_beside_the_command_is_found";
    let Some((_folder, library)) = library(TEST) else { return };
    let shared = TempDir::new().expect("a temporary folder");
    let [program, rival] =
        ["build/release/corelocal", "rivals/rival-rpmalloc.so"].map(|it| shared.path().join(it));
    let copy = |from: &Path, to: &Path| {
        let folder = to.parent().expect("a folder");
        fs::create_dir_all(folder).expect("a new folder");
        fs::copy(from, to).expect("a copy");
    };
    copy(Path::new(env!("CARGO_BIN_EXE_corelocal")), &program);
    copy(&library, &rival);
    let run = |options: &[&str]| {
        let mut command = Command::new(&program);
        for name in ["CORELOCAL_MALLOC_LIBRARY", "CORELOCAL_MALLOCS", "LD_PRELOAD", "CARGO"] {
            command.env_remove(name);
        }
        command.arg("run").args(options).arg("true");
        // Another test's child may still have the copy open for writing, which it inherited before it became a program.
        let began = Instant::now();
        let done = loop {
            match command.output() {
                Err(why)
                    if why.raw_os_error() == Some(libc::ETXTBSY)
                        && began.elapsed() < crate::LIMIT =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                done => break done.expect("it starts"),
            }
        };
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (code, said) = run(&["--malloc", "rpmalloc"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run(&["--malloc", "libc", "--compare", "--rounds", "1"]);
    assert!(code == Some(0) && said.contains("rpmalloc 1.4"), "{said}");
}

#[test]
fn output_and_exit_code_are_the_programs() {
    let done =
        corelocal(&["run", "--malloc", "libc", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((done.code, done.out.as_str()), (Some(7), "out\n"), "{}", done.whole());
    for text in ["err\n", "peak RSS", "cpu time", "with exit code 7"] {
        assert!(done.err.contains(text), "{text}: {}", done.whole());
    }
    // What looks like an option of ours is the program's.
    let done = corelocal(&["run", "--malloc", "libc", "--", "echo", "--json", "--compare"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "--json --compare\n"), "{}", done.whole());
}

#[test]
fn a_signal_is_passed_on_in_both_directions() {
    let killed = Call::new(&["run", "--malloc", "libc", "sh", "-c", "kill -TERM $$"]);
    let status = killed.ended_into(Stdio::null()).0.status;
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{status}");

    // What is sent to us alone comes to the program.
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = Call::new(&["run", "--malloc", "libc", "sh", "-c", script]);
    let piped = running.command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = piped.spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    assert_eq!(line(&mut out), "ready\n");
    // SAFETY: a child of ours that was not waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    assert_eq!(ended(&mut child).code(), Some(9));
}

#[test]
fn json_is_all_that_is_on_standard_output() {
    let args = ["run", "--malloc", "libc", "--json", "sh", "-c", "echo text; sleep 0.1"];
    let done = corelocal(&args);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert_eq!(done.err, "text\n");
    let answer = json(&done.out);
    let one = &answer["mallocs"][0];
    assert_eq!((&answer["command"][0], &one["malloc"]), (&"sh".into(), &"libc".into()));
    assert!(one["wall_s"]["median"].as_f64() >= Some(0.1), "{answer:#}");
    assert!(one["peak_kib"]["median"].as_f64() > Some(100.0), "{answer:#}");
    assert!(one["resident"].as_array().is_some_and(|looks| !looks.is_empty()), "{answer:#}");
}

#[test]
fn a_bare_name_is_the_loaders() {
    let Some((folder, library)) = library("a_bare_name_is_the_loaders") else { return };
    let call = || Call::new(&["run", "--malloc", "libm-test.so", "echo", "ran"]);
    let path = folder.path().to_str().expect("text");
    // Whatever the folder has of that name.
    let done = call().file("libm-test.so", "text").env("LD_LIBRARY_PATH", path).done();
    assert_eq!((done.code, done.out.as_str()), (Some(0), "ran\n"), "{}", done.whole());
    let call = call();
    fs::copy(library, call.folder.path().join("libm-test.so")).expect("a new file");
    let done = call.done();
    assert_eq!((done.code, done.out.as_str()), (Some(125), ""), "{}", done.whole());
}

#[test]
fn mallocs_are_compared() {
    const TEST: &str = "mallocs_are_compared";
    let Some((_folder, library)) = library(TEST) else { return };
    let library = library.to_str().expect("text");
    let args = [
        "run",
        "--compare",
        "--rounds",
        "2",
        "--html",
        "page.html",
        "--malloc",
        library,
        "sh",
        "-c",
        "echo once; cat; case $LD_PRELOAD in *libm-test*) exit 3;; esac",
    ];
    let mut call = Call::new(&args).file("input", "text\n");
    let input = fs::File::open(call.folder.path().join("input")).expect("a file");
    call.command.stdin(input);
    let folder = call.folder;
    let output = call.command.output().expect("the program starts");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // The exit code is that of the malloc that was asked for; the output is libc's.
    assert_eq!(output.status.code(), Some(3), "{out}{err}");
    assert_eq!(out, "once\ntext\n", "{err}");
    for text in ["medians of 2 alternating runs", "libm-test.so", "peak MiB", "exit code 3"] {
        assert!(err.contains(text), "{text}: {err}");
    }
    let page = fs::read_to_string(folder.path().join("page.html")).expect("a page");
    assert!(page.ends_with("</html>") && page.contains("libm-test.so") && page.contains("<svg"));
}

/// `corelocal run` with corelocal's malloc, and with these arguments.
fn with_ours(library: &std::path::Path, args: &[&str]) -> Done {
    let call = Call::new(&[&["run"], args].concat());
    call.env("CORELOCAL_MALLOC_LIBRARY", library.to_str().expect("text")).done()
}

#[test]
fn hits_and_misses_are_told() {
    let Some(library) = crate::heap::library("hits_and_misses_are_told") else { return };
    // Misses are known in any case.
    let done = with_ours(&library, &["--no-hits", "ls", "/"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    for text in ["not counted (--no-hits)", " on malloc, "] {
        assert!(done.err.contains(text), "{text}: {}", done.whole());
    }
    let done = with_ours(&library, &["ls", "/"]);
    for text in [" % of ", " allocated objects, ", " on free\n"] {
        assert!(done.err.contains(text), "{text}: {}", done.whole());
    }
    let done = with_ours(&library, &["--json", "ls", "/"]);
    let caches = &json(&done.out)["mallocs"][0]["caches"];
    let figure = |name: &str| caches[name].as_u64().unwrap_or_default();
    assert!(figure("refills") > 0 && figure("allocated") > figure("refills"), "{caches}");
    assert_eq!((figure("processes"), &caches["has_program"]), (1, &true.into()));
    // What is compared is counted in a run of its own; libc tells nothing.
    let done = with_ours(&library, &["--compare", "--rounds", "1", "--json", "ls", "/"]);
    let mallocs = json(&done.out);
    let caches = |id: &str| {
        let mallocs = mallocs["mallocs"].as_array().expect("mallocs");
        mallocs.iter().find(|it| it["malloc"] == id).expect("a malloc")["caches"].clone()
    };
    assert!(caches("libc").is_null(), "{mallocs:#}");
    assert!(caches("corelocal")["allocated"].as_u64() > Some(0), "{mallocs:#}");
    // A process that is ended reports nothing; the processes that it started do.
    for (script, words) in [
        ("kill -KILL $$", "not reported: it ended by a signal"),
        ("ls /; ls /; kill -KILL $$", "of the program's children"),
    ] {
        let mut call = Call::new(&["run", "sh", "-c", script]);
        let output = call.command.env("CORELOCAL_MALLOC_LIBRARY", &library).output();
        let output = output.expect("the program starts");
        assert_eq!(output.status.signal(), Some(libc::SIGKILL));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.contains(words), "{script}: {err}");
    }
}

#[test]
fn what_comes_through_a_pipe_is_read_by_every_run() {
    let script = "read line; test \"$line\" = text || exit 4";
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelocal"));
    command.args(["run", "--compare", "--rounds", "3", "--malloc", "libc", "sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, b"text\n").expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("a child of ours");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("exit code 4"), "{text}");
}

#[test]
fn what_cannot_be_run_is_refused() {
    for (program, code, words) in [
        ("no-such-program-anywhere", 127, "in PATH"),
        ("./no/such/program", 127, "there is no program"),
        ("/", 126, "it is not a file"),
        ("/etc/passwd", 126, "no permission to execute"),
    ] {
        let done = corelocal(&["run", "--malloc", "libc", program]);
        assert_eq!((done.code, done.out.as_str()), (Some(code), ""), "{}", done.whole());
        assert!(done.err.contains(words), "{program}: {}", done.err);
    }
    for (malloc, words) in [
        ("./no/such/lib.so", "No such file"),
        ("/etc/passwd", "not an ELF file"),
        ("libno_such_library.so.1", "libno_such_library.so.1"),
    ] {
        let done = corelocal(&["run", "--malloc", malloc, "true"]);
        assert_eq!((done.code, done.out.as_str()), (Some(125), ""), "{}", done.whole());
        assert!(done.err.contains(words), "{malloc}: {}", done.err);
    }
    // A bare name is not the file of that name in this folder.
    let call = Call::new(&["run", "--malloc", "libno_such.so.2", "true"]);
    let done = call.file("libno_such.so.2", "text").done();
    assert_eq!((done.code, done.out.as_str()), (Some(125), ""), "{}", done.whole());
    assert!(done.err.contains("give ./libno_such.so.2"), "{}", done.err);
    // The program is not run when what is asked for cannot be written.
    let done =
        corelocal(&["run", "--malloc", "libc", "--html", "no/such/page.html", "echo", "ran"]);
    assert_eq!((done.code, done.out.as_str()), (Some(125), ""), "{}", done.whole());
    assert!(done.err.contains("no/such/page.html"), "{}", done.err);
    for (text, words) in
        [("#!/no/such/shell\n", "/no/such/shell, which"), ("words\n", "neither a program")]
    {
        let call = Call::new(&["run", "--malloc", "libc", "./script"]).file("script", text);
        let script = call.folder.path().join("script");
        fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("a file of ours");
        let done = call.done();
        assert_eq!(done.code, Some(126), "{}", done.whole());
        assert!(done.err.contains(words), "{}", done.err);
    }
    let done = Call::new(&["run", "true"]).env("CORELOCAL_MALLOC_LIBRARY", "./not/there.so").done();
    assert_eq!(done.code, Some(125), "{}", done.whole());
    assert!(done.err.contains("CORELOCAL_MALLOC_LIBRARY"), "{}", done.err);
}

#[test]
fn programs_that_take_no_malloc_are_refused() {
    let Some((folder, library)) = library("programs_that_take_no_malloc_are_refused") else {
        return;
    };
    let library = library.to_str().expect("text");
    // A head of an ELF file without program headers: no dynamic loader is named.
    let mut head = fs::read("/proc/self/exe").expect("this program");
    head.truncate(64);
    head[56..58].fill(0);
    let program = folder.path().join("static");
    fs::write(&program, head).expect("a new file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a file of ours");
    let done = corelocal(&["run", "--malloc", library, program.to_str().expect("text")]);
    assert_eq!(done.code, Some(126), "{}", done.whole());
    assert!(done.err.contains("linked statically"), "{}", done.err);
}

/// The tables have a row for each malloc, whether it is there or not.
#[test]
fn a_table_of_mallocs() {
    let Some((_folder, library)) = library("a_table_of_mallocs") else { return };
    let call = Call::new(&["bench", "malloc_start", "--quick", "--json", "r.json"]);
    let done = call.env("CORELOCAL_MALLOCS", library.to_str().expect("text")).done();
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let report = json(&done.read("r.json"));
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    let row = |id: &str| rows.iter().find(|row| row["id"] == id).expect("a row");
    for id in ["libc", "libm-test.so"] {
        assert!(row(id)["points"][0]["stat"]["median"].as_f64() > Some(10.0), "{id}: {report:#}");
    }
    for id in ["jemalloc", "mimalloc", "tcmalloc", "mimalloc3", "snmalloc", "corelocal"] {
        let why = row(id)["unavailable"].as_str();
        let measured = row(id)["points"].as_array().is_some_and(|points| !points.is_empty());
        assert!(measured || why.is_some_and(|why| why.contains('`')), "{id}: {report:#}");
    }
}

/// The process that a load runs in tells whose malloc it had.
#[test]
fn a_load_in_a_process() {
    let Some((_folder, library)) = library("a_load_in_a_process") else { return };
    let child = ["__child", "malloc-work", "{\"work\":15,\"scale\":0.05}"];
    for preload in ["", library.to_str().expect("text")] {
        let done = Call::new(&child).env("LD_PRELOAD", preload).done();
        assert_eq!(done.code, Some(0), "{}", done.whole());
        let figures = json(&done.out);
        let malloc = figures["malloc"].as_str().expect("a path");
        assert_eq!(malloc.ends_with("libm-test.so"), !preload.is_empty(), "{malloc}");
        assert!(figures["ns"].as_f64() > Some(0.0) && figures["peak_kib"].as_u64() > Some(0));
    }
}
