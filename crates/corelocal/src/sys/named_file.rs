//! Files that are opened by a name which another user may have chosen.
//!
//! Opening a file has effects, whatever is done with it afterwards: a FIFO's writer goes on and fails with EPIPE when
//! the reader is closed, a watchdog begins to count, a tape is rewound. `O_NONBLOCK` prevents waiting, not effects. So
//! the name is resolved first, to a descriptor that opens nothing (`O_PATH`). What that descriptor leads to is judged,
//! and only a file of a wanted kind is opened, by way of `/proc/thread-self/fd`.
//!
//! # Files that hold what the kernel says
//! The owner of a file of procfs, sysfs and the like is not the author of its content: `/proc/PROCESS/cmdline` may
//! belong to root, and holds what the process's user wrote. Such a file is of no wanted kind.
//!
//! # Where /proc is not mounted
//! The file is opened by its name again, if no symbolic link is on the way (`openat2(2)`, since Linux 5.6; other errors
//! without). Another user that replaces the file meanwhile can then lead the name to a file of its own only. What was
//! opened must be the file that was judged.
//!
//! # Invariants
//! 1. No file is opened but a regular one that a file system stores, or the device that is asked for.
//! 2. Nothing here allocates or takes a lock: it is async-signal-safe.

use core::ffi::{CStr, c_int};

use super::errno::Errno;
use super::file::{PathBuf, decimal};
use super::shared_file::{FileStatus, SharedFile, checked};

/// Where the hypervisor's pages are. Root alone names files there.
const VMCLOCK: &[u8] = b"/dev/vmclock";
/// For `openat2(2)`: no symbolic link on the way, of /proc neither.
const RESOLVE_NO_SYMLINKS: u64 = 0x04;

/// File systems whose files hold what the kernel says at the moment, as `statfs(2)` numbers them.
const OF_THE_KERNEL: [u32; 16] = [
    magic::PROC,
    magic::SYSFS,
    magic::CGROUP,
    magic::CGROUP2,
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0xde5e_81e4, // efivarfs
    0x4249_4e4d, // binfmt_misc
    0x1980_0202, // mqueue
    0x0765_5821, // resctrl
    0x6e73_6673, // nsfs
];

/// Those of which other modules read.
pub(super) mod magic {
    pub(crate) const PROC: u32 = 0x0000_9fa0;
    pub(crate) const SYSFS: u32 = 0x6265_6572;
    pub(crate) const CGROUP: u32 = 0x0027_e0eb;
    pub(crate) const CGROUP2: u32 = 0x6367_7270;
}

/// Why a file was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// A system call failed.
    System(Errno),
    /// It is there, but is of no wanted kind.
    Kind,
}

impl From<Errno> for NotOpened {
    fn from(error: Errno) -> NotOpened {
        NotOpened::System(error)
    }
}

/// Opens a regular file with these flags: `O_RDONLY` or `O_RDWR`, and `O_NOFOLLOW`. A relative path begins at the
/// directory `at`.
pub(super) fn open_regular(at: c_int, path: &CStr, flags: c_int) -> Result<SharedFile, NotOpened> {
    open_if(at, path, flags, |_| false)
}

/// Opens a regular file or a hypervisor's page for reading.
pub(super) fn open_page(path: &CStr) -> Result<SharedFile, NotOpened> {
    open_if(libc::AT_FDCWD, path, libc::O_RDONLY, |status| {
        status.is_device && (is_vmclock(path.to_bytes()) || has_vmclock_number(status.device))
    })
}

fn open_if(
    at: c_int,
    path: &CStr,
    flags: c_int,
    is_wanted: impl FnOnce(&FileStatus) -> bool,
) -> Result<SharedFile, NotOpened> {
    let found = SharedFile::open_at(at, path, libc::O_PATH | flags & libc::O_NOFOLLOW)?;
    let status = found.status()?;
    if status.is_link {
        // As without O_PATH.
        return Err(Errno::ELOOP.into());
    }
    let is_stored = status.is_regular && !OF_THE_KERNEL.contains(&found.file_system()?);
    if !is_stored && !is_wanted(&status) {
        return Err(NotOpened::Kind);
    }
    let opened = match SharedFile::open_at(
        libc::AT_FDCWD,
        found.path().as_c_str(),
        flags & !libc::O_NOFOLLOW,
    ) {
        Err(Errno::ENOENT | Errno::ENOTDIR) => open_without_links(at, path, flags)?,
        opened => return Ok(opened?),
    };
    // Replaced meanwhile.
    if opened.status()?.identity == status.identity {
        Ok(opened)
    } else {
        Err(Errno::EAGAIN.into())
    }
}

