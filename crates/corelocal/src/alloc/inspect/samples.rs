//! The profile of another process: it can be asked for one, and the samples are read from its memory.

use crate::alloc::debug::profile::area::remote;
use crate::alloc::debug::profile::asked::wish_of;
use crate::alloc::profile::{Sample, Summary};

use super::{Unread, open};

/// The bytes of a stack that a sample has at most: of one that has them all there may be more.
pub const MOST_STACK: usize = remote::MOST_STACK;

/// The byte that ends a profile which was asked for.
pub const NO_PROFILE: u8 = 0;

/// Returns the byte, to be written to [`Found::asked`](super::Found::asked), that asks for a profile: one byte in `rate`,
/// or in the next power of two, is sampled. The process follows at its next refill of a core's cache, or its next
/// allocation of a large object; [`Taken::profile_rate`](super::Taken::profile_rate) then says so. A profile that it began
/// itself stays as it is.
pub fn asking_for(rate: u64) -> u8 {
    wish_of(rate)
}

/// Calls `f` with each sample of the malloc whose header is at this address, which is read into `into`, and returns the sums.
/// Samples that come or go at the same time may be left out.
///
/// # Errors
/// See [`Unread`].
pub fn samples(
    header: usize,
    read: &mut dyn FnMut(usize, &mut [u8]) -> bool,
    into: &mut Sample,
    f: &mut dyn FnMut(&Sample),
) -> Result<Summary, Unread> {
    let (mut process, _, places) = open(header, read)?;
    let rate = process.get::<u64>(places.profile_rate)?.max(1);
    remote::for_each(&mut process.0, places.area, rate, into, f).map_err(|_| Unread::Unreadable)
}
