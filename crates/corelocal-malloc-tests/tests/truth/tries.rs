//! The programs of `try-malloc`.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::compile::{compiled, runs_well};
use crate::run::{LIBC, Malloc, TRY, all, done, installed, only_ours, scaled};
use crate::skip;

/// What both say is the same, but for the lines that standards leave open.
#[test]
fn edges_are_those_of_glibc() {
    const OPEN: [&str; 9] = [
        // Undefined, or left to the implementation: the program knows all answers that are right.
        "aligned_alloc(3, 9)",
        "aligned_alloc(0, 8)",
        "aligned_alloc(HUGE, 64)",
        "memalign(3, 9)",
        "posix_memalign(16), size 0",
        "posix_memalign(HUGE)",
        "pvalloc(0)",
        // Newer than many a libc, which is no reason not to have them.
        "free_sized",
        "free_aligned_sized",
    ];
    let expected = LIBC.tries(&["edges"]).out;
    assert!(expected.lines().count() > 60, "{expected}");
    let Some(ours) = only_ours("edges_are_those_of_glibc") else { return };
    let found = ours.tries(&["edges"]).out;
    let differs = |(a, b): &(&str, &str)| {
        let name = a.split(": ").next().unwrap_or_default();
        // The operators are not in libc, but in the library of C++.
        let open = OPEN.contains(&name) || name.starts_with("new");
        a != b && !open
    };
    let different: Vec<_> = expected.lines().zip(found.lines()).filter(differs).collect();
    assert!(different.is_empty(), "glibc and ours: {different:#?}");
    assert_eq!(expected.lines().count(), found.lines().count());
}

#[test]
fn a_wrong_answer_is_found() {
    // The program itself can fail: a name that takes too few words.
    let done = LIBC.run(crate::run::TRY, ["fill", "no_such_name", "64", "64"]);
    assert!(!done.well() && done.err.contains("wrong:"), "{}", done.whole());
    let done = LIBC.run(crate::run::TRY, ["no such program"]);
    assert_eq!(done.status.code(), Some(2));
}

#[test]
fn random_scripts() {
    for malloc in all("random_scripts") {
        for seed in 1..=8 {
            malloc.tries(&["scripts", &seed.to_string(), &scaled(60_000)]);
        }
    }
}

#[test]
fn threads_give_back_what_others_took() {
    for malloc in all("threads_give_back_what_others_took") {
        malloc.tries(&["cross", "64", &scaled(1000)]);
        malloc.tries(&["cross", "3", &scaled(10_000)]);
    }
}

#[test]
fn forks_under_load() {
    for malloc in all("forks_under_load") {
        malloc.tries(&["forks", &scaled(300), "4"]);
    }
}

/// A child that shares its parent's memory, and was not made by `vfork`, may allocate only if no other thread runs in
/// it: the kernel does not know critical sections of a process in another's memory.
#[test]
fn children_that_share_the_memory() {
    for malloc in all("children_that_share_the_memory") {
        malloc.tries(&["vforks", &scaled(300), "0", "1"]);
        malloc.tries(&["vforks", &scaled(100), "4", "0"]);
    }
}

/// By our own `vfork` they may, while others run as well. Libc's malloc has locks, which a child may leave held.
#[test]
fn children_of_vfork_take_memory() {
    const TEST: &str = "children_of_vfork_take_memory";
    let Some(ours) = only_ours(TEST) else { return };
    let compilers = ["gcc", "cc"];
    let source = include_str!("shares.c");
    let Some((_folder, program)) = compiled(TEST, &compilers, "shares.c", source, &[]) else {
        return;
    };
    let mut command = ours.command(&program);
    command.arg(scaled(200));
    runs_well(&ours, command);
}

#[test]
fn programs_are_started_under_load() {
    for malloc in all("programs_are_started_under_load") {
        malloc.tries(&["spawns", &scaled(200), "4"]);
    }
}

/// Libc's own waits for itself there, so it is not asked.
#[test]
fn handlers_that_take_memory() {
    if let Some(ours) = only_ours("handlers_that_take_memory") {
        for every_us in ["50", "173", "1000"] {
            ours.tries(&["signals", "700", every_us]);
        }
    }
}

#[test]
fn threads_that_end() {
    for malloc in all("threads_that_end") {
        malloc.tries(&["destructors", &scaled(200)]);
    }
}