/// Opens a file that no symbolic link leads to.
fn open_without_links(at: c_int, path: &CStr, flags: c_int) -> Result<SharedFile, Errno> {
    // `struct open_how`: flags, mode, how the path is resolved.
    let how = [(flags | SharedFile::FLAGS) as u64, 0, RESOLVE_NO_SYMLINKS];
    loop {
        // Not every libc has a function for it.
        // SAFETY: the path ends with NUL, and `how` has the size that is given.
        let opened = unsafe {
            libc::syscall(libc::SYS_openat2, at, path.as_ptr(), how.as_ptr(), size_of_val(&how))
        };
        match checked(opened as c_int) {
            Err(Errno::EINTR) => {}
            // SAFETY: a new descriptor, which nothing else closes.
            opened => return opened.map(|new| unsafe { SharedFile::from_raw(new) }),
        }
    }
}

/// Whether a path is that of a hypervisor's page.
fn is_vmclock(path: &[u8]) -> bool {
    path.strip_prefix(VMCLOCK).is_some_and(is_number)
}

fn is_number(digits: &[u8]) -> bool {
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Whether the device of this number is a hypervisor's page under another name: sysfs has its own one.
fn has_vmclock_number(device: u64) -> bool {
    let (mut major, mut minor) = ([0; 20], [0; 20]);
    let device = device as libc::dev_t;
    let major = decimal(u64::from(libc::major(device)), &mut major);
    let minor = decimal(u64::from(libc::minor(device)), &mut minor);
    let Ok(path) = PathBuf::join(&[b"/sys/dev/char/", major, b":", minor]) else { return false };
    let mut link = [0; 256];
    // SAFETY: the path ends with NUL; the kernel writes at most `len` bytes to `link`.
    let len =
        unsafe { libc::readlink(path.as_c_str().as_ptr(), link.as_mut_ptr().cast(), link.len()) };
    // A longer one is cut.
    let link = usize::try_from(len).ok().and_then(|len| link.get(..len));
    let name = link.and_then(|link| link.rsplit(|&byte| byte == b'/').next());
    name.and_then(|name| name.strip_prefix(b"vmclock")).is_some_and(is_number)
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::path::{Path, PathBuf};
    use std::{env, format, fs, vec};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("corelocal-named-{}-{name}", std::process::id());
            let path = env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            // Links of /tmp and above would be followed.
            Folder(fs::canonicalize(path).unwrap())
        }

        fn path(&self, name: &str) -> CString {
            c(&self.0.join(name))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn c(path: &Path) -> CString {
        CString::new(path.to_str().unwrap()).unwrap()
    }

    fn regular(path: &CStr, flags: c_int) -> Result<SharedFile, NotOpened> {
        open_regular(libc::AT_FDCWD, path, flags)
    }

    #[test]
    fn a_fifo_s_writer_does_not_notice() {
        let folder = Folder::new("fifo");
        let fifo = folder.path("fifo");
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        // Opened for writing without waiting, a FIFO without a reader is ENXIO: so no descriptor below is a reader.
        let is_read = || {
            let path = folder.0.join("fifo");
            let opened = fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path);
            opened.is_ok()
        };
        let writer = std::thread::scope(|scope| {
            // Waits for a reader.
            let writer =
                scope.spawn(|| fs::File::options().write(true).open(folder.0.join("fifo")));
            for _ in 0..200 {
                assert_eq!(regular(&fifo, libc::O_RDONLY).err(), Some(NotOpened::Kind));
                assert_eq!(regular(&fifo, libc::O_RDWR).err(), Some(NotOpened::Kind));
                assert_eq!(open_page(&fifo).err(), Some(NotOpened::Kind));
                assert!(!writer.is_finished(), "the writer met a reader");
                std::thread::yield_now();
            }
            assert!(!is_read());
            let _reader = fs::File::open(folder.0.join("fifo")).unwrap();
            writer.join().unwrap()
        });
        assert!(writer.is_ok());
    }

    #[test]
    fn kinds() {
        let folder = Folder::new("kinds");
        fs::write(folder.0.join("file"), "x").unwrap();
        let (file, link) = (folder.path("file"), folder.path("link"));
        std::os::unix::fs::symlink("file", folder.0.join("link")).unwrap();
        assert!(regular(&file, libc::O_RDWR | libc::O_NOFOLLOW).is_ok());
        let opened = regular(&link, libc::O_RDWR).unwrap();
        assert_eq!(opened.read_head(&mut [0; 8]), Ok(1));
        // SAFETY: an open descriptor.
        let flags = unsafe { libc::fcntl(opened.descriptor(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        let refused = regular(&link, libc::O_RDWR | libc::O_NOFOLLOW).err();
        assert_eq!(refused, Some(Errno::ELOOP.into()));
        assert_eq!(regular(&folder.path("no"), 0).err(), Some(Errno::ENOENT.into()));
        // Of a process's own `cmdline` valgrind makes a regular file.
        let others =
            [c"/dev/null", c"/dev", c"/proc/self/comm", c"/proc/self/status", c"/sys/kernel/mm"];
        for path in others {
            assert_eq!(regular(path, libc::O_RDONLY).err(), Some(NotOpened::Kind), "{path:?}");
            assert_eq!(open_page(path).err(), Some(NotOpened::Kind), "{path:?}");
        }
        // By way of /proc, to what is no file of it.
        let memory = SharedFile::create_nameless().unwrap();
        assert!(regular(memory.path().as_c_str(), libc::O_RDWR).is_ok());
        assert!(is_vmclock(b"/dev/vmclock0") && is_vmclock(b"/dev/vmclock12"));
        for path in [&b"/dev/vmclock"[..], b"/dev/vmclock0/x", b"/tmp/vmclock0", b"/dev/vmclock0x"]
        {
            assert!(!is_vmclock(path));
        }
    }

    #[test]
    fn a_thread_s_own_descriptors_are_meant() {
        use std::sync::mpsc::channel;
        let folder = Folder::new("descriptors");
        fs::write(folder.0.join("file"), "x").unwrap();
        fs::write(folder.0.join("other"), "other").unwrap();
        let path = folder.path("file");
        let ((parted, is_parted), (go, may_go)) = (channel(), channel::<()>());
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                // A table of its own, without the descriptors of other tests.
                // SAFETY: this thread has none above 2, and no other thread's are closed (CLOSE_RANGE_UNSHARE).
                let unshared = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 2) == 0 };
                parted.send(unshared).unwrap();
                may_go.recv().unwrap();
                unshared.then(|| {
                    let opened = regular(&path, libc::O_RDONLY)?;
                    let mut content = [0; 8];
                    let len = opened.read_head(&mut content)?;
                    Ok::<_, NotOpened>(content[..len].to_vec())
                })
            });
            if !is_parted.recv().unwrap() {
                std::eprintln!("skipped: a_thread_s_own_descriptors_are_meant: no close_range");
            }
            // The reader's first number is 3, which is another file's here.
            let open_other = || fs::File::open(folder.0.join("other")).unwrap();
            let mut others = vec![open_other()];
            while others.iter().all(|file| std::os::fd::AsRawFd::as_raw_fd(file) < 3) {
                others.push(open_other());
            }
            go.send(()).unwrap();
            if let Some(content) = reader.join().unwrap() {
                assert_eq!(content.as_deref(), Ok(&b"x"[..]));
            }
        });
    }

    #[test]
    fn without_proc_no_link_is_followed() {
        let folder = Folder::new("links");
        fs::write(folder.0.join("file"), "x").unwrap();
        fs::create_dir(folder.0.join("in")).unwrap();
        fs::write(folder.0.join("in/file"), "x").unwrap();
        let links = vec![("link", "file"), ("away", "in")];
        for (name, to) in links {
            std::os::unix::fs::symlink(to, folder.0.join(name)).unwrap();
        }
        let open =
            |name| open_without_links(libc::AT_FDCWD, &folder.path(name), libc::O_RDONLY).map(drop);
        if open("file") == Err(Errno::ENOSYS) {
            return std::eprintln!("skipped: without_proc_no_link_is_followed: no openat2");
        }
        assert_eq!((open("file"), open("in/file")), (Ok(()), Ok(())));
        assert_eq!((open("link"), open("away/file")), (Err(Errno::ELOOP), Err(Errno::ELOOP)));
    }
}
