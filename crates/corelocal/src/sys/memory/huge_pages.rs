//! Transparent huge pages: whether the machine wants them, how long they are, and pages made huge by hand.
//!
//! No heap, no policy: which memory is worth one is for others to say.

use super::pages;
use crate::sys::errno::Errno;
use crate::sys::file::{File, PathBuf};
use crate::sys::syscall::syscall;

/// The advice of `madvise(2)` that makes pages huge at once and keeps their content (Linux 6.1).
const MADV_COLLAPSE: i32 = 25;
/// The answer of `PR_GET_THP_DISABLE` if the process gets no huge pages at all. Since Linux 6.18 it is another one if the
/// process gets those that it advises.
const DISABLED: usize = 1;

/// Calls `prctl(PR_GET_THP_DISABLE)`, see prctl(2).
///
/// Bytes of a huge page, if the machine has such pages and wants any, and so does the process; `None` also where
/// the machine does not say.
///
/// Reads two files of /sys.
#[doc(alias = "prctl")]
pub(crate) fn wanted() -> Option<usize> {
    // Miri's machine has no /sys.
    if cfg!(miri) {
        return None;
    }
    // SAFETY: numbers.
    if unsafe { syscall(libc::SYS_prctl, [libc::PR_GET_THP_DISABLE as usize, 0, 0, 0, 0, 0]) }
        == Ok(DISABLED)
    {
        return None;
    }
    let mut text = [0; 64];
    let is_wanted = chosen(read(b"enabled", &mut text)?)? != b"never";
    number(read(b"hpage_pmd_size", &mut text)?).filter(|_| is_wanted)
}

fn read<'a>(name: &[u8], text: &'a mut [u8]) -> Option<&'a [u8]> {
    let path = PathBuf::join(&[b"/sys/kernel/mm/transparent_hugepage/", name]).ok()?;
    let len = File::open(&path).ok()?.read(text).ok()?;
    text.get(..len)
}

/// Returns the word in brackets: `always [madvise] never`.
fn chosen(text: &[u8]) -> Option<&[u8]> {
    let word = text.split(|byte| byte.is_ascii_whitespace()).find(|word| word.starts_with(b"["))?;
    word.get(1..)?.strip_suffix(b"]")
}

fn number(text: &[u8]) -> Option<usize> {
    core::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Replaces the pages of a range for which huge pages are [forbidden](forbid) by huge pages. Contents stay; missing
/// pages become 0. After an error some may have been replaced.
///
/// # Errors
/// - `EINVAL` if the kernel does not support it, or the process has disabled huge pages.
/// - `EAGAIN` if a page is temporarily in use elsewhere.
/// - `ENOMEM`, `EBUSY` without memory.
///
/// # Safety
/// - The range consists of whole huge pages, within one `map` or `reserve`.
pub(crate) unsafe fn collapse(at: *mut u8, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller guarantees the range; the advice changes no contents.
    unsafe {
        allow(at, len)?;
        let collapsed = pages::advise(at, len, MADV_COLLAPSE);
        // A huge page stays one. Its mapping is one with its neighbours' again.
        forbid(at, len);
        collapsed
    }
}

/// Lets the kernel make huge pages of a range, when it comes to it.
///
/// # Errors
/// `ENOMEM` where the process has too many mappings.
///
/// # Safety
/// - The conditions of [`collapse`] hold.
pub(crate) unsafe fn allow(at: *mut u8, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller guarantees the range; the advice changes no contents.
    unsafe { pages::advise(at, len, libc::MADV_HUGEPAGE) }
}

/// From here on the kernel makes no huge pages of a range by itself. A kernel without any refuses the advice,
/// which is just as well.
///
/// # Safety
/// - The range lies in one `map` or `reserve`.
pub(crate) unsafe fn forbid(at: *mut u8, len: usize) {
    // SAFETY: the caller guarantees the range; the advice changes no contents.
    let _ = unsafe { pages::advise(at, len, libc::MADV_NOHUGEPAGE) };
}

/// Splits a huge page of which a part is about to go back to the kernel. Without this, unmapping the part leaves the
/// kernel with a partly used huge page until memory runs low.
///
/// # Safety
/// - The part lies in one `map` or `reserve`.
/// - Its content is no longer needed.
pub(crate) unsafe fn split(part: *mut u8, len: usize) {
    // The pages may go: for a part of a huge page the kernel splits it at once. SAFETY: the caller guarantees that
    // the content is no longer needed.
    let _ = unsafe { pages::advise(part, len, libc::MADV_FREE) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says() {
        assert_eq!(chosen(b"always [madvise] never\n"), Some(&b"madvise"[..]));
        assert_eq!(chosen(b"always madvise [never]\n"), Some(&b"never"[..]));
        assert_eq!((chosen(b"always\n"), chosen(b""), chosen(b"[always")), (None, None, None));
        assert_eq!(
            (number(b"2097152\n"), number(b"\n"), number(b"2 MiB")),
            (Some(2 << 20), None, None)
        );
    }
}
