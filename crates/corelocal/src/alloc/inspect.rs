//! Statistics of another process, read from its memory: it need not do anything, nor have been started for it.
//!
//! ```text
//!   header of the range: MARK … directory ──► Directory: this layout's number, and where the rest is
//! ```
//! A reader looks for a mapping that begins with [`MARK`] (`/proc/PROCESS/maps`), and then follows addresses. It has to
//! be of the same layout as the process, which `LAYOUT` tells.
//!
//! `inspect/directory.rs` has the layout's number and the addresses, `inspect/samples.rs` reads the samples of a profile.
//! A profile can be asked for from outside: by a byte at [`Found::asked`].
//!
//! # Invariants
//! 1. Everything that is read is an integer or an atomic one: any bytes are valid. Addresses are only given to `read`.
//! 2. The process goes on meanwhile: figures are those of slightly different moments.

mod directory;
mod samples;

pub use directory::MARK;
pub use samples::{MOST_STACK, NO_PROFILE, asking_for, samples};

use core::mem::offset_of;
use core::sync::atomic::Ordering;

use super::background::target::{AS_ASKED, NO_TARGET};
use super::central::Central;
use super::config::{Background, Modes};
use super::debug::stats::{Stats, none};
use super::layout::chunk::{CHUNK, HUGE_PAGE, IN_A_GROUP, MOST_CHUNKS};
use super::layout::chunk_metadata::{Group, IN_A_BLOCK};
use super::layout::class::{self, CLASSES};
use super::layout::division::Division;
use super::layout::header::{HEADER, Header};
use super::layout::node_ranges::STATE;
use super::layout::range::{Range, UNSET};
use super::layout::record::Record;
use super::layout::remote::{Plain, Read, Remote, Unreadable};
use super::layout::stack;
use crate::cid;
use crate::rseq::{SLOT_SHIFT, offset};
use directory::{LAYOUT, Places};

const R: Ordering = Ordering::Relaxed;

/// Has readers find this range.
pub(super) fn publish(range: Range) {
    let header = range.header();
    header.directory.store(directory::address(), R);
    // Last: a reader that sees the mark follows the address.
    header.mark.store(MARK, Ordering::Release);
}

/// Returns `true` if readers find this range.
#[inline]
pub(super) fn is_published(range: Range) -> bool {
    range.header().mark.load(R) == MARK
}

/// The options of a malloc that a reader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Allocations are counted (`stats`, `count`).
    pub counts: bool,
    /// All objects are checked.
    pub checks: bool,
    /// One allocation in this many is guarded.
    pub guard_rate: Option<u32>,
    /// One byte in this many is sampled.
    pub profile_rate: Option<u64>,
    /// Which processes get a background thread: as in `CORELOCAL_MALLOC`, or `several` or none by the program's wish.
    pub background: &'static str,
    /// The background thread makes huge pages.
    pub huge_pages: bool,
    /// Memory pressure is watched.
    pub pressure: bool,
    /// The target for the heap.
    pub target: Option<usize>,
}

/// A malloc that a reader found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The statistics, without the counts of calls.
    pub stats: Stats,
    /// The options.
    pub taken: Taken,
    /// The addresses of its chunks.
    pub range: (usize, usize),
    /// The address of the byte by which a profile is [asked for](asking_for).
    pub asked: usize,
    /// The address of the four bytes that say which process is asked: its number as it knows itself. They are written before
    /// that byte, so that a child which is forked meanwhile does not follow.
    pub asked_of: usize,
}

/// The reason why a malloc was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Its header is not one.
    NotOne,
    /// It is of another version of this library.
    OtherVersion,
    /// Its memory cannot be read, or the process has ended.
    Unreadable,
}

