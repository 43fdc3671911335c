//! A class on a node: what an operation of the middle end is about.

use crate::alloc::layout::class::{self, Shape};
use crate::alloc::layout::range::Range;

/// A class, and the node whose spans are meant.
#[derive(Clone, Copy)]
pub(in crate::alloc) struct Place {
    pub(in crate::alloc) range: Range,
    pub(in crate::alloc) class: usize,
    /// The node. Ignored outside of the middle end.
    pub(in crate::alloc) node: usize,
}

impl Place {
    /// For callers that have no node in mind.
    #[inline]
    pub(in crate::alloc) fn new(range: Range, class: usize) -> Place {
        Place { range, class, node: 0 }
    }

    /// With the node that the chunk belongs to.
    pub(in crate::alloc) fn of_chunk(range: Range, class: usize, chunk: usize) -> Place {
        Place { range, class, node: range.node_of(chunk) }
    }

    pub(in crate::alloc) fn on(self, node: usize) -> Place {
        Place { node, ..self }
    }

    #[inline]
    pub(in crate::alloc) fn shape(self) -> &'static Shape {
        class::shape(self.class)
    }
}
