//! Which thread a forked process began with: the one that forked. All others of the parent are gone.
//!
//! A lock word names its holder and the holder's generation (`sys/forks.rs`). A process asks here whether such a
//! holder came along: over all the forks since, it must have been the thread that forked. For each generation this
//! file remembers its first thread, by thread pointer and by number. A fork copies the record, so each
//! process has that of its ancestors.
//!
//! # Invariants
//! 1. An entry of generation `g` names the thread that the process of generation `g` began with. It is written by
//!    threads of that process only, all of which write the same, and only if they are sure.
//! 2. A holder is gone only if some generation after its own is known to begin with another thread. Where a record is
//!    missing, too old, or names a thread that looks alike, the holder counts as present.
//! 3. A number counts as the survivor's if it may be: `NUMBERS` has for a thread pointer the last number under
//!    which a thread there locked anything, unless it was a survivor. The numbers of survivors are process ids.
//! 4. All of it is read and written in slow paths only, and is async-signal-safe.
//!
//! The first thread of a process has the process id as its number. If another thread is the first one to ask, it finds
//! the first thread's pointer by get_robust_list(2): libc keeps the head of a thread's list at the same distance from
//! its thread pointer in all threads. Where a thread may have a list of our own (`sys/thread/robust_list.rs`) that is
//! unknown. So it is with musl, which registers a thread's list at the thread's first robust mutex, until the first thread
//! asks itself.

use core::ffi::c_int;

use crate::primitive::global::{AtomicU32, AtomicU64, Ordering};
use crate::sys::arch;
use crate::sys::syscall::syscall;

/// The number of generations that are remembered.
const DEPTH: u32 = 32;
const GENERATION_BITS: u32 = 16;
pub(in crate::sys) const THREAD_BITS: u32 = 29;
const THREADS: u64 = 1 << THREAD_BITS;
/// The bits of a page offset: two threads' control blocks never share a page, since a stack lies in between.
const PAGE_SHIFT: u32 = 12;
/// The most bytes between a thread pointer and the head of its robust list, both of which libc keeps together.
const MOST_DISTANCE: usize = 1 << 16;

/// The first thread of each generation, in a word above the generation.
static FIRST: [AtomicU64; DEPTH as usize] = [const { AtomicU64::new(0) }; DEPTH as usize];
/// The process id of each generation. Valid where `FIRST` has that generation.
static PROCESSES: [AtomicU32; DEPTH as usize] = [const { AtomicU32::new(0) }; DEPTH as usize];

/// Threads with their numbers: the thread stands above the number, in one of `WAYS` places from a hash on.
static NUMBERS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
const PLACES: usize = 512;
const WAYS: usize = 4;
const NUMBER_BITS: u32 = 30;

/// Returns the calling thread, below 2^29: another one for each thread that lives, unless their stacks lie a multiple
/// of 2 TiB apart.
#[inline]
pub(in crate::sys) fn this_thread() -> u64 {
    (arch::thread_pointer() as u64 >> PAGE_SHIFT) % THREADS
}

fn known_first(generation: u32) -> Option<u64> {
    // Acquire: partner is the Release in `note`, for the process id.
    let entry = FIRST[(generation % DEPTH) as usize].load(Ordering::Acquire);
    (entry % (1 << GENERATION_BITS) == u64::from(generation)).then_some(entry >> GENERATION_BITS)
}

/// Returns the process id in a generation whose first thread is known.
fn process_in(generation: u32) -> u32 {
    PROCESSES[(generation % DEPTH) as usize].load(Ordering::Relaxed)
}

/// Remembers the first thread of this process, whose generation this is, if that can be found out.
#[cold]
pub(in crate::sys) fn note(generation: u32) {
    // Nothing is older than the first generation.
    if generation <= 1 || known_first(generation).is_some() {
        return;
    }
    let (Some(process), Some(first)) = (process_id(), first_thread()) else { return };
    let at = (generation % DEPTH) as usize;
    // A fork in between leaves the entry of an older generation, which is not believed.
    PROCESSES[at].store(process, Ordering::Relaxed);
    // Release: partner is the Acquire in `known_first`.
    FIRST[at].store(first << GENERATION_BITS | u64::from(generation), Ordering::Release);
}

/// Returns `true` if the first thread of the process of this generation is known; of the first generation none needs to
/// be.
#[cold]
pub(in crate::sys) fn is_known(generation: u32) -> bool {
    note(generation);
    generation <= 1 || known_first(generation).is_some()
}

/// Returns whether a thread for which `is_it` is true, and that was there in the generation `then`, is not in this
/// process, whose generation is `now`.
#[cold]
pub(in crate::sys) fn is_gone(then: u32, now: u32, is_it: impl Fn(u64) -> bool) -> bool {
    if then == now {
        return false;
    }
    note(now);
    (then.saturating_add(1)..=now)
        .rev()
        .take(DEPTH as usize)
        .any(|generation| known_first(generation).is_some_and(|first| !is_it(first)))
}

/// Returns `true` if the calling process of this generation began with the calling thread.
#[cold]
pub(in crate::sys) fn is_first_thread(generation: u32) -> bool {
    note(generation);
    match known_first(generation) {
        Some(first) => first == this_thread(),
        None => thread_number().is_some() && thread_number() == process_id(),
    }
}

