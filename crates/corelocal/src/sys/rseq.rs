//! The rseq area: the 32 (or more) bytes per thread in which the kernel publishes the cpu number, the node and the
//! concurrency id, and in which a thread announces a critical section.
//!
//! There are three cases:
//! - **libc's area**: glibc 2.35 and later registers every thread and publishes the place of its area
//!   (`__rseq_offset` from the thread pointer). The library uses that one.
//! - **the library's area**: libc did not register (tunable `glibc.pthread.rseq=0`, older glibc, musl). The area is a
//!   TLS object of this library. Each thread registers it at the first failure of a fast path, or when it first locks
//!   a mutex.
//! - **no area**: the kernel or a seccomp filter refuses, or `CORELOCAL_RSEQ=off` is set. Every fast path takes its
//!   cold path.
//!
//! Invariants:
//! 1. `IN_USE` starts with the library's own area, whose initial image shows no ids. So a process before probing, a
//!    thread without a registration and a kernel without rseq all look the same to a fast path: the cpu number is
//!    negative, and the cold path runs. No fast path distinguishes the cases.
//! 2. The words of `IN_USE` change at most once each: that of the area from the library's area to libc's, that of the
//!    id to the field that holds it. The id's changes first. A section reads both as one pair, the area's first, so a
//!    new area never comes with an old id. A pair may be out of date for as long as the compiler keeps it:
//!    - the library's area, where libc's is in use: it is not registered, so its cpu number stays negative;
//!    - the library's area and its field `mm_cid`, where the kernel writes none: the field shows `NO_ID`, for which
//!      every table of slots has an entry that is never filled (`cid`).
//! 3. In a registered area the library writes `rseq_cs` only. (Since 6.19 a registration longer than 32 bytes kills
//!    the process over other writes; a write to `cpu_id_start` is what broke tcmalloc there.)
//! 4. The library's area is registered by the process that owns the memory. A vfork child shares the memory but not
//!    the registration. If it registered, its parent would continue with ids that the kernel does not update, unless
//!    the parent registers again: `vfork.rs`.
//! 5. `SETTLED` holds the place of the area in use without an addition, and 0 until it is known. It is for callers
//!    that have an alternative then, and may use that for longer if the compiler keeps the 0. Its second word is
//!    stored first and loaded last, so it is never behind the first.
//!
//! Sources: `include/uapi/linux/rseq.h`, `kernel/rseq.c`, the glibc manual ("Restartable Sequences"), commit
//! d7822b1e24f2 (rseq), af7f588d8f73 (mm_cid).

mod kernel;
mod registration;
pub(crate) mod slice;
#[cfg(not(any(loom, miri)))]
mod vfork;

pub use registration::{Abi, Owner, Refusal, Registration};
#[cfg(not(any(loom, miri)))]
pub use vfork::vfork;

use core::ffi::CStr;

