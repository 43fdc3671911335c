//! Writes a file that the user named. A refusal is a sentence that says what to do.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::file;
use crate::output::path_line;

/// Writes the file, whole or not at all.
///
/// # Errors
/// A sentence: which, why, and what to do.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    file::write(path, content.as_ref()).map_err(|error| problem(path, &error))
}

/// Checks whether [`write()`] could write it now. Leaves nothing behind.
///
/// # Errors
/// As there.
pub fn may_write(path: &Path) -> Result<(), String> {
    file::try_out(path).map_err(|error| problem(path, &error))
}

fn problem(path: &Path, error: &io::Error) -> String {
    let name = path_line(path);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder_exists = folder.is_dir();
    let folder = path_line(folder);
    match error.kind() {
        ErrorKind::NotFound if !folder_exists => format!(
            "cannot write {name}: the folder {folder} does not exist; create it with \
             `mkdir -p {folder}` or give another path"
        ),
        ErrorKind::IsADirectory => {
            format!("cannot write {name}: it is a folder; give the name of a file in it")
        }
        ErrorKind::NotADirectory => {
            format!("cannot write {name}: {folder} is not a folder; give another path")
        }
        ErrorKind::PermissionDenied => format!(
            "cannot write {name}: you may not create files in {folder}; give a path in a folder \
             of your own"
        ),
        ErrorKind::ReadOnlyFilesystem => format!(
            "cannot write {name}: {folder} is on a read-only file system; give a path elsewhere"
        ),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!(
            "cannot write {name}: no space is left in {folder}; free some or give a path elsewhere"
        ),
        ErrorKind::FileTooLarge => format!(
            "cannot write {name}: it would be longer than a file may be; see `ulimit -f` and the file \
             system's limit"
        ),
        _ => format!("cannot write {name}: {error}; give another path"),
    }
}
