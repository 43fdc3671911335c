//! Where there are no critical sections to disturb.

use super::{Obstacle, Plan, Report, Workload};

/// Tries every selected triple.
///
/// # Errors
/// Always: this processor has no critical sections here.
pub fn run(_plan: &Plan<'_>, _progress: &mut dyn FnMut(usize, usize)) -> Result<Report, Obstacle> {
    Err(Obstacle::Unable("there are no critical sections for this processor yet".to_owned()))
}

/// The process that is disturbed; there is nothing for it to do.
pub fn victim(_workloads: &[Workload]) {}
