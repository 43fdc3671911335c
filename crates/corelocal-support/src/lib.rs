//! What the commands of [corelocal](https://docs.rs/corelocal-cli) have in common. It is no library for other programs: its
//! interface changes with the command, without notice.
//!
//! ```text
//!   output, parse, units        what is printed, what is typed, how a size and a time are written
//!   console, figures            tables on a terminal, and the figures in them
//!   page, plot                  the frame of a page, and a plot in it
//!   file, user_file, place      files that a user named
//!   schema, verdict             what was measured, and whether it has changed
//!   machine, clock, mallocs     what this machine is and has
//!   measure, process            rounds of contestants; other processes
//! ```

pub mod clock;
pub mod console;
pub mod figures;
pub mod file;
pub mod machine;
pub mod mallocs;
pub mod measure;
pub mod output;
pub mod page;
pub mod parse;
pub mod place;
pub mod plot;
pub mod process;
pub mod schema;
pub mod units;
pub mod user_file;
pub mod verdict;
