//! Programs of the system with the library preloaded: their output is the same as without it.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The shared object that is built together with the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a path of this test");
    let folder = test.ancestors().nth(2).expect("a target directory");
    folder.join("examples").join("libpreload.so")
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Runs the command with and without the library and compares the results. Skips programs that are not installed.
fn same(test: &str, program: &str, arguments: &[&str]) {
    same_under(test, "", program, arguments);
}

/// Debugging modes: they report nothing for a correct program, and do not disturb it.
const WATCHED: [&str; 4] = ["check", "guard:50", "check,guard:50", "nodes:3"];

/// As [`same`], with a value for `CORELOCAL_MALLOC`.
fn same_under(test: &str, mode: &str, program: &str, arguments: &[&str]) {
    let library = library();
    if cfg!(target_feature = "crt-static") || !library.exists() {
        eprintln!("skipped: {test}: the shared object is not built");
        return;
    }
    if !has(program) {
        eprintln!("skipped: {test}: {program} is not installed");
        return;
    }
    let run = |preloaded: Option<&Path>| -> Output {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .env("PYTHONMALLOC", "malloc")
            .env("LC_ALL", "C");
        command.env("PYTHONHASHSEED", "0");
        if let Some(library) = preloaded {
            command.env("LD_PRELOAD", library).env("CORELOCAL_MALLOC", mode);
        }
        command.output().expect("a process")
    };
    let (plain, ours) = (run(None), run(Some(&library)));
    let said = String::from_utf8_lossy(&ours.stderr);
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
    assert_eq!(ours.status.signal(), None, "{said}");
    assert!(ours.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&plain.stdout));
    assert_eq!(said, String::from_utf8_lossy(&plain.stderr));
}

#[test]
fn true_does_nothing() {
    same("true_does_nothing", "true", &[]);
}

#[test]
fn ls_lists() {
    same("ls_lists", "ls", &["-lR", env!("CARGO_MANIFEST_DIR")]);
}

const CHILDREN: &str =
    "for n in 1 2 3 4 5 6 7 8 9; do echo $n | cat | tr 0-9 a-j; done; (exec echo done)";

#[test]
fn sh_has_children() {
    same("sh_has_children", "sh", &["-c", CHILDREN]);
}

const COMPUTES: &str = "
import collections, json, re, threading
rows = [{'n': n, 'text': str(n) * (n % 70), 'list': list(range(n % 100))} for n in range(20000)]
again = json.loads(json.dumps(rows))
assert rows == again
words = collections.Counter(re.findall(r'[0-9]', json.dumps(rows)))
sums = [0] * 8
def work(nth):
    sums[nth] = sum(len(bytes(n % 5000)) for n in range(20000))
