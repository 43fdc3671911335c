//! The start of a recording.

use core::sync::atomic::{Ordering, fence};

use super::memory::{By, Recording};
use super::options::{Options, StartError};
use super::{losses, rules, site};

/// Starts a recording, with all sites on, unless the environment has started one.
pub(super) fn start(options: Options<'_>, by: By) -> Result<Option<Recording>, StartError> {
    losses::register();
    let made = Recording::make(options, by)?;
    // Partner: the fence in `Site::register`.
    fence(Ordering::SeqCst);
    if let Some(recording) = made {
        site::all().for_each(|site| {
            recording.describe(site);
            rules::apply(&recording, site);
        });
    }
    Ok(made)
}
