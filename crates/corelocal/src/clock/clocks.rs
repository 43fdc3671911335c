//! The clocks as a type parameter, so that a test can put other ones in their place.
//!
//! Code that asks for the time through a parameter of type [`Clocks`] reads the system's clocks in a program and a
//! [`MockClocks`](super::MockClocks) in its tests. [`SystemClocks`] has no size, and each of its methods is the
//! function of the same name in this module: compiled, nothing is left of it.
//!
//! # Invariant
//! 1. A pointer to clocks forwards each method of the trait to the method of the same name: one that fell back to a
//!    provided method would read another clock.

use core::ops::Deref;
use core::time::Duration;

use super::{Bounded, Instant, Timestamp, Unbounded};

/// Clocks to read: those of the system, or a test's.
///
/// A type that asks for the time takes them as a parameter. References, `Arc`s and other pointers to clocks are
/// clocks too, so that several parts of a program can share a mock.
///
/// ```
/// use corelocal::clock::{Clocks, Instant, MockClocks, SystemClocks};
/// use std::time::Duration;
///
/// /// Lets one thing through a second.
/// struct Throttle<C = SystemClocks> {
///     clocks: C,
///     next: Instant,
/// }
///
/// impl<C: Clocks> Throttle<C> {
///     fn new(clocks: C) -> Self {
///         Throttle { next: clocks.now(), clocks }
///     }
///
///     fn is_allowed(&mut self) -> bool {
///         let now = self.clocks.now();
///         let is_due = now >= self.next;
///         if is_due {
///             self.next = now + Duration::from_secs(1);
///         }
///         is_due
///     }
/// }
///
/// // In the program:
/// let mut throttle = Throttle::new(SystemClocks);
/// assert!(throttle.is_allowed());
///
/// // In its test, which takes no second:
/// let clocks = MockClocks::new();
/// let mut throttle = Throttle::new(&clocks);
/// assert!(throttle.is_allowed() && !throttle.is_allowed());
/// clocks.advance(Duration::from_millis(999));
/// assert!(!throttle.is_allowed());
/// clocks.advance(Duration::from_millis(1));
/// assert!(throttle.is_allowed());
/// ```
///
/// # What is not part of it
/// [`Ticks`](super::Ticks), [`Stamp`](super::Stamp) and [`Converter`](super::Converter) are of the cpu's
/// counter, and [`Watcher`](super::Watcher) of the kernel's clocks. `elapsed` of [`Instant`] and [`Timestamp`]
/// reads the system's clocks, whatever clocks the moment is of: take [`Clocks::elapsed`].
///
/// # For other implementations
/// Unordered and coarse readings are the ordered ones of the same clock unless they are written out.
pub trait Clocks {
    /// Does what [`clock::monotonic`](super::monotonic) does.
    #[must_use]
    fn monotonic(&self) -> u64;

    /// Does what [`clock::realtime`](super::realtime) does.
    #[must_use]
    fn realtime(&self) -> u64;

    /// Does what [`clock::boottime`](super::boottime) does.
    #[must_use]
    fn boottime(&self) -> u64;

    /// Does what [`clock::tai`](super::tai) does.
    #[must_use]
    fn tai(&self) -> u64;

    /// Does what [`clock::now_bounded`](super::now_bounded) does.
    ///
    /// # Errors
    /// [`Unbounded`] if the realtime clock has no valid error bound.
    fn now_bounded(&self) -> Result<Bounded, Unbounded>;

    /// Does what [`clock::epoch`](super::epoch()) does: another number after the clocks were set, or the machine slept.
    #[must_use]
    fn epoch(&self) -> u64;

    /// Does what [`clock::monotonic_unordered`](super::monotonic_unordered) does.
    #[inline]
    #[must_use]
    fn monotonic_unordered(&self) -> u64 {
        self.monotonic()
    }

    /// Does what [`clock::realtime_unordered`](super::realtime_unordered) does.
    #[inline]
    #[must_use]
    fn realtime_unordered(&self) -> u64 {
        self.realtime()
    }

    /// Does what [`clock::boottime_unordered`](super::boottime_unordered) does.
    #[inline]
    #[must_use]
    fn boottime_unordered(&self) -> u64 {
        self.boottime()
    }

    /// Does what [`clock::tai_unordered`](super::tai_unordered) does.
    #[inline]
    #[must_use]
    fn tai_unordered(&self) -> u64 {
        self.tai()
    }

    /// Does what [`clock::coarse`](super::coarse) does.
    #[inline]
    #[must_use]
    fn coarse(&self) -> u64 {
        self.monotonic()
    }

    /// Does what [`clock::realtime_coarse`](super::realtime_coarse) does.
    #[inline]
    #[must_use]
    fn realtime_coarse(&self) -> u64 {
        self.realtime()
    }

    /// Returns now, as an [`Instant`]: [`monotonic`](Clocks::monotonic).
    #[inline]
    #[must_use]
    fn now(&self) -> Instant {
        Instant::from_nanos(self.monotonic() as i64)
    }

    /// Returns now, as a [`Timestamp`]: [`realtime`](Clocks::realtime).
    #[inline]
    #[must_use]
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_nanos(self.realtime() as i64)
    }

    /// Returns the time that went by since, by these clocks; zero if that moment is still to come.
    #[inline]
    #[must_use]
    fn elapsed(&self, since: Instant) -> Duration {
        self.now().saturating_duration_since(since)
    }
}

/// The clocks of the system: each method is the function of the same name in [`clock`](crate::clock).
///
/// No size, and no instruction: what is generic over [`Clocks`], compiled for these, calls
/// [`clock::now`](super::now) itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SystemClocks;

macro_rules! implement {
    ($($name:ident -> $Time:ty;)*) => {
        impl Clocks for SystemClocks {
            $(
                #[inline]
                fn $name(&self) -> $Time {
                    super::$name()
                }
            )*
        }

        /// Clocks are passed by reference, `Box` or `Arc` as well.
        impl<P> Clocks for P
        where
            P: Deref,
            P::Target: Clocks,
        {
            // (1)
            $(
                #[inline]
                fn $name(&self) -> $Time {
                    (**self).$name()
                }
            )*

            #[inline]
            fn now(&self) -> Instant {
                (**self).now()
            }

            #[inline]
            fn timestamp(&self) -> Timestamp {
                (**self).timestamp()
            }

            #[inline]
            fn elapsed(&self, since: Instant) -> Duration {
                (**self).elapsed(since)
            }
        }
    };
}

implement! {
    monotonic -> u64;
    realtime -> u64;
    boottime -> u64;
    tai -> u64;
    now_bounded -> Result<Bounded, Unbounded>;
    epoch -> u64;
    monotonic_unordered -> u64;
    realtime_unordered -> u64;
    boottime_unordered -> u64;
    tai_unordered -> u64;
    coarse -> u64;
    realtime_coarse -> u64;
}
