//! Writes one output file.
//!
//! Invariants:
//! - A regular file is whole or as it was: it is written to a temporary file beside it, which is renamed. It keeps its
//!   permissions and its group. A symbolic link stays, and the file that it leads to is replaced.
//! - A device or a pipe is written directly, and an open descriptor of this process (`/dev/stdout`, a shell's `>(…)`)
//!   through that descriptor.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The destination of an output.
enum Destination {
    /// A file of this name, which a temporary one replaces.
    File(PathBuf),
    /// A device or a pipe. It is opened only to be written to: a reader of a pipe would take an earlier close for the
    /// end.
    Direct,
    /// An open descriptor of this process.
    Descriptor(File),
}

/// Writes a file.
///
/// # Errors
/// What the kernel refuses. A regular file is then as it was.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    write_with(path, |to| to.write_all(content))
}

/// Writes a file by a function, which is given where to write.
///
/// # Errors
/// What the kernel refuses, or the function returns. A regular file is then as it was.
pub fn write_with<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<T>,
) -> io::Result<T> {
    match find(path)? {
        Destination::Direct => write(&mut File::options().write(true).open(path)?),
        Destination::Descriptor(mut file) => write(&mut file),
        Destination::File(path) => {
            let mut draft = draft(&path)?;
            // By the file itself: an error names the user's path, and not this one's.
            let written = write(draft.as_file_mut())?;
            draft.persist(&path)?;
            Ok(written)
        }
    }
}

/// Files of one output, which get their names when all of them are complete.
#[derive(Default)]
pub struct Drafts(Vec<(PathBuf, NamedTempFile)>);

impl Drafts {
    /// Begins a file. A device or a pipe is written directly.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn create(&mut self, path: &Path) -> io::Result<File> {
        match find(path)? {
            Destination::Direct => File::options().write(true).open(path),
            Destination::Descriptor(file) => Ok(file),
            Destination::File(path) => {
                let draft = draft(&path)?;
                let file = draft.reopen()?;
                self.0.push((path, draft));
                Ok(file)
            }
        }
    }

    /// Gives all files their names.
    ///
    /// # Errors
    /// What the kernel refuses. The files behind that one stay as they were.
    pub fn persist(self) -> io::Result<()> {
        self.0.into_iter().try_for_each(|(path, draft)| Ok(draft.persist(&path).map(drop)?))
    }
}

/// Checks whether [`write()`] could write it now. Leaves nothing behind.
///
/// # Errors
/// As there.
pub fn try_out(path: &Path) -> io::Result<()> {
    match find(path)? {
        Destination::Direct | Destination::Descriptor(_) => Ok(()),
        Destination::File(path) => draft(&path).map(drop),
    }
}

fn find(path: &Path) -> io::Result<Destination> {
    if let Some(number) = descriptor(path) {
        // SAFETY: numbers. One that is not open is an error.
        let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which nothing else owns.
        return Ok(Destination::Descriptor(unsafe { File::from_raw_fd(copy) }));
    }
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(Destination::File(fs::canonicalize(path)?)),
        Ok(meta) if meta.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(Destination::Direct),
        // The end of a link, too.
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => find(&path.parent().unwrap_or(Path::new("")).join(target)),
            Err(_) => Ok(Destination::File(path.to_owned())),
        },
        Err(error) => Err(error),
    }
}

/// Returns the descriptor that a path of this process stands for.
fn descriptor(path: &Path) -> Option<i32> {
    let path = path.to_str()?;
    match path {
        "/dev/stdout" => Some(libc::STDOUT_FILENO),
        "/dev/stderr" => Some(libc::STDERR_FILENO),
        _ => ["/dev/fd/", "/proc/self/fd/"]
            .iter()
            .find_map(|folder| path.strip_prefix(folder)?.parse::<u16>().ok())
            .map(i32::from),
    }
}

/// Returns the temporary file that is to replace this one, with its permissions.
fn draft(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let old = fs::metadata(path).ok();
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let draft = tempfile::Builder::new()
        .prefix(".corelocal.")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    if let Some(old) = old {
        let mut mode = old.mode() & 0o777;
        if fchown(draft.as_file(), None, Some(old.gid())).is_err() {
            // The old group's rights are not another group's.
            mode &= 0o707;
        }
        draft.as_file().set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(draft)
}

#[cfg(test)]
mod tests;
