//! A profile as one looks at it: one's own, or that of another process.
//!
//! Invariants:
//! 1. `page` is that of a complete page, in memory that stays as long as the profile does: for ever, or until the
//!    mapping beside it goes away.
//! 2. Another process may write to it at any time, so every number is as it was read, and nothing more.

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
use crate::sys::shared_file::{Mapping, SharedFile};
use crate::sys::trust::{self, Owners, Refused, Rule};

/// The contention profile of a process.
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
    /// What `page` lies in, if it is not this process's.
    _mapping: Option<Mapping>,
}

// SAFETY: a page is atomics, and belongs to no thread. (1)
unsafe impl Send for Profile {}
// SAFETY: likewise.
unsafe impl Sync for Profile {}

/// Why a file is no profile that can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileError {
    /// The kernel refuses.
    System(Errno),
    /// Its contents are something else, or of another version of this library.
    Foreign,
    /// It belongs to this other user, which could cut it short: access to it would end this process.
    Untrusted {
        /// The number of the user.
        owner: u32,
    },
    /// Other users than its owner may write to it, and could cut it short.
    WritableByOthers {
        /// Its permission bits.
        mode: u32,
    },
    /// It has several names: another user may have given it one, by a hard link.
    Linked {
        /// How many.
        names: u64,
    },
}

/// Maps a file that has this length, for writing too. Only this user and root may write to it, or it is sealed.
pub(super) fn open_mapping(path: &CStr, len: usize) -> Result<Mapping, ProfileError> {
    let file = SharedFile::open_linked(path).map_err(ProfileError::System)?;
    let status = file.status().map_err(ProfileError::System)?;
    // What another user writes does no harm, but memory that is gone does.
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
    /// That of this process: if it was [started](super::start), or the environment wants one.
    pub fn of_this_process() -> Option<Profile> {
        process_page::get().map(|page| Profile { page: NonNull::from(page), _mapping: None })
    }

    /// That in a file: `/proc/PROCESS/fd/N`, where `N` leads to it, or one in the folder that `CORELOCAL_LOCKS`
    /// names. It is opened for writing, as its switch lies in it.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or is something else. [`ProfileError::Untrusted`] for a file of another
    /// user than this process's and root that is not sealed; a profile without a name is.
    /// [`ProfileError::WritableByOthers`] for one to which other users may write.
    pub fn open(path: &CStr) -> Result<Profile, ProfileError> {
        let mapping = open_mapping(path, page::LEN)?;
        let page = NonNull::new(mapping.at().cast()).ok_or(ProfileError::Foreign)?;
        let profile = Profile { page, _mapping: Some(mapping) };
        if profile.page().is_complete() { Ok(profile) } else { Err(ProfileError::Foreign) }
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped, that long, aligned to pages, and any bytes are a page of atomics. (1)
        unsafe { self.page.as_ref() }
    }

    /// The process's number, as it knows itself.
    pub fn process(&self) -> u32 {
        self.page().process.load(Relaxed) as u32
    }

    /// Whether the process records.
    pub fn is_on(&self) -> bool {
        self.page().is_on()
    }

    /// Lets the process record, until as many have [switched it off](Self::switch_off) as on.
    ///
    /// The first one to do so begins anew with what was longest; counts go on.
    pub fn switch_on(&self) {
        self.page().want(now());
    }

    /// Takes back that it is to record.
    pub fn switch_off(&self) {
        self.page().want_no_more();
    }

    /// How long ago it was switched on; if it is off, how long ago that was the last time.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.page().began.load(Relaxed)))
    }

    /// Waits that are in no lock's numbers: there was no room for another lock.
    pub fn missed(&self) -> u64 {
        self.page().missed.load(Relaxed)
    }

    /// Stacks that were not kept as there was no room.
    pub fn stacks_missed(&self) -> u64 {
        self.page().traces_missed()
    }

    /// All that somebody has waited for, in no order.
    pub fn locks(&self) -> impl Iterator<Item = LockProfile> + '_ {
        self.page().records().iter().filter_map(LockProfile::of)
    }

    /// Reads the stack of who waited for it longest, as it was when that wait was over; false if there is none.
    pub fn read_waiter(&self, lock: &LockProfile, into: &mut Stack) -> bool {
        self.read_stack(lock.waiter, into)
    }

    /// Reads the stack of who let go at the end of the longest time in which others waited and got nothing: the
    /// worst holder. False if there is none.
    pub fn read_holder(&self, lock: &LockProfile, into: &mut Stack) -> bool {
        self.read_stack(lock.holder, into)
    }

    fn read_stack(&self, number: u64, into: &mut Stack) -> bool {
        self.page().trace(number).is_some_and(|trace| trace.read(into))
    }

    /// The program's file and its libraries, when the profile was made: lines of `/proc/PROCESS/maps`, of what is
    /// code. Returns how many bytes there are.
    pub fn read_files(&self, into: &mut [u8; Self::FILES_BYTES]) -> usize {
        self.page().read_files(into)
    }

    /// The most bytes that [`read_files`](Self::read_files) gives.
    pub const FILES_BYTES: usize = FILES_BYTES;
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Profile");
        debug.field("process", &self.process()).field("is_on", &self.is_on());
        debug.field("locks", &self.locks().count()).finish_non_exhaustive()
    }
}

/// What is known of the waits for one lock. See [the module](super#what-is-counted).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockProfile {
    /// Where it lies, in the memory of the process.
    pub address: u64,
    /// What was waited for.
    pub kind: Kind,
    /// Waits that ended.
    pub waits: u64,
    /// How often a thread went to sleep in them.
    pub sleeps: u64,
    /// Waits that ended without the lock, by a timeout.
    pub gave_up: u64,
    /// Threads that wait at the moment.
    pub waiting: u64,
    /// The time of all waits together.
    pub total: Duration,
    /// The longest one.
    pub longest: Duration,
    /// The longest time in which somebody waited and nobody who did got it.
    pub longest_held: Duration,
    /// How long the waits were.
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

    /// The mean wait.
    pub fn mean(&self) -> Duration {
        let nanos = self.total.as_nanos().checked_div(self.waits.into()).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// What this share (0 to 1) of the waits did not exceed, as [`WaitTimes::quantile`], and never more than the
    /// longest one.
    pub fn quantile(&self, share: f64) -> Duration {
        self.times.quantile(share).min(self.longest)
    }

    /// What came since an earlier look at the same lock. The longest times are those of the whole profile, but no
    /// longer than the waits since; whose stacks there are may be of before.
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
                "it belongs to user {owner}, who could cut it short, which would end this program: look at it as \
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