threads = [threading.Thread(target=work, args=(nth,)) for nth in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
big = [bytearray(n * 1000) for n in range(1, 400)]
big = [b + b for b in big]
print(sorted(words.items()), sums, sum(map(len, big)))
";

#[test]
fn python_computes() {
    same("python_computes", "python3", &["-c", COMPUTES]);
}

const FORKS: &str = "
import os, threading
stop = False
def churn():
    while not stop:
        [bytes(n) for n in range(3000)]
threads = [threading.Thread(target=churn) for _ in range(4)]
[thread.start() for thread in threads]
for n in range(100):
    child = os.fork()
    if child == 0:
        [bytes(n * 7) for n in range(2000)]
        os._exit(n % 100)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == n % 100
stop = True
[thread.join() for thread in threads]
print('all')
";

#[test]
fn python_forks() {
    same("python_forks", "python3", &["-c", FORKS]);
}

const REMEMBERS: &str = "create table t(a integer, b text);
        with recursive c(n) as (select 1 union all select n + 1 from c where n < 50000)
            insert into t select n, hex(n * n) || printf('%0*d', n % 300, n) from c;
        create index i on t(b);
        select count(*), sum(length(b)), min(b), max(b) from t where b > '5';";

#[test]
fn sqlite_remembers() {
    same("sqlite_remembers", "sqlite3", &[":memory:", REMEMBERS]);
}

const HISTORY: [&str; 6] = ["-C", env!("CARGO_MANIFEST_DIR"), "log", "--stat", "-n", "50"];

#[test]
fn git_reads_its_history() {
    same("git_reads_its_history", "git", &HISTORY);
}

#[test]
fn gcc_compiles() {
    gcc_compiles_under("gcc_compiles", "");
}

fn gcc_compiles_under(test: &str, mode: &str) {
    let script = "printf '#include <stdio.h>\\n#include <stdlib.h>\\nint main(void) \
        { void *p = calloc(10, 10); free(p); puts(\"compiled\"); return 0; }' > $D/a.c && \
        gcc -O2 -o $D/a $D/a.c && $D/a";
    let folder = tempfile::tempdir().expect("a folder");
    let script = script.replace("$D", folder.path().to_str().expect("a path"));
    if has("gcc") {
        same_under(test, mode, "sh", &["-c", &script]);
    } else {
        eprintln!("skipped: {test}: gcc is not installed");
    }
}

#[test]
fn sh_is_watched() {
    WATCHED.iter().for_each(|mode| same_under("sh_is_watched", mode, "sh", &["-c", CHILDREN]));
}

#[test]
fn python_is_watched() {
    // A smaller computation: checking takes time.
    let computes = COMPUTES.replace("range(20000)", "range(4000)");
    let forks = FORKS.replace("range(100)", "range(20)");
    for mode in WATCHED {
        same_under("python_is_watched", mode, "python3", &["-c", &computes]);
        same_under("python_is_watched", mode, "python3", &["-c", &forks]);
    }
}

#[test]
fn sqlite_is_watched() {
    let arguments = [":memory:", REMEMBERS];
    WATCHED.iter().for_each(|mode| same_under("sqlite_is_watched", mode, "sqlite3", &arguments));
}

#[test]
fn git_is_watched() {
    WATCHED.iter().for_each(|mode| same_under("git_is_watched", mode, "git", &HISTORY));
}

#[test]
fn gcc_is_watched() {
    WATCHED.iter().for_each(|mode| gcc_compiles_under("gcc_is_watched", mode));
}

/// A faulty C program, and the library's report.
#[test]
fn what_is_wrong_is_told() {
    let library = library();
    if !library.exists() || !has("python3") {
        eprintln!("skipped: what_is_wrong_is_told: needs the shared object, and python3");
        return;
    }
    let begin = "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; \
                 c.malloc.argtypes = [ctypes.c_size_t]; c.free.argtypes = [ctypes.c_void_p]; \
                 c.free_sized.argtypes = [ctypes.c_void_p, ctypes.c_size_t]; p = c.malloc(300);";
    let wrongs = [
        ("ctypes.memset(p + 300, 0, 1); c.free(p)", "byte 300 of an object of 300 bytes"),
        ("c.free(p); c.free(p)", "freed, but it is free already"),
        ("c.free_sized(p, 301)", "freed as 301 bytes, but allocated with another size: 300 bytes"),
        // The fault is found when the program ends, at the latest.
        ("c.free(p); ctypes.memset(p + 9, 0, 1)", "after it was freed: byte 9 of an object of 300"),
    ];
    for (wrong, says) in wrongs {
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{begin} {wrong}")]).stdin(Stdio::null());
        command.env("LD_PRELOAD", &library).env("CORELOCAL_MALLOC", "check");
        let output = command.output().expect("a process");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(6), "{wrong}: {said}");
        assert!(said.contains("corelocal malloc: 0x") && said.contains(says), "{wrong}: {said}");
    }
}

/// The library depends on nothing that a program would have to load for it.
#[test]
fn libc_is_all_it_needs() {
    let library = library();
    if !library.exists() || !has("readelf") {
        eprintln!("skipped: libc_is_all_it_needs: needs the shared object, and readelf");
        return;
    }
    let output = Command::new("readelf").arg("-d").arg(&library).output().expect("readelf");
    let text = String::from_utf8_lossy(&output.stdout);
    let needed: Vec<&str> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
    let is_libc = |line: &&str| line.contains("[libc.so") || line.contains("[ld-linux");
    assert!(!needed.is_empty() && needed.iter().all(is_libc), "{needed:?}");
}

