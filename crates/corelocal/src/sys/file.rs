//! Small files of /proc and /sys, read without heap.
//!
//! Everything is streamed through a caller's stack frame: [`File`] owns a descriptor and retries interrupted reads;
//! [`PathBuf`] joins a root, a mount point and a file name into the C string that the kernel wants; `file/lines.rs`
//! cuts the stream into lines.
//!
//! # Files of the kernel
//! A path below /proc or /sys may lead to another file where these are not mounted, as in a chroot. So the file is
//! opened without waiting, and its file system's type is checked ([`KernelFs`]). A file of another type counts as
//! missing.
//!
//! # Invariants
//! 1. A [`PathBuf`] always holds a NUL-terminated string without an inner NUL.
//! 2. A [`File`] is an open descriptor, closed exactly once.
//! 3. [`File::open`] opens a file of the kernel, or a regular one in a tree of tests, and never waits.

pub(crate) mod lines;
pub(crate) mod pipe;
pub(crate) mod shared_file;
#[cfg(not(any(loom, miri)))]
pub(crate) mod shared_memory;
pub(in crate::sys) mod size;
#[cfg(not(any(loom, miri)))]
pub(crate) mod stderr;
pub(crate) mod trust;

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;

use super::errno::Errno;
use super::syscall::syscall;
use size::without_sigxfsz;

/// The longest path built here, terminator included.
const PATH_BYTES: usize = 1024;

/// A path under construction.
pub(crate) struct PathBuf {
    bytes: [u8; PATH_BYTES],
    len: usize,
    /// Whether the path lies below a root other than the system's (`FsRoot::at`), whose files are regular ones.
    is_in_tree: bool,
}

/// Returns a number as it is written in paths.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[first..];
        }
    }
}

impl PathBuf {
    /// Returns the concatenation of `parts`, as they are.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if they do not fit in 1023 bytes, `EINVAL` if a part contains NUL.
    pub(crate) fn join(parts: &[&[u8]]) -> Result<PathBuf, Errno> {
        let mut path = PathBuf { bytes: [0; PATH_BYTES], len: 0, is_in_tree: false };
        for part in parts {
            path.push(part)?;
        }
        Ok(path)
    }

    /// Returns the path of a tree that stands for the running system's, for whose files the caller vouches.
    pub(crate) fn of_tree(root: &[u8]) -> Result<PathBuf, Errno> {
        let mut path = PathBuf::join(&[root])?;
        path.is_in_tree = true;
        Ok(path)
    }

    /// Returns the concatenation of this path and `part`, in the same tree.
    pub(crate) fn with(&self, part: &[u8]) -> Result<PathBuf, Errno> {
        let mut path = PathBuf::join(&[self.as_bytes(), part])?;
        path.is_in_tree = self.is_in_tree;
        Ok(path)
    }

    /// Appends `part` as it is.
    ///
    /// # Errors
    /// As for [`join`](Self::join); the path is then unchanged.
    pub(crate) fn push(&mut self, part: &[u8]) -> Result<(), Errno> {
        if part.contains(&0) {
            return Err(Errno::EINVAL);
        }
        let end = self.len + part.len();
        if end >= PATH_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        self.bytes[self.len..end].copy_from_slice(part);
        self.len = end;
        Ok(())
    }

    /// Cuts the path back to its first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.bytes[len..self.len].fill(0);
            self.len = len;
        }
    }

    /// Returns the path with its terminator.
    pub(crate) fn as_c_str(&self) -> &CStr {
        // It ends with NUL and has no other (invariant of PathBuf).
        CStr::from_bytes_with_nul(&self.bytes[..=self.len]).unwrap_or_default()
    }

    /// Returns the path without its terminator.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What /proc says of the calling thread, and of its process. Not `/proc/self`: when the first thread has ended, most
/// files there are empty or refused, such as `maps`, `statm` and `mountinfo`.
pub(crate) const OWN: &CStr = c"/proc/thread-self";
/// The process's mappings.
pub(crate) const OWN_MAPS: &CStr = c"/proc/thread-self/maps";

