//! Anonymous pages straight from the kernel: the only memory the library takes for itself.
//!
//! No heap: these pages are needed inside signal handlers and by the malloc.

use super::page_size::{SHORTEST_PAGE, page_size, page_start};
use crate::sys::errno::Errno;
use crate::sys::file::{File, OWN, PathBuf};
use crate::sys::syscall::syscall;

#[cfg(any(not(test), loom, miri))]
pub(in crate::sys) use crate::sys::syscall::syscall as call;

#[cfg(all(test, not(any(loom, miri))))]
pub(in crate::sys) use super::pages_emulated::call;

/// The shortest mapping, in bytes, that the kernel may back by a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Maps `len` bytes of zeroed, lazily populated, private memory; `None` when the kernel refuses.
///
/// Huge pages are refused for the range: a region is sized for every possible id and only the
/// pages of ids in use may become resident.
pub(crate) fn map(len: usize) -> Option<*mut u8> {
    map_with(len, libc::PROT_READ | libc::PROT_WRITE)
}

/// Does what [`map`] does, of memory that is read alone, until it is [opened](open): so far the process is not charged
/// for it.
#[cfg(not(any(loom, miri)))]
pub(in crate::sys) fn map_readable(len: usize) -> Option<*mut u8> {
    map_with(len, libc::PROT_READ)
}

/// Calls `mmap(NULL, len, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)`, see mmap(2).
#[doc(alias = "mmap")]
fn map_with(len: usize, protection: i32) -> Option<*mut u8> {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
    let at = unsafe { call(libc::SYS_mmap, [0, len, protection as usize, flags, usize::MAX, 0]) }
        .ok()?;
    let at = at as *mut u8;
    // SAFETY: the mapping just made.
    unsafe { forbid_huge_pages(at, len) };
    Some(at)
}

/// Forbids huge pages in a mapping, if one fits into it.
///
/// # Safety
/// - The conditions of [`advise`] hold.
pub(in crate::sys) unsafe fn forbid_huge_pages(at: *mut u8, len: usize) {
    if len >= HUGE_PAGE {
        // A kernel without transparent huge pages refuses the advice, which is harmless. SAFETY: the caller
        // guarantees the range; the contents stay.
        let _ = unsafe { advise(at, len, libc::MADV_NOHUGEPAGE) };
    }
}

/// The reason why [`map_at`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another mapping lies there.
    Taken,
    /// The kernel has no memory to promise, the process no such addresses, or a limit is reached (`RLIMIT_AS`,
    /// `RLIMIT_DATA`, `RLIMIT_MEMLOCK`).
    NoMemory,
}

/// The state of the addresses that [`map_at`] and [`unmap_at`] work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// Addresses that the caller has not mapped.
    Unmapped,
    /// A part of one `reserve`.
    Reserved,
}

