//! Files that processes share through memory: pages that one process writes and others read, and objects that all
//! use.
//!
//! A file is opened without blocking, checked by its descriptor (`file/trust.rs`), locked by its writer, and mapped.
//! These calls go through libc, which knows the layout of `stat` and the size of offsets on each architecture. None of
//! them is on a fast path.
//!
//! # The owner of a lock
//! An OFD lock belongs to the open file. Closing another descriptor of the file does not release it, as it would for
//! `lockf(3)`, and two writers in one process exclude each other too. But it does not record its owner. So the owner
//! takes a second lock, on the byte whose number is the process id, in a range far above any content. Both are
//! released when the process ends at any instruction.
//!
//! # Invariants
//! 1. A [`SharedFile`] is an open descriptor, closed once.
//! 2. A [`Mapping`] is `len` bytes from one `mmap`, unmapped once. Its memory lives as long as it. Any process that
//!    may write to the file can change the content. Access beyond the end of a truncated file fails with SIGBUS,
//!    which a library cannot catch. A sealed file ([`SharedFile::seal_len`]) cannot be truncated.
//! 3. At every moment all users have at most the rights to a file made here that its final mode gives.

mod mapping;

pub(crate) use mapping::Mapping;

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;

use super::size::without_sigxfsz;
use super::trust::{Refused, Rule};
use crate::sys::errno::Errno;

/// The byte whose lock makes a process the writer.
const WRITER: i64 = 1 << 40;
/// The first of the bytes whose locks stand for processes.
const NAMES: i64 = 1 << 41;
const NAMES_LEN: i64 = 1 << 32;
/// The file system of files of huge pages (`HUGETLBFS_MAGIC`).
const HUGETLBFS: u32 = 0x9584_58f6;

/// An open file.
pub(crate) struct SharedFile(c_int);

/// The results of `fstat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStatus {
    pub(crate) len: u64,
    pub(crate) is_regular: bool,
    /// Whether it is a character device.
    pub(crate) is_device: bool,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    /// The number of the file's names; 0 for unnamed memory.
    pub(crate) links: u64,
    /// The file's identity: device and inode.
    pub(crate) identity: (u64, u64),
}

impl SharedFile {
    /// The flags with which every file is opened.
    const FLAGS: c_int = libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;

    /// Opens a file or device for reading, if it is as the rule demands.
    pub(crate) fn open(path: &CStr, rule: &Rule) -> Result<(SharedFile, FileStatus), Refused> {
        Self::open_judged(path, libc::O_RDONLY, rule)
    }

    /// Opens a file that must exist for reading and writing, if it is as the rule demands; no symbolic link.
    pub(crate) fn open_writable(
        path: &CStr,
        rule: &Rule,
    ) -> Result<(SharedFile, FileStatus), Refused> {
        Self::open_judged(path, libc::O_RDWR | libc::O_NOFOLLOW, rule)
    }

    /// Opens a file that must exist for reading and writing, by way of a link too: `/proc/PROCESS/fd/N` is one.
    pub(crate) fn open_linked(path: &CStr) -> Result<SharedFile, Errno> {
        Self::open_with(path, libc::O_RDWR)
    }

    fn open_judged(
        path: &CStr,
        flags: c_int,
        rule: &Rule,
    ) -> Result<(SharedFile, FileStatus), Refused> {
        let file = Self::open_with(path, flags)?;
        let status = file.status()?;
        rule.judge(&status)?;
        Ok((file, status))
    }

