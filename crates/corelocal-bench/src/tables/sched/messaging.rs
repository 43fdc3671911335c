//! The messaging load: groups of senders and receivers that do nothing but wake each other, written
//! after the description of hackbench.
//!
//! Runs in a child process, since libc decides about registration once per process.
//!
//! Invariants:
//! - No task sends before all have started and have found themselves registered, or not, as asked.
//! - A task never outlives the child: a process is killed when its parent ends, and the child ends
//!   as soon as anything fails.
//! - A forked task allocates nothing, takes no lock and leaves through `_exit`, so that nothing of
//!   its parent's is run twice.

use std::env;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use corelocal::sys::Registration;
use corelocal_support::process::child;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::registered::is_registered;

/// Senders, and receivers, in a group.
pub const PEERS: usize = 20;

/// The length of a message in bytes.
const MESSAGE: usize = 100;

/// Name of the child process.
pub const CHILD: &str = "messaging";

/// Far more than a round takes; ends a child whose tasks wait for one that has died.
const LIMIT: Duration = Duration::from_secs(20);

/// Keeps glibc 2.35 and later from registering; others do not know it.
const WITHOUT: &str = "glibc.pthread.rseq=0";

/// The kind of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tasks {
    /// Processes, forked from one process.
    Processes,
    /// Threads of one process.
    Threads,
}

/// The load of one round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Load {
    /// The kind of the tasks.
    pub tasks: Tasks,
    /// Whether they are registered.
    pub registered: bool,
    /// Groups.
    pub groups: usize,
    /// The number of messages from each sender to each receiver of its group.
    pub loops: u64,
}

impl Load {
    /// Runs the load in a process of its own; from the start of the tasks to the end of the last.
    ///
    /// # Errors
    ///
    /// Why it cannot run, for instance a libc that registers whatever it is told.
    pub fn run_in_child(self) -> anyhow::Result<Duration> {
        let tunables = match env::var("GLIBC_TUNABLES") {
            Ok(others) if !others.is_empty() => format!("{others}:{WITHOUT}"),
            _ => WITHOUT.to_owned(),
        };
        let env = [("GLIBC_TUNABLES", tunables.as_str())];
        let env = if self.registered { &[][..] } else { &env };
        let took = child::run(CHILD, &[serde_json::to_string(&self)?], env, LIMIT)?;
        Ok(Duration::from_secs_f64(took.as_f64().context("the child process printed no number")?))
    }

    fn run(self) -> anyhow::Result<Duration> {
        let stage = Stage::set(self)?;
        match self.tasks {
            Tasks::Processes => processes(&stage),
            Tasks::Threads => threads(stage),
        }
    }

    fn count(&self) -> usize {
        self.groups * 2 * PEERS
    }
}

/// Runs in the child; returns the seconds it took.
///
/// # Errors
///
/// Why it could not run.
pub fn child(args: &[String]) -> anyhow::Result<Value> {
    let [load] = args else { bail!("one argument is needed, the load") };
    let load: Load = serde_json::from_str(load)?;
    Ok(load.run()?.as_secs_f64().into())
}

/// A socket into which the senders of a group write, and the end its receiver reads from.
type Channel = (UnixStream, UnixStream);

/// Everything the tasks share.
struct Stage {
    load: Load,
    /// The channels, one for each receiver, group by group.
    channels: Vec<Channel>,
    /// Each task writes a verdict to the one end, then reads there until the other is shut down.
    ready: UnixStream,
    start: UnixStream,
}

/// A task's verdict: it is registered, or not, as asked for.
const AS_ASKED: u8 = 1;

impl Stage {
    fn set(load: Load) -> anyhow::Result<Self> {
        // Before any task starts, with the kernel's own reason.
        is_registered().map_err(|errno| anyhow!("the kernel does not support rseq: {errno}"))?;
        let sockets = || -> io::Result<_> {
            let channels = (0..load.groups * PEERS).map(|_| UnixStream::pair());
            Ok((channels.collect::<io::Result<Vec<Channel>>>()?, UnixStream::pair()?))
        };
        let (channels, (ready, start)) = sockets().with_context(|| {
            format!(
                "{} sockets could not be opened; raise the limit with `ulimit -n`",
                2 * load.groups * PEERS
            )
        })?;
        Ok(Self { load, channels, ready, start })
    }

