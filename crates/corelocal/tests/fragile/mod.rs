//! Items that count their drops, and one whose drop panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts its drops; the one whose turn it is panics.
pub struct Fragile {
    pub drops: Arc<AtomicUsize>,
    pub panics: bool,
}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "meant to");
    }
}
