//! Finding the kernel's pages: where the vDSO's data is, and KVM's page for its guest.
//!
//! Neither is ABI, so what is found is doubted: the few places where kernels are known to put the data are
//! copied by the kernel itself (a `write` to a pipe and a `read` back: a page that is not there, or whose
//! reading would be SIGBUS, is EFAULT), and the copy must make sense in every field, the time of four clocks
//! included. Nothing is read directly before that. Neither /proc nor a signal handler is needed.
//!
//! # Invariants
//! 1. A place is handed on only if its copy was plausible: see [`examine`].
//! 2. The pipe's ends are closed again. The calls made are pipe2, write, read and close; openat, read and
//!    close for the name of the clock source. They are made at the first reading of a clock, never later.

use core::ptr;

use super::page::{KernelPage, Layout, Mode, TIME_NAMESPACE, offset};
use crate::clock::Clock;
use crate::clock::counter::{self, Fence};
use crate::clock::page::pvclock;
use crate::clock::status::Cause;
use crate::sys::file::pipe::Pipe;
use crate::sys::file::{File, PathBuf};
use crate::sys::memory::page_size::page_size;

/// The facts that the choice of a back-end depends on.
#[derive(Clone, Copy, Debug)]
pub(in crate::clock) struct Found {
    /// The vDSO's data and its clock source, or the reason why it cannot be read.
    pub(in crate::clock) page: Result<(KernelPage, Mode), Cause>,
    /// The address of KVM's page, if it is mapped.
    pub(in crate::clock) pvclock: Option<usize>,
    /// Whether the kernel trusts the cpus' counters to agree.
    pub(in crate::clock) counters_agree: bool,
}

/// Looks around.
///
/// Some ten microseconds.
#[cold]
pub(in crate::clock) fn probe(fence: Fence, clock: impl Fn(Clock) -> u64) -> Found {
    let vdso = crate::sys::process::environment::auxiliary(libc::AT_SYSINFO_EHDR);
    let nothing = |cause| Found {
        page: Err(cause),
        pvclock: None,
        // A kernel that reads the counter only by itself has a reason.
        counters_agree: cause != Cause::SourceSwitched && counter_is_the_source(),
    };
    if vdso == 0 {
        return nothing(Cause::UnknownLayout);
    }
    let Ok(pipe) = Pipe::new() else { return nothing(Cause::NoResources) };
    let truth = Truth {
        realtime: clock(Clock::Realtime),
        monotonic: clock(Clock::Monotonic),
        boottime: clock(Clock::Boottime),
        tai: clock(Clock::Tai),
        counter: counter::unordered(),
    };
    let mut best = Cause::UnknownLayout;
    for place in PLACES {
        let address = vdso.wrapping_sub(place.pages * page_size());
        let mut copy = [0; COPY];
        // An update takes a microsecond; a copy in the middle of one is taken again.
        for _ in 0..3 {
            if !pipe.copy(address as *const u8, &mut copy) {
                break;
            }
            match examine(&copy[place.offset..], place.layout, &truth) {
                Ok(mode) => {
                    // SAFETY: (1); the vDSO's data stays mapped.
                    let page =
                        unsafe { KernelPage::at(address + place.offset, place.layout, fence) };
                    let pvclock = find_pvclock(&pipe, vdso, Some(place), &truth);
                    let page = match (page, mode) {
                        (Some(_), Mode::Pvclock) if pvclock.is_none() => Err(Cause::UnknownLayout),
                        (Some(page), mode) => Ok((page, mode)),
                        (None, _) => Err(Cause::UnknownLayout),
                    };
                    return Found { page, pvclock, counters_agree: mode == Mode::Counter };
                }
                Err(Cause::UpdateStalled) => {}
                Err(cause) => {
                    if cause == Cause::TimeNamespace {
                        // Real data lies near and would pass for a namespace whose offset is small.
                        return Found {
                            pvclock: find_pvclock(&pipe, vdso, None, &truth),
                            ..nothing(cause)
                        };
                    }
                    best = cause;
                    break;
                }
            }
        }
    }
    Found { pvclock: find_pvclock(&pipe, vdso, None, &truth), ..nothing(best) }
}

