//! The mallocs of this machine, and how a program gets one of them: by `LD_PRELOAD`.
//!
//! ```text
//!   library.rs  which there are: the dynamic loader is asked
//!   carried.rs  ours, which this command has inside
//!   elf.rs      what a file is, as far as preloading depends on it
//!   symbols.rs  whether a program brings a malloc itself
//!   resident.rs memory of processes, as /proc tells it
//! ```
//!
//! Invariants:
//! - A malloc counts as there when a process that preloads it says that its `malloc` is in that file, or, for a command
//!   without a dynamic loader, when the file defines `malloc`. Nothing is concluded from names of files.
//! - No malloc but libc's is ever loaded into this process.

pub mod carried;
pub mod elf;
pub mod library;
pub mod resident;
pub mod symbols;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;

use crate::output::{self, path_line};

/// Runs `corelocal malloc-path`.
pub fn print_path() -> anyhow::Result<ExitCode> {
    let path = library::ours()?.alone();
    output::finish(format_args!("{path}\n"), ExitCode::SUCCESS)
}

/// A malloc that programs can be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malloc {
    /// Short and stable: `libc`, `corelocal`, `jemalloc`; of others, the name of the file.
    pub id: String,
    /// The name that a reader sees.
    pub label: String,
    /// Whether it is corelocal's.
    pub ours: bool,
    /// The file; `None` for libc's own, which is there anyway.
    pub library: Option<PathBuf>,
}

impl Malloc {
    /// Returns the one of libc.
    pub fn of_libc() -> Self {
        let version = crate::machine::libc_version();
        let label = if version.is_empty() { "libc".to_owned() } else { version };
        Malloc { id: "libc".to_owned(), label, ours: false, library: None }
    }

    /// Returns what `LD_PRELOAD` has to be for a program to have it, where it was `before`.
    pub fn preload(&self, before: Option<&OsStr>) -> Option<OsString> {
        let Some(library) = &self.library else { return before.map(OsStr::to_owned) };
        let mut value = library.clone().into_os_string();
        if let Some(before) = before.filter(|before| !before.is_empty()) {
            value.push(":");
            value.push(before);
        }
        Some(value)
    }

    /// Returns the value of `LD_PRELOAD` for a child process that is to have this malloc and no other.
    pub fn alone(&self) -> String {
        let library = self.library.as_deref().unwrap_or(Path::new(""));
        library.to_string_lossy().into_owned()
    }
}

/// Returns where the `malloc` of this process is; empty in a program without a dynamic loader.
pub fn of_this_process() -> PathBuf {
    // SAFETY: RTLD_DEFAULT is a valid handle, and the name ends with a zero byte.
    let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    if malloc.is_null() {
        return PathBuf::new();
    }
    // SAFETY: all-zero bytes are a valid Dl_info, whose pointers may be null.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for writes; any address may be asked about.
    let found = unsafe { libc::dladdr(malloc, &mut info) } != 0 && !info.dli_fname.is_null();
    if !found {
        return PathBuf::new();
    }
    // SAFETY: the loader's own name of an object that is loaded, which stays as long as the object does.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Checks that programs get libc's malloc unless they are given another one.
///
/// # Errors
/// `LD_PRELOAD` or `/etc/ld.so.preload` names a malloc: what to do.
pub fn libc_is_default() -> anyhow::Result<()> {
    if !CAN_ASK && std::env::var_os("LD_PRELOAD").is_some_and(|value| !value.is_empty()) {
        bail!(
            "it is unknown whether LD_PRELOAD holds a malloc: this command was linked without a dynamic loader; unset \
             LD_PRELOAD"
        );
    }
    let malloc = of_this_process();
    if malloc.as_os_str().is_empty() || library::is_libc(&malloc) {
        return Ok(());
    }
    bail!(
        "libc's malloc cannot be used: LD_PRELOAD or /etc/ld.so.preload gives programs that of {}; remove it there, \
         for example by `env -u LD_PRELOAD corelocal ...`",
        path_line(&malloc)
    );
}

/// Whether a program that links to its libraries at run time can be given a malloc from here: not by
/// one that was linked without a dynamic loader, since it could not look anything up.
pub const CAN_ASK: bool = !cfg!(target_feature = "crt-static");

#[cfg(test)]
mod tests {
    use super::*;

    fn malloc(library: Option<&str>) -> Malloc {
        let library = library.map(PathBuf::from);
        Malloc { id: "x".to_owned(), label: "x".to_owned(), ours: false, library }
    }

    #[test]
    fn what_is_preloaded_stays() {
        let before = Some(OsStr::new("/a.so"));
        assert_eq!(malloc(Some("/m.so")).preload(None), Some("/m.so".into()));
        assert_eq!(malloc(Some("/m.so")).preload(before), Some("/m.so:/a.so".into()));
        assert_eq!(malloc(Some("/m.so")).preload(Some(OsStr::new(""))), Some("/m.so".into()));
        assert_eq!(malloc(None).preload(before), Some("/a.so".into()));
        assert_eq!(malloc(None).preload(None), None);
        assert_eq!(malloc(None).alone(), "");
    }

    #[test]
    fn this_process_has_a_malloc() {
        if !CAN_ASK {
            return eprintln!("skipped: this_process_has_a_malloc: linked without a loader");
        }
        let path = of_this_process();
        assert!(path.is_absolute() && path.is_file(), "{path:?}");
    }
}
