//! The high-water mark of slots of each kind, known before an id has a slot.
//!
//! Code that prepares slots for use does so before an id gets one, and walks those that were assigned before. Code
//! that clears a slot needs the highest one of all kinds. A program without slots by node must not load their
//! directory, of more than a megabyte, only for that question.
//!
//! # Invariant
//! If one thread assigns a slot while another one sets the opener, at least one sees the other. The first one records
//! the slot and then reads the opener. The second one stores the opener and then reads the slots. There is a fence
//! between the steps of each.

use core::ptr::null_mut;

use crate::primitive::global::{AtomicPtr, AtomicU32, Ordering, fence};

/// Prepares a slot for an id. False if there is no memory.
pub(crate) type Opener = fn(u32) -> bool;

/// The high-water mark of one kind, and the opener of its slots.
pub(super) struct Noted {
    /// One more than the highest slot that was assigned, or was about to be.
    end: AtomicU32,
    /// An [`Opener`], or null.
    opener: AtomicPtr<()>,
}

impl Noted {
    pub(super) const fn new() -> Noted {
        Noted { end: AtomicU32::new(0), opener: AtomicPtr::new(null_mut()) }
    }

    /// Called before an id gets a slot. Returns whether it may have the slot.
    pub(super) fn opener(&self) -> impl Fn(u32) -> bool + '_ {
        |slot| {
            // Release: partner is the Acquire in `end`.
            self.end.fetch_max(slot + 1, Ordering::Release);
            // SeqCst: partner is the fence in `set_opener`; the invariant.
            fence(Ordering::SeqCst);
            // Acquire: partner is the Release in `set_opener`.
            let opener = self.opener.load(Ordering::Acquire);
            if opener.is_null() {
                return true;
            }
            // SAFETY: a non-null pointer was stored by `set_opener`, from such a function.
            let open = unsafe { core::mem::transmute::<*mut (), Opener>(opener) };
            open(slot)
        }
    }

    /// Returns the first of the slots that were never assigned.
    pub(super) fn end(&self) -> u32 {
        // Acquire: partner is the Release in `opener`.
        self.end.load(Ordering::Acquire)
    }

    /// Has `open` called from now on before an id gets a slot. Afterwards [`Noted::end`] tells which slots ids may
    /// have already.
    #[cfg(not(miri))]
    pub(super) fn set_opener(&self, open: Opener) {
        // Release: partner is the Acquire in `opener`.
        self.opener.store(open as *mut (), Ordering::Release);
        // SeqCst: partner is the fence in `opener`; the invariant.
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_opened_or_known_to_who_opens() {
        static SEEN: AtomicU32 = AtomicU32::new(0);
        for _ in 0..1000 {
            let noted = Noted::new();
            SEEN.store(0, Ordering::Relaxed);
            let open = |slot: u32| {
                SEEN.store(slot, Ordering::Relaxed);
                slot != 9
            };
            let end = std::thread::scope(|scope| {
                scope.spawn(|| assert!(noted.opener()(7)));
                noted.set_opener(open);
                noted.end()
            });
            assert!(end == 8 || SEEN.load(Ordering::Relaxed) == 7, "{end}");
            assert!(!noted.opener()(9) && noted.end() == 10);
        }
    }
}
