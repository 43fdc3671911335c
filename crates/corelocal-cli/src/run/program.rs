//! Which file is meant, and whether a malloc can be preloaded into it.
//!
//! `LD_PRELOAD` is the dynamic loader's: a program without one has its malloc inside, one that defines malloc is
//! where the loader looks first, and one that gains rights when it starts must not be told what to load.
//!
//! Invariant: what is refused here would have run without the malloc, or not at all.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use corelocal_support::mallocs::{Malloc, elf, symbols};
use corelocal_support::output::path_line;

/// The exit code of what cannot be done.
pub const UNABLE: u8 = 125;

/// The reason why a program is not run, with the exit code.
#[derive(Debug)]
pub struct Refusal {
    pub code: u8,
    pub why: anyhow::Error,
}

impl Refusal {
    /// Returns what was asked for cannot be done.
    pub fn unable(why: anyhow::Error) -> Self {
        Refusal { code: UNABLE, why }
    }

    /// Says that the program cannot be run this way.
    pub fn unfit(why: String) -> Self {
        Refusal { code: 126, why: anyhow!(why) }
    }

    fn missing(why: String) -> Self {
        Refusal { code: 127, why: anyhow!(why) }
    }
}

/// The maximum depth of scripts that interpret scripts, as in the kernel.
const MOST_SCRIPTS: usize = 4;

/// A program that is there.
#[derive(Debug)]
pub struct Program {
    /// The name as the user gave it.
    pub name: std::ffi::OsString,
    /// The program's path.
    pub path: PathBuf,
}

impl Program {
    /// Finds it as a shell does.
    ///
    /// # Errors
    /// When there is none, or it is not one.
    pub fn find(name: &OsStr) -> Result<Self, Refusal> {
        let shown = path_line(Path::new(name));
        let path = if name.as_bytes().contains(&b'/') {
            PathBuf::from(name)
        } else {
            let folders =
                std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
            let paths = std::env::split_paths(&folders).map(|folder| folder.join(name));
            let found: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
            let runnable = found.iter().find(|path| may_run(path)).or(found.first()).cloned();
            runnable.filter(|_| !name.is_empty()).ok_or_else(|| {
                Refusal::missing(format!(
                    "there is no program {shown} in PATH; if it is elsewhere, give its path"
                ))
            })?
        };
        match fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Refusal::missing(format!("there is no program {shown}")))
            }
            Err(error) => Err(Refusal::unfit(format!("cannot run {shown}: {error}"))),
            Ok(meta) if !meta.is_file() => {
                Err(Refusal::unfit(format!("cannot run {shown}: it is not a file")))
            }
            Ok(_) if !may_run(&path) => Err(Refusal::unfit(format!(
                "cannot run {shown}: no permission to execute {}",
                path_line(&path)
            ))),
            Ok(_) => Ok(Program { name: name.to_owned(), path }),
        }
    }

    /// Returns why the kernel does not start it.
    pub fn unfit(&self, error: &std::io::Error) -> Refusal {
        let shown = path_line(&self.path);
        let why = match (error.raw_os_error(), self.interpreter()) {
            (Some(libc::ENOENT), Ok(other)) if other != self.path => format!(
                "cannot run {shown}: its first line names {}, which does not exist",
                path_line(&other)
            ),
            (Some(libc::ENOEXEC), _) => format!(
                "cannot run {shown}: it is neither a program nor a script with a #! line; for a shell script \
                 use `sh {shown}`"
            ),
            _ => format!("cannot run {shown}: {error}"),
        };
        Refusal::unfit(why)
    }

    /// Checks whether a malloc can be preloaded.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn takes(&self, malloc: &Malloc) -> Result<(), Refusal> {
        let Some(library) = &malloc.library else { return Ok(()) };
        let program = self.interpreter()?;
        let shown = match program == self.path {
            true => path_line(&program),
            false => format!("{} is run by {}, which", path_line(&self.path), path_line(&program)),
        };
        if gains_rights(&program) {
            return Err(Refusal::unfit(format!(
                "{shown} gains privileges when it starts (setuid, setgid or capabilities), so the dynamic \
                 loader ignores LD_PRELOAD; run it as the user that it becomes"
            )));
        }
        // A program that may be executed but not read is run as it is.
        let Ok(Some(elf)) = elf::read(&program) else { return Ok(()) };
        if let Some(how) = symbols::malloc_inside(&program) {
            let what = "it has a built-in malloc that cannot be replaced; build it as a dynamic program without \
                 one";
            return Err(Refusal::unfit(format!(
                "{shown} {how}: {what}, or with this malloc linked in"
            )));
        }
        match elf::read(library) {
            Ok(Some(brings)) if !elf.fits(&brings) => Err(Refusal::unfit(format!(
                "{shown} is for {}, the malloc {} for {}",
                elf.kind(),
                path_line(library),
                brings.kind()
            ))),
            _ => match (elf::libc_of(&program), elf::libc_of(library)) {
                (Some(libc), Some(other)) if libc != other => Err(Refusal::unfit(format!(
                    "{shown} is linked with {}, the malloc {} with {}; preload a malloc that was built for {} \
                     (docs/porting.md)",
                    libc.name(),
                    path_line(library),
                    other.name(),
                    libc.name()
                ))),
                _ => Ok(()),
            },
        }
    }

    /// Returns how its malloc comes to be inside, if it is: then it has that one, whatever it is to have.
    pub fn malloc_inside(&self) -> Option<&'static str> {
        symbols::malloc_inside(&self.interpreter().ok()?)
    }

    /// Returns `true` if it may be a Rust program with our malloc as `CoreLocal`.
    pub fn has_core_local(&self) -> bool {
        self.interpreter().is_ok_and(|program| symbols::has_core_local(&program))
    }

    /// Returns the program itself, or the one that runs it if it is a script; through env(1), too.
    fn interpreter(&self) -> Result<PathBuf, Refusal> {
        let mut path = self.path.clone();
        for _ in 0..MOST_SCRIPTS {
            let Ok(Some(line)) = elf::interpreter(&path) else { break };
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let Some(first) = words.next() else { break };
            let first = Path::new(OsStr::from_bytes(first));
            let is_env = first.file_name() == Some(OsStr::new("env"));
            // Its options and settings come before the program.
            let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
            path = match named.filter(|_| is_env) {
                Some(name) => Program::find(OsStr::from_bytes(name))?.path,
                None => first.to_owned(),
            };
        }
        Ok(path)
    }
}

fn may_run(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path ends with a zero byte.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

/// Returns `true` if the kernel will set AT_SECURE for it.
fn gains_rights(path: &Path) -> bool {
    let Ok(meta) = fs::metadata(path) else { return false };
    // SAFETY: neither call takes anything.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let becomes_user = meta.mode() & libc::S_ISUID != 0 && meta.uid() != user;
    let becomes_group =
        meta.mode() & libc::S_ISGID != 0 && meta.mode() & libc::S_IXGRP != 0 && meta.gid() != group;
    becomes_user || becomes_group || (user != 0 && has_capabilities(path))
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: both texts end with a zero byte; with no room given, nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests;