/// Calls `mmap(at, len, protection, MAP_FIXED or MAP_FIXED_NOREPLACE, -1, 0)`, see mmap(2).
///
/// Maps zeroed, lazily populated, private memory at an address. Readable, and writable if `is_writable`.
///
/// # Safety
/// - The range begins and ends with a page.
/// - On reserved ground nothing refers to what is there.
#[doc(alias = "mmap")]
pub(crate) unsafe fn map_at(
    at: usize,
    len: usize,
    is_writable: bool,
    ground: Ground,
) -> Result<(), Refusal> {
    let protection = if is_writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    let fixed = match ground {
        Ground::Unmapped => libc::MAP_FIXED_NOREPLACE,
        Ground::Reserved => libc::MAP_FIXED,
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    let args = [at, len, protection as usize, flags as usize, usize::MAX, 0];
    // SAFETY: replaces at most the caller's own reservation, which the caller promises is not referred to.
    match unsafe { call(libc::SYS_mmap, args) } {
        Ok(mapped) if mapped == at => Ok(()),
        // Before Linux 4.17 the flag is unknown and the address a wish.
        Ok(elsewhere) => {
            // SAFETY: the mapping just made.
            unsafe { unmap(elsewhere as *mut u8, len) };
            Err(Refusal::Taken)
        }
        Err(Errno::EEXIST) => Err(Refusal::Taken),
        Err(_) => Err(Refusal::NoMemory),
    }
}

/// Calls `munmap(at, len)`, see munmap(2).
///
/// Unmaps pages that [`map_at`] mapped; on reserved ground it keeps the address space reserved. False if the process
/// has too many mappings; then nothing has changed.
///
/// # Safety
/// - The range begins and ends at page boundaries, was mapped by `map_at` on this ground, and no reference to it is
///   left.
#[doc(alias = "munmap")]
pub(crate) unsafe fn unmap_at(at: usize, len: usize, ground: Ground) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let none = [at, len, libc::PROT_NONE as usize, flags as usize, usize::MAX, 0];
    // SAFETY: the caller guarantees that the old mapping may be replaced.
    let done = unsafe {
        match ground {
            Ground::Unmapped => call(libc::SYS_munmap, [at, len, 0, 0, 0, 0]),
            Ground::Reserved => call(libc::SYS_mmap, none),
        }
    };
    if done.is_ok() && ground == Ground::Reserved {
        // SAFETY: the mapping just made.
        let _ = unsafe { advise(at as *mut u8, len, libc::MADV_DONTDUMP) };
    }
    done.is_ok()
}

/// Calls `mmap(NULL, len, PROT_NONE, MAP_NORESERVE, -1, 0)`, see mmap(2).
///
/// Reserves `len` bytes of address space, which must not be accessed before it is [opened](open). `None` if the
/// kernel or a limit of the process (`RLIMIT_AS`) refuses.
///
/// It does not count as committed memory where the kernel limits commitments, nor as data, and core dumps leave it
/// out.
#[doc(alias = "mmap")]
pub(crate) fn reserve(len: usize) -> Option<*mut u8> {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    let args = [0, len, libc::PROT_NONE as usize, flags, usize::MAX, 0];
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
    let at = unsafe { call(libc::SYS_mmap, args) }.ok()? as *mut u8;
    // SAFETY: the mapping just made. Refused, core dumps are longer.
    let _ = unsafe { advise(at, len, libc::MADV_DONTDUMP) };
    Some(at)
}

/// Opens pages of one `reserve`, and lets core dumps have them; false as in [`open`].
///
/// # Safety
/// - The conditions of [`open`] hold.
pub(crate) unsafe fn open_reserved(at: *mut u8, len: usize) -> bool {
    let (start, end) = whole_pages(at, len);
    // SAFETY: the caller guarantees the range.
    let is_open = unsafe { open(at, len) };
    if is_open {
        // SAFETY: the caller guarantees the range; the advice changes no contents. If it is refused, core dumps lack
        // these pages.
        let _ = unsafe { advise(start as *mut u8, end - start, libc::MADV_DODUMP) };
    }
    is_open
}

/// Returns the pages that a range lies in, from their start to their end.
fn whole_pages(at: *mut u8, len: usize) -> (usize, usize) {
    (page_start(at as usize), (at as usize + len).next_multiple_of(page_size()))
}

/// Calls `mprotect(at, len, PROT_READ | PROT_WRITE)`, see mprotect(2).
///
/// Makes the reserved pages that a range lies in readable and writable; what was opened before stays as it is. False
/// when the kernel has no memory to promise.
///
/// # Safety
/// - The range lies in one `reserve`, and nothing beside it in its first and last page is to stay closed.
#[doc(alias = "mprotect")]
pub(crate) unsafe fn open(at: *mut u8, len: usize) -> bool {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let (start, end) = whole_pages(at, len);
    // SAFETY: the caller guarantees the range; additional access does no harm.
    unsafe { call(libc::SYS_mprotect, [start, end - start, protection, 0, 0, 0]) }.is_ok()
}

