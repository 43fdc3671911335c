//! Replacement on architectures without critical sections.

use super::{Obstacle, Plan, Report, Workload};

/// Tries every selected triple.
///
/// # Errors
/// Always: there are no critical sections on this architecture.
pub fn run(_plan: &Plan<'_>, _progress: &mut dyn FnMut(usize, usize)) -> Result<Report, Obstacle> {
    Err(Obstacle::Unable("there are no critical sections for this processor yet".to_owned()))
}

/// The process that is disturbed. It does nothing here.
pub fn victim(_workloads: &[Workload]) {}