    /// Waits for all tasks, then lets them go.
    fn begin(&self) -> anyhow::Result<Instant> {
        let mut verdicts = vec![0; self.load.count()];
        (&self.start).read_exact(&mut verdicts).context("a task has died")?;
        ensure!(verdicts.iter().all(|&verdict| verdict == AS_ASKED), self.not_as_asked());
        let begun = Instant::now();
        self.start.shutdown(Shutdown::Write).context("the tasks could not be started")?;
        Ok(begun)
    }

    fn not_as_asked(&self) -> String {
        if self.load.registered {
            match Registration::of_this_thread().refusal {
                Some(refusal) => format!("threads cannot be registered: {refusal}"),
                None => "some threads could not be registered".to_owned(),
            }
        } else {
            format!("libc registers every thread here, also under GLIBC_TUNABLES={WITHOUT}")
        }
    }

    /// Runs one task from its start to its end: the first half of each group sends.
    fn task(&self, index: usize) -> io::Result<()> {
        let group = index / (2 * PEERS) * PEERS;
        let channels = &self.channels[group..group + PEERS];
        (&self.ready).write_all(&[self.verdict()])?;
        if (&self.ready).read(&mut [0])? != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut message = [0; MESSAGE];
        match (index % (2 * PEERS)).checked_sub(PEERS) {
            None => {
                for _ in 0..self.load.loops {
                    for (to, _) in channels {
                        (&mut &*to).write_all(&message)?;
                    }
                }
            }
            Some(receiver) => {
                let mut from = &channels[receiver].1;
                for _ in 0..self.load.loops * PEERS as u64 {
                    from.read_exact(&mut message)?;
                }
            }
        }
        Ok(())
    }

    fn verdict(&self) -> u8 {
        let mut is = is_registered() == Ok(true);
        if self.load.registered && !is {
            // libc does not: the library does, at a thread's first question.
            Registration::of_this_thread();
            is = is_registered() == Ok(true);
        }
        if is == self.load.registered { AS_ASKED } else { 0 }
    }
}

/// Returns all tasks as processes.
fn processes(stage: &Stage) -> anyhow::Result<Duration> {
    let parent = std::process::id();
    let mut tasks = Vec::with_capacity(stage.load.count());
    for index in 0..stage.load.count() {
        // SAFETY: the new process runs `forked` only, which does nothing that a fork of a process
        // with several threads may not do, and never returns.
        match unsafe { libc::fork() } {
            -1 => return Err(too_many(io::Error::last_os_error(), stage.load.count())),
            0 => forked(stage, index, parent),
            task => tasks.push(task),
        }
    }
    let begun = stage.begin()?;
    let mut failed = false;
    for task in tasks {
        let mut status = 0;
        // SAFETY: `status` is valid for writes; the task is a child of ours, not yet waited for.
        failed |= unsafe { libc::waitpid(task, &mut status, 0) } != task || status != 0;
    }
    let took = begun.elapsed();
    ensure!(!failed, "a process could not send or receive all its messages");
    Ok(took)
}

/// Lives the whole life of a forked task.
fn forked(stage: &Stage, index: usize, parent: u32) -> ! {
    // SAFETY: takes a signal number and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // A parent that ended before the call above sends no signal any more.
    let orphan = std::os::unix::process::parent_id() != parent;
    let done = !orphan && stage.task(index).is_ok();
    // SAFETY: ends the process without running what the parent registered for its own end.
    unsafe { libc::_exit(if done { 0 } else { 1 }) }
}

/// Returns all tasks as threads. They are not scoped: after an error the threads that wait for the start could not be
/// joined, and end with the process.
fn threads(stage: Stage) -> anyhow::Result<Duration> {
    let stage = Arc::new(stage);
    let mut tasks = Vec::with_capacity(stage.load.count());
    for index in 0..stage.load.count() {
        let shared = stage.clone();
        let task = thread::Builder::new().spawn(move || shared.task(index));
        tasks.push(task.map_err(|error| too_many(error, stage.load.count()))?);
    }
    let begun = stage.begin()?;
    let ends: Vec<_> = tasks.into_iter().map(thread::JoinHandle::join).collect();
    let took = begun.elapsed();
    let done = ends.into_iter().all(|end| matches!(end, Ok(Ok(()))));
    ensure!(done, "a thread could not send or receive all its messages");
    Ok(took)
}

fn too_many(error: io::Error, tasks: usize) -> anyhow::Error {
    anyhow!(error).context(format!(
        "{tasks} tasks could not be started; raise the limit with `ulimit -u` or the cgroup's \
         pids.max, and run again"
    ))
}

#[cfg(test)]
mod tests;
