//! `corelocal_malloc.h`, used by programs in C and C++.

mod place;

use std::process::{Command, Output};

use place::{Place, library};

const HEADER: &str = include_str!("../include/corelocal_malloc.h");

const PROGRAM: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { printf("line %d: %s\n", __LINE__, #what); exit(1); } } while (0)
#define MIB (1 << 20)

/* Volatile, or the compiler takes it for granted that there is memory. */
static void *(*volatile take)(size_t) = malloc;

static void *reserve;
static int calls;
static size_t asked;
static int gives_reserve(size_t size) {
    calls++;
    asked = size;
    void *own = take(100);
    free(own);
    if (!reserve) return 0;
    free(reserve);
    reserve = 0;
    return 1;
}

static struct corelocal_malloc_info info(void) {
    struct corelocal_malloc_info info;
    memset(&info, 0xff, sizeof info);
    corelocal_malloc_get_info(&info, sizeof info);
    return info;
}

static void figures(void) {
    struct corelocal_malloc_info before = info();
    char *large = take(40 * MIB);
    char *small = take(1000);
    CHECK(large && small);
    struct corelocal_malloc_info with = info();
    CHECK(with.in_use >= before.in_use + 40 * MIB + 1000 && with.in_use <= with.used);
    CHECK(with.large_objects == before.large_objects + 1 && with.large_bytes >= 40 * MIB);
    CHECK(with.used + with.idle <= with.mapped);
    memset(large, 1, 40 * MIB);
    free(large);
    free(small);
    corelocal_malloc_set_target(1u << 30);
    CHECK(info().idle >= 40 * MIB);
    CHECK(corelocal_malloc_trim(0) == 1);
    CHECK(info().idle == 0 && info().released >= 40 * MIB);
    corelocal_malloc_set_target(0);
    /* A caller of an earlier version, and one of a later one. */
    size_t one = ~(size_t)0, more[sizeof info / sizeof(size_t) + 64];
    corelocal_malloc_get_info((void *)&one, sizeof one);
    CHECK(one < MIB);
    memset(more, 0xff, sizeof more);
    corelocal_malloc_get_info((void *)more, sizeof more);
    CHECK(more[0] < MIB && more[sizeof more / sizeof *more - 1] == 0);
}

static void limit(void) {
    corelocal_malloc_set_limit(info().mapped + 64 * MIB);
    size_t most = info().mapped + 64 * MIB;
    errno = 0;
    CHECK(!take(65 * MIB) && errno == ENOMEM);
    /* Small ones, until it is reached: never more, and no crash. */
    void **list = 0, **next;
    long count = 0;
    while ((next = take(1000))) { *next = list; list = next; count++; }
    CHECK(count > 50000 && count < 80000 && info().mapped <= most);
    while (list) { next = *list; free(list); list = next; }
    void *again = take(40 * MIB);
    CHECK(again);
    free(again);
    reserve = take(30 * MIB);
    CHECK(reserve);
    corelocal_malloc_set_out_of_memory_hook(gives_reserve);
    void *wanted = take(40 * MIB);
    CHECK(wanted && calls == 1 && asked == 40 * MIB && !reserve);
    CHECK(!take(60 * MIB) && calls == 2);
    corelocal_malloc_set_out_of_memory_hook(0);
    CHECK(!take(60 * MIB) && calls == 2);
    free(wanted);
    corelocal_malloc_set_limit(0);
    wanted = take(200 * MIB);
    CHECK(wanted);
    free(wanted);
}

static void profile(void) {
    errno = 0;
    CHECK(corelocal_malloc_profile("none.heap") == -1 && errno == EINVAL);
    CHECK(corelocal_malloc_profile_start(1) == 0);
    char *kept[1000];
    for (int i = 0; i < 1000; i++) CHECK((kept[i] = take(2000)));
    corelocal_malloc_profile_stop();
    CHECK(corelocal_malloc_profile("some.heap") == 0);
    for (int i = 0; i < 1000; i++) free(kept[i]);
    CHECK(corelocal_malloc_profile("less.heap") == 0);
    CHECK(access("some.heap", R_OK) == 0);
}

int main(int count, char **arguments) {
    if (!corelocal_malloc_trim) {
        puts("another malloc");
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "all")) {
        figures();
        limit();
        profile();
    } else {
        CHECK(corelocal_malloc_profile_start(0) == -1 && errno == EINVAL);
    }
    CHECK(corelocal_malloc_stats(1, 1) == 0);
    return 0;
}
"#;

fn place(test: &str) -> Option<Place> {
    Place::new(test, &format!("{HEADER}\n{PROGRAM}"))
}

fn done(mut command: Command) -> Output {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn a_program_controls_its_malloc() {
    let Some(place) = place("a_program_controls_its_malloc") else { return };
    let output = done(place.command("all", ""));
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(stats["used"].as_u64().is_some(), "{stats}");
    let size = |name: &str| std::fs::metadata(place.folder().join(name)).expect(name).len();
    // 1000 samples, and none of them.
    assert!(size("some.heap") > size("less.heap") + 1000 * 100, "{}", size("some.heap"));
    // `check` and a profile exclude each other.
    done(place.command("some", "check"));
}

/// Without the library each function is null.
#[test]
fn a_program_runs_with_another_malloc() {
    let Some(place) = place("a_program_runs_with_another_malloc") else { return };
    let mut command = place.command("all", "");
    command.env_remove("LD_PRELOAD");
    assert_eq!(done(command).stdout, b"another malloc\n");
}

#[test]
fn the_header_is_plain_c_and_cxx() {
    let folder = tempfile::tempdir().expect("a folder");
    for (compiler, standard, name) in [
        ("cc", "c99", "header.c"),
        ("cc", "c17", "header.c"),
        ("c++", "c++11", "header.cpp"),
        ("c++", "c++17", "header.cpp"),
    ] {
        let text = format!("{HEADER}\n{HEADER}\nint main(void) {{ return 0; }}\n");
        std::fs::write(folder.path().join(name), text).expect("a new file");
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]);
        command.arg(format!("-std={standard}")).arg(name).current_dir(folder.path());
        match command.output() {
            Ok(output) => assert!(output.status.success(), "{standard}: {output:?}"),
            Err(why) => eprintln!("skipped: the_header_is_plain_c_and_cxx: {compiler}: {why}"),
        }
    }
}

/// Every function of the header is there.
#[test]
fn what_is_declared_is_defined() {
    if !library().exists() {
        return eprintln!("skipped: what_is_declared_is_defined: the shared object is not built");
    }
    let bytes = std::fs::read(library()).expect("the library");
    let words = HEADER.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let declared: Vec<&str> = HEADER
        .lines()
        .filter(|line| line.starts_with("CORELOCAL_WEAK "))
        .map(|line| {
            line.split('(').next().and_then(|it| it.split(' ').next_back()).expect("a name")
        })
        .collect();
    assert!(declared.len() == 9 && words.count() > 100, "{declared:?}");
    for name in declared {
        let name = [name.as_bytes(), b"\0"].concat();
        assert!(bytes.windows(name.len()).any(|at| at == name), "{name:?}");
    }
}
