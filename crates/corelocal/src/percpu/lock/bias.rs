//! A lock that is biased to a core: taken by a critical section and released by a plain store, and
//! revocable by a thread that is not on that core.
//!
//! # The words
//! ```text
//!   word     FREE → HELD      with the holder's identity; by the section `store_if_equal`, or by a revoker that froze
//!                             the slot
//!            HELD → FREE      by the holder, wherever it runs by then
//!            HELD → GRANTED   by the holder, if it knows of a request
//!            GRANTED → HELD   by the revoker
//!            HELD → HELD      by a thread that takes over from a holder that a fork left behind
//!   request  NONE → ASKED     by the revoker
//!            ASKED → NONE     by whoever answers it, or by the revoker
//! ```
//!
//! # Invariants
//! 1. From FREE the word is moved by sections on its slot, and by a revoker while it has that slot
//!    frozen: never both at once. All other moves are the holder's alone, so none needs an atomic
//!    read-modify-write.
//! 2. At most one thread revokes at a time (the slot's mutex). Having asked it does not give up, for it
//!    may be granted the lock at any time.
//! 3. The slot is frozen while the word is looked at, never while anybody waits for a holder. So a
//!    holder may freeze what it likes.
//! 4. A holder that a fork left behind (`sys/forks.rs`) stores nothing any more, and sections find the word not FREE.
//!    So the thread that has the slot's mutex may replace such a holder by plain stores, without freezing the slot.
//!
//! # Race: a release meets a request
//! The holder must not pay for a barrier between its store and its load; the revoker pays for both.
//! ```text
//!   holder                                   revoker
//!   request is NONE
//!   word = FREE                              request = ASKED
//!   light barrier                            heavy barrier
//!   request is ASKED?                        word is FREE?
//!   wake                                     sleep while request is ASKED
//! ```
//! The heavy barrier takes place in the holder's thread too, before or after its last load. Before: that
//! load sees ASKED, and the revoker is woken. After: the store came before it as well, and the revoker
//! sees FREE. So never do both miss each other. A holder whose first look comes after the barrier grants
//! the lock, so that owners which come one after another cannot keep a revoker waiting.
//!
//! # Race: an answer that comes late
//! ```text
//!   holder A                    revoker                              holder B
//!   word = FREE
//!   request is ASKED                                                 word = HELD (section)
//!                               was woken otherwise; asks again
//!   request = NONE                                                   request is NONE: word = FREE
//!   wake                        request is not ASKED: no sleep, or woken; looks again
//! ```
//! An answer is always followed by a wake, so at worst the revoker looks once more. If its next request
//! overwrites B's answer instead, then B's store to the word came before the heavy barrier that follows the
//! request, and the look behind that barrier sees it. For this the light barrier stands between the two.

use core::sync::atomic::fence;
use core::time::Duration;

use crate::percpu::blocking;
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::forks::Identity;

pub(super) const FREE: u64 = 0;
const HELD: u64 = 1;
const GRANTED: u64 = 2;
/// Of the holder's identity in a word that is HELD.
const HOLDER_SHIFT: u32 = 2;
const _: () = assert!(Identity::BITS + HOLDER_SHIFT <= u64::BITS);

/// The word while the calling thread holds the lock.
#[inline(always)]
pub(super) fn held() -> u64 {
    (Identity::of_this_thread().number() << HOLDER_SHIFT) | HELD
}

fn is_held(word: u64) -> bool {
    word % (1 << HOLDER_SHIFT) == HELD
}

/// Why a lock was not revoked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotRevoked<E> {
    /// A fork left the holder behind.
    Orphaned,
    /// The slot could not be frozen.
    Busy(E),
}

const NONE: u32 = 0;
const ASKED: u32 = 1;

/// Between two looks of a revoker that cannot rely on being woken.
const POLL: Duration = Duration::from_millis(1);

/// See the module's text. All bytes 0 is an unlocked one. `word` comes first: sections use it.
#[repr(C)]
pub(super) struct Bias {
    word: AtomicU64,
    request: AtomicU32,
}

