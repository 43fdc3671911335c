//! Running programs with a malloc.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The programs.
pub const TRY: &str = env!("CARGO_BIN_EXE_try-malloc");

/// A program that is not done by then hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// A malloc: its name, and its library unless it is libc's.
#[derive(Clone, Debug)]
pub struct Malloc {
    pub name: &'static str,
    pub library: Option<PathBuf>,
}

/// Libc's.
pub const LIBC: Malloc = Malloc { name: "libc", library: None };

/// The one that is to be tested, if there is one.
pub fn ours() -> Result<Malloc, String> {
    static OURS: OnceLock<Result<Malloc, String>> = OnceLock::new();
    OURS.get_or_init(|| {
        let beside = || {
            let folder = Path::new(TRY).parent().unwrap_or(Path::new("."));
            // A build leaves the first, `cargo test` the second, which is the same.
            ["libcorelocal_malloc.so", "examples/libpreload.so"].map(|place| folder.join(place))
        };
        let library = match std::env::var_os("CORELOCAL_MALLOC_LIBRARY") {
            Some(path) => PathBuf::from(path),
            None => beside().into_iter().find(|path| path.is_file()).ok_or(
                "no libcorelocal_malloc.so beside the tests: `cargo build -p corelocal-malloc` makes it, and \
                 CORELOCAL_MALLOC_LIBRARY may name one",
            )?,
        };
        let library = fs::canonicalize(&library).map_err(|why| format!("{}: {why}", library.display()))?;
        Ok(Malloc { name: "corelocal", library: Some(library) })
    })
    .clone()
}

/// Libc's and ours; that ours is missing is said as `test`'s reason.
pub fn all(test: &str) -> Vec<Malloc> {
    let mut all = vec![LIBC];
    all.extend(only_ours(test));
    all
}

/// Ours; that it is missing is said as `test`'s reason.
pub fn only_ours(test: &str) -> Option<Malloc> {
    match ours() {
        Ok(ours) => {
            let whose = ours.run(TRY, ["where"]).out;
            let library = ours.library.clone().unwrap_or_default();
            assert_eq!(Path::new(whose.trim()), library, "the library is not preloaded");
            Some(ours)
        }
        // A library that was named explicitly and is missing is an error.
        Err(why) if std::env::var_os("CORELOCAL_MALLOC_LIBRARY").is_some() => panic!("{why}"),
        Err(why) => {
            crate::skip(test, &why);
            None
        }
    }
}

/// What a program did.
pub struct Done {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
    pub hung: bool,
}

impl Done {
    /// Whether it ended with exit code 0, in time.
    pub fn well(&self) -> bool {
        self.status.success() && !self.hung
    }

    /// All that is to be told.
    pub fn whole(&self) -> String {
        let end = match (self.hung, self.status.signal()) {
            (true, _) => format!("hung for {} s and was ended", LIMIT.as_secs()),
            (_, Some(signal)) => format!("ended by signal {signal}"),
            _ => self.status.to_string(),
        };
        format!(
            "{end}\n--- standard output\n{}\n--- standard error\n{}",
            last(&self.out),
            last(&self.err)
        )
    }
}

/// The end of a long text.
fn last(text: &str) -> &str {
    const MOST: usize = 6000;
    let mut from = text.len().saturating_sub(MOST);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

impl Malloc {
    /// A command that runs a program with it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        match &self.library {
            Some(library) => command.env("LD_PRELOAD", library),
            None => command.env_remove("LD_PRELOAD"),
        };
        command
    }

    /// Runs a program to its end.
    pub fn run<S: AsRef<OsStr>>(&self, program: &str, args: impl IntoIterator<Item = S>) -> Done {
        let mut command = self.command(program);
        command.args(args);
        done(command)
    }

    /// Runs one of `try-malloc`, which must end well.
    pub fn tries(&self, args: &[&str]) -> Done {
        let done = self.run(TRY, args);
        assert!(done.well(), "{args:?} with {}: {}", self.name, done.whole());
        done
    }
}

/// Runs a command to its end; it leads a group of processes, which ends with it.
pub fn done(mut command: Command) -> Done {
    let folder = TempDir::new().expect("a temporary folder");
    let file = |name: &str| File::create(folder.path().join(name)).expect("a new file");
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(why) => panic!("{command:?}: {why}"),
    };
    let began = Instant::now();
    let (mut hung, mut pause) = (false, Duration::from_millis(1));
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if began.elapsed() > LIMIT && !hung {
            hung = true;
            end_group(child.id());
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let text = |name: &str| {
        let bytes = fs::read(folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Done { status, out: text("out"), err: text("err"), hung }
}

/// Ends a group of processes.
pub fn end_group(leader: u32) {
    // SAFETY: a group that a child of ours leads, which was not waited for.
    unsafe { libc::kill(-(leader as libc::pid_t), libc::SIGKILL) };
}

/// What there is little of.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    AddressSpace,
    Data,
}

/// Lets a command run with so many bytes and no more.
pub fn limited(command: &mut Command, what: Limit, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: between fork and exec the closure makes one system call.
    unsafe {
        command.pre_exec(move || {
            let failed = match what {
                Limit::AddressSpace => libc::setrlimit(libc::RLIMIT_AS, &limit),
                Limit::Data => libc::setrlimit(libc::RLIMIT_DATA, &limit),
            };
            if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
}

/// Where a program is that may not be installed.
pub fn installed(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A count, scaled for machines that are emulated.
pub fn scaled(count: u64) -> String {
    let scale =
        std::env::var("CORELOCAL_TEST_SCALE").ok().and_then(|scale| scale.parse::<f64>().ok());
    ((count as f64 * scale.unwrap_or(1.0)) as u64).max(1).to_string()
}
