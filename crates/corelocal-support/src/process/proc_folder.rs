//! Where /proc tells what the threads of a process share: its memory, descriptors and root.
//!
//! When its first thread has ended and others go on, `/proc/PROCESS` shows none of that. Each other thread's folder does.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folder of a process, or of a thread of it that runs where the first one has ended.
pub fn of(process: u32) -> PathBuf {
    let folder = PathBuf::from(format!("/proc/{process}"));
    if !has_ended(&folder) {
        return folder;
    }
    let threads = fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    let running = threads.map(|thread| thread.path()).find(|thread| !has_ended(thread));
    running.unwrap_or(folder)
}

/// Returns `true` if the thread of this folder has ended and is there only until another one asks for its exit status.
fn has_ended(folder: &Path) -> bool {
    let stat = fs::read(folder.join("stat")).unwrap_or_default();
    // The name before it has any bytes, `)` too.
    let name_end = stat.iter().rposition(|byte| *byte == b')');
    let state = name_end.and_then(|end| stat.get(end + 2));
    state.is_none_or(|state| matches!(state, b'Z' | b'X'))
}

#[cfg(test)]
pub mod tests;
