//! Call sites: the places in a program that record an event.
//!
//! A site is a static. It registers itself when it is first reached: it gets a number, joins a list, and is described
//! in the recording. Threads that come at the same time, and signal handlers, all do so, with the same result: none
//! waits for another one, and no event is lost.
//!
//! ```text
//!   state   1 to 4095        on: its number
//!           OFF | n          off
//!           OFF | PART | n   one event of `every` is recorded
//!           OFF | PART       new
//!           OFF              off, without a number: there are too many sites
//! ```
//! So one look at the sign tells a site that is on from all others.
//!
//! # Invariants
//! 1. A number, once drawn, belongs to the site for the life of the process and its children.
//! 2. A site is on the list from when it has a number. The list only grows; sites are never unloaded
//!    (`sys/process/nodelete.rs`).
//! 3. The number and the text of a site are complete before it is on the list.

use core::fmt;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::format::{
    ARRAY, FieldType, Kind, LINKED_MARKER, LINKED_TEXT, Level, MOST_SITES, SITE_LEN, SITE_TEXT,
};
use crate::clock::Ticks;

const OFF: u32 = 1 << 31;
const PART: u32 = 1 << 30;
const NEW: u32 = OFF | PART;
const TEXT_LEN: usize = SITE_LEN - SITE_TEXT;

/// A place in the program that records an event or a span: see [`event!`](crate::event) and [`span!`](crate::span).
///
/// Its first fields are what readers of the program's file find: see `format::LinkedSite`.
#[repr(C)]
pub struct Site {
    marker: [u8; LINKED_MARKER.len()],
    kind: Kind,
    /// The site's [`Level`], or 0.
    level: u8,
    name_len: u32,
    state: AtomicU32,
    number: AtomicU32,
    len: AtomicU32,
    /// The sampling interval: one of so many events is recorded.
    every: AtomicU32,
    name: &'static str,
    next: AtomicPtr<Site>,
    lost: AtomicU64,
    text: [AtomicU8; TEXT_LEN],
}

const _: () = assert!(core::mem::offset_of!(Site, text) == LINKED_TEXT);

/// The number of a site that is on, or 0 of a new one. After [`registered`](Wanted::registered) its state.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Wanted(u32);

impl Wanted {
    /// Returns `true` for what a new site returns.
    #[inline(always)]
    pub(super) fn is_of_new(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of the site, if it is on.
    #[inline(always)]
    pub(super) fn number(self) -> Option<u16> {
        (self.0 as i32 > 0).then_some(self.0 as u16)
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Site").field(&self.name).finish()
    }
}

/// Returns the byte, or a space in place of a control character: a line feed ends a name in the text.
const fn printable(byte: u8) -> u8 {
    if byte < b' ' { b' ' } else { byte }
}

/// The site that was registered last.
static LAST: AtomicPtr<Site> = AtomicPtr::new(null_mut());
static COUNT: AtomicU32 = AtomicU32::new(0);
/// The number of sites that have no number of their own.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Returns how many sites have no number, since there are too many.
pub(super) fn left_out() -> u64 {
    LEFT_OUT.load(Ordering::Relaxed)
}

impl Site {
    #[doc(hidden)]
    pub const fn new(kind: Kind, name: &'static str) -> Site {
        // The text begins with the name, so that it is in the program's file.
        let bytes = name.as_bytes();
        let len = if bytes.len() < TEXT_LEN { bytes.len() } else { TEXT_LEN };
        let mut text = [const { AtomicU8::new(0) }; TEXT_LEN];
        let mut at = 0;
        while at < len {
            text[at] = AtomicU8::new(printable(bytes[at]));
            at += 1;
        }
        Site {
            marker: LINKED_MARKER,
            kind,
            level: 0,
            name_len: len as u32,
            state: AtomicU32::new(NEW),
            number: AtomicU32::new(0),
            len: AtomicU32::new(0),
            every: AtomicU32::new(1),
            name,
            next: AtomicPtr::new(null_mut()),
            lost: AtomicU64::new(0),
            text,
        }
    }

    /// Returns it with a level.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_level(mut self, level: Level) -> Site {
        self.level = level as u8;
        self
    }

    /// Returns `Some` if the event may be recorded: the site is on, or new, or it records a part, and this event is of
    /// it.
    #[doc(hidden)]
    #[inline(always)]
    pub fn wanted(&self) -> Option<Wanted> {
        // Relaxed: a switch takes effect some time later.
        let state = self.state.load(Ordering::Relaxed);
        if state as i32 > 0 {
            return Some(Wanted(state));
        }
        (state & PART != 0 && self.is_drawn(state)).then_some(Wanted(state & !NEW))
    }

