//! The command line: one subcommand for each command, whose arguments are with it.

use clap::{Parser, Subcommand};

use crate::{check, child, clock, doctor, heap, lab, locks, run, shipped, torture, trace};

/// Show, measure and check the fast paths of this machine's kernel.
#[derive(Debug, Parser)]
#[command(name = "corelocal", version, propagate_version = true)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what kernel, libc and processor support, which fast paths are active, and how to enable the rest
    Doctor(doctor::args::DoctorArgs),
    /// Measure all tables beside their rivals, and write report.html and report.json
    #[cfg(feature = "report")]
    Report(corelocal_bench::ReportArgs),
    /// Measure single tables, or list them
    #[cfg(feature = "report")]
    Bench(corelocal_bench::BenchArgs),
    /// Check the critical sections (rseq) of any program, library or object file without running it
    Check(check::CheckArgs),
    /// Disturb the library's critical sections at every instruction, and check that no operation is lost
    Torture(torture::args::TortureArgs),
    /// Explore models of the kernel's halves: critical sections, concurrency ids, futexes, pvclock
    Lab(lab::args::LabArgs),
    /// Show lock contention, with waiters and holders, of a running process or of a program to run
    Locks(locks::args::LocksArgs),
    /// Show heap use by call site, from files written by corelocal's malloc or of a program to run
    Heap(heap::args::HeapArgs),
    /// Run a program with another malloc, and show its time and memory, also beside other mallocs
    Run(run::args::RunArgs),
    /// Print the path of corelocal's malloc, for LD_PRELOAD
    MallocPath,
    /// Record events of a program, and show recordings of the library's tracer
    Trace(trace::args::TraceArgs),
    /// Show the clock's back-ends (cost, agreement, drift), or a published clock
    Clock(clock::args::ClockArgs),
    /// Publish this machine's clock and its error bound in memory that other processes read
    Clockd(corelocal_clockd::ClockdArgs),
    /// Print a script by which a shell completes this command's arguments
    Completions(shipped::CompletionsArgs),
    /// Write the manual pages to a folder
    #[command(hide = true)]
    ManPages(shipped::ManPagesArgs),
    /// A process in which one of the clock's back-ends is observed
    #[command(name = clock::SUBCOMMAND, hide = true)]
    ClockObserver(clock::args::ClockObserverArgs),
    /// The process that is disturbed
    #[command(name = torture::VICTIM, hide = true)]
    Victim(torture::args::VictimArgs),
    /// A process in which a table runs one measurement
    #[command(name = child::SUBCOMMAND, hide = true)]
    Child(child::ChildArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn is_consistent() {
        Cli::command().debug_assert();
    }
}
