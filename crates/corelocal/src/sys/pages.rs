//! Anonymous pages straight from the kernel: the only memory the library takes for itself.
//!
//! No heap: these pages are needed inside signal handlers and by the malloc.

use super::errno::Errno;
use super::file::{File, PathBuf};
use super::syscall::syscall;

/// Maps `len` bytes of zeroed, lazily populated, private memory; `None` when the kernel refuses.
///
/// Huge pages are refused for the range: a region is sized for every possible id and only the
/// pages of ids in use may become resident.
pub(crate) fn map(len: usize) -> Option<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
    let at = unsafe { syscall(libc::SYS_mmap, [0, len, protection, flags, usize::MAX, 0]) }.ok()?;
    let at = at as *mut u8;
    // A kernel without transparent huge pages refuses the advice, which is just as well.
    // SAFETY: the mapping just made.
    let _ = unsafe { advise(at, len, libc::MADV_NOHUGEPAGE) };
    Some(at)
}

/// Takes `len` bytes of address space, in which nobody may touch anything before it is opened; `None` when the
/// kernel refuses, or a limit of the process (`RLIMIT_AS`).
///
/// Nothing is promised to it yet where the kernel keeps account of promises, and nothing counts as data.
pub(crate) fn reserve(len: usize) -> Option<*mut u8> {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    let args = [0, len, libc::PROT_NONE as usize, flags, usize::MAX, 0];
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
    unsafe { syscall(libc::SYS_mmap, args) }.ok().map(|at| at as *mut u8)
}

/// Makes reserved pages readable and writable; what was opened before stays as it is. False when the kernel
/// has no memory to promise.
///
/// # Safety
/// The range lies in one `reserve`, and begins and ends with a page.
pub(crate) unsafe fn open(at: *mut u8, len: usize) -> bool {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: the caller's promise; more access takes nothing from anybody.
    unsafe { syscall(libc::SYS_mprotect, [at as usize, len, protection, 0, 0, 0]) }.is_ok()
}

/// Takes all access to pages away, until they are opened again; false when the kernel cannot keep account of it.
///
/// # Safety
/// The range lies in one `reserve`, begins and ends with a page, and nobody refers to what is there.
pub(crate) unsafe fn close(at: *mut u8, len: usize) -> bool {
    let args = [at as usize, len, libc::PROT_NONE as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_mprotect, args) }.is_ok()
}

/// How many more bytes of address space the process may have (`RLIMIT_AS`); `usize::MAX` without a limit. Where
/// `/proc` does not say how many it has it is the limit itself.
pub(crate) fn address_space_left() -> usize {
    match address_limit() {
        usize::MAX => usize::MAX,
        limit => limit.saturating_sub(address_space().unwrap_or(0)),
    }
}

/// Bytes of address space that the process has.
fn address_space() -> Option<usize> {
    let mut text = [0; 64];
    let path = PathBuf::join(&[b"/proc/self/statm"]).ok()?;
    let len = File::open(&path).ok()?.read(&mut text).ok()?;
    let pages = text.get(..len)?.split(|byte| *byte == b' ').next()?;
    core::str::from_utf8(pages).ok()?.parse::<usize>().ok()?.checked_mul(4096)
}

/// `usize::MAX` without one.
fn address_limit() -> usize {
    let mut limit = libc::rlimit64 { rlim_cur: libc::RLIM64_INFINITY, rlim_max: 0 };
    let args = [0, libc::RLIMIT_AS as usize, 0, &raw mut limit as usize, 0, 0];
    // SAFETY: asks for a limit of the calling process; the kernel writes the one struct.
    match unsafe { syscall(libc::SYS_prlimit64, args) } {
        Ok(_) => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        Err(_) => usize::MAX,
    }
}

/// Gives the kernel advice about pages.
///
/// # Safety
/// The range lies in one `map`, and the advice's effect on its contents is wanted.
pub(crate) unsafe fn advise(at: *mut u8, len: usize, advice: i32) -> Result<(), Errno> {
    let args = [at as usize, len, advice as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_madvise, args) }.map(|_| ())
}

/// Gives pages back.
///
/// # Safety
/// `at` and `len` are those of one `map`, and nobody refers to the memory.
pub(crate) unsafe fn unmap(at: *mut u8, len: usize) {
    // The only errors are those of wrong arguments.
    // SAFETY: the caller's promise.
    let _ = unsafe { syscall(libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]) };
}

/// Whether the page of this address is in memory. False also of one that was swapped out.
pub(crate) fn is_resident(at: *mut u8) -> bool {
    let mut state = 0u8;
    let page = at.map_addr(|addr| addr & !4095);
    let args = [page as usize, 1, &raw mut state as usize, 0, 0, 0];
    // SAFETY: the kernel writes a byte for the one page, and looks at no memory.
    unsafe { syscall(libc::SYS_mincore, args) }.is_ok() && state & 1 != 0
}

/// Calls `f` with each page of the range that is resident; with every page where the kernel does not say.
///
/// Pages may come and go meanwhile.
pub(crate) fn for_each_resident(at: *mut u8, len: usize, mut f: impl FnMut(*mut u8)) {
    const PAGE: usize = 4096;
    const AT_ONCE: usize = 512;
    let mut states = [1u8; AT_ONCE];
    for done in (0..len).step_by(AT_ONCE * PAGE) {
        let (start, len) = (at.wrapping_add(done), (len - done).min(AT_ONCE * PAGE));
        states.fill(1);
        let args = [start as usize, len, states.as_mut_ptr() as usize, 0, 0, 0];
        // SAFETY: the kernel writes a byte for each page of the range, of which there are AT_ONCE at
        // most; it looks at no memory.
        let _ = unsafe { syscall(libc::SYS_mincore, args) };
        for (page, state) in states.iter().enumerate().take(len.div_ceil(PAGE)) {
            if state & 1 != 0 {
                f(start.wrapping_add(page * PAGE));
            }
        }
    }
}

