//! One run of a program: how long, how much cpu, how much memory over time.
//!
//! Memory is looked at from outside, through /proc, for the program and for all that it started and that
//! still has a parent among them. The first look is early, since most programs are short; later ones come
//! a hundredth of the time so far apart, and never take more than a twentieth of the time.
//!
//! Invariants:
//! 1. The program is waited for whatever happens to our looks.
//! 2. Looks are bounded in number: when there are too many, every other one goes.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, iter};

use anyhow::anyhow;
use corelocal_support::mallocs::Malloc;
use corelocal_support::mallocs::resident::{Process, of_tree};

use super::cache_stats::{Place, Tally, Wanted};
use super::program::{Program, Refusal};
use super::relay;

/// The environment variable with the modes of our malloc.
const MODES: &str = "CORELOCAL_MALLOC";
/// A process with less memory is only being set up, and is not counted.
const LEAST_KIB: u64 = 64;
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);
/// A look may take this share of the time until the next.
const SHARE: u32 = 20;
/// The number of looks that are kept.
const MOST: usize = 4096;

/// The destination of the program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The same as our own output.
    AsOurs,
    /// Standard error, for both streams.
    ToError,
    /// The output is discarded.
    Nowhere,
}

/// The resources that a run took.
#[derive(Clone, Debug)]
pub struct Run {
    /// The exit status.
    pub status: ExitStatus,
    /// The seconds from start to end.
    pub wall_s: f64,
    /// The cpu seconds in user mode, of the program and of the children that it waited for.
    pub user_s: f64,
    /// The cpu seconds in the kernel, likewise.
    pub system_s: f64,
    /// The peak of resident KiB.
    pub peak_kib: Option<u64>,
    /// The resident KiB over time, in seconds since the start.
    pub resident: Vec<(f64, u64)>,
    /// The cache statistics, if they were wanted, it is our malloc, and a process wrote some.
    pub tally: Option<Tally>,
}

