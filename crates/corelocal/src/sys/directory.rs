//! A directory in which files are made, opened and renamed by name.
//!
//! Every call starts at the directory's descriptor. So a path whose middle is changed meanwhile does not lead to
//! another directory between two calls.
//!
//! # Invariants
//! 1. A [`Directory`] is an open descriptor of a directory, closed once.
//! 2. No call follows a symbolic link that stands under the name.

use core::ffi::{CStr, c_int};

use super::errno::Errno;
use super::file::PathBuf;
use super::named_file::{self, NotOpened};
use super::shared_file::{self, FileStatus, SharedFile, checked};

/// The bit of a mode that lets only the owner of a name take it away (`S_ISVTX`), as `/tmp` has it.
const STICKY: u32 = 0o1000;

/// An open directory.
pub(crate) struct Directory(c_int);

impl Directory {
    /// Opens a directory.
    pub(crate) fn open(path: &CStr) -> Result<Directory, Errno> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        loop {
            // SAFETY: the path ends with NUL.
            match checked(unsafe { libc::open(path.as_ptr(), flags) }) {
                Err(Errno::EINTR) => {}
                opened => return opened.map(Directory),
            }
        }
    }

    /// Opens the directory of a file; the file's name in it, which is empty if the path ends with a slash.
    ///
    /// # Errors
    /// `ENAMETOOLONG` for paths of more than 1023 bytes; others of the kernel's.
    pub(crate) fn of(path: &CStr) -> Result<(Directory, &[u8]), Errno> {
        let path = path.to_bytes();
        let name_at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (directory, name) = path.split_at(name_at);
        let directory = if directory.is_empty() { b"./" } else { directory };
        Ok((Directory::open(PathBuf::join(&[directory])?.as_c_str())?, name))
    }

    pub(crate) fn status(&self) -> Result<FileStatus, Errno> {
        shared_file::status_at(self.0, c".")
    }

    /// Whether other users than this one and root may replace its files: the directory is another user's, or others
    /// may write to it and it is not sticky.
    pub(crate) fn is_open_to_others(status: &FileStatus) -> bool {
        !status.has_trusted_owner() || status.is_writable_by_others() && status.mode & STICKY == 0
    }

    /// What the name stands for; the link itself, if it is one (2).
    pub(crate) fn status_of(&self, name: &CStr) -> Result<FileStatus, Errno> {
        shared_file::status_at(self.0, name)
    }

    /// Opens a regular file that must exist for reading and writing; no symbolic link (2).
    pub(crate) fn open_writable(&self, name: &CStr) -> Result<SharedFile, NotOpened> {
        named_file::open_regular(self.0, name, libc::O_RDWR | libc::O_NOFOLLOW)
    }

    /// Makes a file that must not exist, with these permissions whatever the umask.
    pub(crate) fn create(&self, name: &CStr, mode: u32) -> Result<SharedFile, Errno> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let file = SharedFile::open_at(self.0, name, flags)?;
        file.set_mode(mode)?;
        Ok(file)
    }

    /// Gives a file another name; `EEXIST` if that one is taken.
    pub(crate) fn rename_new(&self, from: &CStr, to: &CStr) -> Result<(), Errno> {
        shared_file::rename_new_at(self.0, from, to)
    }

    /// Takes a name away.
    pub(crate) fn unlink(&self, name: &CStr) -> Result<(), Errno> {
        // SAFETY: the name ends with NUL.
        checked(unsafe { libc::unlinkat(self.0, name.as_ptr(), 0) }).map(drop)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: ours, and not used again (1).
        unsafe { libc::close(self.0) };
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::{env, format, fs};

    #[test]
    fn names_are_found_in_the_directory_alone() {
        let folder = env::temp_dir().join(format!("corelocal-directory-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = CString::new(folder.join("a").to_str().unwrap()).unwrap();
        let (directory, name) = Directory::of(&path).unwrap();
        assert_eq!(name, b"a");
        let made = directory.create(c"a", 0o644).unwrap();
        let status = directory.status_of(c"a").unwrap();
        assert_eq!(status.identity, made.status().unwrap().identity);
        assert_eq!((status.mode, status.links, status.is_regular), (0o644, 1, true));
        assert_eq!(directory.create(c"a", 0o644).err(), Some(Errno::EEXIST));
        // A link is neither followed nor replaced.
        symlink("a", folder.join("link")).unwrap();
        assert_eq!(directory.open_writable(c"link").err(), Some(Errno::ELOOP.into()));
        assert_eq!(directory.create(c"link", 0o600).err(), Some(Errno::EEXIST));
        assert!(directory.rename_new(c"a", c"link") == Err(Errno::EEXIST));
        directory.rename_new(c"a", c"b").unwrap();
        assert_eq!(directory.open_writable(c"a").err(), Some(Errno::ENOENT.into()));
        assert!(directory.open_writable(c"b").is_ok());
        // The path leads elsewhere by now, the descriptor does not.
        let moved = folder.with_extension("moved");
        fs::rename(&folder, &moved).unwrap();
        directory.unlink(c"b").unwrap();
        assert!(!moved.join("b").exists());
        for (mode, is_open) in [(0o755, false), (0o775, true), (0o777, true), (0o1777, false)] {
            fs::set_permissions(&moved, fs::Permissions::from_mode(mode)).unwrap();
            let status = directory.status().unwrap();
            assert_eq!(Directory::is_open_to_others(&status), is_open, "{mode:o}");
        }
        fs::remove_dir_all(&moved).unwrap();
        assert!(Directory::of(&path).is_err());
        assert_eq!(Directory::of(c"name").unwrap().1, b"name");
        assert_eq!(Directory::of(c"/").unwrap().1, b"");
    }
}
