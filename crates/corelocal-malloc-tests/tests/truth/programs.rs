//! Real programs with checks of their own. Each runs without the malloc first: one that does not run here
//! anyway says nothing of the malloc.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::run::{Done, LIBC, Malloc, done, end_group, installed, only_ours, scaled};
use crate::skip;

/// A program that is installed and runs without the malloc, and the malloc; or it is said why not.
fn with_ours(test: &str, program: &str, trial: impl Fn(&Malloc, &Path) -> Result<String, String>) {
    let Some(path) = installed(program) else {
        return skip(test, &format!("no {program} is installed"));
    };
    let Some(ours) = only_ours(test) else { return };
    let expected = match trial(&LIBC, &path) {
        Ok(expected) => expected,
        Err(why) => {
            let why = why.lines().next().unwrap_or_default();
            return skip(test, &format!("{program} does not run here without the malloc: {why}"));
        }
    };
    match trial(&ours, &path) {
        Ok(found) => assert_eq!(found, expected, "{program} says something else"),
        Err(why) => panic!("{program}: {why}"),
    }
}

/// What a program says that ends well.
fn said(command: Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let done: Done = done(command);
    if done.well() { Ok(done.out) } else { Err(format!("{shown}: {}", done.whole())) }
}

fn command(malloc: &Malloc, program: &Path, args: &[&str]) -> Command {
    let mut command = malloc.command(program);
    command.args(args);
    command
}

#[test]
fn sqlite3() {
    const SCRIPT: &str = "
        PRAGMA journal_mode=MEMORY;
        CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, value REAL);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
            INSERT INTO t SELECT i, 'name ' || (i * 7919 % 60000), i * 0.5 FROM n;
        CREATE INDEX by_name ON t(name);
        DELETE FROM t WHERE id % 3 = 0;
        UPDATE t SET name = name || ' ' || name WHERE id % 5 = 0;
        SELECT count(*), sum(value), sum(length(name)) FROM t;
        SELECT name, count(*) FROM t GROUP BY name ORDER BY name LIMIT 20;
        SELECT group_concat(id) FROM (SELECT id FROM t ORDER BY name DESC LIMIT 2000);
        VACUUM;
        PRAGMA integrity_check;";
    with_ours("sqlite3", "sqlite3", |malloc, path| {
        let folder = TempDir::new().map_err(|why| why.to_string())?;
        let file = folder.path().join("data").to_string_lossy().into_owned();
        let out = said(command(malloc, path, &[&file, SCRIPT]))?;
        if out.trim_end().ends_with("ok") { Ok(out) } else { Err(format!("not ok: {out}")) }
    });
}

#[test]
fn python3() {
    const SCRIPT: &str = "
import json, re, threading, zlib
def work(n):
    d = {str(i): [i] * (i % 50) for i in range(20000)}
    s = json.dumps(d)
    assert json.loads(s) == d
    assert zlib.decompress(zlib.compress(s.encode())).decode() == s
    assert len(re.findall('[0-9]+', s)) > 20000
    out[n] = zlib.crc32(s.encode())
out = [0] * 8
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(out)";
    with_ours("python3", "python3", |malloc, path| {
        let mut command = command(malloc, path, &["-c", SCRIPT]);
        command.env("PYTHONMALLOC", "malloc");
        said(command)
    });
}

/// Part of Python's own tests.
#[test]
fn python3_tests() {
    const TESTS: [&str; 10] = [
        "test_list",
        "test_dict",
        "test_bytes",
        "test_unicode",
        "test_json",
        "test_re",
        "test_gc",
        "test_thread",
        "test_fork1",
        "test_array",
    ];
    with_ours("python3_tests", "python3", |malloc, path| {
        let folder = TempDir::new().map_err(|why| why.to_string())?;
        let mut command = command(malloc, path, &["-m", "test", "--tempdir"]);
        command.arg(folder.path()).args(TESTS).env("PYTHONMALLOC", "malloc").current_dir(&folder);
        said(command).map(|_| "passed".to_owned())
    });
}

