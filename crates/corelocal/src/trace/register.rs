//! The registration of a site, when it is first reached, and what its events then need of the recording.
//!
//! Invariant: a site is described in the recording before its first record.

use core::sync::atomic::{Ordering, fence};

use super::current::here;
use super::format::{FieldType, header};
use super::rules;
use super::site::{Site, Wanted, left_out};

impl Wanted {
    /// Registers the site if it is new.
    #[doc(hidden)]
    #[inline(always)]
    pub fn registered<const N: usize>(
        self,
        site: &'static Site,
        fields: impl FnOnce() -> [(&'static str, FieldType); N],
    ) -> Wanted {
        if !self.is_of_new() {
            return self;
        }
        site.register(&fields());
        site.wanted_now()
    }
}

impl Site {
    /// Registers a new site with these fields.
    #[doc(hidden)]
    #[cold]
    #[inline(never)]
    pub fn register(&'static self, fields: &[(&str, FieldType)]) {
        #[cfg(feature = "std")]
        super::environment::link();
        self.write_text(fields);
        let number = self.draw_number();
        if number.is_none() {
            if let Some(recording) = here() {
                recording.word(header::SITES_LEFT_OUT).fetch_max(left_out(), Ordering::Relaxed);
            }
            return self.leave_new(None, false);
        }
        // It is described before its first record: a file that is cut off between the two can be read.
        let recording = here().inspect(|recording| recording.describe(self));
        let is_whole = recording.is_some_and(|recording| rules::say(&recording, self) == 1);
        self.leave_new(number, is_whole);
        // Partner: the fences in `start` and `rules::add`. Either this sees the recording, or `start` sees the site.
        fence(Ordering::SeqCst);
        if let Some(recording) = here() {
            recording.describe(self);
            rules::apply(&recording, self);
        }
    }
}