/// A place where some kernels map the vDSO's data.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The distance below the vDSO, in pages.
    pages: usize,
    offset: usize,
    layout: Layout,
    /// The distance of KVM's page below the vDSO, in pages.
    pvclock: usize,
}

/// The number of bytes of a page that are copied and examined.
const COPY: usize = 128 + offset::END;

const fn place(pages: usize, offset: usize, layout: Layout, pvclock: usize) -> Place {
    Place { pages, offset, layout, pvclock }
}

/// Known ones of x86-64: 5.10 and 6.1, 6.12, 6.18 and 7.2. Nearest first: all but the last are within the mapping of
/// the vDSO's data whatever the kernel.
#[cfg(target_arch = "x86_64")]
const PLACES: [Place; 3] =
    [place(4, 128, Layout::Short, 3), place(4, 128, Layout::Long, 3), place(6, 0, Layout::Long, 2)];

/// Known ones of aarch64: 7.2, 5.10 to 6.12; the one in the middle was not seen. Furthest first: a page behind the data
/// is that of a time namespace, with real data for a process in one.
#[cfg(target_arch = "aarch64")]
const PLACES: [Place; 3] =
    [place(4, 0, Layout::Short, 0), place(3, 0, Layout::Short, 0), place(2, 0, Layout::Short, 0)];

/// The clocks' times before a page was copied.
struct Truth {
    realtime: u64,
    monotonic: u64,
    boottime: u64,
    tai: u64,
    counter: u64,
}

/// Returns whether a copy is the vDSO's data in this layout; and what it goes by.
///
/// # Errors
/// [`Cause::UpdateStalled`] if it was being updated, [`Cause::TimeNamespace`] if it is a namespace's,
/// [`Cause::SourceSwitched`] if the kernel's clock source is one that only it can read,
/// [`Cause::UnknownLayout`] for all else.
fn examine(copy: &[u8], layout: Layout, truth: &Truth) -> Result<Mode, Cause> {
    /// The greatest plausible age of the last timer tick, in nanoseconds: usually milliseconds; seconds on a machine
    /// that slept.
    const STALE: u64 = 30_000_000_000;
    let field = |at: usize| -> Option<u64> {
        Some(u64::from_ne_bytes(copy.get(at..at.checked_add(8)?)?.try_into().ok()?))
    };
    let later = |at: usize| field(at + layout as usize);
    let all = || {
        let times: [Option<(u64, u64)>; 4] =
            [Clock::Realtime, Clock::Monotonic, Clock::Boottime, Clock::Tai].map(|clock| {
                let at = offset::TIMES + 16 * clock as usize;
                Some((later(at)?, later(at + 8)?))
            });
        Some((field(0)?, field(offset::LAST)?, later(offset::MASK)?, later(offset::RATE)?, times))
    };
    let Some((head, last, mask, rate, times)) = all() else { return Err(Cause::UnknownLayout) };
    let mode = match head >> 32 {
        TIME_NAMESPACE => return Err(Cause::TimeNamespace),
        // None at all, or Hyper-V's page.
        0 | 3 => None,
        number => Some(Mode::of(number).ok_or(Cause::UnknownLayout)?),
    };
    let (multiplier, shift) = (rate & 0xffff_ffff, rate >> 32);
    // Powers of two around what a counter of 1 MHz to 30 GHz needs; the sum of a product and a time below two
    // seconds fits 64 bits then.
    let is_rate = (1 << 12..1 << 31).contains(&multiplier) && (8..=32).contains(&shift);
    // aarch64's counter has at least 56 bits.
    let bits = mask.trailing_ones();
    let is_mask =
        bits == 64 || cfg!(target_arch = "aarch64") && bits >= 56 && mask.count_ones() == bits;
    if !is_mask || !is_rate {
        return Err(Cause::UnknownLayout);
    }
    let clocks = [truth.realtime, truth.monotonic, truth.boottime, truth.tai];
    for (time, clock) in times.into_iter().zip(clocks) {
        let Some((seconds, fraction)) = time else { return Err(Cause::UnknownLayout) };
        let nanos = fraction >> shift;
        let at = seconds.checked_mul(1_000_000_000).and_then(|time| time.checked_add(nanos));
        // A tick may have come since the clocks were read.
        let is_near =
            at.is_some_and(|at| clock.saturating_sub(at).max(at.saturating_sub(clock)) < STALE);
        if nanos >= 2_000_000_000 || !is_near {
            return Err(Cause::UnknownLayout);
        }
    }
    let mode = mode.ok_or(Cause::SourceSwitched)?;
    if head & 1 != 0 {
        return Err(Cause::UpdateStalled);
    }
    if mode == Mode::Counter {
        let advance = u128::from(truth.counter.abs_diff(last)) * u128::from(multiplier);
        if advance >> shift >= u128::from(STALE) {
            return Err(Cause::UnknownLayout);
        }
    }
    Ok(mode)
}

