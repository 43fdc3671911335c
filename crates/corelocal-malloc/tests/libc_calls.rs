//! The libc functions that the malloc calls: a preloaded library may define such a function, and allocate in it.
//!
//! The list is the one in docs/malloc.md, "Which functions of libc it calls". The imports of the shared object are checked
//! against it, and a library that wraps functions which others wrap, and allocates in them, is preloaded behind the
//! malloc.

mod place;

use std::collections::BTreeSet;
use std::process::Command;

use object::{Object as _, ObjectSymbol as _};
use place::{Place, library};

/// The names in the first column of the section's table.
fn listed() -> BTreeSet<String> {
    let doc = std::fs::read_to_string("../../docs/malloc.md").expect("the malloc's page");
    let section = doc.split("## Which functions of libc it calls").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let first = rows.filter_map(|line| line.split(" | ").next());
    let names = first.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned));
    names.collect()
}

#[test]
fn imports_are_those_that_are_written_down() {
    let test = "imports_are_those_that_are_written_down";
    if !library().exists() {
        eprintln!("skipped: {test}: the shared object is not built");
        return;
    }
    let bytes = std::fs::read(library()).expect("the shared object");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let undefined = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
    let names: BTreeSet<String> =
        undefined.filter_map(|symbol| symbol.name().ok()).map(str::to_owned).collect();
    assert!(names.contains("memcpy") || names.contains("memmove"), "{names:?}");
    let listed = listed();
    // Symbols of the linker and the compiler, and those that only one libc or build profile has.
    let others =
        |name: &&String| name.is_empty() || name.starts_with("_ITM_") || *name == "__gmon_start__";
    let unknown: Vec<_> = names.difference(&listed).filter(|name| !others(name)).collect();
    assert!(unknown.is_empty(), "not in docs/malloc.md: {unknown:?}");
}

/// Wraps functions that real libraries wrap, and allocates in each.
const WRAPPERS: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
extern unsigned long __getauxval(unsigned long);
extern long __sysconf(int);
static void allocate(void) {
    char *small = malloc(100), *large = malloc(3 << 20);
    small[0] = large[0] = 1;
    free(small);
    free(large);
}
char *getenv(const char *name) {
    size_t len = strlen(name);
    allocate();
    for (char **at = environ; at && *at; at++)
        if (!strncmp(*at, name, len) && (*at)[len] == '=') return strdup(*at + len + 1);
    return 0;
}
char *secure_getenv(const char *name) { return getenv(name); }
unsigned long getauxval(unsigned long kind) { allocate(); return __getauxval(kind); }
int clock_gettime(clockid_t clock, struct timespec *time) { allocate(); return syscall(SYS_clock_gettime, clock, time); }
pid_t getpid(void) { allocate(); return syscall(SYS_getpid); }
pid_t gettid(void) { allocate(); return syscall(SYS_gettid); }
int sched_yield(void) { allocate(); return syscall(SYS_sched_yield); }
int sched_getcpu(void) { unsigned cpu = 0; allocate(); syscall(SYS_getcpu, &cpu, 0, 0); return cpu; }
long sysconf(int name) { allocate(); return __sysconf(name); }
int stat(const char *path, struct stat *to) { allocate(); return syscall(SYS_newfstatat, -100, path, to, 0); }
int fstat(int fd, struct stat *to) { allocate(); return syscall(SYS_newfstatat, fd, "", to, 0x1000); }
int nanosleep(const struct timespec *span, struct timespec *rest) { allocate(); return syscall(SYS_nanosleep, span, rest); }
int usleep(useconds_t us) { struct timespec span = { us / 1000000, us % 1000000 * 1000 }; return nanosleep(&span, 0); }
"#;