/// Has the calling thread lock under this number from now on.
#[cold]
pub(in crate::sys) fn note_number(number: u32, generation: u32) {
    note(generation);
    if generation > 1 && process_id() == Some(number) {
        // A survivor's, which is known (3). Its older one may stay.
        return;
    }
    let thread = this_thread();
    let entry = thread << NUMBER_BITS | u64::from(number);
    let places = places_of(thread);
    for place in places.clone() {
        let is_mine = thread_in(place) == Some(thread);
        // Relaxed, all of them: a child has a copy of what its thread stored.
        if is_mine {
            NUMBERS[place].store(entry, Ordering::Relaxed);
        }
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if is_mine || NUMBERS[place].compare_exchange(0, entry, success, failure).is_ok() {
            return;
        }
    }
    // A place is never empty again: so a thread that is pushed out is missed by `may_be_number_of_first`.
    NUMBERS[places.start + number as usize % WAYS].store(entry, Ordering::Relaxed);
}

fn places_of(thread: u64) -> core::ops::Range<usize> {
    let hash = (thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % (PLACES / WAYS);
    hash * WAYS..(hash + 1) * WAYS
}

/// Returns the thread in a place; `None` if it is empty.
fn thread_in(place: usize) -> Option<u64> {
    let entry = NUMBERS[place].load(Ordering::Relaxed);
    (entry != 0).then_some(entry >> NUMBER_BITS)
}

/// Returns `true` if the first thread of this process may have locked something under this number before it forked.
#[cold]
pub(in crate::sys) fn may_be_number_of_first(number: u32, now: u32) -> bool {
    note(now);
    let Some(first) = known_first(now) else { return true };
    // A child of `vfork`, in the memory of a process whose threads it cannot ask for.
    if process_id() != Some(process_in(now)) {
        return true;
    }
    for generation in (2..now).rev() {
        match known_first(generation) {
            _ if now - generation >= DEPTH => return true,
            None => return true,
            // There it was no survivor.
            Some(other) if other != first => break,
            Some(_) if process_in(generation) == number => return true,
            Some(_) => (),
        }
    }
    let mut places = places_of(first);
    let entry = first << NUMBER_BITS | u64::from(number);
    match places.clone().find(|place| thread_in(*place) == Some(first)) {
        Some(place) => NUMBERS[place].load(Ordering::Relaxed) == entry,
        // Pushed out by others, unless there was room.
        None => !places.any(|place| thread_in(place).is_none()),
    }
}

/// Whether some thread of this process, or of an ancestor, may have a list of our own (`thread/robust_list.rs`). Never
/// cleared. Until then all lists that the kernel knows of are libc's, at the same distance from each thread's thread
/// pointer.
pub(in crate::sys) static HAS_OWN_LIST: core::sync::atomic::AtomicBool =
    core::sync::atomic::AtomicBool::new(false);

/// Returns the thread that this process began with, if that is certain.
fn first_thread() -> Option<u64> {
    let process = process_id()?;
    if thread_number()? == process {
        return is_in_own_memory(process).then(this_thread);
    }
    let (mine, of_first) = (robust_list(0)?, robust_list(process)?);
    // After the look at the lists: one of our own lies elsewhere.
    // Acquire: partner is the SeqCst in `register_own` of `thread/robust_list.rs`.
    if HAS_OWN_LIST.load(Ordering::Acquire) {
        return None;
    }
    let distance = mine.wrapping_sub(arch::thread_pointer() as usize);
    let is_near = distance.wrapping_add(MOST_DISTANCE) <= 2 * MOST_DISTANCE;
    is_near.then(|| (of_first.wrapping_sub(distance) as u64 >> PAGE_SHIFT) % THREADS)
}

/// Calls `kcmp(pid, getppid(), KCMP_VM, 0, 0)`, see kcmp(2).
///
/// Whether the calling thread, the first one of its process, is a forked one, and no child of `vfork` that
/// runs in its parent's memory. For the latter libc registers nothing with the kernel.
#[doc(alias = "kcmp")]
fn is_in_own_memory(process: u32) -> bool {
    if robust_list(0).is_some() || clear_tid_address().is_some() {
        return true;
    }
    // SAFETY: no arguments.
    let parent = unsafe { syscall(libc::SYS_getppid, [0; 6]) };
    let Ok(parent) = parent else { return false };
    const KCMP_VM: usize = 1;
    // SAFETY: no addresses.
    let order = unsafe { syscall(libc::SYS_kcmp, [process as usize, parent, KCMP_VM, 0, 0, 0]) };
    order.is_ok_and(|order| order as isize > 0)
}

/// Calls `get_robust_list(tid, &head, &len)`, see get_robust_list(2).
///
/// Where the list of a thread of this process begins, 0 for the calling one; `None` if none is registered.
#[doc(alias = "get_robust_list")]
fn robust_list(thread: u32) -> Option<usize> {
    let (mut head, mut len) = (0usize, 0usize);
    let args = [thread as usize, &raw mut head as usize, &raw mut len as usize, 0, 0, 0];
    // SAFETY: the kernel writes to the two words given.
    unsafe { syscall(libc::SYS_get_robust_list, args) }.ok()?;
    (head != 0).then_some(head)
}

/// Calls `prctl(PR_GET_TID_ADDRESS, &address)`, see prctl(2).
///
/// What the kernel clears when the calling thread ends.
#[doc(alias = "prctl")]
fn clear_tid_address() -> Option<usize> {
    const PR_GET_TID_ADDRESS: c_int = 40;
    let mut address = 0usize;
    let args = [PR_GET_TID_ADDRESS as usize, &raw mut address as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes to the word given.
    unsafe { syscall(libc::SYS_prctl, args) }.ok()?;
    (address != 0).then_some(address)
}

/// Calls `gettid()`, see gettid(2).
///
/// The calling thread's number. Not libc's: it may remember another process's.
#[doc(alias = "gettid")]
fn thread_number() -> Option<u32> {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) }.ok().map(|number| number as u32)
}

/// Calls `getpid()`, see getpid(2).
#[doc(alias = "getpid")]
pub(in crate::sys) fn process_id() -> Option<u32> {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) }.ok().map(|number| number as u32)
}