use super::arch;
pub(crate) use super::arch::NO_ID;
use super::errno::Errno;
use super::forks::wipe_on_fork::WipeOnFork;
use super::process::environment;
use super::process::words::Variable;
use super::syscall::syscall;
use crate::primitive::global::{AtomicIsize, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Offsets of the fields of `struct rseq`.
pub(crate) mod field {
    pub(crate) const CPU_ID: isize = 4;
    pub(crate) const FLAGS: isize = 16;
    pub(crate) const NODE_ID: isize = 20;
    pub(crate) const MM_CID: isize = 24;
    pub(crate) const SLICE: isize = 28;
}

/// Registration length of the first ABI; the kernel calls such a registration v1.
const V1_LEN: u32 = 32;
/// `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: u32 = 1;
/// `RSEQ_CPU_ID_UNINITIALIZED`.
const UNINITIALIZED: u32 = u32::MAX;
/// `RSEQ_CPU_ID_REGISTRATION_FAILED`.
const REGISTRATION_FAILED: u32 = u32::MAX - 1;

/// The kinds of the auxiliary vector's entries about rseq (Linux 6.3).
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
const AT_RSEQ_ALIGN: libc::c_ulong = 28;

/// The area in use, relative to the library's own area, and in the same way two of its fields (invariants 1 and 2):
/// the concurrency id, which is `mm_cid`, or `cpu_id` where there is none; and the node, 0 until probed and where the
/// kernel keeps none.
static IN_USE: [AtomicIsize; 3] =
    [AtomicIsize::new(0), AtomicIsize::new(field::MM_CID), AtomicIsize::new(0)];
// The words of `IN_USE`.
const AREA: usize = 0;
const CID: usize = 1;
const NODE: usize = 2;

/// The offsets [`area`] and [`cid`], once they are known; 0 until then (invariant 5).
static SETTLED: [AtomicIsize; 2] = [AtomicIsize::new(0), AtomicIsize::new(0)];

/// Does what [`area_and_cid`] does in fewer instructions; `None` until [`register_this_thread`] was called, or the
/// program is loaded.
#[inline(always)]
pub(crate) fn settled() -> Option<(isize, isize)> {
    let (area, cid) = arch::load_settled_pair!(SETTLED);
    (area != 0).then_some((area, cid))
}

/// Returns [`area`] and [`cid`] as one pair: for whatever uses both (invariant 2).
#[inline(always)]
pub(crate) fn area_and_cid() -> (isize, isize) {
    if cfg!(any(target_arch = "aarch64", target_arch = "riscv64")) {
        // Three instructions less, where each address takes two. Until then, the words below.
        if let Some(settled) = settled() {
            return settled;
        }
        rarely();
    }
    let (own, (area, cid)) = (arch::own_area_offset(), arch::load_settled_pair!(IN_USE));
    (own + area, own + cid)
}

/// Marks a path as unlikely, so that the compiler moves it out of line.
#[cold]
fn rarely() {}

/// Returns the offset of the area in use from the thread pointer.
#[inline(always)]
pub(crate) fn area() -> isize {
    arch::own_area_offset() + arch::load_settled!(IN_USE[AREA])
}

/// Returns the offset of the concurrency id from the thread pointer.
#[inline(always)]
pub(crate) fn cid() -> isize {
    arch::own_area_offset() + arch::load_settled!(IN_USE[CID])
}

/// Returns what [`area_and_cid`] is before anything is known, for tests: our own area.
#[cfg(all(test, not(loom)))]
pub(crate) fn initial_area_and_cid() -> (isize, isize) {
    let own = arch::own_area_offset();
    (own, own + field::MM_CID)
}

/// Returns the offset of the NUMA node from the thread pointer, where the kernel publishes it.
#[inline(always)]
pub(crate) fn node() -> Option<isize> {
    match arch::load_settled!(IN_USE[NODE]) {
        0 => None,
        node => Some(arch::own_area_offset() + node),
    }
}

/// Settles the words above before `main`, so that a loop that reads them once reads their final
/// values. A constructor that runs earlier takes the cold path. In a shared object: see `stay`.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        probe();
        super::process::nodelete::loaded_for_ever();
    }
    at_load
};

/// Reads a field of the calling thread's area.
///
/// # Safety
/// - `at` is `area()` plus an offset of [`field`], or `cid()`.
#[inline(always)]
pub(crate) unsafe fn read(at: isize) -> u32 {
    // SAFETY: the caller guarantees a field of the area in use.
    unsafe { arch::read_field(at) }
}

/// The offset and size of libc's rseq area, as libc states them.
#[derive(Clone, Copy)]
struct LibcArea {
    offset: isize,
    size: u32,
}

fn libc_area() -> Option<LibcArea> {
    let (offset, size, _flags) = arch::libc_symbols();
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: libc defines both as constants, set before the program's first instruction.
    Some(unsafe { LibcArea { offset: *offset, size: *size } })
}

/// Returns `(AT_RSEQ_FEATURE_SIZE, AT_RSEQ_ALIGN)`.
fn kernel_offer() -> (u32, u32) {
    let value = |kind| environment::auxiliary(kind) as u32;
    (value(AT_RSEQ_FEATURE_SIZE), value(AT_RSEQ_ALIGN))
}

// Which world the process is in. Set by every racer to the same value.
const UNPROBED: u8 = 0;
const LIBC: u8 = 1;
const OWN: u8 = 2;
const DISABLED: u8 = 3;
const BROKEN: u8 = 4;
static STATE: AtomicU8 = AtomicU8::new(UNPROBED);
/// The length of our own registrations, once one succeeded.
static OWN_LEN: AtomicU32 = AtomicU32::new(0);
/// The number of threads that this library has registered.
static REGISTRATIONS: AtomicU64 = AtomicU64::new(0);

/// Returns the threads this library registered so far; 0 where libc does it.
pub(crate) fn registrations() -> u64 {
    REGISTRATIONS.load(Ordering::Relaxed)
}

