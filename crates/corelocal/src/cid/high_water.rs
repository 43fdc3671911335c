//! How far slots of each kind were given, known before an id has one.
//!
//! What makes slots ready for use does so before an id gets one, and walks those that were given before. What clears a
//! slot needs the highest one of kinds that may never have been used: a program without slots by node is not to have
//! their directory, of more than a megabyte, for that question alone.
//!
//! # Invariant
//! Of a thread that gives a slot and one that sets the opener, one sees the other: the first notes the slot and then
//! looks for the opener, the second one stores the opener and then looks at the slots, and between either's steps lies
//! a fence.

use core::ptr::null_mut;

use crate::primitive::global::{AtomicPtr, AtomicU32, Ordering, fence};

/// Makes a slot ready for an id; false where there is no memory.
pub(crate) type Opener = fn(u32) -> bool;

/// Slots of one kind.
pub(super) struct Noted {
    /// One more than the highest slot that was given, or was about to be.
    end: AtomicU32,
    /// An [`Opener`], or null.
    opener: AtomicPtr<()>,
}

impl Noted {
    pub(super) const fn new() -> Noted {
        Noted { end: AtomicU32::new(0), opener: AtomicPtr::new(null_mut()) }
    }

    /// What is asked before an id gets a slot: whether it may have it.
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
            // SAFETY: stored by `set_opener`, from such a function.
            let open = unsafe { core::mem::transmute::<*mut (), Opener>(opener) };
            open(slot)
        }
    }

    /// Slots from this one on were never given.
    pub(super) fn end(&self) -> u32 {
        // Acquire: partner is the Release in `opener`.
        self.end.load(Ordering::Acquire)
    }

    /// From here on `open` is asked before an id gets a slot; [`Noted::end`] afterwards tells which slots ids may have
    /// already.
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
