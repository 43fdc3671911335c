//! The arguments of `doctor`.

use clap::Args;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 when a fast path is degraded
    #[arg(long)]
    pub strict: bool,
}
