//! Read access to a lock-order record: the own process's, or another's.
//!
//! Invariants: as in `profile/view.rs`.

use core::ffi::CStr;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use super::page::{self, GATES, HELD, Page, Pair, Thread, WANTED};
use super::process_page;
use crate::sync::profile::files::FILES_BYTES;
use crate::sync::profile::kind::Kind;
use crate::sync::profile::record::Key;
use crate::sync::profile::trace::Stack;
use crate::sync::profile::view::open_mapping;
use crate::sync::profile::{ProfileError, now};
use crate::sys::file::shared_file::Mapping;
use crate::sys::thread::stack::NAME_BYTES;

/// The order in which a process locked its mutexes, and which threads hold and wait for which.
///
/// ```
/// use corelocal::sync::profile::order::LockOrder;
///
/// // There is one if the process was started with CORELOCAL_LOCK_ORDER=on.
/// if let Some(order) = LockOrder::of_this_process() {
///     for pair in order.pairs() {
///         println!("{:#x} was held while {:#x} was locked", pair.held, pair.taken);
///     }
/// }
/// ```
pub struct LockOrder {
    page: NonNull<Page>,
    /// The mapping of `page`, unless it is this process's.
    _mapping: Option<Mapping>,
}

// SAFETY: a page consists of atomics, and belongs to no thread.
unsafe impl Send for LockOrder {}
// SAFETY: a page consists of atomics.
unsafe impl Sync for LockOrder {}

/// Counts of what had no room in the record. See [the module](super#what-is-recorded).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missed {
    /// Locks by threads when more of them held or waited at the same time than there is room for, or by signal
    /// handlers that interrupted the recording.
    pub threads: u64,
    /// Locks by threads that held too many mutexes.
    pub depth: u64,
    /// Pairs without room, each time they occurred.
    pub pairs: u64,
}

/// A mutex was held while another one was locked by a function that may wait.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockPair {
    /// The address of the mutex that was held, in the memory of the process.
    pub held: u64,
    /// The address of the mutex that was locked then. The same one, if a thread locked a mutex that it held.
    pub taken: u64,
    /// The kind of `taken`.
    pub kind: Kind,
    /// The number of times.
    pub times: u64,
    /// The first thread that did so.
    pub thread: u32,
    /// Whether other threads did so later.
    pub has_others: bool,
    /// Further mutexes that were held each time, as far as there is room for them; 0 for none.
    pub gates: [u64; GATES],
    name: [u8; NAME_BYTES],
    at: usize,
}

/// A thread that holds mutexes, or waits for one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockThread {
    /// The thread's number.
    pub thread: u32,
    place: usize,
}

/// A mutex that a thread holds or waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holding {
    /// The mutex's address in the memory of the process.
    pub lock: u64,
    /// Whether the thread waits for it; otherwise it holds it.
    pub is_wanted: bool,
    since: u64,
    at: usize,
}

impl LockOrder {
    /// Returns the record of this process, if its environment asked for one.
    pub fn of_this_process() -> Option<LockOrder> {
        process_page::get().map(|page| LockOrder { page: NonNull::from(page), _mapping: None })
    }

    /// Opens a record in a file: `/proc/PROCESS/fd/N`, where `N` refers to it, or a file in the directory that
    /// `CORELOCAL_LOCK_ORDER` names.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or is something else. [`ProfileError::Untrusted`] for a file that belongs
    /// neither to this process's user nor to root, unless it is sealed, as a record without a name is.
    /// [`ProfileError::WritableByOthers`] for one to which other users may write.
    pub fn open(path: &CStr) -> Result<LockOrder, ProfileError> {
        let mapping = open_mapping(path, page::LEN)?;
        let page = NonNull::new(mapping.at().cast()).ok_or(ProfileError::Foreign)?;
        let order = LockOrder { page, _mapping: Some(mapping) };
        if order.page().is_complete() { Ok(order) } else { Err(ProfileError::Foreign) }
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped, long enough, page-aligned, and any bytes are a valid page of atomics.
        unsafe { self.page.as_ref() }
    }

    /// Returns the process's own number.
    pub fn process(&self) -> u32 {
        self.page().process.load(Relaxed) as u32
    }

