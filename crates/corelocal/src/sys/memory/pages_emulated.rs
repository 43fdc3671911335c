//! A kernel of longer pages than this machine's, as far as the calls of `memory/pages.rs` can tell: for tests, in a
//! process whose environment says how long they are to be.
//!
//! As Linux does, it refuses addresses that are not multiples of a page, rounds lengths up to pages, and puts mappings
//! where a page begins: so advice about a part of a page reaches all of it.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::page_size::SHORTEST_PAGE;
use crate::sys::errno::Errno;
use crate::sys::syscall::syscall;

/// The environment variable with the emulated length of a page in bytes.
pub(crate) const VARIABLE: &str = "CORELOCAL_TEST_PAGE_SIZE";

/// Returns the bytes of a page, where they are emulated.
pub(crate) fn page_size() -> Option<usize> {
    const UNKNOWN: usize = 1;
    const NONE: usize = 0;
    static SIZE: AtomicUsize = AtomicUsize::new(UNKNOWN);
    if SIZE.load(Ordering::Relaxed) == UNKNOWN {
        // Not by std, whose environment has a lock: tests fork.
        // SAFETY: a constant name; the result is read at once.
        let value = unsafe {
            let value = libc::getenv(c"CORELOCAL_TEST_PAGE_SIZE".as_ptr());
            if value.is_null() { c"" } else { core::ffi::CStr::from_ptr(value) }
        };
        let size = value.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(NONE);
        assert!(size == NONE || size.is_power_of_two() && size > SHORTEST_PAGE, "{VARIABLE}");
        SIZE.store(size, Ordering::Relaxed);
    }
    match SIZE.load(Ordering::Relaxed) {
        NONE => None,
        size => Some(size),
    }
}

/// Returns a system call whose first two arguments are an address and a length.
///
/// # Safety
/// - The conditions of [`syscall`] hold.
pub(in crate::sys) unsafe fn call(
    number: libc::c_long,
    mut args: [usize; 6],
) -> Result<usize, Errno> {
    let Some(page) = page_size() else {
        // SAFETY: the caller guarantees the arguments.
        return unsafe { syscall(number, args) };
    };
    let [at, len, ..] = args;
    if at % page != 0 {
        return Err(Errno::EINVAL);
    }
    args[1] = len.next_multiple_of(page);
    match number {
        // SAFETY: the caller guarantees the arguments.
        libc::SYS_mmap => unsafe { map_aligned(args, page) },
        // SAFETY: the caller guarantees the arguments.
        libc::SYS_mremap => unsafe { remap_aligned(args, page) },
        // SAFETY: the caller guarantees the arguments.
        libc::SYS_mincore => unsafe { look(args, page) },
        // SAFETY: the caller guarantees the arguments.
        _ => unsafe { syscall(number, args) },
    }
}

/// # Safety
/// - The conditions of [`syscall`] hold.
unsafe fn map_aligned(mut args: [usize; 6], page: usize) -> Result<usize, Errno> {
    let len = args[1];
    args[1] = len + page;
    // SAFETY: the caller guarantees the arguments. The mapping is longer, and its ends are unmapped at once.
    unsafe {
        let start = syscall(libc::SYS_mmap, args)?;
        let at = start.next_multiple_of(page);
        for (from, to) in [(start, at), (at + len, start + len + page)] {
            if from < to {
                syscall(libc::SYS_munmap, [from, to - from, 0, 0, 0, 0])?;
            }
        }
        Ok(at)
    }
}

/// # Safety
/// - The conditions of [`syscall`] hold.
unsafe fn remap_aligned(args: [usize; 6], page: usize) -> Result<usize, Errno> {
    let [at, old, new, ..] = args;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    let reserve = [0, new, libc::PROT_NONE as usize, flags, usize::MAX, 0];
    // SAFETY: the caller guarantees the arguments; the new place was just reserved.
    unsafe {
        let to = map_aligned(reserve, page)?;
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
        syscall(libc::SYS_mremap, [at, old, new, flags, to, 0])
    }
}

/// A page is in memory if any of the machine's pages in it is.
///
/// # Safety
/// - The conditions of [`syscall`] hold.
unsafe fn look(args: [usize; 6], page: usize) -> Result<usize, Errno> {
    let [at, len, states, ..] = args;
    for nth in 0..len / page {
        let mut parts = std::vec![0u8; page / SHORTEST_PAGE];
        let look = [at + nth * page, page, parts.as_mut_ptr() as usize, 0, 0, 0];
        // SAFETY: the kernel writes a byte for each of the machine's pages.
        unsafe { syscall(libc::SYS_mincore, look) }?;
        let state = parts.iter().fold(0, |all, part| all | part & 1);
        // SAFETY: the caller has a byte for each page.
        unsafe { (states as *mut u8).add(nth).write(state) };
    }
    Ok(0)
}

/// The tests of what makes and gives back memory, once more in a process whose pages are longer.
#[test]
fn longer_pages() {
    if page_size().is_some() {
        return;
    }
    // SAFETY: asks for a number.
    let real = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    for size in [1 << 14, 1 << 16].into_iter().filter(|size| *size > real) {
        let program = std::env::current_exe().expect("a path of this test");
        let tests = std::process::Command::new(program)
            .args(["percpu::", "sys::page", "sys::sparse", "cid::", "alloc::thin", "alloc::guard"])
            .env(VARIABLE, std::format!("{size}"))
            .env("CORELOCAL_TEST_SCALE", "0.05")
            .output()
            .expect("the test program starts");
        let said = std::string::String::from_utf8_lossy(&tests.stdout);
        assert!(tests.status.success(), "pages of {size} bytes: {said}");
        assert!(said.contains("neighbours_survive"), "{said}");
    }
}
