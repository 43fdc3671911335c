//! Why an item was not taken in, with the item.

use core::fmt;

/// The item that a container did not take: it is full, or there is no memory. An error of every item type.
///
/// ```
/// use std::error::Error;
///
/// use corelocal::percpu::{PushError, Ring};
///
/// fn fill(ring: &Ring<String, 8>) -> Result<(), Box<dyn Error>> {
///     ring.push("first".to_owned())?;
///     if let Err(PushError(text)) = ring.push("second".to_owned()) {
///         println!("kept elsewhere: {text}");
///     }
///     Ok(())
/// }
/// # fill(&Ring::new()).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PushError<T>(pub T);

impl<T> PushError<T> {
    /// Returns the item.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushError").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the container is full, or there is no memory for it")
    }
}

impl<T> core::error::Error for PushError<T> {}
