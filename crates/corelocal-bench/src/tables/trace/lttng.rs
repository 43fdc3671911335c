//! LTTng-UST as a contestant: a tracepoint in a shared object that is compiled and loaded when a table runs, and a session
//! that keeps the last events in memory, as a flight recorder does.
//!
//! Linked into the command, its constructor would start threads in each of its processes.
//!
//! Invariants:
//! 1. The session and, unless one was running, its daemon end with the table.
//! 2. The object is loaded once: two would record each event twice. Its functions have the types that lttng.c gives them.

use std::ffi::c_void;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use crate::tables::object::{Compiled, Source};

/// The time that the daemon may take to start.
const PATIENCE: Duration = Duration::from_secs(10);
const INSTALL: &str = "install lttng-tools and liblttng-ust-dev";
const SOURCE: Source = Source {
    files: &[("lttng.c", include_str!("lttng.c")), ("lttng.h", include_str!("lttng.h"))],
    flags: &["-llttng-ust"],
    packages: "lttng-tools and liblttng-ust-dev",
};

/// A session that records.
pub struct Lttng {
    /// Records so many events.
    pub events: extern "C" fn(u64),
    /// The recording session, which runs until this is dropped.
    _session: Session,
}

struct Session {
    name: String,
    daemon: Option<Child>,
    folder: TempDir,
}

/// The functions of the object.
#[derive(Clone, Copy)]
struct Functions {
    events: extern "C" fn(u64),
    is_on: extern "C" fn() -> i32,
}

impl Lttng {
    /// Starts a session, and loads the object, which is on then.
    ///
    /// # Errors
    /// LTTng is not installed, or its daemon cannot run.
    pub fn start() -> anyhow::Result<Lttng> {
        static LOADED: OnceLock<Functions> = OnceLock::new();
        let object = match LOADED.get() {
            Some(_) => None,
            None => Some(SOURCE.compile()?),
        };
        let session = Session::start()?;
        if let Some(object) = object {
            let functions = load(&object)?;
            LOADED.get_or_init(|| functions);
        }
        let Functions { events, is_on } = *LOADED.get().context("it was loaded above")?;
        let began = Instant::now();
        while is_on() == 0 {
            ensure!(began.elapsed() < PATIENCE, "LTTng does not switch the event on");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Lttng { events, _session: session })
    }
}

fn load(object: &Compiled) -> anyhow::Result<Functions> {
    let object = object.load()?;
    let (events, is_on) =
        (object.symbol("corelocal_lttng_events")?, object.symbol("corelocal_lttng_is_on")?);
    // SAFETY: functions of these types (2).
    Ok(unsafe {
        Functions {
            events: std::mem::transmute::<*mut c_void, extern "C" fn(u64)>(events),
            is_on: std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(is_on),
        }
    })
}

impl Session {
    fn start() -> anyhow::Result<Session> {
        let folder = tempfile::tempdir()?;
        let name = format!("corelocal-bench-{}", std::process::id());
        let mut session = Session { name, daemon: None, folder };
        if !session.call(&["--no-sessiond", "list"]) {
            let mut daemon = Command::new("lttng-sessiond");
            daemon
                .args(["--no-kernel"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            session.daemon = Some(daemon.spawn().context(INSTALL)?);
        }
        let began = Instant::now();
        while !session.call(&["--no-sessiond", "list"]) {
            ensure!(began.elapsed() < PATIENCE, "lttng-sessiond does not answer");
            thread::sleep(Duration::from_millis(20));
        }
        let output = session.folder.path().join("out");
        let output = format!("--output={}", output.display());
        let name = session.name.clone();
        let steps: [&[&str]; 3] = [
            &["create", &name, "--snapshot", &output],
            &["enable-event", "--session", &name, "--userspace", "corelocal_bench:number"],
            &["start", &name],
        ];
        for step in steps {
            if !session.call(step) {
                bail!("`lttng {}` failed", step.join(" "));
            }
        }
        Ok(session)
    }

    /// Returns `true` if `lttng` succeeds.
    fn call(&self, args: &[&str]) -> bool {
        let mut command = Command::new("lttng");
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.call(&["destroy", &self.name]);
        if let Some(daemon) = &mut self.daemon {
            // SAFETY: a child of ours that was not waited for. It ends its own children.
            unsafe { libc::kill(daemon.id() as libc::pid_t, libc::SIGTERM) };
            let _ = daemon.wait();
        }
    }
}