/// Reads the malloc whose header is at this address. `read` reads bytes of the process at an address, and returns false
/// if it cannot.
///
/// # Errors
/// See [`Unread`].
pub fn inspect(
    header: usize,
    read: &mut dyn FnMut(usize, &mut [u8]) -> bool,
) -> Result<Found, Unread> {
    let (mut process, head, places) = open(header, read)?;
    let base = header.wrapping_add(HEADER);
    let chunks = head.chunks.load(R);
    let division = Division::of_word(head.division.load(R)).unwrap_or(Division::WHOLE);
    if chunks > MOST_CHUNKS || !division.is_possible(chunks) {
        return Err(Unread::NotOne);
    }
    let mut stats = totals(&head);
    stats.nodes = division.nodes;
    for node in 0..stats.nodes {
        let bounds = division.bounds(node, chunks);
        let known = head.stripes[node].known.load(R).clamp(bounds.start, bounds.end);
        for first in (bounds.start..known).step_by(IN_A_GROUP) {
            process.add_group(&places, base, (node, first), &mut stats)?;
        }
        stats.committed += stats.of_nodes[node].committed;
        stats.used += stats.of_nodes[node].used;
    }
    process.add_caches(&places, &mut stats)?;
    let sampled: [usize; CLASSES + 1] = process.get(places.sampled)?;
    for (class, of_class) in (1..).zip(&mut stats.classes) {
        // Until here the objects that are out of their spans.
        let free = of_class.on_cores + of_class.in_depot;
        of_class.in_use = of_class.in_use.saturating_sub(free).saturating_add(sampled[class]);
        of_class.span_bytes = of_class.spans * class::shape(class).chunks * CHUNK;
    }
    let range = (base, base.wrapping_add(chunks * CHUNK));
    Ok(Found {
        stats,
        taken: process.taken(&places)?,
        range,
        asked: places.asked,
        asked_of: places.asked_of,
    })
}

/// Returns the options of the malloc whose header is at this address: a few reads, where [`inspect`] reads the state of all
/// chunks.
///
/// # Errors
/// See [`Unread`].
pub fn options(
    header: usize,
    read: &mut dyn FnMut(usize, &mut [u8]) -> bool,
) -> Result<Taken, Unread> {
    let (mut process, _, places) = open(header, read)?;
    process.taken(&places)
}

/// Returns the memory of a process, the header at this address in it, and where the rest is.
fn open(header: usize, read: Read<'_>) -> Result<(Process<'_>, Header, Places), Unread> {
    let mut process = Process(Remote(read));
    let head: Header = process.get(header)?;
    if head.mark.load(R) != MARK {
        return Err(Unread::NotOne);
    }
    // The layout first: a directory of another version may be shorter.
    let at = head.directory.load(R);
    if process.get::<usize>(at)? != LAYOUT {
        return Err(Unread::OtherVersion);
    }
    let places = Places::of(|offset| process.get::<usize>(at.wrapping_add(offset)))?;
    let base = process.get::<usize>(places.base)?;
    if base == UNSET || base.wrapping_sub(HEADER) != header {
        return Err(Unread::NotOne);
    }
    Ok((process, head, places))
}

/// The figures that the header has.
fn totals(head: &Header) -> Stats {
    let mut stats = none();
    let (chunks, reserve) = (head.large_chunks.load(R), head.reserve_chunks.load(R));
    stats.reserved = head.chunks.load(R).saturating_mul(CHUNK);
    stats.idle = head.dirty.load(R).saturating_mul(CHUNK);
    stats.released = head.released.load(R);
    stats.huge = head.huge.load(R).saturating_mul(HUGE_PAGE);
    stats.large_objects = head.large_objects.load(R);
    stats.large_bytes = chunks.saturating_sub(reserve).saturating_mul(CHUNK);
    stats.large_reserve = reserve.saturating_mul(CHUNK);
    stats.displaced = head.displaced.load(R);
    stats
}

// SAFETY: atomic integers in C's order, each of a word.
unsafe impl Plain for Header {}
// SAFETY: as above.
unsafe impl Plain for Group {}

/// The memory of the process.
struct Process<'a>(Remote<'a>);

