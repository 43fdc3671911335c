//! The arguments of `torture`.

use std::time::Duration;

use clap::Args;
use corelocal_lab::torture::{Selection, Share};

/// Arguments of `torture`.
#[derive(Debug, Args)]
pub struct TortureArgs {
    /// Try only this: SECTION@INSTRUCTION+DISTURBANCE, as a failure names it, or a part of it
    #[arg(long, value_name = "TRIPLE", default_value = "", hide_default_value = true)]
    pub only: Selection,
    /// Try only every N-th instruction, beginning with the K-th
    #[arg(long, value_name = "K/N", default_value = "1/1", hide_default_value = true)]
    #[arg(conflicts_with = "only")]
    pub share: Share,
    /// Disturb at random and at full speed for this time (60s, 5m), without ptrace
    #[arg(long = "for", value_name = "TIME", value_parser = corelocal_support::parse::time)]
    #[arg(conflicts_with_all = ["only", "share"])]
    pub time: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of the process that is disturbed.
#[derive(Debug, Args)]
pub struct VictimArgs {
    /// Milliseconds of a storm.
    #[arg(long)]
    pub storm: Option<u64>,
    /// Where its random numbers begin.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}
