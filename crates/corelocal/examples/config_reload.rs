//! A server that reads its configuration for each request, and reloads it while requests run.
//!
//! ```sh
//! cargo run --release -p corelocal --features std --example config_reload -- FILE 8080
//! cargo run --release -p corelocal --features std --example config_reload    # a demonstration
//! ```
//!
//! The file has lines like `path = answer`, and `limit = 100`, the most requests of one connection. Each request is a line
//! with a path. A file that cannot be read, or has an error, leaves the configuration as it was. Replace the file by renaming another one.
//!
//! - The answers are a map behind an [`Rcu`]: a request reads them under a guard, without a lock or an atomic instruction.
//! - The limit is an [`RcuCopy`]: a request copies it, which takes as long as two loads.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, process, thread};

use corelocal::rcu::{self, Rcu, RcuCopy};

type Answers = HashMap<String, String>;

struct Server {
    answers: Rcu<Arc<Answers>>,
    limit: RcuCopy<u32>,
}

impl Server {
    fn new() -> Server {
        Server { answers: Rcu::new(Arc::default()), limit: RcuCopy::new(u32::MAX) }
    }

    /// Answers the requests of a connection.
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let mut answers_to = client.try_clone()?;
        for (nth, path) in (1..).zip(BufReader::new(client).lines()) {
            if nth > self.limit.load() {
                return writeln!(answers_to, "too many requests");
            }
            let path = path?;
            // No I/O under the guard: while there is one, no old configuration is freed.
            let answer = {
                let guard = rcu::read();
                self.answers.load(&guard).get(path.trim()).cloned()
            };
            writeln!(answers_to, "{}", answer.as_deref().unwrap_or("not found"))?;
        }
        Ok(())
    }

    /// Reads the file, and replaces the configuration if there is no error in it.
    fn reload(&self, file: &Path) -> Result<(), String> {
        let text = fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
        let (mut answers, mut limit) = (Answers::new(), u32::MAX);
        for (nth, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let at = |why: &str| format!("{}:{nth}: {why}: `{line}`", file.display());
            let (name, value) = line.split_once('=').ok_or_else(|| at("no `=`"))?;
            match (name.trim(), value.trim()) {
                ("limit", value) => limit = value.parse().map_err(|_| at("not a number"))?,
                (path, answer) => _ = answers.insert(path.into(), answer.into()),
            }
        }
        self.limit.store(limit);
        self.answers.store(Arc::new(answers));
        Ok(())
    }

    /// Reloads the file whenever it has changed.
    fn watch(&self, file: &Path) {
        let changed = || fs::metadata(file).and_then(|it| Ok((it.modified()?, it.len()))).ok();
        let mut last = None;
        loop {
            let now = changed();
            if now != last {
                match self.reload(file) {
                    Ok(()) => println!("loaded {}", file.display()),
                    Err(why) => eprintln!("the configuration stays as it is: {why}"),
                }
                last = now;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Serves until the process ends.
fn start(file: PathBuf, port: u16) -> io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let port = listener.local_addr()?.port();
    let server = Arc::new(Server::new());
    let watching = server.clone();
    thread::spawn(move || watching.watch(&file));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = server.clone();
            thread::spawn(move || server.serve(client));
        }
    });
    Ok(port)
}

/// Replaces a file at once. One that is written in place may be read while it is empty, which is no error.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)
}

/// Changes the file while clients ask, until they have seen the change.
fn demonstrate() -> io::Result<()> {
    let file = env::temp_dir().join(format!("config_reload.{}", process::id()));
    replace(&file, "/hello = first\n")?;
    let port = start(file.clone(), 0)?;
    let ask = |path: &str| -> io::Result<String> {
        let mut server = TcpStream::connect(("127.0.0.1", port))?;
        writeln!(server, "{path}")?;
        BufReader::new(server).lines().next().unwrap_or_else(|| Ok("no answer".into()))
    };
    for (answer, next) in [
        ("first", "/hello = second, and longer\nlimit = 1\n"),
        ("second, and longer", "this line is wrong\n"),
        ("second, and longer", "/other = last\n"),
    ] {
        while ask("/hello")? != answer {
            thread::sleep(Duration::from_millis(1));
        }
        println!("/hello is answered by: {answer}");
        replace(&file, next)?;
        // So that a file with an error is seen, too.
        thread::sleep(Duration::from_millis(100));
    }
    while ask("/hello")? != "not found" {
        thread::sleep(Duration::from_millis(1));
    }
    println!("/other is answered by: {}", ask("/other")?);
    rcu::barrier().map_err(io::Error::other)?;
    println!("old configurations that wait to be freed: {} bytes", rcu::GLOBAL.deferred_bytes());
    fs::remove_file(&file)
}

fn main() -> io::Result<()> {
    let Some(file) = env::args_os().nth(1) else { return demonstrate() };
    let Ok(port) = env::args().nth(2).map_or(Ok(0), |port| port.parse()) else {
        eprintln!("the port must be a number up to 65535: config_reload FILE [PORT]");
        process::exit(2);
    };
    println!("listening on 127.0.0.1:{}", start(file.into(), port)?);
    loop {
        thread::park();
    }
}
