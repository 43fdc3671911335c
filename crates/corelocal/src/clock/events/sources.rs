//! The sources of events: differences between clocks, and the hypervisor's page.
//!
//! # Invariant
//! 1. `VMCLOCK` is 0 (not opened yet), `ABSENT`, or the address of a mapping of `/dev/vmclock0` that began like such
//!    a page and is never unmapped. The page belongs to the hypervisor, and a forked child has it too.

use super::distance::Range;
use crate::clock::counter::Fence;
use crate::clock::page::pvclock;
use crate::clock::{Clock, Kernel, SELECTOR, Truth};

/// A look at all sources of events.
#[derive(Clone, Copy, Debug)]
pub(in crate::clock) struct Seen {
    /// The differences of the clocks to the monotonic one, wrapping.
    pub(in crate::clock) realtime: Range,
    pub(in crate::clock) boottime: Range,
    /// vmclock's disruption marker, combined with the machine's generation.
    pub(in crate::clock) disruptions: Option<u64>,
    pub(in crate::clock) generation: Option<u64>,
    /// The version of KVM's page, and whether it says that the machine was stopped.
    pub(in crate::clock) pvclock: Option<(u32, bool)>,
    /// The fence for reading the counter, if the cpus' counters are known to agree.
    pub(in crate::clock) counter: Option<Fence>,
}

/// Looks at everything there is.
pub(in crate::clock) fn look() -> Seen {
    /// A width that a vDSO read by counter reaches, in nanoseconds.
    const NARROW: u64 = 250;
    // First, for it may have to begin.
    let counter = SELECTOR.counter();
    let (mut realtime, mut boottime) = ahead();
    // A thread that is interrupted in the middle tries again.
    for _ in 0..3 {
        if realtime.width < NARROW {
            break;
        }
        let again = ahead();
        if again.0.width < realtime.width {
            (realtime, boottime) = again;
        }
    }
    let (disruptions, generation) = vmclock();
    Seen {
        realtime,
        boottime,
        disruptions,
        generation,
        pvclock: SELECTOR.pvclock().and_then(kvm),
        counter,
    }
}

/// Returns what realtime and boottime are ahead of the monotonic clock by.
fn ahead() -> (Range, Range) {
    let before = Kernel::read(Clock::Monotonic);
    let (realtime, boottime) = (Kernel::read(Clock::Realtime), Kernel::read(Clock::Boottime));
    let width = Kernel::read(Clock::Monotonic).saturating_sub(before);
    let range = |time: u64| Range { least: time.wrapping_sub(before).wrapping_sub(width), width };
    (range(realtime), range(boottime))
}

/// Returns what KVM's page tells.
fn kvm(page: &pvclock::Page) -> Option<(u32, bool)> {
    let (version, content) = page.content().ok()?;
    Some((version, content.flags & pvclock::GUEST_STOPPED != 0))
}

#[cfg(any(loom, miri, not(target_os = "linux")))]
fn vmclock() -> (Option<u64>, Option<u64>) {
    (None, None)
}

#[cfg(all(target_os = "linux", not(any(loom, miri))))]
use with_device::vmclock;

#[cfg(all(target_os = "linux", not(any(loom, miri))))]
pub(in crate::clock) mod with_device {
    use core::ptr;

    use crate::clock::page::vmclock::{Page, flags};
    use crate::primitive::global::{AtomicUsize, Ordering};
    use crate::sys::file::shared_file::SharedFile;
    use crate::sys::file::trust::Rule;

    /// The address of vmclock's page: see invariant 1.
    static VMCLOCK: AtomicUsize = AtomicUsize::new(0);
    const ABSENT: usize = 1;

    /// Returns the marker and the generation, where there is a page.
    pub(in crate::clock) fn vmclock() -> (Option<u64>, Option<u64>) {
        // Acquire: partner is the Release in `open`.
        let at = match VMCLOCK.load(Ordering::Acquire) {
            0 => open(),
            at => at,
        };
        if at == ABSENT {
            return (None, None);
        }
        // SAFETY: (1)
        let page = unsafe { Page::from_ptr(ptr::with_exposed_provenance(at)) };
        page.map_or((None, None), read)
    }

    /// Returns the marker and the generation of a page.
    pub(in super::super) fn read(page: &Page) -> (Option<u64>, Option<u64>) {
        let Ok(content) = page.content() else { return (None, None) };
        let has_generation = content.flags & flags::GENERATION_PRESENT != 0;
        (Some(content.disruptions), has_generation.then_some(content.generation))
    }

    /// Maps the device, once.
    #[cold]
    fn open() -> usize {
        let rule = Rule { may_be_device: true, ..Rule::TRUSTED };
        let opened = SharedFile::open(c"/dev/vmclock0", &rule).ok();
        let device = opened.filter(|(_, status)| status.is_device);
        let mapping = device.and_then(|(file, _)| file.map(4096, false).ok());
        let at = mapping.map_or(ABSENT, |mapping| {
            let at = mapping.at().expose_provenance();
            // Never unmapped: other threads may read it at any time.
            core::mem::forget(mapping);
            at
        });
        // Release: partner is the Acquire above. Of racers all but one leave a page of addresses behind.
        match VMCLOCK.compare_exchange(0, at, Ordering::Release, Ordering::Acquire) {
            Ok(_) => at,
            Err(winner) => winner,
        }
    }
}