    /// Makes a file that must not exist, with these permissions whatever the umask.
    pub(crate) fn create_for(path: &CStr, mode: u32) -> Result<SharedFile, Errno> {
        let file = Self::open_with(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?;
        file.set_mode(mode)?;
        Ok(file)
    }

    /// Makes a file of a directory's file system that has no name yet (`O_TMPFILE`), with these permissions
    /// whatever the umask. It vanishes with its last descriptor, unless [`link`](Self::link) gave it a name.
    ///
    /// Fails where the file system has no such files, and where /proc is not there to find it by.
    pub(crate) fn create_unlinked(directory: &CStr, mode: u32) -> Result<SharedFile, Errno> {
        let file = Self::open_with(directory, libc::O_RDWR | libc::O_TMPFILE)?;
        file.set_mode(mode)?;
        status_of(file.path().as_c_str()).map(|_| file)
    }

    /// Gives a file that was made without one a name; `EEXIST` if that is taken.
    pub(crate) fn link(&self, name: &CStr) -> Result<(), Errno> {
        let (from, at) = (self.path(), libc::AT_FDCWD);
        let flags = libc::AT_SYMLINK_FOLLOW;
        // SAFETY: both paths end with NUL.
        checked(unsafe { libc::linkat(at, from.as_c_str().as_ptr(), at, name.as_ptr(), flags) })
            .map(drop)
    }

    /// Returns what the open file is called in /proc.
    fn path(&self) -> DescriptorPath {
        DescriptorPath::of(self.0)
    }

    /// Makes a file that has no name and may be sealed, which its owner alone may open by way of /proc.
    pub(crate) fn create_nameless() -> Result<SharedFile, Errno> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with NUL.
        let file = checked(unsafe { libc::memfd_create(c"corelocal".as_ptr(), flags) });
        let file = file.map(SharedFile)?;
        // The kernel's mode is 0777.
        file.set_mode(0o600)?;
        Ok(file)
    }