impl Process<'_> {
    fn get<T: Plain>(&mut self, at: usize) -> Result<T, Unread> {
        self.0.get(at).map_err(|Unreadable| Unread::Unreadable)
    }

    /// Adds the chunks of a group of a node: its spans, and what is mapped and used.
    fn add_group(
        &mut self,
        places: &Places,
        base: usize,
        (node, first): (usize, usize),
        stats: &mut Stats,
    ) -> Result<(), Unread> {
        let at: usize =
            self.get(places.groups.wrapping_add(first / IN_A_GROUP * size_of::<usize>()))?;
        if at == 0 {
            return Ok(());
        }
        let group: Group = self.get(at)?;
        for (used, open) in group.used.iter().zip(&group.open) {
            let (used, open) = (used.load(R), open.load(R));
            stats.of_nodes[node].committed += open.count_ones() as usize * CHUNK;
            stats.of_nodes[node].used += (used & open).count_ones() as usize * CHUNK;
        }
        let kinds: [u8; IN_A_GROUP] = self.get(base.wrapping_sub(MOST_CHUNKS - first))?;
        for (nth, kind) in kinds.iter().map(|kind| usize::from(*kind)).enumerate() {
            // A span begins at a multiple of its length.
            if !(1..=CLASSES).contains(&kind) || nth % class::shape(kind).chunks != 0 {
                continue;
            }
            let block = group.records[nth / IN_A_BLOCK].load(R).addr();
            let record = nth % IN_A_BLOCK * size_of::<Record>() + offset_of!(Record, out);
            let out = if block == 0 { 0 } else { self.get::<u32>(block.wrapping_add(record))? };
            stats.classes[kind - 1].spans += 1;
            stats.classes[kind - 1].in_use += out as usize;
        }
        Ok(())
    }

    /// Adds the objects in the caches of cores, and in depots.
    fn add_caches(&mut self, places: &Places, stats: &mut Stats) -> Result<(), Unread> {
        let block: usize = self.get(places.block)?;
        let states: usize = self.get(places.states)?;
        let own = (0..cid::capacity()).map(|slot| block.wrapping_add(offset(slot) as usize));
        let shared = (0..cid::shared_capacity())
            .map(|slot| block.wrapping_add((slot as usize) << SLOT_SHIFT));
        if block != 0 {
            for slot in own.chain(shared) {
                for (class, of_class) in (1..).zip(&mut stats.classes) {
                    let at = slot.wrapping_add(stack::at(class) + stack::BEFORE_COUNT);
                    // A machine with fewer cores than this one, as in a virtual machine's memory, has fewer slots.
                    of_class.on_cores +=
                        (self.get::<u64>(at).unwrap_or(0) as usize).min(stack::MOST_ITEMS);
                }
            }
        }
        for node in 0..stats.nodes {
            let centrals = match node {
                0 => places.centrals,
                node if states != 0 => states.wrapping_add((node - 1) * STATE),
                _ => break,
            };
            for (class, of_class) in (1..).zip(&mut stats.classes) {
                let at = class * size_of::<Central>() + offset_of!(Central, count);
                let waiting = self.get::<usize>(centrals.wrapping_add(at))?;
                of_class.in_depot += waiting.min(class::shape(class).depot);
            }
        }
        Ok(())
    }

    fn taken(&mut self, places: &Places) -> Result<Taken, Unread> {
        let modes = Modes(self.get::<u32>(places.modes)?);
        let background = usize::from(self.get::<u8>(places.background)?);
        let is_allowed = self.get::<u8>(places.is_allowed)? != 0;
        let asked = Some(self.get::<usize>(places.resident)?).filter(|bytes| *bytes > 0);
        Ok(Taken {
            counts: modes.counts(),
            checks: modes.checks(),
            guard_rate: modes.guards().then(|| self.get::<u32>(places.guard_rate)).transpose()?,
            profile_rate: modes.profiles().then(|| self.get(places.profile_rate)).transpose()?,
            background: match Background::ALL.get(background) {
                Some(Background::Yes) => "yes",
                Some(Background::Children) => "children",
                Some(Background::No) => "no",
                _ if is_allowed => "several",
                _ => "none",
            },
            huge_pages: self.get::<u8>(places.is_without_huge_pages)? == 0,
            pressure: self.get::<u8>(places.is_pressure_ignored)? == 0,
            target: match self.get::<usize>(places.target)? {
                NO_TARGET => None,
                AS_ASKED => asked,
                target => Some(target),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::layout::range::BASE;
    use crate::alloc::{allocate, deallocate, stats};

    /// This process as another one: every address that the reader asks for exists.
    fn inspect_this() -> Result<Found, Unread> {
        let range = Range::make().unwrap();
        publish(range);
        let header = range.address(0) - HEADER;
        inspect(header, &mut |at, bytes| {
            let from = core::ptr::with_exposed_provenance::<u8>(at);
            // SAFETY: addresses of this process's malloc; other threads write to them atomically, so copies are made byte
            // by byte, volatile.
            (0..bytes.len()).for_each(|nth| bytes[nth] = unsafe { from.add(nth).read_volatile() });
            true
        })
    }

    #[test]
    fn a_reader_finds_what_the_process_knows() {
        // A class that no other test of this process uses, and a large object.
        let class = 61;
        let size = class::shape(class).size;
        let objects: std::vec::Vec<_> = (0..50).map(|_| allocate(size)).collect();
        let found = inspect_this().unwrap();
        let (of_class, own) = (found.stats.classes[class - 1], stats().classes[class - 1]);
        assert_eq!((of_class.in_use, of_class.size), (50, size), "{of_class:?} {own:?}");
        assert_eq!((of_class.spans, of_class.span_bytes), (own.spans, own.span_bytes));
        assert_eq!((of_class.on_cores, of_class.in_depot), (own.on_cores, own.in_depot));
        assert!(found.stats.used > 0 && found.stats.used <= found.stats.committed);
        assert!((found.range.0..found.range.1).contains(&(objects[0] as usize)));
        assert_eq!((found.taken.background, found.taken.counts), ("none", false));
        // SAFETY: allocated above.
        objects.into_iter().for_each(|object| unsafe { deallocate(object) });
    }

    #[test]
    fn what_is_no_malloc_is_refused() {
        let zeros = inspect(0x1000, &mut |_, bytes| {
            bytes.fill(0);
            true
        });
        assert_eq!(zeros.unwrap_err(), Unread::NotOne);
        assert_eq!(inspect(0x1000, &mut |_, _| false).unwrap_err(), Unread::Unreadable);
        // The mark alone, and random bytes behind it.
        let mut random = crate::alloc::random::mix(1);
        let other = inspect(0x1000, &mut |at, bytes| {
            bytes.iter_mut().for_each(|byte| {
                random = crate::alloc::random::mix(random);
                *byte = random as u8;
            });
            if at == 0x1000 {
                bytes[..8].copy_from_slice(&MARK.to_ne_bytes());
            }
            true
        });
        assert_eq!(other.unwrap_err(), Unread::OtherVersion);
    }

    /// Memory in which any byte may be another one: there is an answer, or an error.
    #[test]
    fn whatever_the_memory_contains_there_is_an_end() {
        let range = Range::make().unwrap();
        publish(range);
        let header = range.address(0) - HEADER;
        for seed in 0..3000 {
            let mut random = crate::alloc::random::mix(seed);
            let mut next = || {
                random = crate::alloc::random::mix(random);
                random
            };
            let (mut reads, odds) = (0, 1 << (next() % 12));
            let found = inspect(header, &mut |at, bytes| {
                reads += 1;
                let known = [
                    (header, size_of::<Header>()),
                    (directory::address(), size_of::<Places>()),
                    ((&raw const BASE).addr(), size_of::<usize>()),
                ];
                let end = at.wrapping_add(bytes.len());
                let is_known = known.iter().any(|(from, len)| at >= *from && end <= from + len);
                for (nth, byte) in bytes.iter_mut().enumerate() {
                    let from = core::ptr::with_exposed_provenance::<u8>(at.wrapping_add(nth));
                    *byte = match next() {
                        wrong if wrong % odds == 0 && reads > 2 => (wrong >> 32) as u8,
                        // SAFETY: the header, or a static of this process's.
                        _ if is_known => unsafe { from.read_volatile() },
                        other => (other >> 40) as u8,
                    };
                }
                reads < 5000
            });
            assert!(found.is_err() || found.is_ok_and(|found| found.stats.nodes <= 8), "{seed}");
        }
    }
}
