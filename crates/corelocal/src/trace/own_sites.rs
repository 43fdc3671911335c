//! The tracer's own sites, whose events tell losses.

use super::format::{Kind, LOST_NAME, OVERWRITTEN_NAME};
use super::site::Site;

pub(super) static LOST: Site = Site::new(Kind::Event, LOST_NAME);
pub(super) static OVERWRITTEN: Site = Site::new(Kind::Event, OVERWRITTEN_NAME);

/// Returns the number of the site whose events tell losses; 0 before it is registered.
pub(super) fn lost_number() -> u16 {
    LOST.any_number().unwrap_or(0)
}
