//! The models by name: correct ones, and ones with a planted fault, which the explorer must find.

use super::case::Entry;
use super::rseq::process;
use super::{cid, futex, pvclock};

/// Returns all models that do not need a program: see [`super::rseq::entries`] for those that do.
pub fn catalogue() -> Vec<Entry> {
    [process::entries(), pvclock::entries(), cid::entries(), futex::entries()]
        .into_iter()
        .flatten()
        .collect()
}
