//! Small files of /proc and /sys, read without heap.
//!
//! Everything is streamed through a caller's stack frame: [`File`] owns a descriptor and retries
//! interrupted reads; [`Lines`] cuts the stream into lines; [`PathBuf`] joins a root, a mount point
//! and a file name into the C string that the kernel wants.
//!
//! # Files of the kernel
//! A process may have moved its root to a folder of another user (`rpm --root`, a writable FTP home). There
//! `/proc/thread-self/cgroup` is whatever that user made: a FIFO, whose opening waits for a writer, or a file without an end.
//! So the folder is resolved first, to a descriptor that opens nothing (`O_PATH`). If it is of the kernel's file system
//! ([`KernelFs`]), the kernel alone makes names in it, and the file is opened there. Any other file counts as missing.
//!
//! # Invariants
//! 1. A [`PathBuf`] always holds a NUL-terminated string without an inner NUL.
//! 2. A [`File`] is an open descriptor, closed exactly once.
//! 3. [`File::open`] opens a file of the kernel, or a regular one in a tree that the caller vouches for, and never waits.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;

use super::errno::Errno;
use super::file_size::without_sigxfsz;
use super::named_file::magic;
use super::syscall::syscall;

/// The longest path built here, terminator included.
const PATH_BYTES: usize = 1024;

/// As many links as the kernel follows in one path.
const MOST_LINKS: u32 = 40;

/// The most bytes that [`Lines`] reads of a file: a million lines of `/proc/self/maps` have 100 MiB.
const MOST_BYTES: usize = 256 << 20;

/// A path under construction.
pub(crate) struct PathBuf {
    bytes: [u8; PATH_BYTES],
    len: usize,
    /// In a tree of regular files that stands for the kernel's, in which these are mounted or made up.
    is_in_tree: bool,
}

/// A number as it is written in paths.
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
    /// The concatenation of `parts`, as they are.
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

    /// The path of a tree that stands for the running system's, for whose files the caller vouches.
    pub(crate) fn of_tree(root: &[u8]) -> Result<PathBuf, Errno> {
        let mut path = PathBuf::join(&[root])?;
        path.is_in_tree = true;
        Ok(path)
    }

    /// The concatenation of this path and `part`, in the same tree.
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

    /// The path with its terminator.
    pub(crate) fn as_c_str(&self) -> &CStr {
        // It ends with NUL and has no other (invariant of PathBuf).
        CStr::from_bytes_with_nul(&self.bytes[..=self.len]).unwrap_or_default()
    }

    /// The path without its terminator.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What /proc says of the calling thread, and of its process. Not `/proc/self`: when the first thread has ended, most
/// files there are empty or refused, such as `maps`, `statm` and `mountinfo`.
pub(crate) const OWN: &CStr = c"/proc/thread-self";

/// For reading, without waiting for anything.
const READ_NOW: i32 = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;

/// The file systems whose files hold what the kernel says, as far as they are read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelFs {
    Proc,
    /// sysfs, and control groups that are mounted in it.
    Sys,
    /// Control groups, which may be mounted anywhere.
    Groups,
}

impl KernelFs {
    /// Which one a path leads to.
    fn of(path: &[u8]) -> KernelFs {
        match path {
            [b'/', b'p', b'r', b'o', b'c', b'/', ..] => KernelFs::Proc,
            [b'/', b's', b'y', b's', b'/', ..] => KernelFs::Sys,
            _ => KernelFs::Groups,
        }
    }

    /// Whether `statfs(2)` gives it this number.
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
    /// Opens a file of the kernel for reading: the path says which file system it must be of (3). `ENOENT` for any
    /// other file. The path is taken apart meanwhile, and whole again afterwards.
    pub(crate) fn open(path: &mut PathBuf) -> Result<File, Errno> {
        let is_in_tree = path.is_in_tree;
        let wanted = KernelFs::of(path.as_bytes());
        let slash = path.as_bytes().iter().rposition(|&byte| byte == b'/').ok_or(Errno::EINVAL)?;
        path.bytes[slash] = 0;
        let name = CStr::from_bytes_until_nul(&path.bytes[slash + 1..]).unwrap_or_default();
        let folder = CStr::from_bytes_until_nul(&path.bytes).unwrap_or_default();
        let folder = if slash == 0 { c"/" } else { folder };
        let opened = if is_in_tree {
            File::open_regular(folder, name)
        } else {
            File::open_in(wanted, folder, name, READ_NOW | libc::O_NOFOLLOW)
        };
        path.bytes[slash] = b'/';
        opened
    }