/// Calls `mprotect(at, len, PROT_NONE)`, see mprotect(2).
///
/// Removes all access to pages until they are opened again. False if the kernel cannot record it.
///
/// # Safety
/// - The range lies in one `reserve`, and begins and ends at page boundaries.
/// - No reference to it is left.
#[doc(alias = "mprotect")]
pub(crate) unsafe fn close(at: *mut u8, len: usize) -> bool {
    let args = [at as usize, len, libc::PROT_NONE as usize, 0, 0, 0];
    // SAFETY: the caller guarantees the range, to which no reference is left.
    unsafe { call(libc::SYS_mprotect, args) }.is_ok()
}

/// Returns `true` if the kernel maps so many bytes of writable memory now, by all its limits (`RLIMIT_AS`,
/// `RLIMIT_DATA`, `RLIMIT_MEMLOCK`, promises): it is asked to, and they go again.
pub(crate) fn has_room_for(len: usize) -> bool {
    let Some(at) = reserve(len) else { return false };
    let args = [at as usize, len, 0, 0, 0, 0];
    // SAFETY: a mapping of this library's own, to which no reference is left. If all mappings are locked
    // (`MCL_FUTURE`), pages would be populated when they become writable; so this mapping is unlocked.
    unsafe {
        let _ = call(libc::SYS_munlock, args);
        let is_open = open(at, len);
        unmap(at, len);
        is_open
    }
}

/// Returns how many more bytes of address space the process may have (`RLIMIT_AS`); `usize::MAX` without a limit. Where
/// `/proc` does not say how many it has it is the limit itself.
pub(crate) fn address_space_left() -> usize {
    match address_limit() {
        usize::MAX => usize::MAX,
        limit => limit.saturating_sub(address_space().unwrap_or(0)),
    }
}

/// Returns the bytes of address space that the process has.
fn address_space() -> Option<usize> {
    let mut text = [0; 64];
    let path = PathBuf::join(&[OWN.to_bytes(), b"/statm"]).ok()?;
    let len = File::open(&path).ok()?.read(&mut text).ok()?;
    let pages = text.get(..len)?.split(|byte| *byte == b' ').next()?;
    core::str::from_utf8(pages).ok()?.parse::<usize>().ok()?.checked_mul(page_size())
}

/// Calls `prlimit(0, RLIMIT_AS, NULL, &limit)`, see prlimit(2).
///
/// `usize::MAX` without one.
#[doc(alias = "getrlimit")]
fn address_limit() -> usize {
    let mut limit = libc::rlimit64 { rlim_cur: libc::RLIM64_INFINITY, rlim_max: 0 };
    let args = [0, libc::RLIMIT_AS as usize, 0, &raw mut limit as usize, 0, 0];
    // SAFETY: asks for a limit of the calling process; the kernel writes the one struct.
    match unsafe { syscall(libc::SYS_prlimit64, args) } {
        Ok(_) => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        Err(_) => usize::MAX,
    }
}

/// Calls `madvise(at, len, advice)`, see madvise(2).
///
/// Gives the kernel advice about pages.
///
/// # Safety
/// - The range lies in one `map`, and the advice's effect on its contents is wanted.
#[doc(alias = "madvise")]
pub(crate) unsafe fn advise(at: *mut u8, len: usize, advice: i32) -> Result<(), Errno> {
    let args = [at as usize, len, advice as usize, 0, 0, 0];
    // SAFETY: the caller guarantees that the advice does no harm to the range.
    unsafe { call(libc::SYS_madvise, args) }.map(|_| ())
}

/// Gives the whole pages of a range back to the kernel. The rest of the range keeps its content.
///
/// # Safety
/// - The range lies in one `map`.
/// - Its content is no longer needed.
pub(crate) unsafe fn give_back(at: *mut u8, len: usize) -> Result<(), Errno> {
    let (start, end) = ((at as usize).next_multiple_of(page_size()), page_start(at as usize + len));
    match end.checked_sub(start) {
        // SAFETY: part of the range, whose content is no longer needed.
        Some(len @ 1..) => unsafe { advise(start as *mut u8, len, libc::MADV_DONTNEED) },
        _ => Ok(()),
    }
}

