//! What tests of clock pages share: a file, contents that show a mixture, children.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corelocal::clock::page::{Encoding, Period, State, Status, clockbound, pvclock, vmclock};
use tempfile::TempDir;

/// A path in a folder of the test's own, which other users may enter.
pub struct File(pub PathBuf, CString, TempDir);

impl File {
    pub fn new() -> File {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("page");
        let c_path = CString::new(path.to_str().unwrap()).unwrap();
        File(path, c_path, folder)
    }

    pub fn folder(&self) -> &Path {
        self.2.path()
    }

    /// The lock file of its publishers.
    pub fn lock(&self) -> PathBuf {
        self.beside(&format!("{}.lock", self.name()))
    }

    /// What a publisher makes first.
    pub fn draft(&self) -> PathBuf {
        self.beside(&format!(".{}.new", self.name()))
    }

    fn name(&self) -> &str {
        self.0.file_name().unwrap().to_str().unwrap()
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.0.with_file_name(name)
    }

    pub fn c(&self) -> &CStr {
        &self.1
    }
}

/// A content whose words are all of one number, so that a mixture shows.
pub fn numbered<P: Encoding>(n: u64) -> P::Content {
    // Below a billion, as nanoseconds and drifts are.
    let small = n as u32 & 0x1fff_ffff;
    P::Content::from(&State {
        counter_kind: vmclock::COUNTER_TSC,
        counter: n,
        time: Duration::new(n, small),
        period: Period { fraction: n, shift: n as u8 & 31 },
        max_error_ns: n & (i64::MAX as u64),
        estimated_error_ns: Some(n),
        drift_ppb: small,
        status: Status::Synchronized,
        disruptions: n,
        is_hypervisors_marker: true,
        tai_offset: Some(n as i16),
        generation: Some(n),
        published: Duration::new(n, small),
        ..State::default()
    })
}

/// Pages of which a content's number is known.
pub trait Numbered: Encoding {
    /// The content's number, if all its words are of that one.
    fn number(content: &Self::Content) -> Option<u64>;
}

impl Numbered for pvclock::Page {
    fn number(content: &pvclock::Content) -> Option<u64> {
        (*content == numbered::<Self>(content.counter)).then_some(content.counter)
    }
}

impl Numbered for vmclock::Page {
    fn number(content: &vmclock::Content) -> Option<u64> {
        // To which deaths of writers are added.
        let content = vmclock::Content { disruptions: content.counter, ..*content };
        (content == numbered::<Self>(content.counter)).then_some(content.counter)
    }
}

impl Numbered for clockbound::Page {
    fn number(content: &clockbound::Content) -> Option<u64> {
        (*content == numbered::<Self>(content.bound_ns)).then_some(content.bound_ns)
    }
}

/// Ends a child.
pub fn leave(code: i32) -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::_exit(code) }
}

/// Waits for a child; what `waitpid` says of it.
pub fn reap(child: libc::pid_t) -> i32 {
    let mut status = -1;
    // SAFETY: a child of ours, a writable status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}