    /// Opens a file of a folder of the kernel's.
    pub(crate) fn open_of_kernel(folder: &CStr, name: &CStr) -> Result<File, Errno> {
        let wanted = KernelFs::of(folder.to_bytes());
        File::open_in(wanted, folder, name, READ_NOW | libc::O_NOFOLLOW)
    }

    /// Opens a file in a folder that must be of this file system.
    fn open_in(wanted: KernelFs, folder: &CStr, name: &CStr, flags: i32) -> Result<File, Errno> {
        let folder = File::open_at(None, folder, libc::O_PATH | libc::O_DIRECTORY)?;
        if !wanted.has(folder.file_system()?) {
            return Err(Errno::ENOENT);
        }
        let file = File::open_at(Some(&folder), name, flags)?;
        // Another file system's file may be mounted over the name. One that `flags` let a link of /proc lead to is
        // of any file system.
        let is_linked = flags & libc::O_NOFOLLOW == 0;
        if is_linked || wanted.has(file.file_system()?) { Ok(file) } else { Err(Errno::ENOENT) }
    }

    /// Opens a regular file of a tree.
    fn open_regular(folder: &CStr, name: &CStr) -> Result<File, Errno> {
        let folder = File::open_at(None, folder, libc::O_PATH | libc::O_DIRECTORY)?;
        let file = File::open_at(Some(&folder), name, READ_NOW)?;
        let is_regular = file.status()?.st_mode & libc::S_IFMT == libc::S_IFREG;
        if is_regular { Ok(file) } else { Err(Errno::ENOENT) }
    }

    /// Opens `path` for writing, close-on-exec: a file that its owner alone may read. One that is there is `EEXIST`
    /// if it is to be new. If not it is emptied, and is what a new one would be.
    ///
    /// `EPERM` for another user's file or FIFO: that user may have it open already, and would read what is written.
    /// Also for a link of another user, which may lead to a file of this one; links of this user and of root are
    /// followed, as `/dev/stdout` is one. And for a file or link of several names in a directory that other users may
    /// write to: it may be any of this user's or root's, by a hard link. `ENXIO` for a FIFO that no process reads. A device is
    /// written to as it is. `ENAMETOOLONG` for a path of more than 1023 bytes to a file that is there.
    ///
    /// What stands for an open descriptor of this process, as `/dev/stdout` does, is a copy of the descriptor: with
    /// its rights and at its position, and nothing is emptied. `EPERM` for the other links of /proc that lead to files.
    ///
    /// `EAGAIN` for a link that is replaced by another kind of file meanwhile.
    ///
    /// A link is judged and read by one descriptor, and a file is judged by the descriptor that is written to. So
    /// names that are exchanged meanwhile change nothing.
    pub(crate) fn create(path: &CStr, is_new: bool) -> Result<File, Errno> {
        const WRITE: i32 = libc::O_WRONLY | libc::O_NOCTTY;
        // Without waiting for a reader of a FIFO.
        const WRITE_NOW: i32 = WRITE | libc::O_NONBLOCK;
        // One that we make has its mode, and not every file system takes another.
        match File::open_at(None, path, WRITE | libc::O_CREAT | libc::O_EXCL) {
            Err(Errno::EEXIST) if !is_new => {}
            made => return made,
        }
        // The only room for paths: stacks of signal handlers are short.
        let mut room = [0; PATH_BYTES];
        let path = path.to_bytes_with_nul();
        room.get_mut(..path.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(path);
        let mut from = None;
        for _ in 0..MOST_LINKS {
            let (folder, name) = File::folder_of(from.as_ref(), &mut room)?;
            let at = Some(&folder);
            match File::open_at(at, name, WRITE_NOW | libc::O_NOFOLLOW) {
                Err(Errno::ELOOP) => {}
                opened => return opened?.emptied(&folder),
            }
            let link = File::open_at(at, name, libc::O_PATH | libc::O_NOFOLLOW)?;
            let status = link.status()?;
            if status.st_mode & libc::S_IFMT != libc::S_IFLNK {
                // Replaced since it was a link.
                return Err(Errno::EAGAIN);
            }
            let is_trusted = status.st_uid == 0 || is_own(&status);
            if !is_trusted || status.st_nlink > 1 && folder.is_open_to_others()? {
                return Err(Errno::EPERM);
            }
            if KernelFs::Proc.has(link.file_system()?) {
                return File::copied(&folder, name);
            }
            link.read_link(&mut room)?;
            from = Some(folder);
        }
        Err(Errno::ELOOP)
    }

    /// A copy of the descriptor that a link of /proc stands for. To open what it leads to would give rights that the
    /// process had not been given.
    fn copied(folder: &File, name: &CStr) -> Result<File, Errno> {
        let number = core::str::from_utf8(name.to_bytes()).ok().and_then(|name| name.parse().ok());
        let number: u32 = number.ok_or(Errno::EPERM)?;
        // Not one of the first three, which a program may have closed.
        let args = [number as usize, libc::F_DUPFD_CLOEXEC as usize, 3, 0, 0, 0];
        // SAFETY: numbers; the new descriptor belongs to the result alone.
        let copy = retry(|| unsafe { syscall(libc::SYS_fcntl, args) }).map(File)?;
        // SAFETY: a descriptor, and a name that ends with NUL; `stat` is writable.
        let linked =
            stat_by(|stat| unsafe { libc::fstatat(folder.0 as i32, name.as_ptr(), stat, 0) })?;
        let mine = copy.status()?;
        // The link may be of another process, or of a thread with descriptors of its own.
        let is_same = (mine.st_dev, mine.st_ino) == (linked.st_dev, linked.st_ino);
        if is_same { Ok(copy) } else { Err(Errno::EPERM) }
    }

    /// Opens a path that begins at an open directory, or at the working directory; close-on-exec. A new file is its
    /// owner's alone.
    fn open_at(at: Option<&File>, path: &CStr, flags: i32) -> Result<File, Errno> {
        let at = at.map_or(libc::AT_FDCWD as usize, |directory| directory.0);
        let flags = (flags | libc::O_CLOEXEC) as usize;
        // SAFETY: the path ends with NUL and outlives the call.
        retry(|| unsafe {
            syscall(libc::SYS_openat, [at, path.as_ptr() as usize, flags, 0o600, 0, 0])
        })
        .map(File)
    }

    /// The directory of a path that begins at another one, and the name in it; `.` if the path ends with a slash. The
    /// path ends with NUL, and is taken apart.
    fn folder_of<'a>(
        at: Option<&File>,
        path: &'a mut [u8; PATH_BYTES],
    ) -> Result<(File, &'a CStr), Errno> {
        let len = path.iter().position(|&byte| byte == 0).unwrap_or(PATH_BYTES - 1);
        let slash = path[..len].iter().rposition(|&byte| byte == b'/');
        let name_at = slash.map_or(0, |slash| slash + 1);
        let folder = match slash {
            None => c".",
            Some(0) => c"/",
            Some(slash) => {
                path[slash] = 0;
                CStr::from_bytes_until_nul(&path[..]).unwrap_or_default()
            }
        };
        let folder = File::open_at(at, folder, libc::O_PATH | libc::O_DIRECTORY)?;
        let name = CStr::from_bytes_until_nul(&path[name_at..]).unwrap_or_default();
        Ok((folder, if name.is_empty() { c"." } else { name }))
    }

