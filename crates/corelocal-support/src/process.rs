//! Processes that the command starts or looks at.
//!
//! ```text
//!   child.rs        work in a process of its own, which is this same program
//!   ending.rs       how a program is asked to end, and its exit code
//!   folder.rs       a folder for what the processes of a program leave
//!   launch.rs       a program that is started to be looked at, and waited for
//!   proc_files.rs   files of /proc/PROCESS
//!   signals.rs      signals to this process
//! ```

pub mod child;
pub mod ending;
pub mod folder;
pub mod launch;
pub mod proc_files;
pub mod signals;
