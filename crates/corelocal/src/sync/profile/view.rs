//! A profile as its readers see it: of this process or of another one.
//!
//! Invariants:
//! 1. `page` points to a complete page in memory that lives as long as the profile: permanently, or until the mapping
//!    beside it is dropped.
//! 2. Another process may write to it at any time. So every number is returned as it was read, without conclusions.

use core::ffi::CStr;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use super::files::FILES_BYTES;
use super::histogram::WaitTimes;
use super::kind::Kind;
use super::page::{self, Page};
use super::record::Record;
use super::trace::Stack;
use super::{now, process_page};
use crate::sys::Errno;
use crate::sys::file::shared_file::{Mapping, SharedFile};
use crate::sys::file::trust::{self, Owners, Refused, Rule};

/// The lock contention profile of a process.
///
/// ```
/// use corelocal::sync::profile::{self, Profile};
///
/// profile::start()?;
/// // ... what is to be looked at ...
/// profile::stop();
/// let profile = Profile::of_this_process().expect("it was started");
/// for lock in profile.locks() {
///     println!("{} at {:#x}: {} waits", lock.kind.name(), lock.address, lock.waits);
/// }
/// # Ok::<(), corelocal::sys::Errno>(())
/// ```
pub struct Profile {
    page: NonNull<Page>,
    /// The mapping of `page`, if the page is not this process's own.
    _mapping: Option<Mapping>,
}

// SAFETY: a page consists of atomics and belongs to no thread (invariant 1).
unsafe impl Send for Profile {}
// SAFETY: a page consists of atomics, which any thread may read (invariant 1).
unsafe impl Sync for Profile {}

/// The reason why a file cannot be opened as a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileError {
    /// A system call failed.
    System(Errno),
    /// It is not a profile, or is one of another version of this library.
    Foreign,
    /// It belongs to this other user, which could truncate it. An access would then end this process.
    Untrusted {
        /// The user id.
        owner: u32,
    },
    /// Users other than its owner may write to it, and could truncate it.
    WritableByOthers {
        /// Its permission bits.
        mode: u32,
    },
    /// It has several names: another user may have added one by a hard link.
    Linked {
        /// The number of names.
        names: u64,
    },
}

/// Maps a file of this length, also for writing. Only this user and root may write to it, unless it is sealed.
pub(super) fn open_mapping(path: &CStr, len: usize) -> Result<Mapping, ProfileError> {
    let file = SharedFile::open_linked(path).map_err(ProfileError::System)?;
    let status = file.status().map_err(ProfileError::System)?;
    // Written bytes do no harm, but truncation does, and a seal prevents that.
    let (owners, refused_mode) =
        if file.is_sealed() { (Owners::Any, 0) } else { (Owners::OwnOrRoot, trust::OTHERS_WRITE) };
    let rule = Rule { owners, refused_mode, may_be_device: false };
    rule.judge(&status).map_err(|why| match why {
        Refused::Owner(status) => ProfileError::Untrusted { owner: status.owner },
        Refused::Mode(status) => ProfileError::WritableByOthers { mode: status.mode },
        Refused::Linked(names) => ProfileError::Linked { names },
        Refused::System(error) => ProfileError::System(error),
        Refused::Kind => ProfileError::Foreign,
    })?;
    if status.len != len as u64 {
        return Err(ProfileError::Foreign);
    }
    file.map(len, true).map_err(ProfileError::System)
}

impl Profile {
    /// Returns the profile of this process, if it was [started](super::start) or the environment asks for one.
    pub fn of_this_process() -> Option<Profile> {
        process_page::get().map(|page| Profile { page: NonNull::from(page), _mapping: None })
    }

    /// Opens the profile in a file: `/proc/PROCESS/fd/N`, where `N` is its descriptor, or a file in the folder that
    /// `CORELOCAL_LOCKS` names. It is opened for writing, since its switch lies in it.
    ///
    /// # Errors
    /// - The file cannot be opened or mapped, or is not a profile.
    /// - [`ProfileError::Untrusted`] if it belongs to a user other than this process's and root, and is not sealed.
    ///   Profiles in nameless memory are sealed.
    /// - [`ProfileError::WritableByOthers`] if other users may write to it.
    pub fn open(path: &CStr) -> Result<Profile, ProfileError> {
        let mapping = open_mapping(path, page::LEN)?;
        let page = NonNull::new(mapping.at().cast()).ok_or(ProfileError::Foreign)?;
        let profile = Profile { page, _mapping: Some(mapping) };
        if profile.page().is_complete() { Ok(profile) } else { Err(ProfileError::Foreign) }
    }

    fn page(&self) -> &Page {
        // SAFETY: a mapping of a page's length, page-aligned. Any bytes are valid atomics (invariant 1).
        unsafe { self.page.as_ref() }
    }

    /// Returns the process id that the process has for itself.
    pub fn process(&self) -> u32 {
        self.page().process.load(Relaxed) as u32
    }

    /// Returns whether the process records.
    pub fn is_on(&self) -> bool {
        self.page().is_on()
    }

    /// Switches recording on, until each caller of this has called [`switch_off`](Self::switch_off).
    ///
    /// The first of them resets the maxima. Counts continue.
    pub fn switch_on(&self) {
        self.page().want(now());
    }

    /// Takes back one request to record.
    pub fn switch_off(&self) {
        self.page().want_no_more();
    }

