//! How long the kernel's pages are: 4 KiB on x86-64, and what the kernel was built for elsewhere (4, 16 or 64 KiB on
//! arm64). What is mapped, opened, closed and given back is whole pages.
//!
//! Test programs may ask for longer ones (`memory/pages_emulated.rs`).

/// The shortest pages of any kernel. All others are a power of two times as long.
pub(crate) const SHORTEST_PAGE: usize = 4096;

/// The longest pages of any kernel for this processor.
pub(crate) const LONGEST_PAGE: usize =
    if cfg!(any(target_arch = "x86_64", miri, loom)) { SHORTEST_PAGE } else { 1 << 16 };

/// Returns the bytes of a page. Async-signal-safe; a constant on x86-64, else a load.
#[inline]
pub(crate) fn page_size() -> usize {
    #[cfg(all(test, not(any(loom, miri))))]
    if let Some(size) = super::pages_emulated::page_size() {
        return size;
    }
    if cfg!(any(target_arch = "x86_64", miri, loom)) { SHORTEST_PAGE } else { asked() }
}

/// Returns the bytes of a page, as the kernel says.
#[cfg(not(loom))]
fn asked() -> usize {
    use crate::primitive::global::{AtomicUsize, Ordering};
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Ordering::Relaxed) {
        0 => {
            let told = crate::sys::process::environment::auxiliary(libc::AT_PAGESZ);
            let is_one = told.is_power_of_two() && told >= SHORTEST_PAGE;
            // Not told, or nonsense: whole long pages are whole short ones.
            let size = if is_one { told } else { LONGEST_PAGE };
            // Relaxed: racers store the same.
            SIZE.store(size, Ordering::Relaxed);
            size
        }
        known => known,
    }
}

#[cfg(loom)]
fn asked() -> usize {
    SHORTEST_PAGE
}

/// Returns where the page of an address begins.
pub(crate) fn page_start(at: usize) -> usize {
    at & !(page_size() - 1)
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn as_libc_says() {
        // SAFETY: no preconditions.
        let told = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        assert_eq!(asked(), told);
        assert!(page_size() == told || crate::sys::memory::pages_emulated::page_size().is_some());
        assert_eq!(page_start(5 * page_size() + 1), 5 * page_size());
    }
}
