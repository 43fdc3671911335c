//! The content of a file that another user may have named or own.
//!
//! Opening a file has effects, whatever is done with it afterwards: a FIFO's writer goes on and fails with EPIPE when
//! the reader is closed, a watchdog begins to count. `O_NONBLOCK` does not prevent them. So the name is resolved first,
//! to a descriptor that opens nothing (`O_PATH`), and only what that leads to is opened, by way of `/proc/self/fd`.
//! Where /proc is not mounted, no file is.
//!
//! Invariants:
//! 1. No such file holds this process up or ends it.
//! 2. Nothing is opened but regular files, and pipes without a name, which a shell makes for its user.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use memmap2::Mmap;

/// The file system of pipes without a name (`PIPEFS_MAGIC`).
const PIPES: u32 = 0x5049_5045;
/// That of files for which a process answers (`FUSE_SUPER_MAGIC`).
const FUSE: u32 = 0x6573_5546;
/// That of files which lie in layers of other file systems (`OVERLAYFS_SUPER_MAGIC`).
const OVERLAY: u32 = 0x794c_7630;
/// File systems whose files hold what the kernel says at the moment: the same as in the library's `named_file.rs`.
const OF_THE_KERNEL: [u32; 16] = [
    0x0000_9fa0, // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0xde5e_81e4, // efivarfs
    0x4249_4e4d, // binfmt_misc
    0x1980_0202, // mqueue
    0x0765_5821, // resctrl
    0x6e73_6673, // nsfs
];

/// Opens a file that another user may have named, if it is regular or a pipe without a name (2). A directory is opened
/// as a path only.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let found = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
    let (kind, system) = (found.metadata()?.file_type(), file_system(&found)?);
    if kind.is_dir() {
        return Ok(found);
    }
    let is_stored = kind.is_file() && !OF_THE_KERNEL.contains(&system);
    let is_pipe = kind.is_fifo() && system == PIPES;
    if !is_stored && !is_pipe {
        return Err(io::Error::other(
            "it is neither a regular file that a file system stores nor a pipe without a name",
        ));
    }
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    let opened =
        File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(same);
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other(
            "/proc is not mounted, and without it the file cannot be opened safely",
        ),
        _ => error,
    })
}

/// The number of its file system's kind.
fn file_system(file: &File) -> io::Result<u32> {
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: an open descriptor; `stat` is writable.
    if unsafe { libc::fstatfs(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: integers, all zero before the call.
    // The magic number has 32 bits; how wide the field is differs.
    Ok(unsafe { stat.assume_init() }.f_type as u32)
}

/// Whether a process of another user may answer for what is read from it, and so keep the reader waiting. A file of
/// which that is not known counts as such.
///
/// The layers of an overlay may be FUSE mounts. Any user may mount an overlay in a user namespace of its own, and that
/// mount is in another mount namespace than this process. A mount of this process's mount namespace is trusted: only a
/// privileged user makes one, as a rule for the root of a container.
pub(crate) fn may_keep_waiting(file: &File) -> bool {
    match file_system(file) {
        Ok(OVERLAY) => !is_mounted_here(file),
        Ok(system) => system == FUSE,
        Err(_) => true,
    }
}

/// Whether a file was opened through a mount of this thread's mount namespace.
fn is_mounted_here(file: &File) -> bool {
    is_mounted_in(file, Path::new("/proc/thread-self")).unwrap_or(false)
}

/// Whether a file, as [`open`] gives it, lies in an overlay of a process in a container, and only a user with rights
/// over this process's user namespace makes mounts there.
///
/// `folder` is an open folder of /proc: it stays that process's, also when another one gets the process's number. An
/// unprivileged process may leave a namespace of which this is so, and cannot enter one: so it is looked at last.
pub(crate) fn is_in_overlay_of(folder: &File, file: &File) -> bool {
    let folder = PathBuf::from(format!("/proc/thread-self/fd/{}", folder.as_raw_fd()));
    matches!(file_system(file), Ok(OVERLAY))
        && is_mounted_in(file, &folder).unwrap_or(false)
        && is_of_own_users(&folder.join("ns/mnt")).unwrap_or(false)
}

/// Whether a file was opened through a mount of the mount namespace of a process, whose folder in /proc this is. A
/// mount's number is no other one's while a file is open in it.
fn is_mounted_in(file: &File, folder: &Path) -> Option<bool> {
    let opened = fs::read(format!("/proc/thread-self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = opened
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"mnt_id:").map(<[u8]>::trim_ascii))?;
    let mounts = fs::read(folder.join("mountinfo")).ok()?;
    // Each line begins with the number of the mount.
    let mut numbers =
        mounts.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b' ').next());
    Some(numbers.any(|number| number == Some(mount)))
}