    /// Returns how long ago recording was last switched on.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.page().began.load(Relaxed)))
    }

    /// The number of waits that are in no lock's numbers because no entry was free.
    pub fn missed(&self) -> u64 {
        self.page().missed.load(Relaxed)
    }

    /// Returns the number of stacks that were not copied because no trace was left.
    pub fn stacks_missed(&self) -> u64 {
        self.page().traces_missed()
    }

    /// Returns all locks that threads have waited for, in no particular order.
    pub fn locks(&self) -> impl Iterator<Item = LockProfile> + '_ {
        self.page().records().iter().filter_map(LockProfile::of)
    }

    /// Copies the stack of the longest waiter, taken when its wait ended. False if there is none.
    pub fn read_waiter(&self, lock: &LockProfile, into: &mut Stack) -> bool {
        self.read_stack(lock.waiter, into)
    }

    /// Copies the stack of the owner that unlocked at the end of the longest time in which others waited in vain.
    /// False if there is none.
    pub fn read_holder(&self, lock: &LockProfile, into: &mut Stack) -> bool {
        self.read_stack(lock.holder, into)
    }

    fn read_stack(&self, number: u64, into: &mut Stack) -> bool {
        self.page().trace(number).is_some_and(|trace| trace.read(into))
    }

    /// Copies the list of code mappings, taken when the profile was made: lines of `/proc/PROCESS/maps`. Returns
    /// their length in bytes.
    pub fn read_files(&self, into: &mut [u8; Self::FILES_BYTES]) -> usize {
        self.page().read_files(into)
    }

    /// The maximum that [`read_files`](Self::read_files) returns.
    pub const FILES_BYTES: usize = FILES_BYTES;
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Profile");
        debug.field("process", &self.process()).field("is_on", &self.is_on());
        debug.field("locks", &self.locks().count()).finish_non_exhaustive()
    }
}

/// Statistics of the waits for one lock. See [the module](super#what-is-counted).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockProfile {
    /// The lock's address in the process.
    pub address: u64,
    /// The kind of wait.
    pub kind: Kind,
    /// The number of waits that ended.
    pub waits: u64,
    /// The number of times that threads went to sleep during them.
    pub sleeps: u64,
    /// Waits that timed out without the lock.
    pub gave_up: u64,
    /// Threads that wait at the moment.
    pub waiting: u64,
    /// The sum of all waits.
    pub total: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// The longest time in which threads waited and none of them acquired the lock.
    pub longest_held: Duration,
    /// The distribution of the waits.
    pub times: WaitTimes,
    waiter: u64,
    holder: u64,
}

impl LockProfile {
    fn of(record: &Record) -> Option<LockProfile> {
        let key = record.key()?;
        let time =
            |word: &crate::primitive::atomic::AtomicU64| Duration::from_nanos(word.load(Relaxed));
        Some(LockProfile {
            address: key.address(),
            kind: key.kind()?,
            waits: record.waits.load(Relaxed),
            sleeps: record.sleeps.load(Relaxed),
            gave_up: record.gave_up.load(Relaxed),
            waiting: record.waiting(),
            total: time(&record.total),
            longest: time(&record.longest),
            longest_held: time(&record.worst),
            times: WaitTimes { counts: core::array::from_fn(|at| record.times[at].load(Relaxed)) },
            waiter: record.waiter.load(Relaxed),
            holder: record.holder.load(Relaxed),
        })
    }

    /// Returns the mean wait.
    pub fn mean(&self) -> Duration {
        let nanos = self.total.as_nanos().checked_div(self.waits.into()).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the time that this share (0 to 1) of the waits did not exceed, as [`WaitTimes::quantile`], and at most
    /// `longest`.
    pub fn quantile(&self, share: f64) -> Duration {
        self.times.quantile(share).min(self.longest)
    }

    /// Returns the difference to an earlier reading of the same lock. The maxima are those of the whole profile,
    /// limited to the sum of the waits since. Stacks may be from before.
    #[must_use]
    pub fn since(&self, earlier: &LockProfile) -> LockProfile {
        let times = self.times.since(&earlier.times);
        let longest = Duration::from_nanos(times.longest());
        LockProfile {
            waits: self.waits.saturating_sub(earlier.waits),
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
            gave_up: self.gave_up.saturating_sub(earlier.gave_up),
            total: self.total.saturating_sub(earlier.total),
            longest: self.longest.min(longest),
            longest_held: self.longest_held.min(longest),
            times,
            ..self.clone()
        }
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::System(errno) => errno.fmt(f),
            ProfileError::Untrusted { owner } => write!(
                f,
                "it belongs to user {owner}, and truncating it would kill this program: run this command as \
                 that user, or start the program with CORELOCAL_LOCKS=ready instead of a folder"
            ),
            ProfileError::WritableByOthers { mode } => write!(
                f,
                "its mode is {mode:03o}, so that other users may write to it and could cut it short, which would end \
                 this program: take that right away (`chmod go-w`)"
            ),
            ProfileError::Linked { names } => write!(
                f,
                "it has {names} names, of which another user may have added one: remove the others, or look at a copy"
            ),
            ProfileError::Foreign => f.write_str(
                "it is no profile of locks, or one of another version of corelocal; \
                 use the command of the version that the program was built with",
            ),
        }
    }
}

impl core::error::Error for ProfileError {}
