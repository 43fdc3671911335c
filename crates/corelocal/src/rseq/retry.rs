//! The attempts of a section on the cold path.

use super::exit::{Ended, Outcome};
use super::stats;

/// The number of attempts before the caller's fallback is used.
pub(crate) const MAX_ATTEMPTS: u32 = 32;

/// Runs a section on the cold path until it commits or mismatches.
///
/// `attempt` runs it once. `prepare` makes an unavailable one available if possible. `None` if the caller's fallback
/// must be used.
#[cold]
pub(crate) fn retry<E: Ended>(
    first: E,
    mut prepare: impl FnMut() -> bool,
    mut attempt: impl FnMut() -> E,
) -> Option<E> {
    let mut ended = first;
    for _ in 0..MAX_ATTEMPTS {
        match ended.exit().outcome() {
            Outcome::Committed | Outcome::Mismatch => return Some(ended),
            Outcome::Aborted => stats::count_abort(),
            Outcome::Unavailable => {
                if !prepare() {
                    break;
                }
            }
        }
        ended = attempt();
    }
    if ended.is_done() {
        return Some(ended);
    }
    stats::count_fallback();
    None
}