    /// Returns how long ago the process began to record.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.page().began.load(Relaxed)))
    }

    /// Returns what was not recorded for want of room.
    pub fn missed(&self) -> Missed {
        let page = self.page();
        let [threads, depth, pairs] =
            [&page.threads_missed, &page.depth_missed, &page.pairs_missed]
                .map(|count| count.load(Relaxed));
        Missed { threads, depth, pairs }
    }

    /// Returns all pairs, in no order. Each occurs once, or rarely twice, when two threads arrived at once.
    pub fn pairs(&self) -> impl Iterator<Item = LockPair> + '_ {
        self.page().pairs().map(|(at, pair)| LockPair::of(at, pair))
    }

    /// Returns the threads that hold a mutex or wait for one at about this moment; in a process that has ended, at its
    /// end.
    ///
    /// As long as a thread waits for a mutex that another one holds, neither changes. So a cycle of such threads that
    /// is unchanged in two readings is a deadlock.
    pub fn threads(&self) -> impl Iterator<Item = LockThread> + '_ {
        let all = self.page().threads();
        all.map(|(place, thread)| LockThread { thread, place })
    }

    /// Returns the mutexes that a thread holds, and the one that it waits for.
    pub fn holdings(&self, thread: &LockThread) -> impl Iterator<Item = Holding> + '_ {
        let place = self.place(thread);
        let entry = move |at| {
            let place = place?;
            let state = place.state(at);
            let lock = Key::of_word(place.key(at)).address();
            let is_known = state == WANTED || state == HELD;
            is_known.then(|| Holding {
                lock,
                is_wanted: state == WANTED,
                since: place.since(at),
                at,
            })
        };
        (0..page::DEPTH).filter_map(entry)
    }

    fn place(&self, thread: &LockThread) -> Option<&Thread> {
        self.page().place(thread.place)
    }

    fn name_of(&self, thread: &LockThread) -> [u8; NAME_BYTES] {
        self.place(thread).map_or([0; NAME_BYTES], Thread::name)
    }

    /// Reads where the thread locked it, or waits for it; false if that is not known.
    pub fn read_holding(&self, thread: &LockThread, of: &Holding, into: &mut Stack) -> bool {
        let who = (thread.thread, self.name_of(thread));
        let piece = self.place(thread).and_then(|place| place.piece(of.at));
        piece.is_some_and(|piece| piece.read(who, into))
    }

    /// Reads where the held mutex had been locked; false if that is not known.
    pub fn read_held(&self, pair: &LockPair, into: &mut Stack) -> bool {
        self.read_piece(pair, 0, into)
    }

    /// Reads where the other one was locked then; false if that is not known.
    pub fn read_taken(&self, pair: &LockPair, into: &mut Stack) -> bool {
        self.read_piece(pair, 1, into)
    }

    fn read_piece(&self, pair: &LockPair, which: usize, into: &mut Stack) -> bool {
        let read = |at: &Pair| at.pieces[which].read((pair.thread, pair.name), into);
        self.page().pair_at(pair.at).is_some_and(read)
    }

    /// Returns the program's file and libraries when the record began: see
    /// [`Profile::read_files`](super::super::Profile::read_files).
    pub fn read_files(&self, into: &mut [u8; FILES_BYTES]) -> usize {
        self.page().read_files(into)
    }
}

impl fmt::Debug for LockOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("LockOrder");
        debug.field("process", &self.process());
        debug.field("pairs", &self.pairs().count()).finish_non_exhaustive()
    }
}

impl LockPair {
    fn of(at: usize, pair: &Pair) -> LockPair {
        let [held, taken] = pair.locks().map(Key::of_word);
        LockPair {
            held: held.address(),
            taken: taken.address(),
            kind: taken.kind().unwrap_or(Kind::Mutex),
            times: pair.times.load(Relaxed),
            thread: pair.thread.load(Relaxed) as u32,
            has_others: pair.others.load(Relaxed) != 0,
            gates: pair.gates().map(|gate| Key::of_word(gate).address()),
            name: pair.name(),
            at,
        }
    }
}

impl Holding {
    /// For how long.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.since))
    }

    /// Since when, in nanoseconds of the monotonic clock. Unchanged between two readings of the same holding.
    pub fn since(&self) -> u64 {
        self.since
    }
}
