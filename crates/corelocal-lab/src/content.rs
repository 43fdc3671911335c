//! The content of a file that another user may have named or own.
//!
//! Invariant: no such file holds this process up or ends it.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use memmap2::Mmap;

/// Opens a file that another user may have named. One that is no file does not hold this process up.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// How much of untrusted users' files is copied.
pub(crate) const MOST_COPIED: u64 = 1 << 30;

/// Whether a file belongs to this process's user or root, and no other user may write to it.
pub(crate) fn is_trusted(meta: &Metadata) -> bool {
    // SAFETY: no preconditions.
    let is_ours = meta.uid() == 0 || meta.uid() == unsafe { libc::geteuid() };
    is_ours && meta.mode() & 0o022 == 0
}

/// What a file holds.
pub(crate) enum Content {
    /// Of a file that belongs to this process's user or root, and that nobody else may write to.
    Mapped(Mmap),
    /// Of any other one: its owner could cut it short, and access to a mapping would then end in SIGBUS.
    Copied(Vec<u8>),
}

impl Content {
    /// Of a regular file that is not empty.
    pub(crate) fn of(file: &File) -> Option<Content> {
        Content::of_at_most(file, MOST_COPIED)
    }

    /// Of such a file, of which `most` bytes are copied, if it is not mapped.
    pub(crate) fn of_at_most(mut file: &File, most: u64) -> Option<Content> {
        let meta = file.metadata().ok().filter(|meta| meta.is_file() && meta.len() > 0)?;
        if is_trusted(&meta) {
            // SAFETY: the mapping is private and only read, as bytes of which nothing is assumed. Should its owner
            // cut the file short meanwhile, the process ends by SIGBUS; no value is made of memory that is gone.
            return unsafe { Mmap::map(file) }.ok().map(Content::Mapped);
        }
        let mut bytes = Vec::new();
        let len = meta.len().min(most);
        file.by_ref().take(len).read_to_end(&mut bytes).ok()?;
        (!bytes.is_empty()).then_some(Content::Copied(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Content::Mapped(bytes) => bytes,
            Content::Copied(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_user_is_copied() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("corelocal-content-{}", std::process::id()));
        std::fs::write(&path, "content").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let content = || Content::of(&open(&path).unwrap()).unwrap();
        assert!(matches!(content(), Content::Mapped(_)));
        // Others may cut it.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o646)).unwrap();
        let copied = content();
        assert!(matches!(copied, Content::Copied(_)));
        std::fs::write(&path, "").unwrap();
        assert_eq!(copied.bytes(), b"content");
        assert!(Content::of(&open(&path).unwrap()).is_none());
        std::fs::remove_file(&path).unwrap();
        // A FIFO without a writer.
        let fifo = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert!(Content::of(&open(&path).unwrap()).is_none());
        std::fs::remove_file(&path).unwrap();
    }
}