/// The malloc's statistics at the end of `ls`.
fn statistics(words: &str) -> Option<String> {
    let library = library();
    if !library.exists() {
        return None;
    }
    let mut command = Command::new("ls");
    command.arg("/").env("LD_PRELOAD", &library).env("CORELOCAL_MALLOC", words);
    Some(String::from_utf8(command.output().expect("ls").stderr).expect("text"))
}

#[test]
fn statistics_at_the_end() {
    let (Some(json), Some(text)) = (statistics("stats:json"), statistics("stats")) else {
        return eprintln!("skipped: statistics_at_the_end: the shared object is not built");
    };
    let told: Value = serde_json::from_str(&json).expect(&json);
    let classes = told["classes"].as_array().expect("a list");
    let number = |of: &Value, key: &str| of[key].as_u64().expect(key);
    let sum = |key: &str| classes.iter().map(|class| number(class, key)).sum::<u64>();
    let [allocated, freed, refills] = ["allocated", "freed", "refills"].map(sum);
    assert_eq!(number(&told, "allocated"), allocated);
    // More objects were allocated than batches moved.
    assert!(allocated >= freed && freed > 0 && refills > 0 && refills < allocated, "{json}");
    let in_use = classes.iter().map(|class| number(class, "in_use") * number(class, "size"));
    assert_eq!(in_use.sum::<u64>() + number(&told, "large_bytes"), number(&told, "in_use"));
    let is_share = |key: &str, part: u64, whole: u64| {
        let (told, share) = (told[key].as_f64().expect(key), 100.0 * part as f64 / whole as f64);
        assert!((told - share).abs() < 0.11, "{key}: {told}, not {share}");
    };
    is_share("hit_percent", allocated - refills, allocated);
    let used = number(&told, "used");
    is_share("unused_percent", used - number(&told, "in_use"), used);
    assert!(classes.iter().all(|class| {
        class["unused_percent"].as_f64().is_some_and(|share| (0.0..=100.0).contains(&share))
    }));

    // The same as text: numbers are aligned.
    let columns = |line: &str| line.trim_end().len();
    let totals: Vec<&str> =
        text.lines().skip(1).take_while(|line| !line.contains("size")).collect();
    assert!(
        totals.len() > 10 && totals.iter().all(|line| columns(line) == columns(totals[0])),
        "{text}"
    );
    let table: Vec<&str> = text.lines().skip(1 + totals.len()).collect();
    let (cores, table) = table.split_last().expect("a last line");
    assert!(cores.starts_with("  bytes on each core: "), "{text}");
    assert!(
        table.len() > 3 && table.iter().all(|line| columns(line) == columns(table[0])),
        "{text}"
    );
}

/// Statistics of each node, if there are several.
#[test]
fn statistics_of_nodes() {
    for (words, is_of_nodes, says) in [
        ("stats:json,nodes:3", true, "\"nodes\":[{\"node\":0,\"used\":"),
        ("stats,nodes:3", true, "    node      bytes used            open\n       0 "),
        ("stats:json,nodes:no", false, "\"nodes\":"),
        ("stats,nodes:no", false, "  node "),
    ] {
        let Some(said) = statistics(words) else {
            return eprintln!("skipped: statistics_of_nodes: the shared object is not built");
        };
        assert!(!said.is_empty() && said.contains(says) == is_of_nodes, "{words}: {said}");
    }
}

const GROWS: &str = "
import time
def huge():
    lines = open('/proc/self/smaps_rollup').read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith('AnonHugePages'))
rows = [bytes(1000) for n in range(100000)]
end = time.monotonic() + SECONDS
while time.monotonic() < end and huge() < 50000:
    time.sleep(0.1)
print(huge())
";

/// KiB of huge pages of a program that has 100 MB and waits, within this many seconds.
fn huge_after(seconds: &str, library: &Path, mode: &str) -> usize {
    let mut command = Command::new("python3");
    command.args(["-c", &GROWS.replace("SECONDS", seconds)]).env("PYTHONMALLOC", "malloc");
    let output =
        command.env("LD_PRELOAD", library).env("CORELOCAL_MALLOC", mode).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().parse().expect("a number")
}