    /// Returns a descriptor of this object's own for the file of another descriptor.
    pub(crate) fn duplicate(descriptor: c_int) -> Result<SharedFile, Errno> {
        // SAFETY: a number; one that is no descriptor is refused.
        checked(unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) }).map(SharedFile)
    }

    pub(crate) fn descriptor(&self) -> c_int {
        self.0
    }

    /// Makes an empty file this long, of zeros, with room reserved for all of it; `EFBIG` past the limit of the
    /// process.
    pub(crate) fn reserve(&self, len: usize) -> Result<(), Errno> {
        loop {
            let reserved = without_sigxfsz(|| {
                // SAFETY: an open descriptor (1).
                match unsafe { libc::posix_fallocate(self.0, 0, len as libc::off_t) } {
                    0 => Ok(()),
                    error => Err(Errno(error)),
                }
            });
            if reserved != Err(Errno::EINTR) {
                return reserved;
            }
        }
    }

    /// Keeps the length of a nameless file as it is, for ever.
    pub(crate) fn seal_len(&self) -> Result<(), Errno> {
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        // SAFETY: an open descriptor (1).
        checked(unsafe { libc::fcntl(self.0, libc::F_ADD_SEALS, seals) }).map(drop)
    }

    /// Returns `true` if no access to the file's memory can fail any more: it cannot be cut short. One of huge pages,
    /// which can be sealed too, has memory only as long as the kernel has such pages left; access is SIGBUS then.
    pub(crate) fn is_sealed(&self) -> bool {
        if self.is_of_huge_pages() {
            return false;
        }
        // SAFETY: an open descriptor (1).
        let seals = checked(unsafe { libc::fcntl(self.0, libc::F_GET_SEALS, 0) });
        seals.is_ok_and(|seals| seals & libc::F_SEAL_SHRINK != 0)
    }

    /// Returns `true` also if the kernel does not tell.
    fn is_of_huge_pages(&self) -> bool {
        self.file_system().map_or(true, |number| number == HUGETLBFS)
    }

    /// Returns the number of its file system's kind.
    fn file_system(&self) -> Result<u32, Errno> {
        let mut stat = MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: an open descriptor (1); `stat` is writable.
        checked(unsafe { libc::fstatfs(self.0, stat.as_mut_ptr()) })?;
        // SAFETY: integers, all zero before the call.
        // The magic number has 32 bits; how wide the field is differs.
        Ok(unsafe { stat.assume_init() }.f_type as u32)
    }

    /// Gives a file of this user's to a group besides.
    pub(crate) fn set_group(&self, group: u32) -> Result<(), Errno> {
        // SAFETY: an open descriptor (1); -1 leaves the owner as it is.
        checked(unsafe { libc::fchown(self.0, libc::uid_t::MAX, group) }).map(drop)
    }

    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        // SAFETY: an open descriptor (1).
        checked(unsafe { libc::fchmod(self.0, mode as libc::mode_t) }).map(drop)
    }

    /// Opens a file. One that is made is its owner's alone at first (3).
    fn open_with(path: &CStr, flags: c_int) -> Result<SharedFile, Errno> {
        let flags = flags | Self::FLAGS;
        loop {
            // SAFETY: the path ends with NUL.
            match checked(unsafe { libc::open(path.as_ptr(), flags, 0o600) }) {
                Err(Errno::EINTR) => {}
                opened => return opened.map(SharedFile),
            }
        }
    }

    pub(crate) fn status(&self) -> Result<FileStatus, Errno> {
        // SAFETY: an open descriptor (1).
        status_by(|stat| unsafe { libc::fstat(self.0, stat) })
    }

    /// Fills `buffer` from the start of the file, and says how many bytes there were.
    pub(crate) fn read_head(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            // SAFETY: an open descriptor (1); the kernel writes at most `len` bytes to `rest`.
            let read = unsafe {
                libc::pread(self.0, rest.as_mut_ptr().cast(), rest.len(), done as libc::off_t)
            };
            match usize::try_from(read) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(_) if Errno::last() == Errno::EINTR => {}
                Err(_) => return Err(Errno::last()),
            }
        }
        Ok(done)
    }

    /// Writes the whole content of an empty file at once: others see the file empty or complete.
    ///
    /// # Errors
    /// `EFBIG` past the limit of the process; others of the kernel's. The file is empty then.
    pub(crate) fn write_first(&self, content: &[u8]) -> Result<(), Errno> {
        let written = self.write_at(0, content)?;
        let Some(rest) = content.get(written..).filter(|rest| !rest.is_empty()) else {
            return Ok(());
        };
        // The kernel says why at the next call.
        let why = self.write_at(written, rest).err().unwrap_or(Errno::ENOSPC);
        // SAFETY: an open descriptor (1).
        unsafe { libc::ftruncate(self.0, 0) };
        Err(why)
    }

    fn write_at(&self, at: usize, content: &[u8]) -> Result<usize, Errno> {
        let (from, len) = (content.as_ptr().cast(), content.len());
        without_sigxfsz(|| {
            // SAFETY: an open descriptor (1); the kernel reads `len` bytes of `content`.
            let written = unsafe { libc::pwrite(self.0, from, len, at as libc::off_t) };
            usize::try_from(written).map_err(|_| Errno::last())
        })
    }

    /// Becomes the file's writer; `false` if another is.
    pub(crate) fn lock(&self) -> Result<bool, Errno> {
        match self.control(libc::F_OFD_SETLK, WRITER, 1) {
            Ok(_) => {
                // Best effort: without it other processes cannot find out the writer.
                let _ =
                    self.control(libc::F_OFD_SETLK, NAMES + i64::from(crate::sys::process_id()), 1);
                Ok(true)
            }
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns `true` if another holds the writer's lock for writing, for which it must have the right to write.
    pub(crate) fn has_writer(&self) -> Result<bool, Errno> {
        let mut lock = record(WRITER, 1);
        // A lock for reading meets those for writing only.
        lock.l_type = libc::F_RDLCK as libc::c_short;
        // SAFETY: an open descriptor (1); the kernel reads and writes the record.
        checked(unsafe { libc::fcntl(self.0, libc::F_OFD_GETLK, &raw mut lock) })?;
        Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
    }

    /// Returns the process id of the file's writer, in its own pid namespace. `None` if it is not recorded.
    pub(crate) fn holder(&self) -> Option<u32> {
        let lock = self.control(libc::F_OFD_GETLK, NAMES, NAMES_LEN).ok()?;
        let is_held = lock.l_type != libc::F_UNLCK as libc::c_short;
        if is_held { u32::try_from(lock.l_start - NAMES).ok() } else { None }
    }

    /// Lets both locks go. A copy of the descriptor in a forked child would keep them otherwise.
    pub(crate) fn unlock(&self) {
        let mut lock = record(0, 0);
        lock.l_type = libc::F_UNLCK as libc::c_short;
        // SAFETY: an open descriptor (1), a valid record.
        unsafe { libc::fcntl(self.0, libc::F_OFD_SETLK, &raw mut lock) };
    }

    fn control(&self, command: c_int, start: i64, len: i64) -> Result<libc::flock, Errno> {
        let mut lock = record(start, len);
        // SAFETY: an open descriptor (1); the kernel reads and writes the record.
        checked(unsafe { libc::fcntl(self.0, command, &raw mut lock) })?;
        Ok(lock)
    }

    /// Maps the first `len` bytes, shared; for writing too if `writable`.
    pub(crate) fn map(&self, len: usize, writable: bool) -> Result<Mapping, Errno> {
        let protection =
            if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let at = unsafe {
            libc::mmap(core::ptr::null_mut(), len, protection, libc::MAP_SHARED, self.0, 0)
        };
        if at == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(Mapping { at: at.cast(), len }) }
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: ours, and not used again (1).
        unsafe { libc::close(self.0) };
    }
}

