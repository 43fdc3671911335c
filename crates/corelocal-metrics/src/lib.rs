#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod builder;
mod cache;
mod counter;
mod gauge;
mod histogram;
#[cfg(target_os = "linux")]
mod malloc;
mod recorder;
mod registry;
mod text;

pub use builder::{Builder, Error};
#[cfg(target_os = "linux")]
pub use malloc::record_malloc;
pub use recorder::{Handle, Recorder};

/// Makes everything that the program counts with `metrics` from now on local to the core that counts.
///
/// To be called once, first thing in `main`; what was recorded before is lost. [`Recorder::builder`] leads
/// to what can be chosen.
///
/// ```
/// let handle = corelocal_metrics::install()?;
/// metrics::counter!("hits").increment(1);
/// assert_eq!(handle.render(), "# TYPE hits counter\nhits 1\n");
/// # Ok::<(), corelocal_metrics::Error>(())
/// ```
///
/// # Errors
/// [`Error::AlreadyInstalled`].
pub fn install() -> Result<Handle, Error> {
    Recorder::builder().install()
}
