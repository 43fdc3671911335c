//! `corelocal report` and `corelocal bench`: what each fast path costs on this machine, beside its rivals in the same
//! rounds. A part of [the command](https://docs.rs/corelocal-cli), and no library for other programs: its interface changes
//! with the command, without notice.
//!
//! ```text
//!   command   the two commands
//!   tables    what is compared, and with which published figures
//!   contest   how a table is measured
//!   report    how a table is shown, compared with an older one, and written
//! ```

#[cfg(test)]
mod children;
mod command;
mod contest;
mod report;
mod tables;

pub use command::args::{BenchArgs, ReportArgs};
pub use command::{Paths, bench, children, report};
pub use tables::clock::foreign::others as other_clocks;
