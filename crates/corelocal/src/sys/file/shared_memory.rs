//! Memory that processes share, for the process's lifetime: in a file without a name, or in a new file.
//!
//! # Invariants
//! 1. A mapping stays, and so does its descriptor: other processes find the memory in /proc. It is not used here again: the
//!    program may close it.
//! 2. All of a named file is allocated: else a full file system would be a SIGBUS later.
//! 3. A file that is there is renamed, or stays as it is: it is never written to.

use core::ffi::CStr;

use super::size::without_sigxfsz;
use super::{File, PathBuf};
use crate::sys::errno::Errno;
use crate::sys::memory::pages::call;

/// The place of the memory.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// In an unnamed file (memfd). The text is shown to people.
    Unnamed(&'a CStr),
    /// In a new file at this path. An existing file is [set aside](set_aside) if it begins with this word.
    File(&'a CStr, u64),
}

/// Calls `memfd_create(name, MFD_CLOEXEC)`, `mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)`, see
/// memfd_create(2), mmap(2).
///
/// Maps `len` bytes of zeroed memory that processes share. Async-signal-safe.
///
/// # Errors
/// What the kernel refuses. Then no file is left behind.
#[doc(alias("memfd_create", "mmap", "fallocate"))]
pub(crate) fn map(place: Place<'_>, len: usize) -> Result<*mut u8, Errno> {
    let file = match place {
        Place::Unnamed(name) => {
            let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
            // SAFETY: a name that ends in a zero byte.
            unsafe { call(libc::SYS_memfd_create, [name.as_ptr() as usize, flags, 0, 0, 0, 0])? }
        }
        Place::File(path, magic) => create_anew(path, magic, 0o600)?,
    };
    let allocate = match place {
        Place::Unnamed(_) => (libc::SYS_ftruncate, [file, len, 0, 0, 0, 0]),
        Place::File(..) => (libc::SYS_fallocate, [file, 0, 0, len, 0, 0]),
    };
    // SAFETY: a descriptor just opened; a new mapping at an address of the kernel's choice.
    unsafe {
        let made = without_sigxfsz(|| call(allocate.0, allocate.1)).and_then(|_| {
            if let Place::Unnamed(_) = place {
                // The kernel's mode is 0777. Refused, other processes of this user do not trust the memory.
                let seals = (libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL) as usize;
                let _ = call(libc::SYS_fchmod, [file, 0o600, 0, 0, 0, 0]);
                let _ = call(libc::SYS_fcntl, [file, libc::F_ADD_SEALS as usize, seals, 0, 0, 0]);
            }
            let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
            call(libc::SYS_mmap, [0, len, protection, libc::MAP_SHARED as usize, file, 0])
        });
        if made.is_err() {
            let _ = call(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
            if let Place::File(path, _) = place {
                File::remove(path);
            }
        }
        made.map(|at| at as *mut u8)
    }
}

/// Creates a file. One that is there is [set aside](set_aside) first. Returns the descriptor.
pub(crate) fn create_anew(path: &CStr, magic: u64, mode: usize) -> Result<usize, Errno> {
    let create = || {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        without_sigxfsz(|| open(path, flags, mode))
    };
    match create() {
        Err(Errno::EEXIST) => {
            set_aside(path, magic)?;
            create()
        }
        made => made,
    }
}

const HERE: usize = libc::AT_FDCWD as usize;

fn open(path: &CStr, flags: i32, mode: usize) -> Result<usize, Errno> {
    let flags = (flags | libc::O_CLOEXEC | libc::O_NOFOLLOW) as usize;
    // SAFETY: a path that ends in a zero byte.
    unsafe { call(libc::SYS_openat, [HERE, path.as_ptr() as usize, flags, mode, 0, 0]) }
}

/// Renames a file that is there and begins with `magic`: `.old` is appended to its name. Async-signal-safe.
///
/// # Errors
/// `EEXIST` if it begins otherwise: then it stays. `ENOENT` if there is none.
pub(crate) fn set_aside(path: &CStr, magic: u64) -> Result<(), Errno> {
    let there = open(path, libc::O_RDONLY | libc::O_NONBLOCK, 0)?;
    let mut first = 0_u64;
    // SAFETY: a descriptor just opened, and room for eight bytes.
    let read = unsafe {
        let read = call(libc::SYS_pread64, [there, &raw mut first as usize, 8, 0, 0, 0]);
        let _ = call(libc::SYS_close, [there, 0, 0, 0, 0, 0]);
        read
    };
    if (read, u64::from_le(first)) != (Ok(8), magic) {
        return Err(Errno::EEXIST);
    }
    let old = PathBuf::join(&[path.to_bytes(), b".old"])?;
    let (from, to) = (path.as_ptr() as usize, old.as_c_str().as_ptr() as usize);
    // SAFETY: two paths that end in a zero byte.
    unsafe { call(libc::SYS_renameat2, [HERE, from, HERE, to, 0, 0])? };
    Ok(())
}