    /// The file that `create` opened in `folder`, made what a new one would be.
    fn emptied(self, folder: &File) -> Result<File, Errno> {
        let stat = self.status()?;
        let kind = stat.st_mode & libc::S_IFMT;
        // Also for root, which the kernel lets do the rest.
        if matches!(kind, libc::S_IFREG | libc::S_IFIFO) && !is_own(&stat) {
            return Err(Errno::EPERM);
        }
        if stat.st_nlink > 1 && folder.is_open_to_others()? {
            return Err(Errno::EPERM);
        }
        // The mode of a device is not for us to change.
        if kind == libc::S_IFREG {
            // In this order: nothing is lost where the mode cannot be set.
            // SAFETY: a descriptor and a number.
            retry(|| unsafe { syscall(libc::SYS_fchmod, [self.0, 0o600, 0, 0, 0, 0]) })?;
            // SAFETY: likewise.
            retry(|| unsafe { syscall(libc::SYS_ftruncate, [self.0, 0, 0, 0, 0, 0]) })?;
        }
        // A write waits for a slow reader: O_NONBLOCK was the only flag that this call can clear.
        let args = [self.0, libc::F_SETFL as usize, 0, 0, 0, 0];
        // SAFETY: a descriptor and numbers.
        retry(|| unsafe { syscall(libc::SYS_fcntl, args) })?;
        Ok(self)
    }

    fn status(&self) -> Result<libc::stat, Errno> {
        // SAFETY: a descriptor; `stat` is writable.
        stat_by(|stat| unsafe { libc::fstat(self.0 as i32, stat) })
    }

    /// Whether other users than this one and root may make names in this directory; a sticky one lets them.
    fn is_open_to_others(&self) -> Result<bool, Errno> {
        let stat = self.status()?;
        Ok(stat.st_uid != 0 && !is_own(&stat) || stat.st_mode & 0o022 != 0)
    }