/// Whether a namespace belongs to the user namespace of this process.
fn is_of_own_users(namespace: &Path) -> Option<bool> {
    /// `NS_GET_USERNS` of ioctl_ns(2), since Linux 4.9.
    const OWNER: libc::Ioctl = 0xb701;
    let namespace = File::open(namespace).ok()?;
    // SAFETY: an open descriptor, which the call does not change.
    let owner = unsafe { libc::ioctl(namespace.as_raw_fd(), OWNER) };
    if owner < 0 {
        return None;
    }
    // SAFETY: new, and nobody else's.
    let owner = File::from(unsafe { OwnedFd::from_raw_fd(owner) }).metadata().ok()?;
    let own = fs::metadata("/proc/thread-self/ns/user").ok()?;
    Some((owner.dev(), owner.ino()) == (own.dev(), own.ino()))
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
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let name = format!("corelocal-content-fifo-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let fifo = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        std::thread::scope(|scope| {
            // Waits for a reader; one that comes and goes would end it by EPIPE.
            let writer = scope.spawn(|| File::options().write(true).open(&path).map(drop));
            for _ in 0..200 {
                assert!(open(&path).is_err());
                assert!(!writer.is_finished(), "the writer met a reader");
                std::thread::yield_now();
            }
            drop(File::open(&path).unwrap());
        });
        std::fs::remove_file(&path).unwrap();
        for path in ["/dev/null", "/proc/self/cmdline", "/proc/self/maps"] {
            assert!(open(Path::new(path)).unwrap_err().to_string().contains("neither"), "{path}");
        }
        assert!(open(Path::new("/proc/self/exe")).is_ok());
        // Not every machine has these mounted.
        for path in [
            "/sys/fs/cgroup/cgroup.procs",
            "/sys/fs/cgroup/memory/cgroup.procs",
            "/proc/self/ns/mnt",
        ] {
            if let Err(error) = open(Path::new(path)) {
                let is_missing = error.kind() == io::ErrorKind::NotFound;
                assert!(is_missing || error.to_string().contains("neither"), "{path}: {error}");
            } else {
                panic!("{path} was opened");
            }
        }
        assert!(open(Path::new("/")).unwrap().metadata().unwrap().is_dir());
    }

    #[test]
    fn an_overlay_of_another_mount_namespace_may_keep_waiting() {
        const TEST: &str = "an_overlay_of_another_mount_namespace_may_keep_waiting";
        let dir = tempfile::tempdir().unwrap();
        for layer in ["a", "b", "merged"] {
            fs::create_dir(dir.path().join(layer)).unwrap();
        }
        fs::write(dir.path().join("a/file"), "content").unwrap();
        let c = |text: String| std::ffi::CString::new(text).unwrap();
        let at = dir.path().display();
        let (merged, layers) = (c(format!("{at}/merged")), c(format!("lowerdir={at}/a:{at}/b")));
        let open_overlay = || {
            let checked = |result: libc::c_int| match result {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            };
            let (overlay, root) = (c"overlay".as_ptr(), c"/".as_ptr());
            let (nothing, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
            // SAFETY: strings that end with NUL. What is mounted goes away with this thread and the file.
            unsafe {
                checked(libc::unshare(libc::CLONE_NEWNS))?;
                checked(libc::mount(root, root, nothing, private, nothing.cast()))?;
                let layers = layers.as_ptr().cast();
                checked(libc::mount(overlay, merged.as_ptr(), overlay, 0, layers))?;
            }
            let file = open(&dir.path().join("merged/file"))?;
            // Mounted in the namespace of this thread.
            assert!(!may_keep_waiting(&file));
            Ok::<_, io::Error>((file, File::open("/proc/thread-self")?))
        };
        let (hand_over, opened) = std::sync::mpsc::channel();
        let (end, is_over) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            // Its namespace is there while it runs, which is until the end of this function.
            let _end = end;
            scope.spawn(move || {
                let _ = hand_over.send(open_overlay());
                let _ = is_over.recv();
            });
            match opened.recv().unwrap() {
                Ok((file, folder)) => {
                    assert!(may_keep_waiting(&file));
                    assert!(is_in_overlay_of(&folder, &file));
                    // This thread is in another namespace, and the other file is in no overlay.
                    let other = File::open("/proc/thread-self").unwrap();
                    assert!(!is_in_overlay_of(&other, &file));
                    assert!(!is_in_overlay_of(&folder, &tempfile::tempfile().unwrap()));
                }
                Err(error) => eprintln!("skipped: {TEST}: cannot mount an overlay: {error}"),
            }
        });
    }

    #[test]
    fn mounts_of_other_users_namespaces_are_not_believed() {
        use std::os::unix::process::CommandExt as _;
        assert_eq!(is_of_own_users(Path::new("/proc/thread-self/ns/mnt")), Some(true));
        let mut command = std::process::Command::new("sleep");
        command.arg("60");
        let unshare = || {
            // SAFETY: between fork and exec; a system call.
            match unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the function makes a system call and reads errno.
        let child = unsafe { command.pre_exec(unshare) }.spawn();
        let Ok(mut child) = child.inspect_err(|error| {
            eprintln!("skipped: mounts_of_other_users_namespaces_are_not_believed: {error}");
        }) else {
            return;
        };
        let namespace = format!("/proc/{}/ns/mnt", child.id());
        let found = is_of_own_users(Path::new(&namespace));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, Some(false));
    }

    /// As a shell gives it: `corelocal check <(cat FILE)`.
    #[test]
    fn a_pipe_without_a_name_is_read() {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "printf content"]).stdout(std::process::Stdio::piped());
        let mut shell = command.spawn().unwrap();
        shell.wait().unwrap();
        let path = format!("/proc/self/fd/{}", shell.stdout.as_ref().unwrap().as_raw_fd());
        let mut content = Vec::new();
        open(Path::new(&path)).unwrap().read_to_end(&mut content).unwrap();
        assert_eq!(content, b"content");
    }
}