/// The flags to open a file for reading without ever waiting.
const READ_NOW: i32 = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;

/// The numbers of file systems, as `statfs(2)` returns them.
mod magic {
    pub(super) const PROC: u32 = 0x0000_9fa0;
    pub(super) const SYSFS: u32 = 0x6265_6572;
    pub(super) const CGROUP: u32 = 0x0027_e0eb;
    pub(super) const CGROUP2: u32 = 0x6367_7270;
}

/// The file systems of the kernel's own files that are read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelFs {
    Proc,
    /// sysfs, and control groups that are mounted in it.
    Sys,
    /// Control groups, which may be mounted anywhere.
    Groups,
}

impl KernelFs {
    /// Returns which one a path leads to.
    fn of(path: &[u8]) -> KernelFs {
        match path {
            [b'/', b'p', b'r', b'o', b'c', b'/', ..] => KernelFs::Proc,
            [b'/', b's', b'y', b's', b'/', ..] => KernelFs::Sys,
            _ => KernelFs::Groups,
        }
    }

    /// Returns `true` if `statfs(2)` gives it this number.
    fn has(self, number: u32) -> bool {
        let numbers: &[u32] = match self {
            KernelFs::Proc => &[magic::PROC],
            KernelFs::Sys => &[magic::SYSFS, magic::CGROUP, magic::CGROUP2],
            KernelFs::Groups => &[magic::CGROUP, magic::CGROUP2],
        };
        numbers.contains(&number)
    }
}

/// An open file.
pub(crate) struct File(usize);

impl File {
    /// Opens a file of the kernel for reading: the path says which file system it must be of. `ENOENT` for any other
    /// file (3).
    pub(crate) fn open(path: &PathBuf) -> Result<File, Errno> {
        if !path.is_in_tree {
            return File::open_of_kernel(path.as_c_str());
        }
        let file = File::open_with(path.as_c_str(), READ_NOW)?;
        let is_regular = file.mode()? & libc::S_IFMT == libc::S_IFREG;
        if is_regular { Ok(file) } else { Err(Errno::ENOENT) }
    }

    /// Does what [`open`](Self::open) does, of a path that is not built.
    pub(crate) fn open_of_kernel(path: &CStr) -> Result<File, Errno> {
        let file = File::open_with(path, READ_NOW)?;
        let is_there = KernelFs::of(path.to_bytes()).has(file.file_system()?);
        if is_there { Ok(file) } else { Err(Errno::ENOENT) }
    }

    /// Opens `path` for writing, close-on-exec; a new file is its owner's alone. One that is there is `EEXIST` if it is
    /// to be new, and emptied otherwise.
    pub(crate) fn create(path: &CStr, is_new: bool) -> Result<File, Errno> {
        let how = if is_new { libc::O_EXCL } else { libc::O_TRUNC };
        File::open_with(path, libc::O_WRONLY | libc::O_NOCTTY | libc::O_CREAT | how)
    }