impl Bias {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Bias { word: AtomicU64::new(FREE), request: AtomicU32::new(NONE) }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Bias { word: AtomicU64::new(FREE), request: AtomicU32::new(NONE) }
    }

    /// What the holder calls right after its section committed.
    #[inline(always)]
    pub(super) fn taken(&self) {
        // Acquire, with the section's load of FREE: partner is the Release in `unlock`. No instruction
        // on x86-64.
        fence(Ordering::Acquire);
    }

    /// Releases the lock, or hands it to a revoker. Only for the holder.
    #[inline(always)]
    pub(super) fn unlock(&self) {
        if self.request.load(Ordering::Relaxed) == ASKED {
            return self.grant();
        }
        // Release: partner is the Acquire in `taken` and `take_unowned`.
        self.word.store(FREE, Ordering::Release);
        blocking::light_barrier();
        if self.request.load(Ordering::Relaxed) == ASKED {
            self.answer();
        }
    }

    #[cold]
    fn grant(&self) {
        // Release: partner is the Acquire in `accept`.
        self.word.store(GRANTED, Ordering::Release);
        // Between the two, as the second race above asks for: a request that overwrites the answer is
        // followed by a look that sees the grant.
        blocking::light_barrier();
        self.answer();
    }

    #[cold]
    fn answer(&self) {
        // Release: partner is the Acquire in `sleep`; who sees the answer sees the word as it is now.
        self.request.store(NONE, Ordering::Release);
        blocking::wake_all(&self.request);
    }

    /// Takes the lock for a thread that is not on its core. The caller has the slot's mutex.
    ///
    /// `freeze` freezes the slot until its result is dropped. Its error is passed on if nothing has
    /// happened yet; later it is tried again.
    pub(super) fn revoke<F, E>(
        &self,
        mut freeze: impl FnMut() -> Result<F, E>,
    ) -> Result<(), NotRevoked<E>> {
        let mut asked = false;
        loop {
            let mut heard = false;
            match freeze() {
                Ok(frozen) => {
                    if self.take_unowned() {
                        return Ok(());
                    }
                    if self.gone_holder().is_some() {
                        // Relaxed: the holder, which alone would read it, is gone; the next revoker has the mutex first.
                        self.request.store(NONE, Ordering::Relaxed);
                        return Err(NotRevoked::Orphaned);
                    }
                    self.request.store(ASKED, Ordering::Relaxed);
                    asked = true;
                    // Refused, the holder may miss the request.
                    heard = blocking::heavy_barrier().is_ok();
                    if self.take_unowned() {
                        return Ok(());
                    }
                    drop(frozen);
                }
                Err(busy) if !asked => return Err(NotRevoked::Busy(busy)),
                Err(_) => {}
            }
            self.sleep(heard);
            if self.accept() {
                return Ok(());
            }
        }
    }

    /// As [`revoke`](Self::revoke), without waiting: whether the lock was free. The slot is frozen.
    pub(super) fn take_unowned(&self) -> bool {
        // Acquire: partner is the Release in `unlock` and `grant`.
        if is_held(self.word.load(Ordering::Acquire)) {
            return false;
        }
        self.hold();
        true
    }

    /// Accepts the lock if it was granted.
    fn accept(&self) -> bool {
        // Acquire: partner is the Release in `grant`.
        if self.word.load(Ordering::Acquire) != GRANTED {
            return false;
        }
        self.hold();
        true
    }

    /// The word's content, if a fork left the holder behind.
    pub(super) fn gone_holder(&self) -> Option<u64> {
        // Acquire: of the fork, which copied all that the holder had done.
        let word = self.word.load(Ordering::Acquire);
        let is_gone =
            || Identity::of_number(word >> HOLDER_SHIFT).is_gone(Identity::of_this_thread());
        (is_held(word) && is_gone()).then_some(word)
    }

    /// Takes the lock from a holder that a fork left behind, if it has one, and returns what the word was. The caller
    /// has the slot's mutex (4).
    pub(super) fn adopt(&self) -> Option<u64> {
        let gone = self.gone_holder()?;
        self.hold();
        Some(gone)
    }

    /// Releases the lock to the gone holder it was taken from. Only for the holder.
    pub(super) fn abandon(&self, gone: u64) {
        // Release: partner is the Acquire in `gone_holder`.
        self.word.store(gone, Ordering::Release);
        blocking::light_barrier();
        // Relaxed: ordered behind the store by the barrier, whose partner is the revoker's heavy one.
        if self.request.load(Ordering::Relaxed) == ASKED {
            self.answer();
        }
    }

    fn hold(&self) {
        // Relaxed: this thread's own `unlock` is the next to look at it, or the next revoker, which the
        // mutex orders after this.
        self.request.store(NONE, Ordering::Relaxed);
        // Relaxed: the next section on this slot comes after the thaw, which releases; until then, or
        // where the lock was granted, sections see that it is not FREE.
        self.word.store(held(), Ordering::Relaxed);
    }

    fn sleep(&self, heard: bool) {
        let most = (!heard).then_some(POLL);
        // Acquire: partner is the Release in `answer`.
        while self.request.load(Ordering::Acquire) == ASKED {
            blocking::wait(&self.request, ASKED, most);
            if !heard {
                return;
            }
        }
        if !heard {
            // Nothing was asked, or it was answered; somebody else has the slot frozen.
            blocking::nap(POLL);
        }
    }
}

#[cfg(all(test, loom))]
#[path = "bias_loom.rs"]
mod loom_tests;
