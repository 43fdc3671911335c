//! Why a program left no profile.
//!
//! While it runs, we look from time to time at what it is: it may become another program, into which the malloc was not
//! preloaded. What is too quick for that is known by its name alone, which the kernel keeps until we have taken its status.
//!
//! Invariant: a cause is named only if it was seen; else the message names what it may have been.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use corelocal_support::output::{one_line, path_line};
use corelocal_support::process::proc_files;

use crate::run::program::Program;

/// The kernel keeps so many bytes of a program's name.
const NAME: usize = 15;

/// What the program was when we last looked.
#[derive(Debug)]
pub struct Seen {
    /// The file that runs if it is the program that was named, and its name.
    first: Option<PathBuf>,
    first_name: Vec<u8>,
    /// The last file that was seen to run.
    last: Option<Running>,
    /// The name that it has, or had at its end.
    name: Vec<u8>,
}

#[derive(Debug)]
struct Running {
    file: PathBuf,
    name: Vec<u8>,
    /// Whether it was started with a library to preload.
    is_preloaded: bool,
}

impl Seen {
    /// Creates that of a program that begins.
    pub fn new(program: &Program) -> Seen {
        let name = program.path.file_name().unwrap_or_default().as_bytes();
        let first_name = name[..name.len().min(NAME)].to_owned();
        Seen { first: program.file(), first_name, last: None, name: Vec::new() }
    }

    /// Looks; to be called before its status is taken, too.
    pub fn look(&mut self, process: u32) {
        let name = proc_files::bytes(process, "comm");
        let name = name.strip_suffix(b"\n").unwrap_or(&name).to_owned();
        let file = || std::fs::read_link(format!("/proc/{process}/exe")).ok();
        match (file(), &mut self.last) {
            // What has ended has a name, but no file.
            (None, _) => {}
            // A program may write its title over its environment, which is looked at once.
            (Some(now), Some(last)) if last.is_preloaded && last.file == now => {
                last.name.clone_from(&name);
            }
            (Some(_), last) => {
                let environment = proc_files::environment(process);
                let mut words = environment.split(|byte| *byte == 0);
                let is_preloaded = words.any(|word| word.starts_with(b"LD_PRELOAD="));
                // The kernel lets us read both or neither. If the file is gone, the program has ended meanwhile.
                if let Some(file) = file() {
                    *last = Some(Running { file, name: name.clone(), is_preloaded });
                }
            }
        }
        self.name = name;
    }

    /// Returns the other program that it became, and why that has no profile, as far as that is known.
    fn other(&self) -> Option<(String, Option<String>)> {
        let last_name = self.last.as_ref().map_or(&self.first_name, |last| &last.name);
        if !self.name.is_empty() && self.name != *last_name {
            let name = one_line(String::from_utf8_lossy(&self.name).into_owned());
            let why = "which is linked statically, has a built-in malloc, or was started without corelocal's \
                 environment variables (unless the process only renamed itself)";
            return Some((name, Some(why.to_owned())));
        }
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        if last.file == *first {
            return None;
        }
        let program = Program { name: (&last.file).into(), path: last.file.clone() };
        let why = program.without_preload().or_else(|| {
            (!last.is_preloaded).then(|| {
                "which was started without LD_PRELOAD and CORELOCAL_MALLOC, for example by `env -i`".to_owned()
            })
        });
        Some((path_line(&last.file), why))
    }

    /// Returns why nothing was written.
    pub fn nothing(&self, status: ExitStatus, rate: u64) -> String {
        let end = "Let it exit normally; or give --for TIME, after which it is asked for a profile; or call \
             corelocal_malloc_profile(NULL) in it";
        if let Some((name, why)) = self.other() {
            let why = why.unwrap_or_else(|| {
                "which ended by _exit(2) or a signal, or still runs in the background".to_owned()
            });
            return format!(
                "no process of the program wrote a profile: it executed another program, {name}, {why}. Run \
                 that program directly, if it can use another malloc"
            );
        }
        let why = match (status.signal(), status.code()) {
            (Some(signal), _) => {
                format!("it ended by signal {signal}, which leaves no time to write one")
            }
            (None, Some(127)) => {
                return "no process of the program wrote a profile: it ended with exit code 127, as if the \
                     dynamic loader could not load it or a shell did not find a command; see the message above"
                    .to_owned();
            }
            _ => "it ended by _exit(2), or still runs in the background".to_owned(),
        };
        format!(
            "no process of the program wrote a profile: {why}. {end} (one object was sampled for each {rate} bytes)"
        )
    }

    /// Returns why it was not asked for a profile by this signal.
    pub fn deaf(&self, signal: libc::c_int) -> String {
        let why = match self.other() {
            Some((name, why)) => {
                let why = why.map_or_else(String::new, |why| format!(", {why}"));
                format!(
                    "It executed another program, {name}{why}: run that program directly, if it can use another \
                     malloc"
                )
            }
            None => "Either it had only just started (give a longer --for TIME), or it removed the handler".to_owned(),
        };
        format!(
            "the program was ended without a profile: it has no handler for signal {signal}, which requests one \
             and would have ended it. {why}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(first: &str, last: &str, name: &str) -> Seen {
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).as_bytes().to_owned();
        let running = Running { file: last.into(), name: base(last), is_preloaded: true };
        Seen {
            first: Some(first.into()),
            first_name: base(first),
            last: Some(running),
            name: name.into(),
        }
    }

    #[test]
    fn causes() {
        let ended = |raw| ExitStatus::from_raw(raw);
        let same = seen("/bin/sh", "/bin/sh", "sh");
        for (status, words) in [
            (ended(9), "signal 9"),
            (ended(127 << 8), "the dynamic loader"),
            (ended(0), "_exit(2)"),
        ] {
            let said = same.nothing(status, 7);
            assert!(said.contains(words) && !said.contains("another program"), "{said}");
        }
        assert!(same.deaf(61).contains("only just started"));
        // Known by its name alone.
        let quick = seen("/bin/sh", "/bin/sh", "server");
        let said = [quick.nothing(ended(0), 7), quick.deaf(61)];
        assert!(
            said.iter().all(|said| said.contains("another program, server, which is")),
            "{said:?}"
        );
        // Seen while it ran.
        let mut other = seen("/bin/sh", "/no/such/server", "server");
        assert!(other.nothing(ended(0), 7).contains("/no/such/server, which ended"));
        other.last.as_mut().expect("a program").is_preloaded = false;
        assert!(other.deaf(61).contains("started without LD_PRELOAD"));
        // What cannot be looked at is not said to be another.
        assert!(seen("/bin/sh", "/bin/sh", "").nothing(ended(0), 7).contains("_exit(2)"));
        // One that gave itself a name is the same.
        let mut renamed = seen("/bin/sh", "/bin/sh", "sh: idle");
        renamed.last.as_mut().expect("a program").name = b"sh: idle".to_vec();
        assert!(renamed.nothing(ended(0), 7).contains("_exit(2)"));
    }
}
