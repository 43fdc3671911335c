//! Past the limit of a file's size (`ulimit -f`) calls that write files fail, and the program goes on. The kernel's
//! signal for it, SIGXFSZ, would end it.
#![cfg(not(any(loom, miri)))]

mod sandbox;

use std::ffi::CString;
use std::fs;
use std::path::Path;

use corelocal::alloc::{self, profile};
use corelocal::clock::page::{Publisher, Refusal, vmclock};
use corelocal::sync::shared::{SharedBox, SharedError};
use corelocal::sys::Errno;

/// What `body` gives while files may have so many bytes.
fn limited<T>(bytes: u64, body: impl FnOnce() -> T) -> T {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let set = |limit: &libc::rlimit| {
        // SAFETY: a limit of this process, which is a child of the test.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, limit) }, 0);
    };
    // SAFETY: writes to the one struct.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut before) }, 0);
    set(&libc::rlimit { rlim_cur: bytes, ..before });
    let given = body();
    set(&before);
    given
}

fn name_of(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

fn files_in(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Runs `body` in a child, with an empty folder.
fn with_folder(test: &str, body: impl FnOnce(&Path)) {
    /// The folder that the test has made, for its child.
    const FOLDER: &str = "CORELOCAL_TEST_FOLDER";
    let prepare = |command: &mut std::process::Command, folder: &Path| {
        command.env("CORELOCAL_MALLOC", "profile").env_remove("CORELOCAL_LOCKS");
        command.env(FOLDER, folder);
    };
    sandbox::run_with_folder(test, prepare, || {
        body(Path::new(&std::env::var_os(FOLDER).unwrap()));
    });
}

#[test]
fn heap_profiles() {
    with_folder("heap_profiles", |folder| {
        let objects: Vec<usize> = (0..4096).map(|_| alloc::allocate(4096) as usize).collect();
        assert!(!objects.contains(&0) && profile::is_on());
        let path = folder.join("profile");
        let name = name_of(&path);
        // None of it, and half a buffer.
        for bytes in [0, 1000] {
            assert_eq!(limited(bytes, || profile::dump(&name)), Err(Errno::EFBIG), "{bytes}");
            assert_eq!(files_in(folder), 0, "a file that is not whole stays");
        }
        profile::dump(&name).unwrap();
        assert!(fs::metadata(&path).unwrap().len() > 1000);
        // What was there stays a file.
        assert_eq!(limited(0, || profile::dump(&name)), Err(Errno::EFBIG));
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        // SAFETY: made above, once.
        objects.into_iter().for_each(|object| unsafe { alloc::deallocate(object as *mut u8) });
    });
}

#[test]
fn lock_profiles() {
    with_folder("lock_profiles", |_| {
        assert_eq!(limited(0, corelocal::sync::profile::start), Err(Errno::EFBIG));
        assert_eq!(corelocal::sync::profile::start(), Ok(()));
    });
}

#[test]
fn shared_boxes() {
    with_folder("shared_boxes", |_| {
        let name = format!("corelocal-limited-{}", std::process::id());
        let refused = |made: Result<SharedBox<u64>, SharedError>| match made {
            Err(SharedError::Kernel(Errno::EFBIG)) => {}
            made => panic!("{made:?}"),
        };
        // SAFETY: a number, in a file of this process alone.
        unsafe {
            refused(limited(0, || SharedBox::create_nameless(7)));
            refused(limited(0, || SharedBox::create(&name, 7)));
            assert!(!Path::new("/dev/shm").join(&name).exists());
            assert!(SharedBox::create_nameless(7_u64).is_ok());
        }
    });
}

#[test]
fn clock_pages() {
    with_folder("clock_pages", |folder| {
        let path = folder.join("page");
        let name = name_of(&path);
        // None of it, and a part.
        for bytes in [0, 100] {
            let made = limited(bytes, || Publisher::<vmclock::Page>::create(&name));
            assert_eq!(made.err(), Some(Refusal::System(Errno::EFBIG)), "{bytes}");
            assert!(!path.exists());
        }
        // One that a user emptied.
        fs::write(&path, "").unwrap();
        for bytes in [0, 100] {
            let made = limited(bytes, || Publisher::<vmclock::Page>::create(&name));
            assert_eq!(made.err(), Some(Refusal::System(Errno::EFBIG)), "{bytes}");
            assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        }
        assert!(Publisher::<vmclock::Page>::create(&name).is_ok());
    });
}