/// `/proc/thread-self/fd/` and a number. A thread may have descriptors of its own (`CLONE_FILES`), and `/proc/self` is
/// the first thread's.
struct DescriptorPath([u8; 32]);

impl DescriptorPath {
    fn of(descriptor: c_int) -> DescriptorPath {
        const START: &[u8] = b"/proc/thread-self/fd/";
        let mut path = [0; 32];
        path[..START.len()].copy_from_slice(START);
        let mut number = descriptor.unsigned_abs();
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        for digit in path[START.len()..][..digits].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        DescriptorPath(path)
    }

    fn as_c_str(&self) -> &CStr {
        // A number of 32 bits has ten digits: a NUL remains.
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// Returns the status of the file that a path names; of the link itself, if it names one.
pub(crate) fn status_of(path: &CStr) -> Result<FileStatus, Errno> {
    // SAFETY: the path ends with NUL.
    status_by(|stat| unsafe { libc::lstat(path.as_ptr(), stat) })
}

/// Calls `renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE)`, see renameat2(2).
///
/// Gives a file another name; `EEXIST` if that one is taken.
#[doc(alias = "renameat2")]
pub(crate) fn rename_new(from: &CStr, to: &CStr) -> Result<(), Errno> {
    let (at, flags) = (libc::AT_FDCWD, libc::RENAME_NOREPLACE);
    // Not every libc has a function for it.
    // SAFETY: both paths end with NUL.
    let done =
        unsafe { libc::syscall(libc::SYS_renameat2, at, from.as_ptr(), at, to.as_ptr(), flags) };
    if done < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Takes a name away.
pub(crate) fn unlink(path: &CStr) -> Result<(), Errno> {
    // SAFETY: the path ends with NUL.
    checked(unsafe { libc::unlink(path.as_ptr()) }).map(drop)
}

/// Returns the effective user of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// Returns what `fstat` tells of a descriptor.
pub(crate) fn status_by_descriptor(descriptor: c_int) -> Result<FileStatus, Errno> {
    // SAFETY: a place for the answer; a number that is no descriptor is an error.
    status_by(|stat| unsafe { libc::fstat(descriptor, stat) })
}

fn status_by(ask: impl FnOnce(*mut libc::stat) -> c_int) -> Result<FileStatus, Errno> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    checked(ask(stat.as_mut_ptr()))?;
    // SAFETY: integers, all zero before the call.
    let stat = unsafe { stat.assume_init() };
    let kind = stat.st_mode & libc::S_IFMT;
    #[allow(clippy::useless_conversion, reason = "u32 on aarch64")]
    let links = u64::from(stat.st_nlink);
    Ok(FileStatus {
        len: u64::try_from(stat.st_size).unwrap_or(0),
        is_regular: kind == libc::S_IFREG,
        is_device: kind == libc::S_IFCHR,
        mode: stat.st_mode & 0o7777,
        owner: stat.st_uid,
        links,
        identity: (stat.st_dev, stat.st_ino),
    })
}

/// Returns a lock for writing on `len` bytes (0: all there may ever be) from `start`.
fn record(start: i64, len: i64) -> libc::flock {
    // SAFETY: integers, of which zero is a value; `l_pid` must be 0 for OFD locks.
    let mut lock: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = start as libc::off_t;
    lock.l_len = len as libc::off_t;
    lock
}

fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

#[cfg(all(test, not(loom)))]
mod tests;
