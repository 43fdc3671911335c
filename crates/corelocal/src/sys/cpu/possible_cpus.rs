//! The number of possible ids, and of nodes, from the cold path of a first use: in a signal handler with a
//! small stack, in malloc before main. [`crate::sys::topology`] tells the same in full, with 28 KiB of stack.

use core::ffi::CStr;

use crate::sys::file::File;
use crate::sys::syscall::syscall;

/// The maximum number of cpus: that of `CONFIG_NR_CPUS`.
const MOST: u32 = 8192;
const POSSIBLE: &CStr = c"/sys/devices/system/cpu/possible";
const HAS_CPU: &CStr = c"/sys/devices/system/node/has_cpu";
const HAS_MEMORY: &CStr = c"/sys/devices/system/node/has_memory";
/// The maximum number of reads of a list: sysfs shows at most 64 KiB.
const MOST_READS: usize = 1024;

/// Returns one more than the highest possible cpu id, from /sys, else from the size of the kernel's cpu
/// masks, else the most a kernel can be built for.
#[cold]
#[inline(never)]
pub(crate) fn possible_ids() -> u32 {
    // There is no sysfs. Miri populates mappings eagerly: each id costs a region 2 MiB.
    if cfg!(any(miri, not(target_os = "linux"))) {
        return 2;
    }
    from_sysfs(POSSIBLE).or_else(from_mask_size).unwrap_or(MOST).clamp(1, MOST)
}

/// Returns one more than the highest NUMA node that has cpus; 1 where /sys does not say.
///
/// Of nodes that get their first cpu later nothing is known: what is placed by node is misplaced there,
/// not wrong.
pub(crate) fn nodes_with_cpus() -> u32 {
    from_sysfs(HAS_CPU).unwrap_or(1).max(1)
}

/// Returns the NUMA nodes below 64 that have both cpus and memory, as bits; none where /sys does not say.
pub(crate) fn nodes_with_cpus_and_memory() -> u64 {
    let nodes = |path| {
        let mut bits = Bits::default();
        read_sysfs(path, |byte| bits.feed(byte)).map(|()| bits.ended())
    };
    match nodes(HAS_CPU).unwrap_or(0) {
        // The one of most machines has memory.
        few if few.count_ones() < 2 => few,
        with_cpus => with_cpus & nodes(HAS_MEMORY).unwrap_or(u64::MAX),
    }
}

fn from_sysfs(path: &CStr) -> Option<u32> {
    let mut highest = Highest::default();
    read_sysfs(path, |byte| highest.feed(byte))?;
    (highest.above > 0).then_some(highest.above)
}

/// Calls `feed` with each byte of a file of sysfs; `None` if not all can be read.
fn read_sysfs(path: &CStr, mut feed: impl FnMut(u8)) -> Option<()> {
    let file = File::open_of_kernel(path).ok()?;
    let mut buffer = [0u8; 64];
    for _ in 0..MOST_READS {
        match file.read(&mut buffer).ok()? {
            0 => return Some(()),
            len => buffer[..len].iter().for_each(|byte| feed(*byte)),
        }
    }
    None
}

/// Returns how many cpus the calling thread may run on; the most there can be if the kernel does not say.
pub(crate) fn allowed_cpus() -> u32 {
    let mut mask: Mask = [0; MOST as usize / 8];
    if affinity(&mut mask).is_none() {
        return MOST;
    }
    mask.iter().map(|byte| byte.count_ones()).sum()
}

fn from_mask_size() -> Option<u32> {
    // The call returns the bytes that the kernel's own masks have, an upper bound of the ids.
    affinity(&mut [0; MOST as usize / 8]).map(|bytes| bytes as u32 * 8)
}

/// A set of cpus as the kernel has it.
type Mask = [u8; MOST as usize / 8];

