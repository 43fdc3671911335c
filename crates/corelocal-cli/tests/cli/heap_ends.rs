//! `corelocal heap` of programs that leave no profile, unload libraries, or start many others.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::heap::{CHILD, PROGRAM, library};
use crate::{Call, Done, json, skip};

/// With the malloc that is built beside the tests.
fn heap(library: &Path, options: &[&str], program: &[&str]) -> Done {
    let call = Call::new(&[&["heap"], options, &["--"], program].concat());
    call.env("CORELOCAL_MALLOC_LIBRARY", library.to_str().expect("text")).done()
}

#[test]
fn the_cause_is_named() {
    let Some(library) = library("the_cause_is_named") else { return };
    for (script, code, words) in [
        ("kill -9 $$", 137, "it ended by signal 9"),
        ("exec env -i sleep 2", 0, "or it executed another program without corelocal's malloc"),
    ] {
        let script = ["sh", "-c", script];
        let done = heap(&library, &[], &script);
        assert_eq!(done.code, Some(code), "{}", done.whole());
        assert!(done.err.contains(words), "{words}: {}", done.whole());
        // What is drawn of nothing is no failure.
        let done = heap(&library, &["--svg", "h.svg"], &script);
        assert_eq!(done.code, Some(code), "{}", done.whole());
        assert!(done.err.contains(words) && done.read("h.svg").contains("nothing was sampled"));
    }
}

const PLUG: &str = "
#include <stdlib.h>
#include <string.h>
void *plug(long size) { char *p = malloc(size); memset(p, 1, size); return p; }
";

/// Unloads a library, and deletes the file of another one.
const UNLOADS: &str = r#"
#include <dlfcn.h>
#include <unistd.h>
void *kept[400];
static void *load(const char *file, int from) {
    void *library = dlopen(file, RTLD_NOW);
    void *(*plug)(long) = (void *(*)(long))dlsym(library, "plug");
    for (int i = 0; i < 200; i++) kept[from + i] = plug(100000);
    return library;
}
int main(void) {
    dlclose(load("./a.so", 0));
    load("./b.so", 200);
    return unlink("./b.so");
}
"#;

#[test]
fn what_is_gone_is_said() {
    let Some(library) = library("what_is_gone_is_said") else { return };
    let folder = TempDir::new().expect("a temporary folder");
    let compile = |name: &str, text: &str, flags: &[&str]| {
        let source = folder.path().join("x.c");
        fs::write(&source, text).expect("a new file");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-o"]).arg(folder.path().join(name)).arg(&source).args(flags);
        compiler.status().is_ok_and(|status| status.success())
    };
    let shared = ["-shared", "-fPIC"];
    let is_built = ["a.so", "b.so"].iter().all(|name| compile(name, PLUG, &shared))
        && compile("program", UNLOADS, &["-ldl"]);
    if !is_built {
        return skip("what_is_gone_is_said", "cc makes no library");
    }
    let script = format!("cd {} && exec ./program", folder.path().display());
    let done = heap(&library, &["--rate", "32K"], &["sh", "-c", &script]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    for text in ["a library was unloaded", "b.so (deleted), 0x"] {
        assert!(done.err.contains(text), "{text}: {}", done.whole());
    }
}

#[test]
fn the_program_comes_first_and_what_is_alike_is_counted() {
    let test = "the_program_comes_first_and_what_is_alike_is_counted";
    let Some(library) = library(test) else { return };
    let this = std::env::current_exe().expect("this program");
    let script = "echo main $$; for i in 1 2 3 4; do \"$@\"; done; exec \"$@\"";
    let program = ["sh", "-c", script, "sh", this.to_str().expect("text"), PROGRAM];
    let program = [&program[..], &["--exact", "--nocapture", "--test-threads=1"]].concat();
    let heap = |options: &[&str]| {
        let call = Call::new(&[&["heap"], options, &["--"], &program].concat()).env(CHILD, "0");
        call.env("CORELOCAL_MALLOC_LIBRARY", library.to_str().expect("text")).done()
    };
    let done = heap(&["--json", "--top", "100"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let answer = json(&done.out);
    let processes = answer["processes"].as_array().expect("processes");
    assert_eq!(processes.len(), 5, "{answer:#}");
    let main = format!("main {}\n", processes[0]["process"]);
    assert!(done.err.contains(&main), "{main}: {}", done.whole());
    // A sample of a few bytes stands for some: the sums of the sites are those of the process.
    for process in processes {
        let sum = |what: &str| -> f64 {
            let sites = process["sites"].as_array().expect("sites");
            sites.iter().filter_map(|site| site[what].as_f64()).sum()
        };
        let objects = process["objects"].as_f64().expect("a number");
        assert!((objects - sum("objects")).abs() < 1.0, "{process:#}");
    }
    let done = heap(&[]);
    assert!(done.err.contains("4 more processes have little"), "{}", done.whole());
    assert_eq!(done.err.matches("Heap of").count(), 1, "{}", done.whole());
}