/// Makes pages that come into being in the range lie on the node of whoever writes to them first, whatever
/// the policy of the process or the thread is (`mbind(2)`; fails without NUMA, and behind a filter).
///
/// # Safety
/// The range lies in one `map`, and begins and ends with a page.
pub(crate) unsafe fn place_locally(at: *mut u8, len: usize) -> Result<(), Errno> {
    const MPOL_LOCAL: usize = 4;
    // SAFETY: the caller's promise; no nodes are named, so no mask is read.
    unsafe { syscall(libc::SYS_mbind, [at as usize, len, MPOL_LOCAL, 0, 0, 0]) }.map(|_| ())
}

/// Makes pages that come into being in the range lie on a node below 64, as long as that has memory, whatever the
/// policy of the process or the thread is (`mbind(2)`; fails without NUMA, and behind a filter).
///
/// # Safety
/// The range lies in one `map` or `reserve`, and begins and ends with a page.
#[cfg(not(loom))]
pub(crate) unsafe fn place_on(at: *mut u8, len: usize, node: u32) -> Result<(), Errno> {
    let mask = 1u64 << node;
    // The kernel takes one bit less than it is told there are.
    let bits = u64::BITS as usize + 1;
    let args = [at as usize, len, libc::MPOL_PREFERRED as usize, &raw const mask as usize, bits, 0];
    // SAFETY: the caller's promise; a mask of so many bits, of which the kernel reads 64.
    unsafe { syscall(libc::SYS_mbind, args) }.map(|_| ())
}

/// Whether the calling thread, or whoever started the process, has said where its memory is to lie
/// (`get_mempolicy(2)`).
#[cfg(not(loom))]
pub(crate) fn has_policy() -> Result<bool, Errno> {
    let mut policy = libc::MPOL_DEFAULT;
    // SAFETY: the kernel writes the one number.
    unsafe { syscall(libc::SYS_get_mempolicy, [&raw mut policy as usize, 0, 0, 0, 0, 0]) }?;
    Ok(policy != libc::MPOL_DEFAULT)
}

/// The nodes of the pages of some addresses, one word for each in `nodes`: negative where there is no page,
/// or the one of zeros that all share (`move_pages(2)`). False if the kernel does not say.
///
/// A page that is being moved has no node either, and with Linux 6.1 to 6.5 none that the kernel has made
/// inaccessible for a moment to learn who uses it (automatic NUMA balancing).
///
/// At most as many addresses as words.
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

/// Whether this address may lie elsewhere than in the page of zeros that all share, which `is_resident` takes
/// for one of its own. A page that was only read is that one.
pub(crate) fn may_be_written(at: *mut u8) -> bool {
    let mut node = [0];
    !nodes_of(&[at], &mut node) || node[0] != -libc::EFAULT
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn address_space_is_counted() {
        let Some(before) = address_space() else { return };
        // Far more than other tests give back meanwhile.
        let len = 1 << 40;
        let Some(at) = reserve(len) else { return };
        let with_it = address_space().unwrap();
        // SAFETY: reserved above.
        unsafe { unmap(at, len) };
        assert!(before > 1 << 20 && with_it > before + len / 2, "{before} {with_it}");
    }

    #[test]
    fn where_pages_are() {
        let at = map(3 * 4096).unwrap();
        // SAFETY: pages just mapped.
        let placed = unsafe { place_locally(at, 3 * 4096) };
        // SAFETY: likewise, read and written by this test alone.
        unsafe {
            assert_eq!(at.add(4096).read_volatile(), 0);
            at.add(8192).write_volatile(1);
        }
        let pages = [0, 4096, 8192].map(|offset| at.wrapping_add(offset));
        let mut nodes = [7; 3];
        if nodes_of(&pages, &mut nodes) {
            assert!(nodes[0] < 0 && nodes[1] < 0 && nodes[2] >= 0, "{nodes:?}");
            assert!(!may_be_written(pages[1]));
            assert!(placed.is_ok() || nodes[2] == 0, "{placed:?} {nodes:?}");
        }
        assert!(may_be_written(pages[2]));
        // SAFETY: mapped above.
        unsafe { unmap(at, 3 * 4096) };
    }

    /// As the kernel makes pages to see who uses them; which of some kernels have no node then.
    #[test]
    fn a_page_that_nobody_may_access_was_written() {
        let at = map(4096).unwrap();
        // SAFETY: a page just mapped.
        unsafe { at.write_volatile(1) };
        let access = |protection: i32| {
            let args = [at as usize, 4096, protection as usize, 0, 0, 0];
            // SAFETY: the page just mapped, which nobody else knows.
            unsafe { syscall(libc::SYS_mprotect, args) }.unwrap();
        };
        access(libc::PROT_NONE);
        assert!(may_be_written(at));
        access(libc::PROT_READ);
        // SAFETY: readable again.
        assert_eq!(unsafe { at.read_volatile() }, 1);
        // SAFETY: mapped above.
        unsafe { unmap(at, 4096) };
    }
}