    /// The number of its file system's kind. `errno` stays.
    fn file_system(&self) -> Result<u32, Errno> {
        let mut status = MaybeUninit::<libc::statfs>::zeroed();
        let args = [self.0, status.as_mut_ptr() as usize, 0, 0, 0, 0];
        // SAFETY: a descriptor; `status` is writable, and libc's is the kernel's where pointers have 64 bits.
        retry(|| unsafe { syscall(libc::SYS_fstatfs, args) })?;
        // SAFETY: integers, all zero before the call.
        // The magic number has 32 bits; how wide the field is differs.
        Ok(unsafe { status.assume_init() }.f_type as u32)
    }

    /// Where this link leads to, which was opened with `O_PATH`; ends with NUL.
    fn read_link(&self, target: &mut [u8; PATH_BYTES]) -> Result<(), Errno> {
        let room = target.as_mut_ptr() as usize;
        let args = [self.0, c"".as_ptr() as usize, room, PATH_BYTES, 0, 0];
        // SAFETY: an empty path that ends with NUL; the kernel writes so many bytes at most.
        let len = retry(|| unsafe { syscall(libc::SYS_readlinkat, args) })?;
        // What fills the room may have been cut.
        *target.get_mut(len).ok_or(Errno::ENAMETOOLONG)? = 0;
        Ok(())
    }

    /// Opens the file of a descriptor, whose link is in a folder of /proc, for writing at its end, close-on-exec,
    /// without waiting for the reader of a FIFO. A terminal does not become the process's own. `EBADF` if the
    /// descriptor is not one to write to: opening would give that right.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn append_to(folder: &PathBuf, link: &CStr) -> Result<File, Errno> {
        let shown = File::open_in(
            KernelFs::Proc,
            folder.as_c_str(),
            link,
            libc::O_PATH | libc::O_NOFOLLOW,
        )?;
        // The mode of the link tells what the descriptor was opened for.
        if shown.status()?.st_mode & 0o200 == 0 {
            return Err(Errno::EBADF);
        }
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_NOCTTY | libc::O_NONBLOCK;
        File::open_in(KernelFs::Proc, folder.as_c_str(), link, flags)
    }

    /// The file of a descriptor, which is closed with it.
    ///
    /// # Safety
    /// It is open, and the caller's alone.
    #[cfg(not(any(loom, miri)))]
    pub(crate) unsafe fn of_descriptor(descriptor: usize) -> File {
        File(descriptor)
    }

    /// Its descriptor.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn descriptor(&self) -> usize {
        self.0
    }

    /// Takes a path from this file, if it is still its name: what was not written whole is of no use.
    pub(crate) fn remove(&self, path: &CStr) {
        // SAFETY: a path that ends with NUL; `stat` is writable.
        let named = stat_by(|stat| unsafe { libc::lstat(path.as_ptr(), stat) });
        if let (Ok(mine), Ok(named)) = (self.status(), named) {
            if (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino) {
                // SAFETY: a path that ends with NUL.
                unsafe { libc::unlink(path.as_ptr()) };
            }
        }
    }

    /// Writes all of it, and waits where it must; `EFBIG` past the limit of the process.
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

    /// Waits until a write would take something, or fail.
    #[cold]
    fn wait_for_room(&self) -> Result<(), Errno> {
        let mut what = libc::pollfd { fd: self.0 as i32, events: libc::POLLOUT, revents: 0 };
        let args = [ptr::from_mut(&mut what) as usize, 1, 0, 0, 0, 0];
        // SAFETY: one entry, which the kernel fills in; no limit and no mask.
        retry(|| unsafe { syscall(libc::SYS_ppoll, args) }).map(drop)
    }

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

/// What `ask` fills in. Through libc, which knows the layout.
fn stat_by(ask: impl FnOnce(*mut libc::stat) -> i32) -> Result<libc::stat, Errno> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    if ask(stat.as_mut_ptr()) != 0 {
        return Err(Errno::last());
    }
    // SAFETY: all bytes 0 is a `stat`, and the call has filled it.
    Ok(unsafe { stat.assume_init() })
}

/// Whether it belongs to the effective user.
fn is_own(stat: &libc::stat) -> bool {
    // SAFETY: no preconditions.
    stat.st_uid == unsafe { libc::geteuid() }
}