/// Calls `sched_getaffinity(0, size, mask)`, see sched_getaffinity(2).
///
/// The calling thread's cpus; how many bytes of the mask the kernel wrote.
#[doc(alias = "sched_getaffinity")]
fn affinity(mask: &mut Mask) -> Option<usize> {
    let args = [0, mask.len(), mask.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the buffer is writable and borrowed by nothing else.
    unsafe { syscall(libc::SYS_sched_getaffinity, args) }.ok()
}

/// The largest number in a cpu list, in any order.
///
/// Without an `Option`: the compiler would compare the empty content of a `None` ahead of the test, which valgrind
/// reports.
#[derive(Default)]
struct Highest {
    /// One more than the largest number; 0 before there is one.
    above: u32,
    /// The number whose digits are being read.
    current: u32,
}

impl Highest {
    fn feed(&mut self, byte: u8) {
        if byte.is_ascii_digit() {
            let digit = u32::from(byte - b'0');
            self.current = self.current.saturating_mul(10).saturating_add(digit);
            self.above = self.above.max(self.current.saturating_add(1));
        } else {
            self.current = 0;
        }
    }
}

/// The numbers below 64 of a list such as `0-2,5`, as bits.
#[derive(Default)]
struct Bits {
    bits: u64,
    /// The first number of a range whose end was not read yet, if `has_first`.
    first: u32,
    has_first: bool,
    /// The number whose digits are being read, if `has_current`.
    current: u32,
    has_current: bool,
}

impl Bits {
    fn feed(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' => {
                let digit = u32::from(byte - b'0');
                self.current = self.current.saturating_mul(10).saturating_add(digit);
                self.has_current = true;
            }
            b'-' => {
                (self.first, self.has_first) = (self.current, self.has_current);
                (self.current, self.has_current) = (0, false);
            }
            _ => {
                if self.has_current {
                    let first = if self.has_first { self.first } else { self.current };
                    let numbers = first..=self.current.min(63);
                    self.bits = numbers.fold(self.bits, |bits, number| bits | 1 << number);
                }
                *self = Bits { bits: self.bits, ..Bits::default() };
            }
        }
    }

    fn ended(mut self) -> u64 {
        self.feed(b'\n');
        self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn above(list: &str) -> u32 {
        let mut highest = Highest::default();
        list.bytes().for_each(|byte| highest.feed(byte));
        highest.above
    }

    #[test]
    fn lists() {
        assert_eq!(above("0\n"), 1);
        assert_eq!(above("0-63\n"), 64);
        assert_eq!(above("64,0-1,8-9\n"), 65);
        assert_eq!(above("\n"), 0);
        assert_eq!(above("99999999999999999999"), u32::MAX);
    }

    #[test]
    fn lists_as_bits() {
        for (list, bits) in [("0\n", 1), ("0-2,5\n", 0b10_0111), ("\n", 0), ("1,3", 0b1010)] {
            let mut found = Bits::default();
            list.bytes().for_each(|byte| found.feed(byte));
            assert_eq!(found.ended(), bits, "{list}");
        }
        let mut found = Bits::default();
        "63-1023,4096".bytes().for_each(|byte| found.feed(byte));
        assert_eq!(found.ended(), 1 << 63);
    }

    #[test]
    fn this_cpus_node_is_one_of_them() {
        let nodes = nodes_with_cpus();
        assert!((1..=MOST).contains(&nodes));
        assert!(nodes_with_cpus_and_memory().count_ones() <= nodes);
        if let (Some((_, node)), true) = (crate::sys::current_cpu_and_node(), nodes > 1) {
            assert!(node < nodes, "{node} of {nodes}");
        }
    }

    #[test]
    fn sources_agree() {
        assert_eq!(from_sysfs(c"/nonexistent/possible"), None);
        let mask = from_mask_size().expect("sched_getaffinity");
        if let Some(listed) = from_sysfs(POSSIBLE) {
            assert!(listed <= mask, "{listed} listed, {mask} bits in a mask");
            assert_eq!(possible_ids(), listed);
        }
    }
}
