//! Which back-end serves, and why better ones do not.
//!
//! # Invariant
//! 1. Counts and the epoch only grow. They are relaxed: statistics, which order nothing.

use core::fmt;

use super::counter::Fence;
use crate::primitive::global::{AtomicU32, AtomicU64, Ordering};

/// The back-ends that can serve the clock's readings, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Backend {
    /// The vDSO's own data, read directly: to the nanosecond what the vDSO would say.
    KernelPage,
    /// The page that KVM keeps for its guest, between samples of the vDSO.
    Paravirtual,
    /// The cpu's counter, between samples of the vDSO.
    Anchor,
    /// The vDSO's function, or the system call where there is no vDSO.
    Vdso,
}

/// The reason why a back-end was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
#[repr(u8)]
pub enum Cause {
    /// No known layout fits what is mapped beside the vDSO.
    UnknownLayout,
    /// A reading was not between two of the vDSO's around it.
    Inconsistent,
    /// A page stayed in the middle of an update for too long.
    UpdateStalled,
    /// The kernel's clock source is another than before, or one that only the kernel can read.
    SourceSwitched,
    /// The counters of the cpus are not known to agree.
    Unsynchronised,
    /// The process is in a time namespace, whose page holds offsets and no time.
    TimeNamespace,
    /// No memory or descriptor was to be had for it.
    NoResources,
}

impl Cause {
    pub(super) const ALL: [Cause; 7] = [
        Cause::UnknownLayout,
        Cause::Inconsistent,
        Cause::UpdateStalled,
        Cause::SourceSwitched,
        Cause::Unsynchronised,
        Cause::TimeNamespace,
        Cause::NoResources,
    ];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::UnknownLayout => "the vDSO's data has an unknown layout",
            Cause::Inconsistent => "a reading was not between two of the vDSO",
            Cause::UpdateStalled => "the page stayed in the middle of an update",
            Cause::SourceSwitched => "the kernel's clock source changed, or only it can read it",
            Cause::Unsynchronised => "the cpus' counters are not known to agree",
            Cause::TimeNamespace => "the process is in a time namespace",
            Cause::NoResources => "no memory or descriptor was left",
        })
    }
}

/// The counter of a back-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Source {
    /// The cpu's counter: x86-64's time-stamp counter.
    Tsc,
    /// KVM's page for its guest, and the cpu's counter.
    Pvclock,
    /// The counter that the vDSO uses.
    Kernel,
    /// The cpu's counter: aarch64's virtual counter, `CNTVCT_EL0`.
    Cntvct,
}

impl Source {
    /// This architecture's counter.
    pub(super) const COUNTER: Source =
        if cfg!(target_arch = "aarch64") { Source::Cntvct } else { Source::Tsc };
}

/// The way in which the clock is read just now: see [`status()`](super::status()).
///
/// ```
/// let status = corelocal::clock::status();
/// println!("{:?} by {:?}", status.backend, status.source);
/// for (cause, count) in status.fallbacks.iter() {
///     println!("given up {count} times: {cause}");
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Status {
    /// The back-end that serves.
    pub backend: Backend,
    /// The counter of that back-end.
    pub source: Source,
    /// Whether the best back-end is being compared with the vDSO, which serves meanwhile.
    pub validating: bool,
    /// The fence of ordered readings; `None` where the vDSO makes them.
    pub fence: Option<Fence>,
    /// See [`epoch`](super::epoch).
    pub epoch: u64,
    /// The number of readings that lay between two of the vDSO's, as they must.
    pub validated: u64,
    /// The number of times the clock fell back to the next back-end, by cause.
    pub fallbacks: Fallbacks,
}

/// Counts how often each [`Cause`] made the clock fall back to the next back-end.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Fallbacks([u32; Cause::ALL.len()]);

impl Fallbacks {
    /// Returns how often for this cause.
    pub fn count(&self, cause: Cause) -> u32 {
        self.0.get(cause as usize).copied().unwrap_or(0)
    }

    /// Returns how often in all.
    pub fn total(&self) -> u32 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The causes there were, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, u32)> + '_ {
        Cause::ALL
            .into_iter()
            .map(|cause| (cause, self.count(cause)))
            .filter(|(_, count)| *count > 0)
    }
}

impl fmt::Debug for Fallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Fallbacks {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// The counts of fallbacks, as atomics.
#[derive(Default)]
pub(super) struct Counts {
    fallbacks: [AtomicU32; Cause::ALL.len()],
    validated: AtomicU64,
    epoch: AtomicU64,
}

impl Counts {
    pub(super) const fn new() -> Counts {
        Counts {
            fallbacks: [const { AtomicU32::new(0) }; Cause::ALL.len()],
            validated: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    /// Notes that a back-end is given up: another epoch.
    pub(super) fn fell_back(&self, cause: Cause) {
        self.fallbacks[cause as usize].fetch_add(1, Ordering::Relaxed);
        self.discontinuity();
    }

    /// Checks that a reading lay between two of the vDSO's.
    pub(super) fn validated(&self) -> u64 {
        self.validated.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Begins another epoch.
    pub(super) fn discontinuity(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the epoch.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// A status with these counts.
    pub(super) fn status(&self, backend: Backend, source: Source) -> Status {
        let count = |at: usize| self.fallbacks[at].load(Ordering::Relaxed);
        Status {
            backend,
            source,
            validating: false,
            fence: None,
            epoch: self.epoch(),
            validated: self.validated.load(Ordering::Relaxed),
            fallbacks: Fallbacks(core::array::from_fn(count)),
        }
    }
}
