//! Tests of `file.rs`.

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
            let file = PathBuf::join(&[OWN.to_bytes(), name]).and_then(|path| File::open(&path));
            let mut text = [0; 8];
            file.and_then(|file| file.read(&mut text))
                .is_ok_and(|len| len > 2 && text[..2] != *b"0 ")
        };
        let names: [&[u8]; 4] = [b"/cgroup", b"/mountinfo", b"/statm", b"/maps"];
        // A process that is in no control group has no such file, or an empty one. The parent looked.
        let is_there = |name: &&&[u8]| **name != b"/cgroup" || HAS_GROUPS.load(Ordering::Relaxed);
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
