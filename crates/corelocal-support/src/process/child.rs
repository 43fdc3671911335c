//! Work in a process of its own, for settings that hold for a whole process: whether libc registers rseq, which malloc it
//! has, how many tasks there are, on which cpus.
//!
//! The child is this same executable, called as `corelocal __child NAME ARGS…`; it prints one line
//! of JSON.
//!
//! Invariants:
//! - A child never outlives its time limit, nor its parent, and takes its own children with it: it
//!   leads a process group of its own, which is killed as a whole.
//! - A parent reads everything the child writes, so that neither waits for the other for ever.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "__child";

/// A function that runs in a child: it takes arguments and returns a result.
pub type Body = fn(&[String]) -> anyhow::Result<Value>;

/// More output than this is not a result.
const MOST_OUTPUT: u64 = 1 << 20;

/// A body, and the name that it is called by.
pub type Named = (&'static str, Body);

/// Runs, in the child, the body of this name.
///
/// # Errors
///
/// The body's own, or a name that none has.
pub fn dispatch(bodies: &[Named], name: &str, args: &[String]) -> anyhow::Result<Value> {
    // SAFETY: this option takes a signal number and touches no memory of ours. It is best effort:
    // without it the child ends at its time limit instead of with its parent.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    match bodies.iter().find(|(known, _)| *known == name) {
        Some((_, body)) => body(args),
        None => bail!("no child process is called `{name}`; `{SUBCOMMAND}` is for internal use"),
    }
}

/// Runs, in the parent, the body called `name` in a new process with additional environment
/// variables, and gives what it returned.
///
/// # Errors
///
/// A process that cannot be started, fails, prints something else than a line of JSON, or takes
/// longer than `limit`, after which it has been killed.
pub fn run(
    name: &str,
    args: &[String],
    env: &[(&str, &str)],
    limit: Duration,
) -> anyhow::Result<Value> {
    let program = std::env::current_exe().context(
        "cannot find this program's own file, which is needed for a child process; is /proc mounted?",
    )?;
    let mut command = Command::new(program);
    command.arg(SUBCOMMAND).arg(name).args(args);
    command.envs(env.iter().copied());
    let output = output_within(command, limit).with_context(|| format!("child `{name}`"))?;
    serde_json::from_str(output.trim())
        .with_context(|| format!("the child process `{name}` printed no JSON"))
}

/// Returns the standard output of `command`, which must end in success within `limit`.
fn output_within(mut command: Command, limit: Duration) -> anyhow::Result<String> {
    let end = Instant::now() + limit;
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.process_group(0).spawn().context("the process could not be started")?;
    let mut group = Group { child, waited: false };
    let stdout = group.child.stdout.take().context("no standard output")?;
    let stderr = group.child.stderr.take().context("no standard error")?;
    let (stdout, stderr) = (read_aside(stdout), read_aside(stderr));

    let timed_out =
        || format!("printed no result within {:.1} s and was killed", limit.as_secs_f64());
    let left = || end.saturating_duration_since(Instant::now());
    let output = stdout.recv_timeout(left()).with_context(timed_out)?;
    let complaint = stderr.recv_timeout(left()).with_context(timed_out)?;
    let status = loop {
        match group.child.try_wait().context("cannot wait for the process")? {
            Some(status) => break status,
            None if left().is_zero() => bail!(timed_out()),
            // Its output is closed: it is about to end.
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    group.waited = true;
    if !status.success() {
        let last_line = complaint.trim_end().lines().last().unwrap_or("it printed no message");
        bail!("ended with {status}: {last_line}");
    }
    Ok(output)
}

/// Reads to the end in another thread, which ends with the writers.
fn read_aside(from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is still worth showing.
        let mut from = from;
        let _ = from.by_ref().take(MOST_OUTPUT).read_to_end(&mut bytes);
        let _ = io::copy(&mut from, &mut io::sink());
        // The receiver is gone when the time limit has passed.
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receive
}

/// A child and everything it started, ended when this goes away before the child was waited for.
struct Group {
    child: Child,
    waited: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.waited {
            return;
        }
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: takes two integers. The child leads the group and was not waited for, so the
            // number cannot belong to anybody else.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests;
