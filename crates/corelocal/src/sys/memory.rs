//! Memory: pages, mappings that are made when they are needed, huge pages, and limits.

#[cfg(not(loom))]
pub(crate) mod huge_pages;
pub(crate) mod lazy_mapping;
#[cfg(not(loom))]
pub(crate) mod limit;
pub(crate) mod page_size;
pub(crate) mod pages;
#[cfg(all(test, not(any(loom, miri))))]
pub(crate) mod pages_emulated;
