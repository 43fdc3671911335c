//! Kernels whose critical sections cannot be relied on.
//!
//! On arm64, Linux 6.19 and the first versions of 7.0 do not abort a section whose thread was preempted and goes on on the
//! same cpu: the section commits what it read before other threads ran. Commit 411c1cf43039 mends it, in 7.1 and 7.0.14.
//!
//! A release's name tells which kernels may be among them; distributions take the commit into earlier ones. So on such a
//! kernel a trial decides, once in a process (`kernel/trial.rs`). Where it fails or cannot be made, threads use the
//! portable form, which is right on every kernel.

#[cfg(all(target_arch = "aarch64", target_os = "linux", not(any(miri, loom, corelocal_model))))]
mod trial;

use crate::primitive::global::{AtomicU8, Ordering};

/// Returns `true` if the kernel that runs misses preemptions, or may. `area` is the offset of the area in use from the
/// thread pointer, and `register` registers the calling thread's if it is not.
pub(super) fn misses_preemptions(area: isize, register: impl Fn() -> bool) -> bool {
    if !cfg!(target_arch = "aarch64") || !may_miss_preemptions() {
        return false;
    }
    let found = if aborts(area, register) == Some(true) { SOUND } else { BROKEN };
    // Relaxed: the first of racers decides for all.
    match FOUND.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => found == BROKEN,
        Err(first) => first == BROKEN,
    }
}

/// What the first trial found; 0 until then.
static FOUND: AtomicU8 = AtomicU8::new(0);
const SOUND: u8 = 1;
const BROKEN: u8 = 2;

#[cfg(all(target_arch = "aarch64", target_os = "linux", not(any(miri, loom, corelocal_model))))]
fn aborts(area: isize, register: impl Fn() -> bool) -> Option<bool> {
    match FOUND.load(Ordering::Relaxed) {
        0 => trial::aborts(area, area, register),
        found => Some(found == SOUND),
    }
}

#[cfg(not(all(
    target_arch = "aarch64",
    target_os = "linux",
    not(any(miri, loom, corelocal_model))
)))]
fn aborts(_: isize, _: impl Fn() -> bool) -> Option<bool> {
    None
}

/// Returns `true` if the kernel that runs is of a release that may.
fn may_miss_preemptions() -> bool {
    // SAFETY: all-zero bytes are a valid utsname, which is arrays of characters.
    let mut name: libc::utsname = unsafe { core::mem::zeroed() };
    // SAFETY: a valid place for the answer; the call fails for bad addresses only.
    unsafe { libc::uname(&mut name) };
    let mut release = [0; 65];
    for (to, from) in release.iter_mut().zip(name.release) {
        *to = from as u8;
    }
    is_broken(&release)
}

/// Returns `true` if kernels of this release for arm64 may miss a preemption. Before a zero byte it begins as `uname -r`.
fn is_broken(release: &[u8]) -> bool {
    let text = release.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut numbers = text.split(|byte| !byte.is_ascii_digit());
    let mut next = || {
        let digits = numbers.next()?;
        digits.iter().try_fold(0_u32, |number, digit| {
            number.checked_mul(10)?.checked_add(u32::from(*digit - b'0'))
        })
    };
    let is_candidate = text.windows(3).any(|part| part == b"-rc");
    match (next(), next(), next()) {
        (Some(6), Some(19), _) => true,
        (Some(7), Some(0), patch) => patch.is_none_or(|patch| patch < 14),
        (Some(7), Some(1), _) => is_candidate,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_without_the_commit_are_tried() {
        for broken in
            ["6.19.0", "6.19.12-cloud-arm64", "7.0.0-28-generic", "7.0", "7.0.13", "7.1.0-rc3"]
        {
            assert!(is_broken(broken.as_bytes()), "{broken}");
        }
        let sound = [
            "5.10.0-33",
            "6.1.0",
            "6.12.48+deb13-arm64",
            "6.18.3",
            "7.0.14",
            "7.0.140-x",
            "7.1.0",
            "7.2.1",
        ];
        for sound in sound.into_iter().chain(["", "linux", "6", "99999999999.0"]) {
            assert!(!is_broken(sound.as_bytes()), "{sound}");
        }
        assert!(is_broken(b"7.0.9\x007.0.20") && !is_broken(b"7.0.20\x007.0.9"));
    }
}
