//! Which domain is meant, for what needs nothing else of it.

/// The address of a domain, which is a static.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(usize);

impl Key {
    /// Returns the key of this domain.
    pub(super) fn of<T>(domain: &T) -> Key {
        Key((&raw const *domain).addr())
    }
}