fn retry(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

/// The longest line [`Lines`] hands out.
const LINE_BYTES: usize = 2048;

/// A file's lines, without their newlines. A line longer than 2048 bytes is left out whole: half a
/// line must not be taken for a line.
pub(crate) struct Lines {
    file: File,
    buffer: [u8; LINE_BYTES],
    /// Where the unread part of the buffer begins and ends.
    start: usize,
    end: usize,
    at_end: bool,
    /// How many bytes may still be read.
    left: usize,
}

impl Lines {
    pub(crate) fn new(file: File) -> Lines {
        Lines { file, buffer: [0; LINE_BYTES], start: 0, end: 0, at_end: false, left: MOST_BYTES }
    }

    /// The next line; a read error ends the file.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let mut overlong = false;
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(length) = unread.iter().position(|&byte| byte == b'\n') {
                let line = self.start..self.start + length;
                self.start = line.end + 1;
                if overlong {
                    overlong = false;
                    continue;
                }
                return Some(&self.buffer[line]);
            }
            if self.at_end {
                let line = self.start..self.end;
                self.start = self.end;
                return (!line.is_empty() && !overlong).then(|| &self.buffer[line]);
            }
            if self.start == 0 && self.end == LINE_BYTES {
                overlong = true;
                self.end = 0;
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            match self.file.read(&mut self.buffer[self.end..]) {
                Ok(read) if (1..=self.left).contains(&read) => {
                    self.left -= read;
                    self.end += read;
                }
                _ => self.at_end = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::PermissionsExt as _;
    use std::string::{String, ToString};
    use std::vec::Vec;
    use std::{env, format, fs};

    use std::sync::atomic::{AtomicBool, Ordering};

    fn lines_of(name: &str, content: &str) -> Vec<String> {
        let path = env::temp_dir().join(format!("corelocal-{name}-{}", std::process::id()));
        fs::write(&path, content).unwrap();
        let file = File::open(&mut PathBuf::of_tree(path.to_str().unwrap().as_bytes()).unwrap());
        fs::remove_file(&path).unwrap();
        let mut lines = Lines::new(file.unwrap());
        let mut all = Vec::new();
        while let Some(line) = lines.next() {
            all.push(String::from_utf8(line.to_vec()).unwrap());
        }
        all
    }

    #[test]
    fn lines_across_buffer_boundaries() {
        let content: Vec<String> = (0..500).map(|i| "x".repeat(i % 90) + &i.to_string()).collect();
        assert_eq!(lines_of("lines", &(content.join("\n") + "\n")), content);
        assert_eq!(lines_of("unended", &content.join("\n")), content);
        assert_eq!(lines_of("blank", "a\n\nb"), ["a", "", "b"]);
        assert!(lines_of("empty", "").is_empty());
    }

    #[test]
    fn overlong_lines_are_left_out() {
        let fits = "f".repeat(LINE_BYTES - 1);
        for long in [LINE_BYTES, LINE_BYTES + 1, 3 * LINE_BYTES, 3 * LINE_BYTES + 7] {
            let long = "l".repeat(long);
            assert_eq!(
                lines_of("long", &format!("{fits}\n{long}\nshort\n{long}\nz")),
                [fits.as_str(), "short", "z"]
            );
            assert_eq!(lines_of("long-end", &format!("a\n{long}")), ["a"]);
        }
    }

    #[test]
    fn a_file_that_is_there_is_made_its_owners_alone() {
        let folder = env::temp_dir().join(format!("corelocal-modes-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        // Whatever the umask.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.join("file");
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        fs::write(&path, "old and long").unwrap();
        let open_to_all = || fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        open_to_all();
        assert_eq!(File::create(&name, true).err(), Some(Errno::EEXIST));
        assert_eq!((mode(), fs::read(&path).unwrap()), (0o666, b"old and long".to_vec()));
        File::create(&name, false).unwrap().write_all(b"new").unwrap();
        assert_eq!((mode(), fs::read(&path).unwrap()), (0o600, b"new".to_vec()));
        // What is no file is written to as it is.
        let null = || fs::metadata("/dev/null").unwrap().permissions().mode();
        let before = null();
        File::create(c"/dev/null", false).unwrap().write_all(b"new").unwrap();
        assert_eq!(null(), before);
        // Another user's stays what it is, also for root.
        open_to_all();
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            assert_eq!(File::create(&name, false).err(), Some(Errno::EPERM));
            assert_eq!((mode(), fs::read(&path).unwrap()), (0o666, b"new".to_vec()));
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        // A thread may be another user, to file systems.
        let refused = std::thread::spawn(move || {
            // SAFETY: a number; it holds for this thread alone, which ends.
            let is_another = unsafe {
                libc::syscall(libc::SYS_setfsuid, 65534);
                libc::syscall(libc::SYS_setfsuid, 65534) == 65534
            };
            is_another.then(|| File::create(&name, false).err())
        });
        match refused.join().unwrap() {
            // Not even found, where the folder for such files is one's own.
            Some(refused) => {
                assert!(matches!(refused, Some(Errno::EPERM | Errno(libc::EACCES))), "{refused:?}")
            }
            None => std::eprintln!("skipped: somebody else's file: needs root"),
        }
        assert_eq!(fs::read(&path).unwrap(), b"new");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn fifos_and_links_of_other_users_are_refused() {
        use std::io::Read as _;
        use std::os::unix::fs::{OpenOptionsExt as _, lchown, symlink};
        let folder = env::temp_dir().join(format!("corelocal-links-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (fifo, link, kept) = (folder.join("fifo"), folder.join("link"), folder.join("kept"));
        let name = |path: &std::path::Path| CString::new(path.to_str().unwrap()).unwrap();
        let create = |path: &std::path::Path| File::create(&name(path), false);
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(name(&fifo).as_ptr(), 0o600) }, 0);
        assert_eq!(create(&fifo).err(), Some(Errno(libc::ENXIO)), "nothing reads it");
        let mut reader =
            fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
        let writer = create(&fifo).unwrap();
        // SAFETY: a descriptor.
        let flags = unsafe { libc::fcntl(writer.0 as i32, libc::F_GETFL) };
        assert_eq!(flags & libc::O_NONBLOCK, 0, "a write would not wait for the reader");
        writer.write_all(b"new").unwrap();
        let mut read = [0; 3];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"new");
        fs::write(&kept, "kept").unwrap();
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o644)).unwrap();
        symlink(&kept, &link).unwrap();
        let is_root = lchown(&fifo, Some(65534), None).is_ok();
        if is_root {
            assert_eq!(create(&fifo).err(), Some(Errno::EPERM));
            lchown(&link, Some(65534), None).unwrap();
            assert_eq!(create(&link).err(), Some(Errno::EPERM));
            assert_eq!(fs::read(&kept).unwrap(), b"kept");
            assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o644);
            lchown(&link, Some(0), None).unwrap();
        } else {
            std::eprintln!(
                "skipped: fifos_and_links_of_other_users_are_refused: other users': needs root"
            );
        }
        // One's own link is followed.
        create(&link).unwrap().write_all(b"through").unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"through");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn descriptors_keep_their_rights_and_their_position() {
        use std::io::{Read as _, Write as _};
        use std::os::fd::{AsRawFd, FromRawFd as _};
        let path = env::temp_dir().join(format!("corelocal-numbers-{}", std::process::id()));
        let create = |folder: &str, open: &dyn AsRawFd| {
            let path = CString::new(format!("{folder}/{}", open.as_raw_fd())).unwrap();
            File::create(&path, false)
        };
        let mut written = fs::File::create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        written.write_all(b"before ").unwrap();
        for (folder, text) in [("/proc/self/fd", "once "), ("/dev/fd", "again")] {
            create(folder, &written).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"before once again");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        // One to read from is not one to write to.
        let read = fs::File::open(&path).unwrap();
        let refused = create("/proc/self/fd", &read).unwrap().write_all(b"new");
        assert_eq!(refused, Err(Errno::EBADF));
        assert_eq!(fs::read(&path).unwrap(), b"before once again");
        // Links of /proc that are not descriptors of ours.
        assert_eq!(File::create(c"/proc/thread-self/exe", false).err(), Some(Errno::EPERM));
        let mut ends = [0; 2];
        // SAFETY: two descriptors, which the files own.
        let (mut from, to) = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            (fs::File::from_raw_fd(ends[0]), fs::File::from_raw_fd(ends[1]))
        };
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").stdin(from.try_clone().unwrap()).spawn().unwrap();
        let folder = format!("/proc/{}/fd", child.id());
        let foreign = CString::new(folder + "/0").unwrap();
        assert_eq!(File::create(&foreign, false).err(), Some(Errno::EPERM));
        child.kill().unwrap();
        child.wait().unwrap();
        // A pipe that does not wait, and is full at times.
        // SAFETY: a descriptor and numbers.
        unsafe { libc::fcntl(to.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let long = std::vec![7; 300_000];
        let copy = create("/proc/self/fd", &to).unwrap();
        drop(to);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            from.read_to_end(&mut all).map(|_| all)
        });
        copy.write_all(&long).unwrap();
        drop(copy);
        assert!(reader.join().unwrap().unwrap() == long);
        fs::remove_file(&path).unwrap();
    }

    /// Another user that exchanges its link with one of this user: the kernel does both at once.
    #[test]
    fn links_that_are_exchanged_lead_no_further_than_their_owner() {
        use std::os::unix::fs::{lchown, symlink};
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = env::temp_dir().join(format!("corelocal-exchanged-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (own, foreign) = (folder.join("own"), folder.join("foreign"));
        let (wanted, kept) = (folder.join("wanted"), folder.join("kept"));
        fs::write(&wanted, "").unwrap();
        fs::write(&kept, "kept").unwrap();
        symlink(&wanted, &own).unwrap();
        symlink(&kept, &foreign).unwrap();
        if lchown(&foreign, Some(65534), None).is_err() {
            std::eprintln!("skipped: links_that_are_exchanged_…: another user's link: needs root");
            return fs::remove_dir_all(&folder).unwrap();
        }
        let name = |path: &std::path::Path| CString::new(path.to_str().unwrap()).unwrap();
        let (path, other) = (name(&own), name(&foreign));
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let at = libc::AT_FDCWD as usize;
                    let exchange = libc::RENAME_EXCHANGE as usize;
                    let (path, other) = (path.as_ptr() as usize, other.as_ptr() as usize);
                    // SAFETY: paths that end with NUL.
                    let done =
                        unsafe { syscall(libc::SYS_renameat2, [at, path, at, other, exchange, 0]) };
                    if done.is_err() {
                        break;
                    }
                }
            });
            for _ in 0..crate::scaled::scaled(40_000) {
                match File::create(&path, false) {
                    Ok(_) | Err(Errno::EPERM | Errno::EAGAIN) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read(&kept).unwrap(), b"kept");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_name_that_another_user_may_have_given_empties_no_file() {
        let folder = env::temp_dir().join(format!("corelocal-names-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (secret, again) = (folder.join("secret"), folder.join("again"));
        fs::write(&secret, "kept").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(&secret, &again).unwrap();
        let create = || File::create(&CString::new(again.to_str().unwrap()).unwrap(), false);
        for mode in [0o1777, 0o775] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(create().err(), Some(Errno::EPERM), "{mode:o}");
            assert_eq!(fs::read(&secret).unwrap(), b"kept");
            assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o640);
        }
        // Where only this user makes names it is this user's.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        create().unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read(&secret).unwrap(), b"new");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn links_and_fifos_that_another_user_may_have_named_are_refused() {
        use std::os::unix::fs::{OpenOptionsExt as _, symlink};
        let folder = env::temp_dir().join(format!("corelocal-linked-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        let name = |path: &std::path::Path| CString::new(path.to_str().unwrap()).unwrap();
        let create = |path: &str| File::create(&name(&at(path)), false).map(drop);
        fs::write(at("kept"), "kept").unwrap();
        symlink(at("kept"), at("link")).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(name(&at("fifo")).as_ptr(), 0o600) }, 0);
        let _reader =
            fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(at("fifo")).unwrap();
        // The link itself gets another name.
        fs::hard_link(at("link"), at("link again")).unwrap();
        fs::hard_link(at("fifo"), at("fifo again")).unwrap();
        for mode in [0o1777, 0o775] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(create("link again"), Err(Errno::EPERM), "{mode:o}");
            assert_eq!(create("fifo again"), Err(Errno::EPERM), "{mode:o}");
        }
        assert_eq!(fs::read(at("kept")).unwrap(), b"kept");
        // Where only this user makes names it is this user's.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!((create("link again"), create("fifo again")), (Ok(()), Ok(())));
        assert_eq!(fs::read(at("kept")).unwrap(), b"");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn own_links_are_followed_from_where_they_stand() {
        use std::os::unix::fs::symlink;
        let folder = env::temp_dir().join(format!("corelocal-followed-{}", std::process::id()));
        fs::create_dir_all(folder.join("in")).unwrap();
        fs::write(folder.join("to"), "old").unwrap();
        symlink("../second", folder.join("in/first")).unwrap();
        symlink(folder.join("to"), folder.join("second")).unwrap();
        symlink("loop", folder.join("loop")).unwrap();
        let create = |name: &str| {
            let path = CString::new(folder.join(name).to_str().unwrap()).unwrap();
            File::create(&path, false)
        };
        create("in/first").unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read(folder.join("to")).unwrap(), b"new");
        assert_eq!(create("loop").err(), Some(Errno::ELOOP));
        assert_eq!(create("in/").err(), Some(Errno(libc::EISDIR)));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_reads_its_own() {
        static HAS_GROUPS: AtomicBool = AtomicBool::new(false);
        let groups = fs::read("/proc/self/cgroup").is_ok_and(|text| !text.is_empty());
        HAS_GROUPS.store(groups, Ordering::Relaxed);
        extern "C" fn read_all(first: *mut libc::c_void) -> *mut libc::c_void {
            // Once it is a zombie, the files of /proc/self are empty.
            let mut path = PathBuf::join(&[b"/proc/self/statm"]).unwrap();
            let (began, mut text) = (std::time::Instant::now(), [0; 8]);
            while File::open(&mut path).unwrap().read(&mut text).is_ok_and(|len| len > 0)
                && text[..2] != *b"0 "
                && began.elapsed().as_secs() < 10
            {
                std::thread::yield_now();
            }
            let is_read = |name: &[u8]| {
                let file = PathBuf::join(&[OWN.to_bytes(), name])
                    .and_then(|mut path| File::open(&mut path));
                let mut text = [0; 8];
                file.and_then(|file| file.read(&mut text))
                    .is_ok_and(|len| len > 2 && text[..2] != *b"0 ")
            };
            let names: [&[u8]; 4] = [b"/cgroup", b"/mountinfo", b"/statm", b"/maps"];
            // A process that is in no control group has no such file, or an empty one. The parent looked.
            let is_there =
                |name: &&&[u8]| **name != b"/cgroup" || HAS_GROUPS.load(Ordering::Relaxed);
            let is_all = names.iter().filter(is_there).all(|name| is_read(name));
            // SAFETY: ends the child.
            unsafe { libc::_exit(if is_all && first.is_null() { 0 } else { 1 }) }
        }
        // SAFETY: the child makes a thread and leaves the rest to it.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: likewise. Only the calling thread ends; what it has on its stack stays.
            unsafe {
                let mut thread = core::mem::zeroed();
                libc::pthread_create(&mut thread, ptr::null(), read_all, ptr::null_mut());
                let _ = syscall(libc::SYS_exit, [0; 6]);
            }
        }
        let mut status = -1;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn what_is_not_the_kernel_s_counts_as_missing() {
        use std::os::unix::fs::{OpenOptionsExt as _, symlink};
        let folder = env::temp_dir().join(format!("corelocal-kernel-{}", std::process::id()));
        fs::create_dir_all(folder.join("proc/self")).unwrap();
        let folder = fs::canonicalize(folder).unwrap();
        let path = |name: &str| String::from(folder.join(name).to_str().unwrap());
        let (fifo, file) = (path("fifo"), path("file"));
        let name = CString::new(fifo.as_str()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        fs::write(&file, "1\n").unwrap();
        symlink("/proc/self/cgroup", path("link")).unwrap();
        let open = |path: &str| File::open(&mut PathBuf::join(&[path.as_bytes()]).unwrap());
        let open_in_tree = |path: &str| File::open(&mut PathBuf::of_tree(path.as_bytes()).unwrap());
        // Of the FIFO nobody becomes the reader: a writer that does not wait is refused.
        let has_reader =
            || fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&fifo).is_ok();
        for other in [&fifo, &file, &path("link"), "/dev/zero", "/dev/shm/x"] {
            assert_eq!(open(other).err(), Some(Errno::ENOENT), "{other}");
        }
        assert_eq!(open_in_tree(&fifo).err(), Some(Errno::ENOENT));
        assert!(open_in_tree(&file).is_ok() && !has_reader());
        for of_kernel in ["/proc/self/cgroup", "/proc/self/maps", "/sys/kernel/mm/ksm/run"] {
            let is_there = std::path::Path::new(of_kernel).exists();
            assert_eq!(open(of_kernel).is_ok(), is_there, "{of_kernel}");
        }
        // The path is whole again.
        let mut path = PathBuf::join(&[b"/proc/self/statm"]).unwrap();
        assert!(File::open(&mut path).is_ok() && path.as_bytes() == b"/proc/self/statm");
        // What is of another of the kernel's file systems is not what the path says.
        assert!(KernelFs::of(b"/procession/x") == KernelFs::Groups);
        assert!(!KernelFs::of(b"/proc/self/cgroup").has(magic::SYSFS));
        assert!(KernelFs::of(b"/sys/fs/cgroup/memory.max").has(magic::CGROUP2));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn paths() {
        let mut path = PathBuf::join(&[b"/sys", b"/devices"]).unwrap();
        assert_eq!(path.as_bytes(), b"/sys/devices");
        path.truncate(4);
        path.push(b"/x").unwrap();
        assert_eq!(path.as_bytes(), b"/sys/x");
        assert_eq!(path.bytes[6], 0);
        assert_eq!(path.push(b"a\0b"), Err(Errno::EINVAL));
        assert_eq!(path.push(&[b'y'; PATH_BYTES - 6]), Err(Errno::ENAMETOOLONG));
        assert_eq!(path.push(&[b'y'; PATH_BYTES - 7]), Ok(()));
        let mut missing = PathBuf::of_tree(b"/nonexistent").unwrap();
        assert_eq!(File::open(&mut missing).err(), Some(Errno::ENOENT));
    }
}