/// Returns `true` if any thread of this process can be in a critical section.
pub(crate) fn any_registered() -> bool {
    match STATE.load(Ordering::Relaxed) {
        UNPROBED => matches!(probe(), LIBC),
        LIBC => true,
        OWN => OWN_LEN.load(Ordering::Relaxed) > 0,
        _ => false,
    }
}

/// Makes the calling thread's fast paths work, if anything can.
///
/// Cold side of every fast path; safe in signal handlers, in malloc, and as often as one likes: a
/// refusal is remembered in the thread's own area.
#[cold]
pub(crate) fn register_this_thread() -> Result<(), Refusal> {
    let state = match STATE.load(Ordering::Relaxed) {
        UNPROBED => probe(),
        known => known,
    };
    match state {
        LIBC => {
            // SAFETY: a field of the area in use.
            let cpu_id = unsafe { read(area() + field::CPU_ID) } as i32;
            if cpu_id >= 0 { Ok(()) } else { Err(Refusal::LibcThread) }
        }
        OWN => register_own(),
        BROKEN => Err(Refusal::BrokenKernel),
        _ => Err(Refusal::Disabled),
    }
}

fn probe() -> u8 {
    let (feature_size, _) = kernel_offer();
    let has_cid = feature_size >= 28;
    let libc = libc_area().filter(|libc| libc.size > 0);
    let misses_preemptions = || match libc {
        Some(libc) => kernel::misses_preemptions(libc.offset, || true),
        // The area of a child's thread, which has a copy of this one's.
        None => kernel::misses_preemptions(arch::own_area_offset(), || {
            own_field(field::CPU_ID).load(Ordering::Relaxed) != UNINITIALIZED
                || rseq_call(V1_LEN, 0).is_ok()
        }),
    };
    let state = match libc {
        _ if disabled_by_environment() => DISABLED,
        _ if misses_preemptions() => BROKEN,
        Some(libc) => {
            let area = libc.offset - arch::own_area_offset();
            let cid = area + if has_cid { field::MM_CID } else { field::CPU_ID };
            IN_USE[CID].store(cid, Ordering::Relaxed);
            // Release: partner is the first load of `load_settled_pair` (invariant 2).
            IN_USE[AREA].store(area, Ordering::Release);
            LIBC
        }
        _ => {
            if !has_cid {
                IN_USE[CID].store(field::CPU_ID, Ordering::Relaxed);
            }
            OWN
        }
    };
    if feature_size >= 24 && matches!(state, LIBC | OWN) {
        let node = IN_USE[AREA].load(Ordering::Relaxed) + field::NODE_ID;
        IN_USE[NODE].store(node, Ordering::Relaxed);
    }
    // Not by `area` and `cid`, which may have been read before the stores above.
    let at = |word: usize| arch::own_area_offset() + IN_USE[word].load(Ordering::Relaxed);
    SETTLED[CID].store(at(CID), Ordering::Relaxed);
    // Release: partner is the first load of `load_settled_pair` (invariant 5).
    SETTLED[AREA].store(at(AREA), Ordering::Release);
    STATE.store(state, Ordering::Relaxed);
    state
}

/// Returns `true` if it is known that the calling thread will never have sections: they are switched off, or its
/// registration was refused. Two loads. False where there are no sections at all, nor words of a thread's own.
#[inline(always)]
pub(crate) fn is_off_here() -> bool {
    arch::SECTIONS
        && (matches!(STATE.load(Ordering::Relaxed), DISABLED | BROKEN)
            || own_field(field::CPU_ID).load(Ordering::Relaxed) == REGISTRATION_FAILED)
}

/// Returns `true` if this processor has sections.
#[cfg(not(any(loom, miri)))]
pub(crate) fn has_sections() -> bool {
    arch::SECTIONS
}

fn disabled_by_environment() -> bool {
    static VARIABLE: Variable = Variable::new(NAME, &["off"]);
    const NAME: &CStr = c"CORELOCAL_RSEQ";
    // SAFETY: used at once.
    let value = unsafe { environment::variable(NAME) }.unwrap_or_default();
    VARIABLE.report(value.to_bytes(), |_| false);
    value == c"off"
}

