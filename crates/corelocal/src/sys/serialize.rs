//! `Serialize` for what [`super::Caps`] holds, with the feature `serde`.
//!
//! Sets, masks and errors are written as the text that they print: a cpu list, names. The rest is
//! derived where the type stands.

use serde::ser::{Serialize, Serializer};

use super::caps::Release;
use super::cpu::cpuset::IdSet;
use super::errno::Errno;
use super::membarrier::Commands;

macro_rules! as_text {
    ($([$($generics:tt)*] $type:ty),* $(,)?) => {
        $(
            impl<$($generics)*> Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }
        )*
    };
}

as_text!([const WORDS: usize] IdSet<WORDS>, [] Errno, [] Commands, [] Release);
