//! The gate of a compaction: prevents ids from taking higher slots while lower ones are being taken back.
//!
//! A compaction freezes all slots at once. The ids that lose theirs take others at their next operation, and would
//! take them above the frozen ones. Under load a compaction would move every id up permanently. So a compaction first
//! closes the gate of its directory. While it is closed an id gets only slots below the limit, which is the earlier
//! high-water mark. Without one its threads use shared slots. When the gate opens all slots are free again, and ids
//! take the lowest ones.
//!
//! # Invariants
//! 1. A claim is valid if the gate's word is the same before the search for a slot and after the claim. So a
//!    compaction that ended meanwhile is noticed too. The exception is a compaction by the same thread with the same
//!    limit, below which the claim is valid anyway.
//! 2. For a claim above the limit, either the claiming thread sees the gate closed, or the closing thread sees the
//!    claim and takes the slot back.
//! 3. A gate that was closed by a thread that a fork left behind counts as open.
//!
//! # Race: a claim meets a compaction
//! ```text
//!   publisher of id 5                         compaction
//!   reads the word: open #3
//!   owners[2]: FREE → claim of id 5           word: open #3 → closed by T, limit 2
//!   fence ─────── SeqCst, partners ────────── fence
//!   reads the word: still #3? publish         searches claims from slot 2 on
//!     closed: owners[2] → FREE, retry           found: slot 2 is taken back, too
//! ```

use crate::primitive::atomic::{AtomicU64, Ordering, fence};
use crate::sys::forks::Identity;

/// A closed gate's word has this bit, the thread that closed it, and the limit. An open gate's word is a unique
/// number.
const CLOSED: u64 = 1 << 63;
const LIMIT_BITS: u32 = 18;
const _: () = assert!(LIMIT_BITS + Identity::BITS <= 63);

/// The gate of a compaction.
pub(super) struct Gate {
    word: AtomicU64,
}

/// The gate's answer to a claim.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    word: u64,
    /// Slots from this one on may not be claimed.
    pub(super) limit: u32,
}

impl Gate {
    const_fn! {
        pub(super) const fn new() -> Gate {
            Gate { word: AtomicU64::new(0) }
        }
    }

    /// Called before the search for a slot.
    pub(super) fn ask(&self) -> Pass {
        // Acquire: partner is the Release in `open`. Slots that were freed before are seen free.
        let word = self.word.load(Ordering::Acquire);
        let is_closed =
            closer(word).is_some_and(|closer| !closer.is_gone(Identity::of_this_thread()));
        let limit = if is_closed { (word % (1 << LIMIT_BITS)) as u32 } else { u32::MAX };
        Pass { word, limit }
    }

    /// Called after a claim. Returns whether it is valid (invariant 1).
    pub(super) fn confirms(&self, pass: Pass) -> bool {
        // SeqCst: partner is the fence in `close` (invariant 2).
        fence(Ordering::SeqCst);
        self.word.load(Ordering::Relaxed) == pass.word
    }

    /// Closes the gate from `limit` on. False if another living thread has closed it. Claims from `limit` on that are
    /// not visible after this will not be valid.
    pub(super) fn close(&self, limit: u32, me: Identity) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if closer(word).is_some_and(|closer| !closer.is_gone(me)) {
            return false;
        }
        let closed = CLOSED | me.number() << LIMIT_BITS | u64::from(limit);
        // Acquire: partner is the Release in `open`, of the previous compaction.
        let was = self.word.compare_exchange(word, closed, Ordering::Acquire, Ordering::Relaxed);
        // SeqCst: partner is the fence in `confirms` (invariant 2).
        fence(Ordering::SeqCst);
        was.is_ok()
    }

    /// Opens the gate that `me` has closed. `number` is unique. Does nothing if `me` was taken for gone meanwhile,
    /// and another thread has closed the gate.
    pub(super) fn open(&self, me: Identity, number: u64) {
        let word = self.word.load(Ordering::Relaxed);
        if closer(word) == Some(me) {
            // Release: partner is the Acquire in `ask`.
            let _ = self.word.compare_exchange(word, number, Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// Returns the thread that closed the gate with this word.
fn closer(word: u64) -> Option<Identity> {
    (word & CLOSED != 0).then(|| Identity::of_number((word & !CLOSED) >> LIMIT_BITS))
}