/// Returns the address of KVM's page, if it is there and speaks for all cpus.
fn find_pvclock(pipe: &Pipe, vdso: usize, place: Option<Place>, truth: &Truth) -> Option<usize> {
    let places: &[usize] = match &place {
        _ if cfg!(not(target_arch = "x86_64")) => &[],
        Some(place) => &[place.pvclock],
        None => &[2, 3],
    };
    places.iter().map(|pages| vdso.wrapping_sub(pages * page_size())).find(|at| {
        let mut copy = Aligned([0; 32]);
        pipe.copy(*at as *const u8, &mut copy.0) && is_pvclock(&copy, truth.counter)
    })
}

/// A copy of KVM's page, aligned as the page.
#[repr(C, align(8))]
struct Aligned([u8; 32]);

/// Returns `true` if a copy is KVM's page. What it says of the rate, the back-end that uses it compares with the vDSO.
fn is_pvclock(copy: &Aligned, counter: u64) -> bool {
    /// The greatest plausible uptime, in nanoseconds: ten years.
    const LONG: u64 = 10 * 366 * 86_400 * 1_000_000_000;
    // SAFETY: 32 bytes, aligned and borrowed for as long; they do not change.
    let page = unsafe { pvclock::Page::from_ptr(copy.0.as_ptr()) };
    let Some(Ok((version, content))) = page.map(pvclock::Page::content) else { return false };
    let is_filled =
        version != 0 && content.multiplier >= 1 << 28 && content.shift.unsigned_abs() <= 16;
    let time = content.nanoseconds_at(counter);
    is_filled
        && content.is_stable()
        && content.counter <= counter
        && time.is_ok_and(|time| time < LONG)
}

/// Returns KVM's page.
///
/// # Safety
/// - The address is one that [`probe`] found.
#[inline(always)]
pub(in crate::clock) unsafe fn pvclock_at<'a>(address: usize) -> Option<&'a pvclock::Page> {
    // SAFETY: the kernel maps the page for as long as the process, and KVM writes to it.
    unsafe { pvclock::Page::from_ptr(ptr::with_exposed_provenance(address)) }
}

/// Returns `true` if the kernel's clock source is the cpu's counter, which it is only while it trusts all cpus' to
/// agree. No where /sys does not say.
fn counter_is_the_source() -> bool {
    const COUNTER: &[u8] = if cfg!(target_arch = "aarch64") { b"arch_sys_counter" } else { b"tsc" };
    const NAME: &[u8] = b"/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let mut name = [0; 32];
    let read = PathBuf::join(&[NAME]).and_then(|path| File::open(&path)?.read(&mut name));
    read.is_ok_and(|read| name[..read].trim_ascii() == COUNTER)
}

#[cfg(test)]
mod tests;
