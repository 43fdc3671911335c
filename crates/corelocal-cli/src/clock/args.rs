//! The arguments of `clock`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Arguments of `clock`.
#[derive(Debug, Args)]
pub struct ClockArgs {
    /// How long to watch the clocks drift (10s, 10m, 8h)
    #[arg(long, value_name = "TIME", default_value = "5s")]
    #[arg(value_parser = corelocal_support::parse::time)]
    pub watch: Duration,
    /// Write every sample to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a page with a plot to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Show the clock that is published in this file, by `corelocal clockd`, a hypervisor
    /// (/dev/vmclock0) or ClockBound (/var/run/clockbound/shm0)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["watch", "csv", "html"])]
    pub file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of the process in which a back-end is looked at.
#[derive(Debug, Args)]
pub struct ClockObserverArgs {
    /// Whether clocks of other libraries are observed instead.
    #[arg(long)]
    pub others: bool,
    /// The time between samples, in milliseconds.
    #[arg(long)]
    pub every_ms: u64,
    /// The whole time, in milliseconds.
    #[arg(long)]
    pub for_ms: u64,
}
