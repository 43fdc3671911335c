//! A malloc that `LD_PRELOAD` holds already, as images of containers may set it: a program that is to have libc's
//! malloc would have that one, and figures of libc would be figures of another.
//!
//! Which libraries stay, so that `malloc` is libc's, is asked of processes that preload them: this one to begin
//! with, which was started with the same environment.
//!
//! Invariants:
//! - Only libraries are taken out whose file a process has named as that of its `malloc`.
//! - If `malloc` is not libc's then, there is an error, and no value.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::output::path_line;

use super::{CAN_ASK, Malloc, library, of_this_process, symbols};

/// What the loader preloads into every program.
const FOR_ALL: &str = "/etc/ld.so.preload";

/// `LD_PRELOAD` as programs are to find it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preloaded {
    /// For those that get a malloc.
    before: Option<OsString>,
    /// For those that are to have libc's.
    of_libc: Option<OsString>,
    /// What was taken out for these.
    pub taken: Vec<OsString>,
}

impl Preloaded {
    /// Returns what we were started with; where one of `mallocs` is libc's, without a malloc for it.
    ///
    /// # Errors
    /// When a malloc cannot be taken out: what to do.
    pub fn of(mallocs: &[Malloc]) -> anyhow::Result<Self> {
        let before = std::env::var_os("LD_PRELOAD");
        let is_libc_wanted = mallocs.iter().any(|malloc| malloc.library.is_none());
        let entries = words(before.as_deref());
        let (kept, taken) = match is_libc_wanted {
            false => (entries, Vec::new()),
            true if CAN_ASK => without_malloc(entries, of_this_process(), asked)?,
            true => unasked(entries)?,
        };
        let of_libc = match taken.is_empty() {
            true => before.clone(),
            false => Some(joined(&kept)).filter(|value| !value.is_empty()),
        };
        Ok(Preloaded { before, of_libc, taken })
    }

    /// Returns the value for a program that is to have this malloc.
    pub fn with(&self, malloc: &Malloc) -> Option<OsString> {
        match malloc.library {
            None => self.of_libc.clone(),
            Some(_) => malloc.preload(self.before.as_deref()),
        }
    }
}

/// Entries without those that bring a malloc, and these. `malloc` is where it is with all of them; `ask` tells where
/// it is with others.
fn without_malloc(
    mut kept: Vec<OsString>,
    mut malloc: PathBuf,
    ask: impl Fn(&OsStr) -> anyhow::Result<PathBuf>,
) -> anyhow::Result<(Vec<OsString>, Vec<OsString>)> {
    let mut taken = Vec::new();
    if malloc.as_os_str().is_empty() || library::is_libc(&malloc) {
        return Ok((kept, taken));
    }
    // What is there where nothing is preloaded.
    let libcs = if kept.is_empty() { malloc.clone() } else { ask(OsStr::new(""))? };
    if !library::is_libc(&libcs) && Path::new(FOR_ALL).exists() {
        bail!(
            "libc's malloc cannot be used: programs get that of {} even without LD_PRELOAD; remove it from \
             {FOR_ALL}",
            path_line(&libcs)
        );
    }
    while malloc != libcs {
        let is_named = kept.iter().any(|entry| is_file(entry, &malloc));
        let brings = |entry: &OsString| match is_named {
            true => is_file(entry, &malloc),
            // The loader knows more names of a file than its path.
            false => ask(entry).is_ok_and(|alone| alone == malloc),
        };
        let (out, rest): (Vec<_>, Vec<_>) = kept.into_iter().partition(brings);
        if out.is_empty() {
            bail!(
                "libc's malloc cannot be used: LD_PRELOAD loads that of {}, but no single library in it does; \
                 unset LD_PRELOAD",
                path_line(&malloc)
            );
        }
        kept = rest;
        taken.extend(out);
        malloc = ask(&joined(&kept))?;
    }
    Ok((kept, taken))
}

/// Returns `true` if an entry means this file, whose path is canonical.
fn is_file(entry: &OsStr, file: &Path) -> bool {
    let entry = Path::new(entry);
    let is_name = !entry.as_os_str().as_bytes().contains(&b'/');
    // The loader finds names in folders, where they may be links.
    let named = file.parent().filter(|_| is_name).map(|folder| folder.join(entry));
    let path = named.unwrap_or_else(|| entry.to_owned());
    path.canonicalize().is_ok_and(|path| path == file)
}

/// Returns where the malloc of a process with this value is.
fn asked(value: &OsStr) -> anyhow::Result<PathBuf> {
    match value.to_str() {
        Some(value) => library::with_preload(value),
        None => bail!("LD_PRELOAD is not valid UTF-8; unset LD_PRELOAD"),
    }
}

/// Returns what files say of themselves: there is no loader to ask.
fn unasked(entries: Vec<OsString>) -> anyhow::Result<(Vec<OsString>, Vec<OsString>)> {
    let is_name = |entry: &&OsString| !entry.as_bytes().contains(&b'/');
    if let Some(name) = entries.iter().find(is_name) {
        bail!(
            "it is unknown whether {} in LD_PRELOAD is a malloc: this program was linked without a dynamic \
             loader; unset LD_PRELOAD",
            path_line(Path::new(name))
        );
    }
    let brings = |entry: &OsString| symbols::defines(Path::new(entry), "malloc").unwrap_or(false);
    let (taken, kept) = entries.into_iter().partition(brings);
    Ok((kept, taken))
}

/// Returns the entries of a value, as the dynamic loader takes it apart.
fn words(value: Option<&OsStr>) -> Vec<OsString> {
    let bytes = value.map(OsStr::as_bytes).unwrap_or_default();
    let words = bytes.split(|byte| b": ".contains(byte)).filter(|word| !word.is_empty());
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}

fn joined(entries: &[OsString]) -> OsString {
    entries.join(OsStr::new(":"))
}

#[cfg(test)]
mod tests;
