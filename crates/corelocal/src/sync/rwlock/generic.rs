//! The read-write lock without a value, for crates that bring their own: `lock_api`'s traits.
//!
//! Two features of `lock_api` are missing. Fair unlocking, since this lock is never handed over; a thread that has
//! waited for long comes first anyway. Recursive reading, since a new reader waits behind a waiting writer.
//!
//! Invariant: a guard of `lock_api` exists only while the raw lock is held in its mode, as `lock_api` promises.

use core::fmt;
use core::time::Duration;

use super::raw::Raw;
use super::slow_path::Kind;
use super::state::{self, WRITING};
use crate::sync::machinery::scope::{Private, Scope};
use crate::sys::futex::Deadline;

/// The lock of a [`RwLock`](super::RwLock), for `lock_api::RwLock<RawRwLock, T>` and everything else that is generic
/// over [`lock_api::RawRwLock`].
///
/// ```
/// use corelocal::sync::RawRwLock;
///
/// static NAMES: lock_api::RwLock<RawRwLock, Vec<&str>> = lock_api::RwLock::new(Vec::new());
///
/// NAMES.write().push("first");
/// assert_eq!(NAMES.read().len(), 1);
/// ```
///
/// It can be upgraded and downgraded, and waited for with a time span or a [`Deadline`]. It supports neither fair
/// unlocking nor recursive reading: a thread that has a guard must not ask for another one.
///
/// # After fork
/// As described for [`RwLock`](super::RwLock#after-fork). `lock_api` can neither take a lock over from a writer nor
/// forget readers. The functions below do, through `lock_api::RwLock::raw`.
///
/// Closures that `lock_api`'s guards run unlocked must not fork: if locking again panics in the child and the panic
/// is caught, `lock_api` leaves the caller a guard without the lock.
///
/// # Panics
/// After a fork, as [`RwLock`](super::RwLock#panics). If there are 2^20 readers, reading waits until one leaves.
#[repr(transparent)]
pub struct RawRwLock<S: Scope = Private> {
    raw: Raw<S>,
}

impl<S: Scope> RawRwLock<S> {
    /// In a forked child: unlocks if another thread of the parent held the lock for writing at the fork. Returns
    /// whether it did.
    ///
    /// # Safety
    /// - The protected value is valid, whatever that thread was doing, or is made valid before it is used.
    pub unsafe fn forget_writer(&self) -> bool {
        self.raw.forget_writer()
    }

    /// Does what [`RwLock::forget_readers`](super::RwLock::forget_readers) does.
    ///
    /// # Safety
    /// - No thread of this process has a read guard of this lock, neither from before the fork (in the thread that
    ///   called it) nor from after it: those readers would be removed, too.
    pub unsafe fn forget_readers(&self) {
        self.raw.forget_readers();
    }

    /// Returns `true` if a thread holds it, also one that is gone.
    fn is_held(&self) -> bool {
        !self.raw.load().is_free()
    }

    /// Returns `true` if a writer holds it, also one that is gone.
    fn is_written(&self) -> bool {
        self.raw.load().has(WRITING)
    }

    #[inline]
    fn try_write(&self) -> bool {
        self.raw.try_write(state::tag::<S>())
    }

    fn read_until(&self, deadline: Deadline) -> bool {
        self.raw.read_even_if_full(Some(deadline))
    }

    fn lock_until(&self, kind: Kind, deadline: Deadline) -> bool {
        self.raw.lock_cold(kind, Some(deadline))
    }
}

// SAFETY: invariant 1 of `raw.rs`: a writer is alone.
unsafe impl<S: Scope> lock_api::RawRwLock for RawRwLock<S> {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait asks for it")]
    const INIT: Self = RawRwLock { raw: Raw::new() };

    /// The lock's word names the writing thread.
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        if !self.raw.read_at_once() {
            self.raw.read_even_if_full(None);
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.raw.try_read()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        self.raw.unlock_read();
    }

    #[inline]
    fn lock_exclusive(&self) {
        if !self.try_write() {
            self.raw.lock_cold(Kind::Writer, None);
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.try_write()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        self.raw.unlock_write();
    }

    fn is_locked(&self) -> bool {
        self.is_held()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.is_written()
    }
}

// SAFETY: no writer comes in between.
unsafe impl<S: Scope> lock_api::RawRwLockDowngrade for RawRwLock<S> {
    unsafe fn downgrade(&self) {
        self.raw.downgrade();
    }
}

// SAFETY: as for `RawRwLock`; a timed attempt that returns true holds the lock.
unsafe impl<S: Scope> lock_api::RawRwLockTimed for RawRwLock<S> {
    type Duration = Duration;
    type Instant = Deadline;

    fn try_lock_shared_for(&self, span: Duration) -> bool {
        self.raw.try_read() || self.read_until(Deadline::after(span))
    }

    fn try_lock_shared_until(&self, deadline: Deadline) -> bool {
        self.raw.try_read() || self.read_until(deadline)
    }

    fn try_lock_exclusive_for(&self, span: Duration) -> bool {
        self.try_write() || self.lock_until(Kind::Writer, Deadline::after(span))
    }

    fn try_lock_exclusive_until(&self, deadline: Deadline) -> bool {
        self.try_write() || self.lock_until(Kind::Writer, deadline)
    }
}

// SAFETY: as for `RawRwLock`; there is one upgradable reader at most.
unsafe impl<S: Scope> lock_api::RawRwLockUpgrade for RawRwLock<S> {
    fn lock_upgradable(&self) {
        if !self.raw.try_upgradable() {
            self.raw.lock_cold(Kind::Upgradable, None);
        }
    }

    fn try_lock_upgradable(&self) -> bool {
        self.raw.try_upgradable()
    }

    unsafe fn unlock_upgradable(&self) {
        self.raw.unlock_upgradable();
    }

    unsafe fn upgrade(&self) {
        if !self.raw.try_upgrade() {
            self.raw.upgrade_cold(None);
        }
    }

    unsafe fn try_upgrade(&self) -> bool {
        self.raw.try_upgrade()
    }
}

// SAFETY: no writer comes in between.
unsafe impl<S: Scope> lock_api::RawRwLockUpgradeDowngrade for RawRwLock<S> {
    unsafe fn downgrade_upgradable(&self) {
        self.raw.downgrade_upgradable();
    }

    unsafe fn downgrade_to_upgradable(&self) {
        self.raw.downgrade_to_upgradable();
    }
}

// SAFETY: as for `RawRwLockUpgrade`.
unsafe impl<S: Scope> lock_api::RawRwLockUpgradeTimed for RawRwLock<S> {
    fn try_lock_upgradable_for(&self, span: Duration) -> bool {
        self.raw.try_upgradable() || self.lock_until(Kind::Upgradable, Deadline::after(span))
    }

    fn try_lock_upgradable_until(&self, deadline: Deadline) -> bool {
        self.raw.try_upgradable() || self.lock_until(Kind::Upgradable, deadline)
    }

    unsafe fn try_upgrade_for(&self, span: Duration) -> bool {
        self.raw.try_upgrade() || self.raw.upgrade_cold(Some(Deadline::after(span)))
    }

    unsafe fn try_upgrade_until(&self, deadline: Deadline) -> bool {
        self.raw.try_upgrade() || self.raw.upgrade_cold(Some(deadline))
    }
}

impl<S: Scope> fmt::Debug for RawRwLock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRwLock").field("locked", &self.is_held()).finish()
    }
}

#[cfg(test)]
mod tests;