fn register_own() -> Result<(), Refusal> {
    if !arch::SECTIONS {
        return Err(Refusal::Architecture);
    }
    let cpu_id = own_field(field::CPU_ID);
    match cpu_id.load(Ordering::Relaxed) {
        REGISTRATION_FAILED => return Err(last_refusal()),
        UNINITIALIZED => {}
        _registered => return Ok(()),
    }
    if in_vfork_child() {
        return Err(Refusal::Vfork);
    }
    let (feature_size, align) = kernel_offer();
    let fits = feature_size > V1_LEN
        && feature_size as usize <= arch::OWN_AREA_LEN
        && align as usize <= arch::OWN_AREA_ALIGN;
    let longest = if fits { arch::OWN_AREA_LEN as u32 } else { V1_LEN };
    let mut len = longest;
    let mut result = rseq_call(len, 0);
    if result.is_err() && longest > V1_LEN {
        len = V1_LEN;
        result = rseq_call(len, 0);
    }
    match result {
        Ok(()) => {
            OWN_LEN.store(len, Ordering::Relaxed);
            REGISTRATIONS.fetch_add(1, Ordering::Relaxed);
            super::thread::at_exit();
            Ok(())
        }
        // A signal handler registered this thread since the first look.
        Err(_) if (cpu_id.load(Ordering::Relaxed) as i32) >= 0 => Ok(()),
        Err(errno) => {
            LAST_ERRNO.store(errno.0 as u32, Ordering::Relaxed);
            // The area is not registered: its fields are ours (invariant 3).
            cpu_id.store(REGISTRATION_FAILED, Ordering::Relaxed);
            Err(Refusal::Kernel(errno))
        }
    }
}

static LAST_ERRNO: AtomicU32 = AtomicU32::new(0);

fn last_refusal() -> Refusal {
    Refusal::Kernel(Errno(LAST_ERRNO.load(Ordering::Relaxed) as i32))
}

/// Returns a word of the calling thread's own area.
fn own_field(offset: isize) -> &'static AtomicU32 {
    let at = arch::thread_address(arch::own_area_offset() + offset).cast::<u32>();
    // SAFETY: static TLS of the calling thread, aligned; the reference does not leave this module
    // and is used by this thread alone, while it lives. The kernel is the only other writer.
    unsafe { AtomicU32::from_ptr(at) }
}

/// Calls `rseq(area, len, flags, signature)`, see rseq(2).
#[doc(alias = "rseq")]
fn rseq_call(len: u32, flags: u32) -> Result<(), Errno> {
    let area = arch::thread_address(arch::own_area_offset());
    let args = [area as usize, len as usize, flags as usize, arch::SIGNATURE as usize, 0, 0];
    // SAFETY: `area` is OWN_AREA_LEN >= `len` bytes of this thread's static TLS, which outlives
    // the thread's last instruction in user space; the signature is the one in our abort handlers.
    unsafe { syscall(libc::SYS_rseq, args) }.map(|_| ())
}

/// Returns whether the caller runs in memory that another process registered from: a vfork child, or any `CLONE_VM`
/// child without `CLONE_THREAD` (invariant 4).
///
/// The process id is kept in a page that fork wipes. After fork it reads 0 and is written again. In a child that
/// shares memory it is set, and differs. Without the page (no memory; kernels that do not wipe have no rseq) the
/// result is always false.
///
/// The first process that asks counts as the owner. If a child asks first, its id is recorded, and its parent counts
/// as such a child from then on, and does without registrations. So [`vfork()`] asks before there is a child; code
/// that makes one in another way can do the same.
pub fn in_vfork_child() -> bool {
    // SAFETY: 0 is no process's id.
    static OWNER: WipeOnFork<AtomicU32> = unsafe { WipeOnFork::new() };
    let Some(owner) = OWNER.get() else { return false };
    let pid = super::process_id();
    // Relaxed: every thread of a process writes the same id.
    match owner.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => false,
        Err(recorded) => recorded != pid,
    }
}

/// Unregisters the calling thread's area, if it is ours and registered.
pub(super) fn unregister_own() {
    let cpu_id = own_field(field::CPU_ID);
    if STATE.load(Ordering::Relaxed) != OWN || (cpu_id.load(Ordering::Relaxed) as i32) < 0 {
        return;
    }
    if rseq_call(OWN_LEN.load(Ordering::Relaxed), UNREGISTER).is_ok() {
        // No longer registered, so ours to write: back to the initial image, from which a later
        // TLS destructor may register once more.
        own_field(field::MM_CID).store(NO_ID, Ordering::Relaxed);
        cpu_id.store(UNINITIALIZED, Ordering::Relaxed);
    }
}
