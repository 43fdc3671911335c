//! Objects in memory that several processes map.
//!
//! A [`SharedBox`] holds one object, made by whoever comes first and found by the others: by a name, or by
//! a descriptor that was inherited or sent. What it may hold is [`SharedSafe`].

mod boxed;
mod error;
mod header;
mod name;
mod safe;

pub use boxed::SharedBox;
pub use error::SharedError;
pub use safe::{SharedSafe, layout};