/// Calls `munmap(at, len)`, see munmap(2).
///
/// Unmaps pages.
///
/// # Safety
/// - `at` and `len` are those of one `map`.
/// - No reference to the memory is left.
#[doc(alias = "munmap")]
pub(crate) unsafe fn unmap(at: *mut u8, len: usize) {
    // The only possible errors are those of wrong arguments. SAFETY: the caller guarantees one whole mapping, to
    // which no reference is left.
    let _ = unsafe { call(libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]) };
}

/// Calls `mincore(at, page, &state)`, see mincore(2).
///
/// Whether the page of this address is in memory. False also of one that was swapped out.
#[doc(alias = "mincore")]
pub(crate) fn is_resident(at: *mut u8) -> bool {
    let mut state = 0u8;
    let page = at.map_addr(page_start);
    let args = [page as usize, 1, &raw mut state as usize, 0, 0, 0];
    // SAFETY: the kernel writes a byte for the one page, and looks at no memory.
    unsafe { call(libc::SYS_mincore, args) }.is_ok() && state & 1 != 0
}

/// Calls `msync(at, len, MS_ASYNC)`, see msync(2).
///
/// Whether something is mapped in each page of a range, which begins and ends with a page.
#[doc(alias = "msync")]
pub(crate) fn is_mapped(at: *mut u8, len: usize) -> bool {
    let args = [at as usize, len, libc::MS_ASYNC as usize, 0, 0, 0];
    // SAFETY: with this flag the kernel looks for gaps between mappings and does nothing (`mm/msync.c`).
    unsafe { call(libc::SYS_msync, args) }.is_ok()
}

/// Calls `mincore(at, len, states)`, see mincore(2).
///
/// Calls `f` with each page of the range that is resident; with every page where the kernel does not say.
///
/// Pages may come and go meanwhile.
#[doc(alias = "mincore")]
pub(crate) fn for_each_resident(at: *mut u8, len: usize, mut f: impl FnMut(*mut u8)) {
    const AT_ONCE: usize = 512;
    let page_size = page_size();
    let mut states = [1u8; AT_ONCE];
    for done in (0..len).step_by(AT_ONCE * page_size) {
        let (start, len) = (at.wrapping_add(done), (len - done).min(AT_ONCE * page_size));
        states.fill(1);
        let args = [start as usize, len, states.as_mut_ptr() as usize, 0, 0, 0];
        // SAFETY: the kernel writes a byte for each page of the range, of which there are AT_ONCE at
        // most; it looks at no memory.
        let _ = unsafe { call(libc::SYS_mincore, args) };
        for (page, state) in states.iter().enumerate().take(len.div_ceil(page_size)) {
            if state & 1 != 0 {
                f(start.wrapping_add(page * page_size));
            }
        }
    }
}

/// Calls `mbind(at, len, MPOL_LOCAL, NULL, 0, 0)`, see mbind(2).
///
/// Places future pages of the range on the node of the thread that first writes to them, whatever the policy of the
/// process or the thread (`mbind(2)`; fails without NUMA, and behind a seccomp filter).
///
/// # Safety
/// - The range lies in one `map`, and begins and ends at page boundaries.
#[doc(alias = "mbind")]
pub(crate) unsafe fn place_locally(at: *mut u8, len: usize) -> Result<(), Errno> {
    const MPOL_LOCAL: usize = 4;
    // SAFETY: the caller guarantees the range; no nodes are named, so no mask is read.
    unsafe { call(libc::SYS_mbind, [at as usize, len, MPOL_LOCAL, 0, 0, 0]) }.map(|_| ())
}

/// Calls `mbind(at, len, MPOL_PREFERRED, &nodes, 64, 0)`, see mbind(2).
///
/// Makes pages that come into being in the range lie on a node below 64, as long as that has memory, whatever the
/// policy of the process or the thread is (`mbind(2)`; fails without NUMA, and behind a filter).
///
/// # Safety
/// - The range lies in one `map` or `reserve`, and begins and ends with a page.
#[doc(alias = "mbind")]
#[cfg(not(loom))]
pub(crate) unsafe fn place_on(at: *mut u8, len: usize, node: u32) -> Result<(), Errno> {
    let mask = 1u64 << node;
    // The kernel takes one bit less than it is told there are.
    let bits = u64::BITS as usize + 1;
    let args = [at as usize, len, libc::MPOL_PREFERRED as usize, &raw const mask as usize, bits, 0];
    // SAFETY: the caller guarantees the range; the mask has this many bits, of which the kernel reads 64.
    unsafe { call(libc::SYS_mbind, args) }.map(|_| ())
}

