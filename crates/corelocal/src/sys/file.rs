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
/// The process's mappings.
pub(crate) const OWN_MAPS: &CStr = c"/proc/thread-self/maps";

/// For reading, without waiting for anything.
const READ_NOW: i32 = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;

/// What `statfs(2)` calls file systems.
mod magic {
    pub(super) const PROC: u32 = 0x0000_9fa0;
    pub(super) const SYSFS: u32 = 0x6265_6572;
    pub(super) const CGROUP: u32 = 0x0027_e0eb;
    pub(super) const CGROUP2: u32 = 0x6367_7270;
}

/// The file systems whose files hold what the kernel says, as far as they are read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelFs {
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

    /// As [`open`](Self::open), of a path that is not built.
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

    /// `openat(AT_FDCWD, path, flags | O_CLOEXEC, 0600)`, see openat(2).
    #[doc(alias = "openat")]
    fn open_with(path: &CStr, flags: i32) -> Result<File, Errno> {
        let (at, flags) = (libc::AT_FDCWD as usize, (flags | libc::O_CLOEXEC) as usize);
        // SAFETY: the path ends with NUL and outlives the call.
        retry(|| unsafe {
            syscall(libc::SYS_openat, [at, path.as_ptr() as usize, flags, 0o600, 0, 0])
        })
        .map(File)
    }

    /// Its kind and permissions. Through libc, which knows the layout of `stat`.
    fn mode(&self) -> Result<libc::mode_t, Errno> {
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: a descriptor; `stat` is writable.
        if unsafe { libc::fstat(self.0 as i32, stat.as_mut_ptr()) } != 0 {
            return Err(Errno::last());
        }
        // SAFETY: all bytes 0 is a `stat`, and the call has filled it.
        Ok(unsafe { stat.assume_init() }.st_mode)
    }

    /// `fstatfs(fd, &stat)`, see fstatfs(2).
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

    /// The file of a descriptor, which is closed with it.
    ///
    /// # Safety
    /// - The descriptor is open, and only the caller uses it.
    #[cfg(not(any(loom, miri)))]
    pub(crate) unsafe fn of_descriptor(descriptor: usize) -> File {
        File(descriptor)
    }

    /// Its descriptor.
    #[cfg(not(any(loom, miri)))]
    pub(crate) fn descriptor(&self) -> usize {
        self.0
    }

    /// Removes a path, whose file could not be written whole.
    pub(crate) fn remove(path: &CStr) {
        // SAFETY: a path that ends with NUL.
        unsafe { libc::unlink(path.as_ptr()) };
    }

    /// `write(fd, bytes, len)`, see write(2).
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

    /// `ppoll(&{fd, POLLOUT}, 1, NULL, NULL)`, see ppoll(2).
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

    /// `read(fd, buffer, len)`, see read(2).
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
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::string::String;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_new_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let name = CString::new(path.to_str().unwrap()).unwrap();
        File::create(&name, true).unwrap().write_all(b"old and long").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(File::create(&name, true).err(), Some(Errno::EEXIST));
        assert_eq!(fs::read(&path).unwrap(), b"old and long");
        File::create(&name, false).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        File::create(c"/dev/null", false).unwrap().write_all(b"new").unwrap();
        assert_eq!(File::create(c"/", false).err(), Some(Errno(libc::EISDIR)));
    }

    #[test]
    fn a_pipe_that_does_not_wait_is_waited_for() {
        use std::io::Read as _;
        use std::os::fd::FromRawFd as _;
        let mut ends = [0; 2];
        // SAFETY: two descriptors, which the files own.
        let (mut from, to) = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK), 0);
            libc::fcntl(ends[0], libc::F_SETFL, 0);
            (fs::File::from_raw_fd(ends[0]), File(ends[1] as usize))
        };
        let long = std::vec![7; 300_000];
        let reader = std::thread::spawn(move || {
            let mut all = std::vec::Vec::new();
            from.read_to_end(&mut all).map(|_| all)
        });
        to.write_all(&long).unwrap();
        drop(to);
        assert!(reader.join().unwrap().unwrap() == long);
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_reads_its_own() {
        static HAS_GROUPS: AtomicBool = AtomicBool::new(false);
        let groups = fs::read("/proc/self/cgroup").is_ok_and(|text| !text.is_empty());
        HAS_GROUPS.store(groups, Ordering::Relaxed);
        extern "C" fn read_all(first: *mut libc::c_void) -> *mut libc::c_void {
            // Once it is a zombie, the files of /proc/self are empty.
            let path = PathBuf::join(&[b"/proc/self/statm"]).unwrap();
            let (began, mut text) = (std::time::Instant::now(), [0; 8]);
            while File::open(&path).unwrap().read(&mut text).is_ok_and(|len| len > 0)
                && text[..2] != *b"0 "
                && began.elapsed().as_secs() < 10
            {
                std::thread::yield_now();
            }
            let is_read = |name: &[u8]| {
                let file =
                    PathBuf::join(&[OWN.to_bytes(), name]).and_then(|path| File::open(&path));
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
            // SAFETY: ends the calling thread only; its stack stays mapped.
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
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| String::from(folder.path().join(name).to_str().unwrap());
        let (fifo, file) = (path("fifo"), path("file"));
        let name = CString::new(fifo.as_str()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        fs::write(&file, "1\n").unwrap();
        let open = |path: &str| File::open(&PathBuf::join(&[path.as_bytes()]).unwrap());
        let open_in_tree = |path: &str| File::open(&PathBuf::of_tree(path.as_bytes()).unwrap());
        for other in [&fifo, &file, "/dev/zero", "/dev/shm/x"] {
            assert_eq!(open(other).err(), Some(Errno::ENOENT), "{other}");
        }
        assert_eq!(open_in_tree(&fifo).err(), Some(Errno::ENOENT));
        assert!(open_in_tree(&file).is_ok());
        for of_kernel in ["/proc/self/cgroup", "/proc/self/maps", "/sys/kernel/mm/ksm/run"] {
            let is_there = std::path::Path::new(of_kernel).exists();
            assert_eq!(open(of_kernel).is_ok(), is_there, "{of_kernel}");
        }
        // What is of another of the kernel's file systems is not what the path says.
        assert!(KernelFs::of(b"/procession/x") == KernelFs::Groups);
        assert!(!KernelFs::of(b"/proc/self/cgroup").has(magic::SYSFS));
        assert!(KernelFs::of(b"/sys/fs/cgroup/memory.max").has(magic::CGROUP2));
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
        let missing = PathBuf::of_tree(b"/nonexistent").unwrap();
        assert_eq!(File::open(&missing).err(), Some(Errno::ENOENT));
    }
}
