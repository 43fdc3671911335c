//! The malloc that this command carries: a shared library, which is unpacked into the user's cache folder to be preloaded.
//!
//! # Invariants
//! 1. A file is used only if it has the bytes that this command carries. They are compared each time.
//! 2. Each version has a folder of its own, so programs that have an older one loaded keep it.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::library::OURS;
use crate::output::path_line;

/// The library; empty if the build made none.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcorelocal_malloc.so"));
/// Why the build made none.
pub const WHY_NOT: &str = env!("CORELOCAL_NO_MALLOC");

/// Whether there is one.
pub fn is_there() -> bool {
    !LIBRARY.is_empty()
}

/// Returns the path of the unpacked library, and unpacks it first if necessary.
///
/// # Errors
/// The cache folder is unknown, or cannot be written.
pub fn unpacked() -> anyhow::Result<PathBuf> {
    let mut sum = flate2::Crc::new();
    sum.update(LIBRARY);
    let version = format!("{}-{:08x}", env!("CARGO_PKG_VERSION"), sum.sum());
    unpack(&cache_folder()?.join("corelocal").join(version), LIBRARY)
}

/// The user's folder for files that can be made again (XDG Base Directory Specification).
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

fn unpack(folder: &Path, library: &[u8]) -> anyhow::Result<PathBuf> {
    let path = folder.join(OURS);
    if std::fs::read(&path).is_ok_and(|found| found == library) {
        return Ok(path);
    }
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let readable = std::fs::Permissions::from_mode(0o644);
        let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(folder)?;
        file.write_all(library)?;
        file.persist(&path)?;
        Ok(())
    };
    write().with_context(|| {
        format!(
            "cannot unpack {OURS} into {}; set XDG_CACHE_HOME to a folder that can be written",
            path_line(folder)
        )
    })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_unpacked_once_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a/b");
        let path = unpack(&place, b"library").unwrap();
        let made = || std::fs::metadata(&path).unwrap().modified().unwrap();
        let first = made();
        assert_eq!(unpack(&place, b"library").unwrap(), path);
        assert_eq!(made(), first);
        std::fs::write(&path, "librarx").unwrap();
        unpack(&place, b"library").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"library");
        // The temporary file is gone.
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_made_says_what_to_do() {
        let error = format!("{:#}", unpack(Path::new("/proc/no"), b"library").unwrap_err());
        assert!(error.contains("XDG_CACHE_HOME") && error.contains("/proc/no"), "{error}");
    }
}
