//! Where a page lies that was not given a place: in a directory that no other user may write to.
//!
//! ```text
//!   root           /run/corelocal/ENCODING
//!   other users    $XDG_RUNTIME_DIR/corelocal/ENCODING
//! ```
//!
//! In `/dev/shm` or `/tmp` another user could take the name first and so keep clockd from starting. Readers believe
//! pages of root and of their own user only, so no page of another user is missed there.
//!
//! Invariant: the directory is made with mode 0755, whatever the umask, or was there. Whether an existing one can be relied on is checked
//! by the publisher, by descriptor.

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};

use corelocal_support::output::path_line;

/// The parent for root.
const RUN: &str = "/run";

/// The mode of the directory: its user may write, and all users may look.
const MODE: u32 = 0o755;

/// Returns the file for pages of an encoding, in a directory that is made if it is missing.
///
/// # Errors
/// A sentence: why there is none, and what to do.
pub fn usual(encoding: &str) -> anyhow::Result<PathBuf> {
    // SAFETY: no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let parent = parent(is_root, given)?;
    Ok(directory(&parent)?.join(encoding))
}

fn parent(is_root: bool, given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if is_root {
        return Ok(RUN.into());
    }
    match given {
        // The specification of that variable wants relative ones to be ignored.
        Some(path) if path.is_absolute() => Ok(path),
        _ => bail!(
            "there is no default file to publish to: XDG_RUNTIME_DIR names no directory; publish as root (in \
             {RUN}/corelocal), or name a file in your own directory with --file"
        ),
    }
}

fn directory(parent: &Path) -> anyhow::Result<PathBuf> {
    let path = parent.join("corelocal");
    let made = match std::fs::DirBuilder::new().mode(MODE).create(&path) {
        Ok(()) => let_others_look(&path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    };
    match made {
        Ok(()) => Ok(path),
        Err(error) => Err(anyhow!(
            "cannot make the directory {}: {error}; name a file in another directory with --file",
            path_line(&path)
        )),
    }
}

/// Lets readers of other users come to the page whatever the umask of its publisher. By descriptor: no link is
/// followed.
fn let_others_look(directory: &Path) -> std::io::Result<()> {
    std::fs::File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(directory)?
        .set_permissions(std::fs::Permissions::from_mode(MODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_users() {
        let given = || Some(PathBuf::from("/run/user/1"));
        assert_eq!(parent(true, given()).unwrap(), Path::new("/run"));
        assert_eq!(parent(true, None).unwrap(), Path::new("/run"));
        assert_eq!(parent(false, given()).unwrap(), Path::new("/run/user/1"));
        for none in [None, Some(PathBuf::new()), Some(PathBuf::from("run"))] {
            let why = parent(false, none).unwrap_err().to_string();
            assert!(why.contains("XDG_RUNTIME_DIR") && why.contains("--file"), "{why}");
        }
    }

    /// A process of its own has the umask: it holds for all threads.
    #[test]
    fn directories_are_for_all_users_whatever_the_umask() {
        let folder = tempfile::TempDir::new().unwrap();
        // SAFETY: the child makes a directory and ends; no other thread's lock is needed for that but the heap's, which
        // glibc's fork and this library's keep usable.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a number; this process ends here.
            unsafe {
                libc::umask(0o077);
                libc::_exit(i32::from(directory(folder.path()).is_err()));
            }
        }
        let mut status = -1;
        // SAFETY: a child of ours, a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        let mode = std::fs::metadata(folder.path().join("corelocal")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn directories_are_made_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let made = directory(folder.path()).unwrap();
        assert_eq!(directory(folder.path()).unwrap(), made);
        assert!(made.ends_with("corelocal") && made.is_dir());
        let mode = || std::fs::metadata(&made).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o755);
        // One that is there stays as its owner wants it.
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!((directory(folder.path()).unwrap(), mode()), (made.clone(), 0o700));
        let why = directory(Path::new("/no/such/folder")).unwrap_err().to_string();
        assert!(why.contains("/no/such/folder/corelocal") && why.contains("--file"), "{why}");
    }
}
