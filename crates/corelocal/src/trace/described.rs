//! What the header of a recording says of the program, the machine and the sites.
//!
//! Invariant: threads that describe the same site store the same bytes.

use core::sync::atomic::{AtomicU64, Ordering};

use super::Lost;
use super::format::{
    HEADER_LEN, SITE_EVERY, SITE_IS_ON, SITE_KIND, SITE_LEN, SITE_LEVEL, SITE_LOST, SITE_TEXT,
    SITE_TEXT_LEN, header,
};
use super::memory::Recording;
use super::site::Site;
use crate::clock;
use crate::sys::process::program;

impl Recording {
    /// Notes the name of the machine. Async-signal-safe.
    pub(super) fn name_host(&self) {
        let mut names = core::mem::MaybeUninit::<libc::utsname>::zeroed();
        // SAFETY: a place for the result, of which zeros are a valid value.
        let names = unsafe {
            libc::uname(names.as_mut_ptr());
            names.assume_init()
        };
        for (nth, byte) in names.nodename.iter().take(63).enumerate() {
            self.byte(header::HOST + nth).store(*byte as u8, Ordering::Relaxed);
        }
    }

    /// Notes what the program is. Async-signal-safe.
    pub(super) fn name_program(&self) {
        let store = |at: usize, bytes: &[u8]| {
            for (nth, byte) in bytes.iter().enumerate() {
                self.byte(at + nth).store(*byte, Ordering::Relaxed);
            }
        };
        // Each ends with a zero byte.
        let (mut name, mut arguments, mut id) = ([0; 63], [0; 127], [0; 32]);
        let len = program::name(&mut name);
        store(header::PROGRAM, &name[..len]);
        let len = program::arguments(&mut arguments).unwrap_or(0);
        store(header::ARGUMENTS, &arguments[..len]);
        let len = program::build_id(&mut id);
        store(header::BUILD_ID + 1, &id[..len]);
        store(header::BUILD_ID, &[len as u8]);
    }

    /// Returns where the description of a site is.
    fn place(number: u16) -> usize {
        HEADER_LEN + (usize::from(number) - 1) * SITE_LEN
    }

    /// Describes a registered site.
    pub(super) fn describe(&self, site: &Site) {
        let (number, text) = site.description();
        let at = Recording::place(number);
        let store = |offset: usize, byte: u8| self.byte(at + offset).store(byte, Ordering::Relaxed);
        // Other threads may store the same bytes.
        for (nth, byte) in text.iter().enumerate() {
            store(SITE_TEXT + nth, byte.load(Ordering::Relaxed));
        }
        for (nth, byte) in (text.len() as u32).to_le_bytes().into_iter().enumerate() {
            store(SITE_TEXT_LEN + nth, byte);
        }
        store(SITE_KIND, site.kind() as u8);
        store(SITE_LEVEL, site.level().map_or(0, |level| level as u8));
        self.note(site);
        // Release: a reader that sees it sees the text.
        self.byte(at).store(1, Ordering::Release);
        self.word(header::SITES).fetch_max(number.into(), Ordering::Release);
    }

    /// Notes whether a registered site is on, and which part of its events it records.
    pub(super) fn note(&self, site: &Site) {
        let at = Recording::place(site.description().0);
        self.byte(at + SITE_IS_ON).store(site.is_on().into(), Ordering::Relaxed);
        for (nth, byte) in site.every().to_le_bytes().into_iter().enumerate() {
            self.byte(at + SITE_EVERY + nth).store(byte, Ordering::Relaxed);
        }
    }

    /// Counts a lost event of a registered site.
    pub(super) fn count_lost(&self, site: &Site, why: Lost) {
        self.word(header::LOST + 8 * why as usize).fetch_add(1, Ordering::Relaxed);
        let since = self.word(header::LOST_SINCE);
        if since.load(Ordering::Relaxed) == 0 {
            since.store(clock::monotonic(), Ordering::Relaxed);
        }
        let first = self.byte(Recording::place(site.description().0) + SITE_LOST);
        // SAFETY: an aligned word of the mapping, which stays (`memory.rs`, 1).
        let word = unsafe { &*core::ptr::from_ref(first).cast::<AtomicU64>() };
        word.fetch_add(1, Ordering::Relaxed);
    }
}