/// Runs the program to its end, with this value of `LD_PRELOAD`.
///
/// # Errors
/// When it cannot be started.
pub fn once(
    program: &Program,
    arguments: &[OsString],
    malloc: &Malloc,
    preload: Option<OsString>,
    stdin: Stdio,
    output: Output,
    wanted: Wanted,
) -> Result<Run, Refusal> {
    let place = if malloc.ours { Place::new(wanted) } else { None };
    let modes = place.as_ref().map(|place| place.words(std::env::var_os(MODES)));
    let exec = Exec::new(program, arguments, preload, modes);
    let exec = exec.map_err(|error| program.unfit(&error))?;
    let mut command = Command::new(&program.path);
    command.stdin(stdin);
    match output {
        Output::AsOurs => {}
        Output::ToError => {
            command.stdout(Stdio::from(io::stderr()));
        }
        Output::Nowhere => {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
    // SAFETY: between fork and exec it makes a system call, with memory that was there before.
    unsafe { command.pre_exec(move || Err(exec.call())) };
    let of_ours = Process::This.anonymous();
    let begin = Instant::now();
    let child = command.spawn().map_err(|error| program.unfit(&error))?;
    let process = child.id();
    relay::program_began(process);
    let ended = AtomicBool::new(false);
    let (waited, looks) = thread::scope(|scope| {
        let looks = scope.spawn(|| Looks::while_it_runs(process, begin, &ended));
        let waited = wait(process);
        // Relaxed: the flag carries no data.
        ended.store(true, Ordering::Relaxed);
        looks.thread().unpark();
        (waited, looks.join().unwrap_or_default())
    });
    let wall_s = begin.elapsed().as_secs_f64();
    let (status, usage) =
        waited.map_err(|error| Refusal::unable(anyhow!("cannot wait for the program: {error}")))?;
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Run {
        status,
        wall_s,
        user_s: seconds(usage.ru_utime),
        system_s: seconds(usage.ru_stime),
        peak_kib: looks.peak().max(by_kernel(&usage, of_ours)),
        resident: looks.all,
        tally: place.and_then(|place| place.read(process)),
    })
}

/// A call of execve(2) in a child of fork(2). `Command` would use vfork(2), and the kernel would count all of our memory as
/// the child's peak; after a fork it counts our anonymous memory alone.
struct Exec {
    path: CString,
    /// The texts that the pointers lead to.
    _texts: [Vec<CString>; 2],
    /// The arguments and the environment, each with a null pointer at its end.
    pointers: [Vec<*const libc::c_char>; 2],
}

// SAFETY: the pointers lead to its own texts, which nothing changes.
unsafe impl Send for Exec {}
// SAFETY: as above.
unsafe impl Sync for Exec {}

impl Exec {
    fn new(
        program: &Program,
        arguments: &[OsString],
        preload: Option<OsString>,
        modes: Option<OsString>,
    ) -> io::Result<Exec> {
        let arguments = iter::once(&program.name).chain(arguments);
        let arguments: io::Result<Vec<CString>> =
            arguments.map(|word| text(word.as_bytes())).collect();
        let is_kept = |name: &OsString| name != "LD_PRELOAD" && (name != MODES || modes.is_none());
        let kept = std::env::vars_os().filter(|(name, _)| is_kept(name));
        let kept: Vec<(OsString, OsString)> = kept.collect();
        let set = [("LD_PRELOAD", preload), (MODES, modes)].into_iter();
        let set = set.filter_map(|(name, value)| Some((name.into(), value?)));
        let variables = kept.into_iter().chain(set).map(|(name, value): (OsString, OsString)| {
            text(&[name.as_bytes(), b"=", value.as_bytes()].concat())
        });
        let texts = [arguments?, variables.collect::<io::Result<_>>()?];
        let pointers = texts.each_ref().map(|texts| {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        });
        Ok(Exec { path: text(program.path.as_os_str().as_bytes())?, _texts: texts, pointers })
    }

    /// Makes the call. Returns the reason if it fails.
    fn call(&self) -> io::Error {
        let [arguments, variables] = self.pointers.each_ref().map(|pointers| pointers.as_ptr());
        // SAFETY: texts that end with NUL, and arrays of them that end with a null pointer.
        unsafe { libc::execve(self.path.as_ptr(), arguments, variables) };
        io::Error::last_os_error()
    }
}

fn text(bytes: &[u8]) -> io::Result<CString> {
    Ok(CString::new(bytes)?)
}

/// Returns the most KiB of the program, or of a process that it waited for, as the kernel tells after its end: nothing,
/// if that may be what the child had before it became the program.
fn by_kernel(usage: &libc::rusage, of_ours: Option<u64>) -> Option<u64> {
    /// The allowance for our own growth meanwhile, and for pages of files that the child touches.
    const MORE_KIB: u64 = 512;
    let most = u64::try_from(usage.ru_maxrss).ok()?;
    of_ours.filter(|ours| most > ours + MORE_KIB).map(|_| most)
}

/// Waits until the process has ended; it is waited for only when no signal can be passed on to it any more.
fn wait(process: u32) -> io::Result<(ExitStatus, libc::rusage)> {
    // SAFETY: all-zero bytes are a valid siginfo_t, which is written to.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOWAIT;
    // SAFETY: `info` is valid for writes.
    retried(|| unsafe { libc::waitid(libc::P_PID, process, &mut info, options) })?;
    relay::program_ended();
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid for writes.
    retried(|| unsafe { libc::wait4(process as libc::pid_t, &mut status, 0, &mut usage) })?;
    Ok((ExitStatus::from_raw(status), usage))
}

fn retried(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    loop {
        if call() >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The observed memory of a program.
#[derive(Default)]
struct Looks {
    all: Vec<(f64, u64)>,
    /// The kernel's own account of the program alone, which misses no peak between two looks.
    peak_of_one: Option<u64>,
}

impl Looks {
    fn while_it_runs(process: u32, begin: Instant, ended: &AtomicBool) -> Self {
        let mut looks = Looks::default();
        // Relaxed: see the store.
        while !ended.load(Ordering::Relaxed) {
            let from = Instant::now();
            if let Some(kib) = of_tree(process).filter(|&kib| kib >= LEAST_KIB) {
                looks.add(from.duration_since(begin).as_secs_f64(), kib);
            }
            let peak = Process::Other(process).peak().filter(|&kib| kib >= LEAST_KIB);
            looks.peak_of_one = looks.peak_of_one.max(peak);
            let pause = (begin.elapsed() / 100).clamp(SHORTEST, LONGEST);
            thread::park_timeout(pause.max(from.elapsed() * SHARE));
        }
        looks
    }

    fn add(&mut self, at: f64, kib: u64) {
        if self.all.len() >= MOST {
            let mut nth = 0;
            self.all.retain(|_| {
                nth += 1;
                nth % 2 == 0
            });
        }
        self.all.push((at, kib));
    }

    fn peak(&self) -> Option<u64> {
        self.all.iter().map(|&(_, kib)| kib).max().max(self.peak_of_one)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn sh(script: &str) -> Run {
        let program = Program::find(OsStr::new("sh")).unwrap();
        let args = ["-c".into(), script.into()];
        let libc = Malloc::of_libc();
        once(&program, &args, &libc, None, Stdio::null(), Output::Nowhere, Wanted::Hits).unwrap()
    }

    #[test]
    fn what_a_run_took() {
        let run = sh("sleep 0.2; exit 7");
        assert_eq!(run.status.code(), Some(7));
        assert!(run.wall_s >= 0.2 && run.user_s >= 0.0 && run.system_s >= 0.0);
        assert!(run.peak_kib > Some(0) && !run.resident.is_empty());
        assert!(run.resident.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert_eq!(sh("kill -KILL $$").status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_peak_between_two_looks_is_seen() {
        // The kernel's figure is ignored where it may be that of this process (`by_kernel`), whose other tests may use
        // more.
        let ours = Process::This.anonymous();
        if ours.is_none_or(|kib| kib > 64 << 10) {
            eprintln!(
                "skipped: a_peak_between_two_looks_is_seen: this process had {ours:?} KiB, the program has 80 MiB"
            );
            return;
        }
        // A child of the child, which is waited for.
        let run = sh(
            "sh -c 'x=0123456789abcdef; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; \
                      do x=$x$x; done' ; true",
        );
        assert!(run.peak_kib > Some(32 << 10), "{:?}", run.peak_kib);
    }

    #[test]
    fn looks_are_bounded() {
        let mut looks = Looks::default();
        for at in 0..3 * MOST {
            looks.add(at as f64, at as u64);
        }
        assert!(looks.all.len() <= MOST && looks.all.len() >= MOST / 2);
        assert!(looks.all.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(looks.peak(), Some(3 * MOST as u64 - 1));
        assert_eq!(Looks::default().peak(), None);
    }
}
