//! The malloc that this command carries: a shared library. Where the same one is installed with the command that file is
//! preloaded, else it is unpacked into the user's cache folder.
//!
//! # Invariants
//! 1. A file is used only if it has the bytes that this command carries. They are compared each time.
//! 2. Each version has a folder of its own, so programs that have an older one loaded keep it.
//! 3. Between the comparison and the loader's look at the path no other user can put something else there: the file, its folder
//!    and all folders above it are this user's or root's, and only they may change names in them (`sys/file/trust.rs`).

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use corelocal::sys;

use crate::output::path_line;

/// The library's name.
pub const OURS: &str = "libcorelocal_malloc.so";
/// The library; empty if the build made none.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcorelocal_malloc.so"));
/// The reason why the build made no library.
pub const WHY_NOT: &str = env!("CORELOCAL_NO_MALLOC");

/// Returns `true` if there is one.
pub fn is_there() -> bool {
    !LIBRARY.is_empty()
}

/// Returns the path of the library that is installed with this command, below the same folder: packages have it in
/// `lib/x86_64-linux-gnu`, other installations in `lib`. `None` if there is none that has the bytes of ours, or another
/// user could exchange it.
pub fn installed() -> Option<PathBuf> {
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).ok()?;
    installed_beside(program.parent()?, LIBRARY)
}

fn installed_beside(folder: &Path, library: &[u8]) -> Option<PathBuf> {
    let packages = format!("../lib/{}-linux-gnu", std::env::consts::ARCH);
    let places = [packages.as_str(), "../lib"];
    let mut found =
        places.iter().filter_map(|place| folder.join(place).join(OURS).canonicalize().ok());
    found.find(|path| {
        path.ancestors().skip(1).all(is_trusted) && has_content(path, library).unwrap_or(false)
    })
}

/// Returns the path of the unpacked library, and unpacks it first if necessary.
///
/// # Errors
/// The cache folder is unknown, or cannot be written.
pub fn unpacked() -> anyhow::Result<PathBuf> {
    let mut sum = flate2::Crc::new();
    sum.update(LIBRARY);
    let version = format!("{}-{:08x}", env!("CARGO_PKG_VERSION"), sum.sum());
    unpack(&cache_folder()?, &version, LIBRARY)
}

/// Returns the user's folder for files that can be made again (XDG Base Directory Specification).
fn cache_folder() -> anyhow::Result<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute())
    };
    match folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache"))) {
        Some(folder) => Ok(folder),
        None => {
            bail!("cannot unpack {OURS}: HOME is not set; set XDG_CACHE_HOME to a folder for it")
        }
    }
}

/// Unpacks the library of a version below the cache folder.
fn unpack(cache: &Path, version: &str, library: &[u8]) -> anyhow::Result<PathBuf> {
    const DO: &str = "set XDG_CACHE_HOME to a folder of your own that can be written";
    let refuse = |place: &Path| match place.ancestors().find(|folder| !is_trusted(folder)) {
        Some(other) => bail!(
            "cannot use {OURS} in {}: another user owns or may change {}; {DO}",
            path_line(cache),
            path_line(other)
        ),
        None => Ok(()),
    };
    // Before anything is made: nothing of ours is left in another user's folder.
    let there = cache.ancestors().find_map(|folder| folder.canonicalize().ok());
    there.as_deref().map_or(Ok(()), refuse)?;
    let folder = made(cache, version)
        .with_context(|| format!("cannot unpack {OURS} into {}; {DO}", path_line(cache)))?;
    refuse(&folder)?;
    let path = folder.join(OURS);
    if has_content(&path, library).unwrap_or(false) {
        return Ok(path);
    }
    let write = || -> io::Result<()> {
        let readable = Permissions::from_mode(0o644);
        let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(&folder)?;
        // Past a limit of the process on the length of files this is an error, and the temporary file goes.
        let number = |error: io::Error| sys::Errno(error.raw_os_error().unwrap_or(libc::EIO));
        sys::without_sigxfsz(|| file.write_all(library).map_err(number))
            .map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        file.persist(&path)?;
        match has_content(&path, library)? {
            true => Ok(()),
            false => Err(io::Error::other("the file is not as it was written")),
        }
    };
    write().with_context(|| format!("cannot unpack {OURS} into {}; {DO}", path_line(&folder)))?;
    Ok(path)
}

/// Makes a folder for the version, below one of ours, for this user alone. Returns its path without links.
fn made(cache: &Path, version: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(cache)?;
    let ours = cache.join("corelocal");
    let folder = ours.join(version);
    for folder in [&ours, &folder] {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Earlier versions made it for all. Another user's is refused afterwards.
                let about = fs::symlink_metadata(folder)?;
                // SAFETY: no preconditions.
                if about.is_dir() && about.uid() == unsafe { libc::geteuid() } {
                    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
                }
            }
            made => made?,
        }
    }
    folder.canonicalize()
}

/// Returns `true` if only this user and root can change names in a folder.
fn is_trusted(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|about| {
        about.is_dir() && sys::is_trusted_folder(about.uid(), about.gid(), about.mode())
    })
}

/// Returns `true` if the file may be loaded, and has this content. Waits for nothing, and reads no more than that.
fn has_content(path: &Path, content: &[u8]) -> io::Result<bool> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !sys::is_trusted_file(file.as_raw_fd()) || file.metadata()?.len() != content.len() as u64 {
        return Ok(false);
    }
    let mut found = Vec::with_capacity(content.len());
    file.take(content.len() as u64 + 1).read_to_end(&mut found)?;
    Ok(found == content)
}

#[cfg(test)]
mod tests;