/// A library that takes memory when it is loaded, keeps it per thread, and gives it back when it goes.
const LIBRARY: &str = r"
#include <stdlib.h>
#include <string.h>
static char *kept[100];
static __thread char *own;
__attribute__((constructor)) static void begin(void) {
    for (int i = 0; i < 100; i++) {
        kept[i] = malloc(100 + i * 37);
        memset(kept[i], i, 100 + i * 37);
    }
}
__attribute__((destructor)) static void end(void) {
    for (int i = 0; i < 100; i++)
        free(kept[i]);
}
void *library_takes(size_t size) {
    char *given = malloc(size);
    if (given)
        memset(given, 0x5a, size);
    free(own);
    own = malloc(300);
    memset(own, 3, 300);
    return given;
}
int library_checks(void) {
    int wrong = 0;
    for (int i = 0; i < 100; i++)
        for (int j = 0; j < 100 + i * 37; j++)
            wrong += kept[i][j] != (char)i;
    for (int j = 0; own && j < 300; j++)
        wrong += own[j] != 3;
    return wrong;
}
";

#[test]
fn libraries_come_and_go() {
    const TEST: &str = "libraries_come_and_go";
    let Some(compiler) = installed("cc").or_else(|| installed("gcc")) else {
        return skip(TEST, "no C compiler makes a library");
    };
    let folder = TempDir::new().expect("a temporary folder");
    let source = folder.path().join("library.c");
    fs::write(&source, LIBRARY).expect("a new file");
    let mut libraries = Vec::new();
    // Several files, since one that is open on another thread is not loaded again.
    for nth in 0..5 {
        let library = folder.path().join(format!("library{nth}.so"));
        let mut command = Command::new(&compiler);
        command.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        let compiled = crate::run::done(command);
        assert!(compiled.well(), "{}", compiled.whole());
        libraries.push(library.to_string_lossy().into_owned());
    }
    let times = scaled(40);
    for malloc in all(TEST) {
        let mut args = vec!["loading"];
        args.extend(libraries.iter().map(String::as_str));
        args.push(&times);
        malloc.tries(&args);
    }
}

#[test]
fn nothing_is_said_on_a_good_day() {
    let Some(ours) = only_ours("nothing_is_said_on_a_good_day") else { return };
    for program in ["/bin/true", "/bin/ls"] {
        let plain = LIBC.run(program, ["/"].iter().filter(|_| program.ends_with("ls")));
        let done = Malloc::run(&ours, program, ["/"].iter().filter(|_| program.ends_with("ls")));
        assert!(done.well() && done.err.is_empty() && done.out == plain.out, "{}", done.whole());
    }
}

/// What docs/malloc.md says of programs that call libc's own functions.
#[test]
fn what_libc_is_given_ends_the_program() {
    let test = "what_libc_is_given_ends_the_program";
    let Some(ours) = only_ours(test) else { return };
    if !LIBC.run(TRY, ["mixed", "handle_free"]).well() {
        return skip(test, "libc is not glibc");
    }
    let ends = |args: &[&str], with: &str| {
        let mut command = ours.command(TRY);
        // What glibc asks of the environment may change what it says.
        command.arg("mixed").args(args).env_remove("GLIBC_TUNABLES").env_remove("MALLOC_CHECK_");
        let done = done(command);
        let is_said = !done.well() && done.err.contains(with);
        assert!(is_said, "{args:?}, not `{with}`: {}", done.whole());
    };
    ends(&["handle_free"], "free(): invalid pointer");
    ends(&["handle_malloc"], "freed, but never allocated here");
    LIBC.tries(&["mixed", "handle_malloc"]);
    let source = "#include <stdlib.h>\nvoid give_back(void *at) { free(at); }\n";
    let library = compiled(test, &["cc", "gcc", "clang"], "l.c", source, &["-shared", "-fPIC"]);
    let Some((_folder, library)) = library else { return };
    let library = library.to_str().expect("a path of ours");
    for malloc in [&LIBC, &ours] {
        malloc.tries(&["mixed", "library", library]);
    }
    LIBC.tries(&["mixed", "deepbind", library]);
    ends(&["deepbind", library], "free(): invalid pointer");
    // Linked against ours, it has ours among its own libraries.
    let own = ours.library.as_deref().and_then(Path::to_str).expect("a path of ours");
    let options = ["-shared", "-fPIC", "-Wl,--no-as-needed", own];
    let library = compiled(test, &["cc", "gcc", "clang"], "l.c", source, &options);
    let Some((_folder, library)) = library else { return };
    ours.tries(&["mixed", "deepbind", library.to_str().expect("a path of ours")]);
}
