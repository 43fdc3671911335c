//! Processes that the command starts or looks at.
//!
//! ```text
//!   ending.rs       how a program is asked to end, and its exit code
//!   folder.rs       a folder for what the processes of a program leave
//!   ignored_signals.rs    signals that the caller has ignored
//!   launch.rs       a program that is started to be looked at, and waited for
//!   kept.rs         what a running process keeps in memory for those that look at it
//!   proc_files.rs   files of /proc/PROCESS
//!   proc_folder.rs  the folder in /proc of a process whose first thread may have ended
//!   signals.rs      signals to this process
//! ```

pub(crate) mod ending;
pub(crate) mod folder;
pub(crate) mod ignored_signals;
pub(crate) mod kept;
pub(crate) mod launch;
pub(crate) mod proc_files;
pub(crate) mod proc_folder;
pub(crate) mod signals;
