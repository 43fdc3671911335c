//! Reports of grace periods that take too long.
//!
//! A thread that looks at a grace period and finds guards in the way compares the time since the first such look with
//! the domain's limit. Beyond it, it calls the hook, once for the limit, once for twice the limit, and so on.
//!
//! Invariant: the hook runs while the reporting thread is between two looks, and holds nothing.

use core::fmt;
use core::mem;
use core::panic::Location;
use core::ptr;
use core::time::Duration;

use super::domain::Domain;
use super::survivors;
#[cfg(feature = "std")]
use super::tracked;
use super::watch::{About, Watch};
use crate::primitive::global::{AtomicPtr, Ordering};
#[cfg(not(any(feature = "std", miri)))]
use crate::sys::file::stderr::Line;

/// A grace period that takes longer than the domain's limit: see [`set_stall_hook`].
///
/// It is printed as one line, or several if readers are tracked.
pub struct Stall {
    domain: &'static Domain,
    duration: Duration,
    guards: i64,
}

impl Stall {
    /// Returns the domain.
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// Returns how long the grace period has been waiting for guards.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Returns how many guards of the domain there are, whether the grace period waits for them or began before them.
    pub fn guards(&self) -> u64 {
        self.guards.max(0) as u64
    }

    /// Returns `true` if the reporting thread has a guard itself, of whichever domain. If it is of this one, and the
    /// thread waits for the grace period, it waits for ever.
    pub fn is_own(&self) -> bool {
        survivors::of_this_thread() > 0
    }

    /// Returns the guards of the domain whose threads are known: see [`Domain::track_readers`].
    #[cfg(feature = "std")]
    pub fn readers(&self) -> std::vec::Vec<super::Reader> {
        tracked::readers(self.domain.key())
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { name, location, .. } = self.domain.about();
        let (duration, guards) = (self.duration, self.guards());
        let s = if guards == 1 { "" } else { "s" };
        f.write_str("a grace period of the RCU domain ")?;
        if !name.is_empty() {
            write!(f, "`{name}` ")?;
        }
        write!(f, "of {location} has been waiting for {duration:.1?} behind {guards} guard{s}")?;
        if self.is_own() {
            f.write_str("; the waiting thread has one itself")?;
        }
        #[cfg(feature = "std")]
        {
            let readers = self.readers();
            if readers.is_empty() {
                f.write_str("; call Domain::track_readers to learn where they began")?;
            }
            for reader in readers {
                write!(f, "\n{reader}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stall")
            .field("domain", &self.domain.name())
            .field("duration", &self.duration)
            .field("guards", &self.guards)
            .finish_non_exhaustive()
    }
}

/// The program's hook; null for the default one.
static HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sets what is called when a grace period takes longer than the limit of its domain, in place of a line on stderr.
///
/// The hook runs in a thread that waits for the grace period, or in the background thread. It must not wait for one
/// itself. With the feature `std` a panic of it is caught, and counted by [`Domain::panics`].
///
/// ```
/// use corelocal::rcu;
///
/// rcu::set_stall_hook(|stall| eprintln!("{stall}"));
/// ```
pub fn set_stall_hook(hook: fn(&Stall)) {
    // Release: partner is the Acquire in `report`.
    HOOK.store(hook as *mut (), Ordering::Release);
}

fn report(stall: &Stall) {
    // Acquire: partner is the Release in `set_stall_hook`.
    let hook = HOOK.load(Ordering::Acquire);
    if hook.is_null() {
        #[cfg(feature = "std")]
        {
            use std::io::Write;
            // Refused, there is nothing more to do.
            let _ = std::writeln!(std::io::stderr(), "corelocal: {stall}");
        }
        #[cfg(not(any(feature = "std", miri)))]
        Line::print(format_args!("corelocal: {stall}"));
        return;
    }
    // SAFETY: a function of this type, from `set_stall_hook`.
    let hook = unsafe { mem::transmute::<*mut (), fn(&Stall)>(hook) };
    #[cfg(feature = "std")]
    {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| hook(stall))) {
            stall.domain.deferred.count_panic();
            // A payload may panic when it is dropped.
            mem::forget(payload);
        }
    }
    #[cfg(not(feature = "std"))]
    hook(stall);
}

impl Domain {
    /// Returns the name that it was made with; empty if it has none.
    pub fn name(&self) -> &'static str {
        self.about().name
    }

    /// Returns where it was made.
    pub fn location(&self) -> &'static Location<'static> {
        self.about().location
    }

    /// Returns how many reports of stalled grace periods there were.
    pub fn stalls(&self) -> u64 {
        self.about().stalls.load(Ordering::Relaxed)
    }

    /// Sets how long a grace period may take until that is reported: 1 s in the beginning, and never with
    /// [`Duration::MAX`]. It is reported again after twice the time, four times, and so on.
    pub fn set_stall_limit(&self, limit: Duration) {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.about().limit.store(limit.max(1), Ordering::Relaxed);
    }

    /// This grace period waits for guards.
    #[cold]
    pub(super) fn is_waiting(&'static self, watch: &Watch, number: u64, guards: impl Fn() -> i64) {
        let limit = Duration::from_nanos(self.about().limit.load(Ordering::Relaxed));
        if let Some(duration) = watch.look(number, limit) {
            self.about().stalls.fetch_add(1, Ordering::Relaxed);
            report(&Stall { domain: self, duration, guards: guards() });
        }
    }
}