#[test]
fn git() {
    with_ours("git", "git", |malloc, path| {
        let folder = TempDir::new().map_err(|why| why.to_string())?;
        let git = |args: &[&str]| {
            let mut command = command(malloc, path, args);
            command.current_dir(&folder).env("HOME", folder.path()).env("GIT_CONFIG_NOSYSTEM", "1");
            for (name, value) in
                [("NAME", "n"), ("EMAIL", "e@example.org"), ("DATE", "1700000000 +0000")]
            {
                command.env(format!("GIT_AUTHOR_{name}"), value);
                command.env(format!("GIT_COMMITTER_{name}"), value);
            }
            said(command)
        };
        git(&["init", "-q", "."])?;
        for round in 0..3 {
            for nth in 0..150 {
                let text: String =
                    (0..200).map(|line| format!("{nth} {} {line}\n", round * (nth % 7))).collect();
                fs::write(folder.path().join(format!("file{nth}")), text)
                    .map_err(|why| why.to_string())?;
            }
            git(&["add", "."])?;
            git(&["commit", "-q", "-m", "a commit"])?;
        }
        git(&["gc", "-q", "--aggressive"])?;
        git(&["fsck", "--full", "--strict"])?;
        let head = git(&["rev-parse", "HEAD"])?;
        Ok(head + &git(&["diff", "--stat", "HEAD~2"])? + &git(&["log", "-p", "-1"])?)
    });
}

#[test]
fn gcc() {
    const SOURCE: &str = "
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *left, *right; char name[20]; long value; };
#define F(n) static struct node *make##n(long v) { struct node *p = calloc(1, sizeof *p); \
    snprintf(p->name, sizeof p->name, \"%ld\", v * n); p->value = v + n; \
    if (v > 0) { p->left = make##n(v - 1); if (v % 3 == n % 3) p->right = make##n(v / 2); } return p; } \
  static long sum##n(struct node *p) { if (!p) return 0; long s = p->value + strlen(p->name); \
    s += sum##n(p->left) * 31 + sum##n(p->right); free(p); return s; }
F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15) F(16)
int main(void) { printf(\"%ld %ld %ld\\n\", sum1(make1(30)), sum7(make7(40)), sum16(make16(25))); }";
    with_ours("gcc", "gcc", |malloc, path| {
        let folder = TempDir::new().map_err(|why| why.to_string())?;
        let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        fs::write(file("a.c"), SOURCE).map_err(|why| why.to_string())?;
        said(command(malloc, path, &["-O2", "-w", "-S", "-o", &file("a.s"), &file("a.c")]))?;
        said(command(malloc, path, &["-O2", "-w", "-o", &file("a"), &file("a.s")]))?;
        let out = said(command(malloc, Path::new(&file("a")), &[]))?;
        // The same code, to the letter.
        Ok(out + &fs::read_to_string(file("a.s")).map_err(|why| why.to_string())?)
    });
}

#[test]
fn node() {
    const SCRIPT: &str = "
const { Worker, isMainThread, parentPort } = require('worker_threads');
const zlib = require('zlib'), crypto = require('crypto');
function work() {
  let map = new Map();
  for (let i = 0; i < 40000; i++) map.set('k' + i, { i, text: 'x'.repeat(i % 100), list: [i, i + 1] });
  const text = JSON.stringify([...map]);
  const packed = zlib.gzipSync(text);
  if (zlib.gunzipSync(packed).toString() !== text) throw new Error('zlib');
  let buffers = [];
  for (let i = 0; i < 3000; i++) buffers.push(Buffer.alloc(1000 + i, i % 256));
  return crypto.createHash('sha256').update(text).update(Buffer.concat(buffers)).digest('hex');
}
if (isMainThread) {
  const workers = [0, 1, 2].map(() => new Promise((ok, no) => {
    const w = new Worker(process.argv[1] ?? __filename); w.on('message', ok); w.on('error', no);
  }));
  Promise.all(workers).then(all => { console.log(all.join(' '), work()); });
} else parentPort.postMessage(work());";
    with_ours("node", "node", |malloc, path| {
        let folder = TempDir::new().map_err(|why| why.to_string())?;
        let file = folder.path().join("a.js");
        fs::write(&file, SCRIPT).map_err(|why| why.to_string())?;
        said(command(malloc, path, &[&file.to_string_lossy()]))
    });
}

#[test]
fn chromium() {
    const PAGE: &str = "<body><script>
let list = []; for (let i = 0; i < 20000; i++) list.push({ i, text: 'x'.repeat(i % 60) });
for (let i = 0; i < 300; i++) { let p = document.createElement('p'); p.textContent = list[i * 7].text; document.body.append(p); }
document.title = 'sum ' + list.reduce((s, e) => s + e.text.length, 0);
document.body.append(document.title);</script></body>";
    with_ours("chromium", "chromium", |malloc, path| {
        let folder = TempDir::new().map_err(|why| why.to_string())?;
        let file = folder.path().join("a.html");
        fs::write(&file, PAGE).map_err(|why| why.to_string())?;
        let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
        let page = format!("file://{}", file.display());
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            &profile,
            "--dump-dom",
            &page,
        ];
        let dom = said(command(malloc, path, &args))?;
        let sum = dom.split("sum ").nth(1).map(|rest| rest.split('<').next().unwrap_or_default());
        sum.map(str::to_owned).ok_or_else(|| format!("the page was not run: {dom}"))
    });
}