    /// Returns `true` for one event of so many, by chance: no thread has to know what others recorded. Always for a new
    /// site.
    #[cold]
    #[inline(never)]
    fn is_drawn(&self, state: u32) -> bool {
        if state == NEW {
            return true;
        }
        // The last step of MurmurHash3: each bit of the time decides over each of the result.
        let mut mixed = Ticks::now().as_raw();
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53_u64] {
            mixed = (mixed ^ mixed >> 33).wrapping_mul(factor);
        }
        ((mixed >> 32) * u64::from(self.every())) >> 32 == 0
    }

    /// Returns the number, if the site has one, on or off.
    #[inline(always)]
    pub(super) fn any_number(&self) -> Option<u16> {
        let number = self.state.load(Ordering::Relaxed) & !NEW;
        (number != 0).then_some(number as u16)
    }

    /// Returns the number, if the site is on and not new.
    #[inline(always)]
    pub(super) fn number(&self) -> Option<u16> {
        let state = self.state.load(Ordering::Relaxed);
        (state.wrapping_sub(1) < MOST_SITES as u32).then_some(state as u16)
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn is_new(&self) -> bool {
        self.state.load(Ordering::Relaxed) == NEW
    }

    /// Returns the address of the state: `OFF` is 1 << 31.
    pub(crate) fn state(&self) -> *const u32 {
        self.state.as_ptr()
    }

    /// Returns the event's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the kind of record that it makes.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns how severe its events are.
    pub fn level(&self) -> Option<Level> {
        Level::of_number(self.level)
    }

    /// Returns how many events there are for each that is recorded, as a rule: 1 unless [`sample`](super::sample) says
    /// otherwise.
    pub fn every(&self) -> u32 {
        self.every.load(Ordering::Relaxed)
    }

    /// Returns how many of its events were lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes the text that describes the site with these fields.
    pub(super) fn write_text(&self, fields: &[(&str, FieldType)]) {
        let mut len = self.name_len as usize;
        for (name, FieldType { of, is_array }) in fields {
            let name = name.strip_prefix("r#").unwrap_or(name);
            // A field that has no room, and those behind it, are not described, and so not shown.
            if len + 3 + name.len() > TEXT_LEN {
                break;
            }
            len = self.put(len, if *is_array { &[b'\n', ARRAY] } else { b"\n" });
            len = self.put(len, &[*of as u8]);
            for byte in name.bytes() {
                len = self.put(len, &[printable(byte)]);
            }
        }
        self.len.store(len as u32, Ordering::Relaxed);
    }

    /// Draws the number of the site, unless another thread has, and enters the site into the list. `None` if there are
    /// too many sites.
    pub(super) fn draw_number(&'static self) -> Option<u32> {
        // A number is left unused if another thread registers the site at the same time.
        let new = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
        // Release: a number that is read from the list, or after this, has its text (3).
        let drawn = self.number.compare_exchange(0, new, Ordering::Release, Ordering::Relaxed);
        let (number, is_first) = (drawn.err().unwrap_or(new), drawn.is_ok());
        let has_room = number as usize <= MOST_SITES;
        match (has_room, is_first) {
            (true, true) => self.join(),
            (false, true) => _ = LEFT_OUT.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
        has_room.then_some(number)
    }

    /// Switches a new site for the first time; another thread may have been faster, and the site was switched
    /// meanwhile. Without a number it is off for good.
    pub(super) fn leave_new(&self, number: Option<u32>, is_whole: bool) {
        match number {
            None => self.state.store(OFF, Ordering::Relaxed),
            Some(number) => {
                // What records a part is switched to that later.
                let state = if is_whole { number } else { OFF | number };
                let _ =
                    self.state.compare_exchange(NEW, state, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Returns the state of the site, for a call that has registered it.
    pub(super) fn wanted_now(&self) -> Wanted {
        Wanted(self.state.load(Ordering::Relaxed))
    }

    /// Counts an event that was lost.
    pub(super) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Joins the list.
    fn join(&'static self) {
        let mut last = LAST.load(Ordering::Relaxed);
        loop {
            self.next.store(last, Ordering::Relaxed);
            let this = core::ptr::from_ref(self).cast_mut();
            // Release: partner is the Acquire in `all`; all but the state is set (3).
            match LAST.compare_exchange_weak(last, this, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => last = now,
            }
        }
    }

    /// Appends bytes to the text, as many as fit. Returns where it ends.
    fn put(&self, at: usize, bytes: &[u8]) -> usize {
        let room = TEXT_LEN - at;
        for (to, byte) in self.text[at..].iter().zip(bytes) {
            to.store(*byte, Ordering::Relaxed);
        }
        at + bytes.len().min(room)
    }

    /// Returns the number and the text of a registered site.
    pub(super) fn description(&self) -> (u16, &[AtomicU8]) {
        let number = self.number.load(Ordering::Relaxed) as u16;
        (number, &self.text[..self.len.load(Ordering::Relaxed) as usize])
    }

    /// Returns `true` if it records its events, or a part of them.
    pub(super) fn is_on(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & !NEW != 0 && state & NEW != OFF
    }

    /// Switches a registered site: it records none of its events (0), all (1), or one of so many.
    pub(super) fn switch(&self, every: u32) {
        let (set, clear) = match every {
            0 => (OFF, PART),
            1 => (0, OFF | PART),
            _ => (OFF | PART, 0),
        };
        self.every.store(every.max(1), Ordering::Relaxed);
        // Relaxed: a switch takes effect some time later.
        let _ = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            let has_number = state & !NEW != 0;
            has_number.then_some(state & !clear | set)
        });
    }
}

/// Returns all registered sites.
pub(super) fn all() -> impl Iterator<Item = &'static Site> {
    // Acquire: partner is the Release in `register`.
    let last = LAST.load(Ordering::Acquire);
    // SAFETY: null, or a site on the list, which is a static (2).
    let first = unsafe { last.as_ref() };
    core::iter::successors(first, |site| {
        // SAFETY: null, or a site on the list, which is a static (2).
        unsafe { site.next.load(Ordering::Relaxed).as_ref() }
    })
}
