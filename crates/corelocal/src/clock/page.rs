//! Pages in which one writer tells the time to any number of readers: the kernel to a program, a
//! hypervisor to a guest, a daemon to everybody on the machine.
//!
//! A page holds a point (this counter, that time), a rate, and how far off both may be. Readers compute
//! the time themselves: they make no system call and write nothing. The protocol is the same everywhere
//! (`sequence.rs`), the encoding is not:
//!
//! | encoding | whose | tells |
//! |---|---|---|
//! | [`pvclock`] | KVM and Xen, to a guest | monotonic time by the counter |
//! | [`vmclock`] | a hypervisor: `/dev/vmclock0` | true time by the counter, its errors, disruptions |
//! | [`clockbound`] | the ClockBound daemon | the error of `CLOCK_REALTIME` |
//!
//! Each is a `Page` that can lie in any memory. [`Publisher`] keeps one in a file, [`Subscriber`] reads it there if it
//! is of a user that can be believed; other programs' readers read ours, and ours theirs. [`State`] is what a writer
//! knows, from which each encoding takes what it has a place for.
//!
//! ```
//! # #[cfg(not(target_os = "linux"))] fn main() {}
//! # #[cfg(target_os = "linux")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use corelocal::clock::page::{Publisher, State, Status, Subscriber, vmclock};
//! use std::time::Duration;
//!
//! # let path = format!("{}/corelocal-doc-{}\0", std::env::temp_dir().display(), std::process::id());
//! # let path = std::ffi::CStr::from_bytes_with_nul(path.as_bytes())?;
//! # struct Remove<'a>(&'a std::ffi::CStr);
//! # impl Drop for Remove<'_> {
//! #     fn drop(&mut self) {
//! #         let name = self.0.to_str().unwrap();
//! #         let _ = (std::fs::remove_file(name), std::fs::remove_file(format!("{name}.lock")));
//! #     }
//! # }
//! # let _remove = Remove(path);
//! // One process:
//! let mut publisher = Publisher::<vmclock::Page>::create(path)?;
//! let state = State {
//!     counter_kind: vmclock::COUNTER_TSC,
//!     counter: 1_000,
//!     time: Duration::from_secs(1_700_000_000),
//!     period: corelocal::clock::page::Period::from_hertz(2_000_000_000).unwrap(),
//!     max_error_ns: 500,
//!     drift_ppb: 15_000,
//!     status: Status::Synchronized,
//!     ..State::default()
//! };
//! publisher.publish(&vmclock::Content::from(&state))?;
//!
//! // Any other:
//! let mut subscriber = Subscriber::<vmclock::Page>::open(path)?;
//! let bounds = subscriber.bounds(|| 3_000)?; // where that page's counter is read
//! let microsecond_later = Duration::new(1_700_000_000, 1_000);
//! assert!(bounds.earliest < microsecond_later && microsecond_later < bounds.latest);
//! # Ok(())
//! # }
//! ```

/// Declares a function that is `const`, except under loom, whose atomics have no const constructor.
macro_rules! const_unless_loom {
    ($(#[$doc:meta])* pub fn $name:ident() -> $Type:ty $body:block) => {
        $(#[$doc])*
        #[cfg(not(loom))]
        pub const fn $name() -> $Type $body

        $(#[$doc])*
        #[cfg(loom)]
        pub fn $name() -> $Type $body
    };
}

/// Defines what every type of page has by its [`Layout`](layout::Layout): a name and a content as an [`Encoding`], a
/// default, and what is shown of it.
macro_rules! encoding {
    ($Page:ident, $Content:ident, $name:literal) => {
        impl $crate::clock::page::Encoding for $Page {
            type Content = $Content;
            const NAME: &'static str = $name;
        }

        impl Default for $Page {
            fn default() -> $Page {
                $Page::new()
            }
        }

        impl core::fmt::Debug for $Page {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let content = layout::Layout::read(self, None).map(|(_, content)| content);
                f.debug_tuple(stringify!($Page)).field(&content).finish()
            }
        }
    };
}

/// Implements the same for encodings whose content does not include a sequence number.
macro_rules! content_and_write {
    ($Content:ident, $(#[$errors:meta])*) => {
        /// Returns a consistent copy of the page's content.
        ///
        /// Constant time, apart from retries while a writer publishes, of which there are at most a thousand.
        /// Async-signal-safe.
        ///
        /// # Errors
        /// [`ReadError::Odd`] or [`ReadError::Changing`] if every attempt met a writer.
        $(#[$errors])*
        #[inline]
        pub fn content(&self) -> Result<$Content, ReadError> {
            layout::Layout::read(self, None).map(|(_, content)| content)
        }

        /// Publishes `content`. One writer at a time; wait-free; as
        /// [`pvclock`](crate::clock::page::pvclock::Page::write).
        #[inline]
        pub fn write(&self, content: &$Content) {
            layout::Layout::publish(self, None, content);
        }
    };
}

mod clock_state;
#[cfg(all(test, not(loom)))]
mod crash_test;
mod error;
mod layout;
mod lock_file;
#[cfg(not(loom))]
mod reader;
mod sequence;
#[cfg(all(test, loom))]
mod sequence_loom;
mod status;
#[cfg(all(test, not(loom)))]
mod tests;
mod units;
#[cfg(not(loom))]
mod untrusted;
#[cfg(not(loom))]
mod writer;

pub mod clockbound;
pub mod pvclock;
pub mod vmclock;

pub use clock_state::{Bounds, Leap, Scale, Smearing, State};
pub use error::{PublishError, ReadError, Refusal};
#[cfg(not(loom))]
pub use reader::Subscriber;
pub use status::Status;
pub use units::Period;
#[cfg(not(loom))]
pub use writer::Publisher;

/// An encoding, by its page: [`pvclock::Page`], [`vmclock::Page`] or [`clockbound::Page`].
pub trait Encoding: layout::Layout {
    /// The content of a page.
    type Content: Copy
        + Default
        + PartialEq
        + core::fmt::Debug
        + Send
        + Sync
        + for<'a> From<&'a State>;
    /// The encoding's name.
    const NAME: &'static str;
}