/// A server that is ended with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        end_group(self.0.id());
        let _ = self.0.wait();
    }
}

/// One request, and the first line of the answer.
fn ask(socket: &Path, request: &str) -> Result<String, String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(format!("{request}\r\n").as_bytes())?;
        let mut line = String::new();
        let mut answer = BufReader::new(stream);
        answer.read_line(&mut line)?;
        // Of a text its length comes first.
        if line.starts_with('$') {
            let length: usize = line[1..].trim().parse().unwrap_or(0);
            let mut text = vec![0; length];
            answer.read_exact(&mut text)?;
            line = String::from_utf8_lossy(&text).into_owned();
        }
        Ok(line.trim_end().to_owned())
    };
    ask().map_err(|why| format!("{request}: {why}"))
}

#[test]
fn redis() {
    with_ours("redis", "redis-server", |malloc, path| {
        let benchmark: PathBuf =
            installed("redis-benchmark").ok_or("no redis-benchmark is installed")?;
        let folder = TempDir::new().map_err(|why| why.to_string())?;
        let socket = folder.path().join("socket");
        let mut server =
            command(malloc, path, &["--port", "0", "--save", "", "--appendonly", "no"]);
        server.arg("--unixsocket").arg(&socket).arg("--dir").arg(folder.path());
        server.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut server = Server(server.spawn().map_err(|why| why.to_string())?);
        let began = Instant::now();
        while ask(&socket, "PING").as_deref() != Ok("+PONG") {
            if server.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err("the server ends at once".to_owned());
            }
            if began.elapsed() > Duration::from_secs(60) {
                return Err("the server does not answer".to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
        // Long answers take longer.
        let loads = [
            ("set,get,incr,lpush,rpush,lpop,sadd,hset,zadd,mset", scaled(8000)),
            ("lrange_300", scaled(800)),
        ];
        for (tests, requests) in loads {
            let args = ["-q", "-n", &requests, "-c", "20", "-d", "300", "-r", "5000", "-t", tests];
            let mut load = command(malloc, &benchmark, &args);
            load.arg("-s").arg(&socket);
            let out = said(load)?;
            if out.to_lowercase().contains("error") {
                return Err(out);
            }
        }
        // A child of fork writes all of it out.
        for request in ["SET kept value", "BGSAVE"] {
            let answer = ask(&socket, request)?;
            if !answer.starts_with('+') {
                return Err(format!("{request}: {answer}"));
            }
        }
        while ask(&socket, "INFO persistence")?.contains("rdb_bgsave_in_progress:1") {
            thread::sleep(Duration::from_millis(20));
        }
        let saved = ask(&socket, "INFO persistence")?.contains("rdb_last_bgsave_status:ok");
        let kept = ask(&socket, "GET kept")?;
        // Another thread gives it all back.
        let flushed = ask(&socket, "FLUSHALL ASYNC")?;
        let empty = ask(&socket, "DBSIZE")?;
        let whole = server.0.try_wait().is_ok_and(|ended| ended.is_none());
        Ok(format!("{saved} {kept} {flushed} {empty} {whole}"))
    });
}