/// Calls `get_mempolicy(&policy, NULL, 0, NULL, 0)`, see get_mempolicy(2).
///
/// Returns whether the calling thread, or the process that started this one, has set a memory policy
/// (`get_mempolicy(2)`).
#[doc(alias = "get_mempolicy")]
#[cfg(not(loom))]
pub(crate) fn has_policy() -> Result<bool, Errno> {
    let mut policy = libc::MPOL_DEFAULT;
    // SAFETY: the kernel writes the one number.
    unsafe { syscall(libc::SYS_get_mempolicy, [&raw mut policy as usize, 0, 0, 0, 0, 0]) }?;
    Ok(policy != libc::MPOL_DEFAULT)
}

/// Calls `move_pages(0, count, pages, NULL, nodes, 0)`, see move_pages(2).
///
/// Stores the nodes of the pages of some addresses in `nodes`, one word for each: negative if there is no page, or it
/// is the shared page of zeros (`move_pages(2)`). False if the kernel does not report them.
///
/// A page that is being moved has no node either. With Linux 6.1 to 6.5 the same holds for a page that the kernel has
/// made inaccessible for a moment to observe its users (automatic NUMA balancing).
///
/// There must be at most as many addresses as words.
#[doc(alias = "move_pages")]
pub(crate) fn nodes_of(pages: &[*mut u8], nodes: &mut [i32]) -> bool {
    let len = pages.len().min(nodes.len());
    let args = [0, len, pages.as_ptr() as usize, 0, nodes.as_mut_ptr() as usize, 0];
    // SAFETY: the kernel reads `len` addresses, writes as many numbers, and moves nothing, as no nodes are
    // given to move them to.
    unsafe { syscall(libc::SYS_move_pages, args) }.is_ok()
}

/// Calls `f` with the node of each page of the range that is in memory; with nothing where the kernel does
/// not say. Pages of zeros that were only read are none.
pub(crate) fn for_each_placed(at: *mut u8, len: usize, mut f: impl FnMut(u32)) {
    const AT_ONCE: usize = 128;
    let (mut pages, mut count) = ([core::ptr::null_mut(); AT_ONCE], 0);
    let mut tell = |pages: &[*mut u8]| {
        let mut nodes = [-1; AT_ONCE];
        if nodes_of(pages, &mut nodes) {
            nodes.iter().filter_map(|node| u32::try_from(*node).ok()).for_each(&mut f);
        }
    };
    for_each_resident(at, len, |page| {
        pages[count] = page;
        count += 1;
        if count == AT_ONCE {
            tell(&pages);
            count = 0;
        }
    });
    tell(&pages[..count]);
}

/// Returns `true` if some byte of the range may lie elsewhere than in the page of zeros that all share, which
/// `is_resident` takes for one of its own. A page that was only read is that one.
///
/// The range begins with a page, or lies within one.
pub(crate) fn may_be_written(at: *mut u8, len: usize) -> bool {
    const AT_ONCE: usize = 64;
    let is_written = |done: usize| {
        let left = (len - done).div_ceil(SHORTEST_PAGE).min(AT_ONCE);
        let pages: [_; AT_ONCE] =
            core::array::from_fn(|page| at.wrapping_add(done + page * SHORTEST_PAGE));
        let mut nodes = [0; AT_ONCE];
        !nodes_of(&pages[..left], &mut nodes)
            || nodes[..left].iter().any(|node| *node != -libc::EFAULT)
    };
    (0..len).step_by(AT_ONCE * SHORTEST_PAGE).any(is_written)
}

#[cfg(all(test, not(loom)))]
mod tests;
