//! What tests of clock pages share: a file, contents that show a mixture, children.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::ffi::{CStr, CString};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use corelocal::clock::page::{Encoding, Period, State, Status, clockbound, pvclock, vmclock};

/// A path that no other test has, and that is free again in the end.
pub struct File(pub PathBuf, CString);

impl File {
    pub fn new(name: &str) -> File {
        File::at(std::env::temp_dir().join(format!("corelocal-{}-{name}", std::process::id())))
    }

    /// In a directory of the test's own.
    pub fn at(path: PathBuf) -> File {
        let c_path = CString::new(path.to_str().unwrap()).unwrap();
        let file = File(path, c_path);
        file.remove();
        file
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

    fn remove(&self) {
        for path in [&self.0, &self.lock(), &self.draft()] {
            let _ = fs::remove_file(path);
        }
    }

    pub fn c(&self) -> &CStr {
        &self.1
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.remove();
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