/// Allocates in all ways, from several threads, so much that idle memory goes back, and forks.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void *work(void *with) {
    static __thread void *kept[4000];
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 4000; i++) {
            size_t size = (i * 37 + round) % 2000 + 1;
            kept[i] = round % 2 ? realloc(kept[i], size * 3) : kept[i] ? kept[i] : i % 3 ? malloc(size) : aligned_alloc(64, (size + 63) / 64 * 64);
            memset(kept[i], 1, size);
        }
        char *large = calloc(1, 8 << 20);
        large[5 << 20] = 1;
        free(large);
        if (round % 8 == 7) for (int i = 0; i < 4000; i++) free(kept[i]), kept[i] = 0;
        struct timespec span = { 0, 20000000 };
        nanosleep(&span, 0);
    }
    for (int i = 0; i < 4000; i++) free(kept[i]);
    return with;
}
int main(void) {
    char *block = malloc(64 << 20);
    memset(block, 1, 64 << 20);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
    if (!fork()) _exit(work(block) == block ? 7 : 1);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    free(block);
    int status = 0;
    wait(&status);
    return WEXITSTATUS(status) == 7 ? 0 : 2;
}
"#;

#[test]
fn wrappers_that_allocate_do_not_make_it_enter_itself() {
    let test = "wrappers_that_allocate_do_not_make_it_enter_itself";
    let Some(place) = Place::new(test, PROGRAM) else { return };
    std::fs::write(place.folder().join("wrappers.c"), WRAPPERS).expect("a new file");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-w", "-shared", "-fPIC", "-o", "wrappers.so", "wrappers.c"]);
    let compiled =
        compiler.current_dir(place.folder()).output().expect("cc, which compiled the program");
    if !compiled.status.success() {
        eprintln!("skipped: {test}: {}", String::from_utf8_lossy(&compiled.stderr));
        return;
    }
    for words in
        ["", "background:yes", "background:no", "resident:16M", "count", "check", "guard:100"]
    {
        let mut command = place.command("", words);
        let preloaded =
            format!("{}:{}", library().display(), place.folder().join("wrappers.so").display());
        let done = command.env("LD_PRELOAD", preloaded).output().expect("the program starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{words:?}: {:?} {said}", done.status);
    }
}

/// Installs a filter that allows only a list of calls, and allocates in all ways.
const FILTERED: &str = r#"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static const int allowed[] = { SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_getpid,
#ifdef DEBUG
    SYS_sigaltstack,
#endif
    /* The program's own: */ SYS_exit_group, SYS_clock_nanosleep };
enum { COUNT = sizeof allowed / sizeof *allowed };
int main(void) {
    char *first = malloc(4 << 20);
    memset(first, 1, 4 << 20);
    free(first);
    struct sock_filter filter[COUNT + 3];
    filter[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++)
        filter[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], COUNT - i, 0);
    filter[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    filter[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { COUNT + 3, filter };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 77;
    static void *kept[20000];
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 20000; i++) {
            size_t size = (i * 37 + round) % 3000 + 1;
            free(kept[i]);
            kept[i] = malloc(size);
            memset(kept[i], 1, size);
        }
        char *large = calloc(1, 40 << 20);
        large[5 << 20] = 1;
        large = realloc(large, 80 << 20);
        memset(large, 1, 80 << 20);
        free(large);
        struct timespec span = { 0, 30000000 };
        nanosleep(&span, 0);
        if (round % 10 == 9) for (int i = 0; i < 20000; i++) free(kept[i]), kept[i] = 0;
    }
    _exit(0);
}
"#;

/// The calls of docs/malloc.md, "System calls", with the options that it names.
#[test]
fn a_filter_with_the_calls_that_are_written_down() {
    let test = "a_filter_with_the_calls_that_are_written_down";
    // Without optimisations the malloc looks whether it has little stack.
    let debug = if cfg!(debug_assertions) { "#define DEBUG\n" } else { "" };
    let Some(place) = Place::new(test, &format!("{debug}{FILTERED}")) else { return };
    let done = place
        .command("", "background:no,pressure:no,nodes:no")
        .output()
        .expect("the program starts");
    match done.status.code() {
        Some(0) => {}
        Some(77) => eprintln!("skipped: {test}: no filter can be installed"),
        _ => panic!("{:?} {}", done.status, String::from_utf8_lossy(&done.stderr)),
    }
}