    /// Opens the file of a descriptor, whose link in /proc this is, for writing at its end, close-on-exec, without
    /// waiting for the reader of a FIFO. A terminal does not become the process's own. `EBADF` if the descriptor is not
    /// one to write to: opening would give that right.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn append_to(link: &CStr) -> Result<File, Errno> {
        let shown = File::open_with(link, libc::O_PATH | libc::O_NOFOLLOW)?;
        // The mode of the link says what the descriptor was opened for.
        if !KernelFs::Proc.has(shown.file_system()?) || shown.mode()? & 0o200 == 0 {
            return Err(Errno::EBADF);
        }
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_NOCTTY | libc::O_NONBLOCK;
        File::open_with(link, flags)
    }

    /// Calls `openat(AT_FDCWD, path, flags | O_CLOEXEC, 0600)`, see openat(2).
    #[doc(alias = "openat")]
    fn open_with(path: &CStr, flags: i32) -> Result<File, Errno> {
        let (at, flags) = (libc::AT_FDCWD as usize, (flags | libc::O_CLOEXEC) as usize);
        // SAFETY: the path ends with NUL and outlives the call.
        retry(|| unsafe {
            syscall(libc::SYS_openat, [at, path.as_ptr() as usize, flags, 0o600, 0, 0])
        })
        .map(File)
    }

    /// Returns its kind and permissions. Through libc, which knows the layout of `stat`.
    fn mode(&self) -> Result<libc::mode_t, Errno> {
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: a descriptor; `stat` is writable.
        if unsafe { libc::fstat(self.0 as i32, stat.as_mut_ptr()) } != 0 {
            return Err(Errno::last());
        }
        // SAFETY: all bytes 0 is a `stat`, and the call has filled it.
        Ok(unsafe { stat.assume_init() }.st_mode)
    }

    /// Calls `fstatfs(fd, &stat)`, see fstatfs(2).
    ///
    /// The number of its file system's kind. `errno` stays.
    #[doc(alias = "fstatfs")]
    fn file_system(&self) -> Result<u32, Errno> {
        let mut status = MaybeUninit::<libc::statfs>::zeroed();
        let args = [self.0, status.as_mut_ptr() as usize, 0, 0, 0, 0];
        // SAFETY: a descriptor; `status` is writable, and libc's is the kernel's where pointers have 64 bits.
        retry(|| unsafe { syscall(libc::SYS_fstatfs, args) })?;
        // SAFETY: integers, all zero before the call.
        // The magic number has 32 bits; how wide the field is differs.
        Ok(unsafe { status.assume_init() }.f_type as u32)
    }

    /// Returns the file of a descriptor, which is closed with it.
    ///
    /// # Safety
    /// - The descriptor is open, and only the caller uses it.
    #[cfg(not(any(loom, miri)))]
    pub(crate) unsafe fn of_descriptor(descriptor: usize) -> File {
        File(descriptor)
    }

    /// Returns its descriptor.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn descriptor(&self) -> usize {
        self.0
    }

    /// Removes a path, whose file could not be written whole.
    pub(crate) fn remove(path: &CStr) {
        // SAFETY: a path that ends with NUL.
        unsafe { libc::unlink(path.as_ptr()) };
    }

    /// Calls `write(fd, bytes, len)`, see write(2).
    ///
    /// Writes all of it, and waits where it must; `EFBIG` past the limit of the process.
    #[doc(alias = "write")]
    pub(crate) fn write_all(&self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let args = [self.0, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
            // SAFETY: the kernel reads so many bytes.
            let write = || unsafe { syscall(libc::SYS_write, args) };
            match retry(|| without_sigxfsz(write)) {
                // A descriptor of the program may be one that does not wait.
                Err(Errno::EAGAIN) => self.wait_for_room()?,
                Ok(written) if written > 0 => {
                    bytes = bytes.get(written..).ok_or(Errno::EIO)?;
                }
                Ok(_) => return Err(Errno::EIO),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Calls `ppoll(&{fd, POLLOUT}, 1, NULL, NULL)`, see ppoll(2).
    ///
    /// Waits until a write would take something, or fail.
    #[doc(alias = "ppoll")]
    #[cold]
    fn wait_for_room(&self) -> Result<(), Errno> {
        let mut what = libc::pollfd { fd: self.0 as i32, events: libc::POLLOUT, revents: 0 };
        let args = [ptr::from_mut(&mut what) as usize, 1, 0, 0, 0, 0];
        // SAFETY: one entry, which the kernel fills in; no limit and no mask.
        retry(|| unsafe { syscall(libc::SYS_ppoll, args) }).map(drop)
    }

    /// Calls `read(fd, buffer, len)`, see read(2).
    ///
    /// Reads up to `buffer.len()` bytes; 0 at the end of the file.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let args = [self.0, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
        // SAFETY: the kernel writes at most `len` bytes to the exclusively borrowed buffer.
        let read = retry(|| unsafe { syscall(libc::SYS_read, args) })?;
        Ok(read.min(buffer.len()))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours (invariant). After EINTR Linux has closed it all the same,
        // so there is nothing to retry.
        let _ = unsafe { syscall(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

fn retry(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests;
