//! A lock that is biased to a core: acquired by a critical section, released by a plain store, and revocable by a
//! thread on another core.
//!
//! # The words
//! | change of `word` | made by |
//! |---|---|
//! | FREE → HELD | The owner, by the section `store_if_equal`, or a revoker that has the slot frozen. HELD includes the owner's identity. |
//! | HELD → FREE | The owner, on whatever core it runs by then. |
//! | HELD → GRANTED | The owner, if it has seen a request. |
//! | GRANTED → HELD | The revoker. |
//! | HELD → HELD | A thread that takes over from an owner that a fork left behind. |
//!
//! | change of `request` | made by |
//! |---|---|
//! | NONE → ASKED | The revoker. |
//! | ASKED → NONE | The owner that answers, or the revoker. |
//!
//! # Invariants
//! 1. From FREE the word is changed by critical sections on its slot, and by a revoker while it has that slot frozen.
//!    The two exclude each other. Only the owner makes the other changes. So none needs an atomic read-modify-write.
//! 2. At most one thread revokes at a time (the slot's mutex). Once it has made a request it does not give up, since
//!    the lock may be granted to it at any time.
//! 3. The slot is frozen while the word is read, never while a thread waits for an owner. So an owner may freeze any
//!    slot.
//! 4. An owner that a fork left behind (`sys/forks.rs`) makes no more stores, and sections find that the word is not
//!    FREE. So the thread that has the slot's mutex may replace such an owner by plain stores, without freezing the
//!    slot.
//!
//! # Race: a release meets a request
//! The owner must not pay for a barrier between its store and its load. The revoker pays for both.
//! ```text
//!   owner                                    revoker
//!   request is NONE
//!   word = FREE                              request = ASKED
//!   light barrier                            heavy barrier
//!   request is ASKED?                        word is FREE?
//!   wake                                     sleep while request is ASKED
//! ```
//! The heavy barrier also takes effect in the owner's thread, before or after its last load. If before, that load
//! sees ASKED, and the revoker is woken. If after, the store came before it as well, and the revoker sees FREE. So at
//! least one of them sees the other. An owner whose first read comes after the barrier grants the lock, so that a
//! sequence of owners cannot keep a revoker waiting.
//!
//! # Race: a late answer
//! ```text
//!   owner A                     revoker                              owner B
//!   word = FREE
//!   request is ASKED                                                 word = HELD (section)
//!                               woken otherwise; asks again
//!   request = NONE                                                   request is NONE: word = FREE
//!   wake                        request is not ASKED: does not sleep, or is woken; reads the word again
//! ```
//! An answer is always followed by a wake-up, so at worst the revoker reads the word once more. If its next request
//! overwrites B's answer instead, then B's store to the word came before the heavy barrier that follows the request,
//! and the read after that barrier sees it. This is why the light barrier stands between the two.

use core::sync::atomic::fence;
use core::time::Duration;

use crate::percpu::machinery::blocking;
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::forks::Identity;

pub(super) const FREE: u64 = 0;
const HELD: u64 = 1;
const GRANTED: u64 = 2;
/// The position of the owner's identity in a word that is HELD.
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

/// The reason why a lock was not revoked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotRevoked<E> {
    /// A fork left the owner behind.
    Orphaned,
    /// The slot could not be frozen.
    Busy(E),
}

const NONE: u32 = 0;
const ASKED: u32 = 1;

/// The time between two reads by a revoker that cannot rely on being woken.
const POLL: Duration = Duration::from_millis(1);

/// A lock that is biased to a core. All bytes 0 is an unlocked one. `word` comes first: sections use it.
#[repr(C)]
pub(super) struct Bias {
    word: AtomicU64,
    request: AtomicU32,
}

impl Bias {
    const_fn! {
        pub(super) const fn new() -> Self {
            Bias { word: AtomicU64::new(FREE), request: AtomicU32::new(NONE) }
        }
    }

    /// Called by the owner right after its section committed.
    #[inline(always)]
    pub(super) fn taken(&self) {
        // Acquire, with the section's load of FREE: partner is the Release in `unlock`. No instruction on x86-64.
        fence(Ordering::Acquire);
    }

    /// Releases the lock, or hands it to a revoker. Called by the owner only.
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
        // The barrier stands between the two because of the second race above: a request that overwrites the answer
        // is followed by a read that sees the grant.
        blocking::light_barrier();
        self.answer();
    }

    #[cold]
    fn answer(&self) {
        // Release: partner is the Acquire in `sleep`. A thread that sees the answer sees the word's current value.
        self.request.store(NONE, Ordering::Release);
        blocking::wake_all(&self.request);
    }

    /// Takes the lock for a thread on another core. The caller has the slot's mutex.
    ///
    /// `freeze` freezes the slot until its result is dropped. Its error is returned if no request was made yet.
    /// Afterwards it is tried again.
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
                        // Relaxed: the owner, which alone would read it, does not exist, and the next revoker takes
                        // the mutex first.
                        self.request.store(NONE, Ordering::Relaxed);
                        return Err(NotRevoked::Orphaned);
                    }
                    self.request.store(ASKED, Ordering::Relaxed);
                    asked = true;
                    // If it is refused the owner may miss the request.
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

    /// Takes the lock if it is free, without waiting. Called with the slot frozen.
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

    /// Returns the word, if a fork left the owner behind.
    pub(super) fn gone_holder(&self) -> Option<u64> {
        // Acquire: of the fork, which copied all that the owner had done.
        let word = self.word.load(Ordering::Acquire);
        let is_gone =
            || Identity::of_number(word >> HOLDER_SHIFT).is_gone(Identity::of_this_thread());
        (is_held(word) && is_gone()).then_some(word)
    }

    /// Takes the lock over from an owner that a fork left behind, and returns the former word. `None` if there is no
    /// such owner. The caller has the slot's mutex (invariant 4).
    pub(super) fn adopt(&self) -> Option<u64> {
        let gone = self.gone_holder()?;
        self.hold();
        Some(gone)
    }

    /// Gives the lock back to the gone owner that it was taken from. Called by the owner only.
    pub(super) fn abandon(&self, gone: u64) {
        // Release: partner is the Acquire in `gone_holder`.
        self.word.store(gone, Ordering::Release);
        blocking::light_barrier();
        // Relaxed: the barrier orders it after the store; partner is the revoker's heavy barrier.
        if self.request.load(Ordering::Relaxed) == ASKED {
            self.answer();
        }
    }

    fn hold(&self) {
        // Relaxed: the next thread to read it is this one in `unlock`, or the next revoker, which the mutex orders
        // after this.
        self.request.store(NONE, Ordering::Relaxed);
        // Relaxed: the next section on this slot comes after the thaw, which releases. Until then, or if the lock was
        // granted, sections see that it is not FREE.
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
            // There was no request, or it was answered; another thread has the slot frozen.
            blocking::nap(POLL);
        }
    }
}

#[cfg(all(test, loom))]
mod loom;