/// A program that grows and then does nothing gets huge pages from the background thread, if it has one.
#[test]
fn huge_pages_by_time() {
    let library = library();
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let is_wanted = enabled.is_ok_and(|enabled| !enabled.contains("[never]"));
    if !library.exists() || !has("python3") || !is_wanted {
        return eprintln!("skipped: huge_pages_by_time: no python3, or no huge pages");
    }
    for mode in ["background:yes,hugepages:no", "background:no", ""] {
        assert_eq!(huge_after("3", &library, mode), 0, "{mode}");
    }
    if has_collapse() {
        assert!(huge_after("60", &library, "background:yes") >= 50_000);
    } else {
        eprintln!(
            "skipped: huge_pages_by_time: the kernel makes none (Linux 6.1), or has no memory for one"
        );
    }
}

/// Prints the number of threads after 100 MB, and in a child after 100 MB more.
const COUNTS: &str = "\
import os, time
def threads():
    kept = [bytearray(1000) for _ in range(100000)]
    end = time.monotonic() + 0.5
    while len(os.listdir('/proc/self/task')) == 1 and time.monotonic() < end:
        time.sleep(0.01)
    print(len(os.listdir('/proc/self/task')), flush=True)
    return kept
kept = threads()
if os.fork() == 0:
    kept.append(threads())
    os._exit(0)
os.wait()
";

#[test]
fn threads_of_children() {
    let library = library();
    if !library.exists() || !has("python3") {
        return eprintln!("skipped: threads_of_children: no python3");
    }
    for (mode, threads) in [
        ("", "1\n1\n"),
        ("background:yes", "2\n1\n"),
        ("background:children", "2\n2\n"),
        ("background:no", "1\n1\n"),
    ] {
        let mut command = Command::new("python3");
        command.args(["-c", COUNTS]).env("PYTHONMALLOC", "malloc").env("LD_PRELOAD", &library);
        let output = command.env("CORELOCAL_MALLOC", mode).output().expect("python3");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout), threads, "{mode}");
    }
}

/// Prints the number of threads of a child that allocates 100 MB after a fork, and the KiB of huge pages that it gets
/// in some seconds.
const CHILD_GROWS: &str = "\
import os, time
def huge():
    lines = open('/proc/self/smaps_rollup').read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith('AnonHugePages'))
def threads():
    return len(os.listdir('/proc/self/task'))
rows = [bytes(1000) for n in range(100000)]
if os.fork() == 0:
    before = huge()
    more = [bytes(1000) for n in range(100000)]
    end = time.monotonic() + 8
    while time.monotonic() < end and huge() <= before:
        time.sleep(0.1)
    print(threads(), max(huge() - before, 0), flush=True)
    os._exit(0)
os.wait()
";

/// A child's first minute is longer than this.
#[test]
fn no_huge_pages_for_a_young_child() {
    const TEST: &str = "no_huge_pages_for_a_young_child";
    let library = library();
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let is_wanted = enabled.is_ok_and(|enabled| !enabled.contains("[never]"));
    if !library.exists() || !has("python3") || !is_wanted || !has_collapse() {
        return eprintln!("skipped: {TEST}: no python3, or the kernel makes no huge pages");
    }
    let mut command = Command::new("python3");
    command.args(["-c", CHILD_GROWS]).env("PYTHONMALLOC", "malloc").env("LD_PRELOAD", &library);
    let output = command.env("CORELOCAL_MALLOC", "background:children").output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2 0\n");
}

/// Whether the kernel makes a huge page on request.
fn has_collapse() -> bool {
    const HUGE_PAGE: usize = 2 << 20;
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping of this test, written to where a huge page begins; it is never unmapped.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 2 * HUGE_PAGE, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let page = (at as usize).next_multiple_of(HUGE_PAGE) as *mut libc::c_void;
        page.cast::<u8>().write(1);
        libc::madvise(page, HUGE_PAGE, 25) == 0
    }
}
