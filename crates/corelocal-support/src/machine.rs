//! The stamp of the machine that stands on every report, read from the places where Linux and the
//! processor tell about themselves.
//!
//! Invariant: collecting never fails; what is not told stays empty.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;

use crate::schema::Machine;

/// The numbers of cpus and nodes, as the library counts them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Cpus this process may run on.
    pub cpus_allowed: usize,
    /// Cpus online.
    pub cpus_online: usize,
    /// Cpus possible.
    pub cpus_possible: usize,
    /// NUMA nodes online.
    pub numa_nodes: usize,
}

/// Returns the whole stamp. Takes about 10 ms, for the counter's rate.
///
/// `paths` are the ones corelocal uses here: (name, state).
pub fn collect(counts: Counts, paths: BTreeMap<String, String>) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Machine {
        cpu_model: cpu_model(&read("/proc/cpuinfo")),
        cpus_allowed: counts.cpus_allowed,
        cpus_online: counts.cpus_online,
        cpus_possible: counts.cpus_possible,
        numa_nodes: counts.numa_nodes,
        memory_mib: memory_mib(&read("/proc/meminfo")),
        kernel: kernel_release(),
        libc: libc_version(),
        hypervisor: hypervisor(),
        clocksource: clocksource(),
        tsc_mhz: tsc_mhz(),
        paths,
    }
}

/// Returns the value of the first line `key : value`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(k, v)| (k.trim(), v.trim())).find(|&(k, v)| k == key && !v.is_empty()).map(|f| f.1)
}

/// x86 and most others name the model; Arm gives numbers only.
fn cpu_model(cpuinfo: &str) -> String {
    let named = ["model name", "cpu model", "uarch", "cpu"];
    if let Some(model) = named.iter().find_map(|key| field(cpuinfo, key)) {
        return model.to_owned();
    }
    match (field(cpuinfo, "CPU implementer"), field(cpuinfo, "CPU part")) {
        (Some(implementer), Some(part)) => format!("implementer {implementer} part {part}"),
        _ => String::new(),
    }
}

fn memory_mib(meminfo: &str) -> u64 {
    let total = field(meminfo, "MemTotal").and_then(|kib| kib.split_whitespace().next());
    total.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib / 1024)
}

fn kernel_release() -> String {
    // SAFETY: all-zero bytes are a valid utsname, which is arrays of characters.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is valid for writes; the call fails for bad pointers only.
    unsafe { libc::uname(&mut name) };
    // SAFETY: the kernel ends each field with a zero byte inside the array.
    unsafe { CStr::from_ptr(name.release.as_ptr()) }.to_string_lossy().into_owned()
}

/// Returns the current clock source; empty without /sys.
pub fn clocksource() -> String {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Returns the C library and its version, as known where the program was built for it.
#[cfg(target_env = "gnu")]
pub fn libc_version() -> String {
    // SAFETY: returns a constant string with a terminating zero.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

/// musl does not tell its version to programs.
#[cfg(not(target_env = "gnu"))]
pub fn libc_version() -> String {
    if cfg!(target_env = "musl") { "musl".to_owned() } else { String::new() }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc, CpuidResult};
    use std::time::Duration;

    // Newer compilers hold this intrinsic to be safe, older ones do not.
    #[allow(unused_unsafe)]
    fn cpuid(leaf: u32) -> CpuidResult {
        // SAFETY: every x86-64 has the instruction; it changes nothing but its result registers.
        unsafe { core::arch::x86_64::__cpuid(leaf) }
    }

    /// Returns what leaf 1 tells: it reserves bit 31 of ecx for hypervisors, which then name themselves in a leaf of
    /// their own.
    pub fn hypervisor_vendor() -> Option<[u8; 12]> {
        if cpuid(1).ecx >> 31 == 0 {
            return None;
        }
        let CpuidResult { ebx, ecx, edx, .. } = cpuid(0x4000_0000);
        let mut vendor = [0; 12];
        for (bytes, register) in vendor.chunks_exact_mut(4).zip([ebx, ecx, edx]) {
            bytes.copy_from_slice(&register.to_le_bytes());
        }
        Some(vendor)
    }

    /// Reads extended leaf 1, edx bit 27.
    pub fn has_rdtscp() -> bool {
        cpuid(0x8000_0000).eax > 0x8000_0000 && cpuid(0x8000_0001).edx >> 27 & 1 == 1
    }

    /// Returns a reading of the counter and of `CLOCK_MONOTONIC_RAW` in nanoseconds, as close together as
    /// a few attempts get: an interruption between them would count as drift.
    fn both() -> (u64, i64) {
        let counter = || {
            // SAFETY: every x86-64 has both instructions.
            unsafe {
                _mm_lfence();
                _rdtsc()
            }
        };
        let attempt = || {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let before = counter();
            // SAFETY: `time` is valid for writes; the clock exists since Linux 2.6.28.
            unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time) };
            let gap = counter().saturating_sub(before);
            (gap, before + gap / 2, time.tv_sec * 1_000_000_000 + time.tv_nsec)
        };
        let (_, tsc, ns) = (0..8).map(|_| attempt()).min().unwrap_or_default();
        (tsc, ns)
    }

    /// Returns the rate, measured against `CLOCK_MONOTONIC_RAW`, which is not slewed, over 10 ms: accurate to some ten
    /// parts per million.
    pub fn tsc_mhz() -> Option<f64> {
        let (tsc_from, ns_from) = both();
        std::thread::sleep(Duration::from_millis(10));
        let (tsc_to, ns_to) = both();
        let cycles = tsc_to.checked_sub(tsc_from)? as f64;
        let ns = (ns_to - ns_from) as f64;
        (ns > 0.0 && cycles > 0.0).then(|| cycles / ns * 1000.0)
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::has_rdtscp;

#[cfg(target_arch = "x86_64")]
fn tsc_mhz() -> Option<f64> {
    x86::tsc_mhz()
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_mhz() -> Option<f64> {
    None
}

/// Returns the hypervisor's vendor string; empty on bare metal or unknown.
pub fn hypervisor() -> String {
    #[cfg(target_arch = "x86_64")]
    if let Some(vendor) = x86::hypervisor_vendor() {
        return vendor_name(&vendor);
    }
    fs::read_to_string("/sys/hypervisor/type").unwrap_or_default().trim().to_owned()
}

/// Returns the usual name of a hypervisor's 12 characters; those of unknown ones as they are.
#[cfg(target_arch = "x86_64")]
fn vendor_name(vendor: &[u8; 12]) -> String {
    let known = match vendor {
        b"KVMKVMKVM\0\0\0" => "KVM",
        b"Linux KVM Hv" => "KVM (Hyper-V interface)",
        b"Microsoft Hv" => "Hyper-V",
        b"VMwareVMware" => "VMware",
        b"XenVMMXenVMM" => "Xen",
        b"TCGTCGTCGTCG" => "QEMU TCG",
        b"bhyve bhyve " => "bhyve",
        b"VBoxVBoxVBox" => "VirtualBox",
        b"ACRNACRNACRN" => "ACRN",
        other => {
            let text = String::from_utf8_lossy(other);
            let printable = text.chars().filter(|c| !c.is_control() && *c != '\u{fffd}');
            return printable.collect::<String>().trim().to_owned();
        }
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models() {
        let x86 = "processor\t: 0\nmodel name\t: A Processor @ 2 GHz: fast\nprocessor\t: 1\n";
        assert_eq!(cpu_model(x86), "A Processor @ 2 GHz: fast");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm), "implementer 0x41 part 0xd0c");
        assert_eq!(cpu_model(""), "");
    }

    #[test]
    fn memory() {
        assert_eq!(memory_mib("MemTotal:       8126464 kB\nMemFree: 1 kB\n"), 7936);
        assert_eq!(memory_mib("MemTotal: much\n"), 0);
        assert_eq!(memory_mib(""), 0);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vendors() {
        assert_eq!(vendor_name(b"KVMKVMKVM\0\0\0"), "KVM");
        assert_eq!(vendor_name(b"SomeoneElse\0"), "SomeoneElse");
        assert_eq!(vendor_name(b"\xff\x01          "), "");
    }

    #[test]
    fn this_machine() {
        let paths = BTreeMap::from([("rseq".to_owned(), "used".to_owned())]);
        let counts = Counts { cpus_allowed: 3, ..Counts::default() };
        let machine = collect(counts, paths.clone());
        assert_eq!((machine.cpus_allowed, &machine.paths), (3, &paths));
        assert!(!machine.kernel.is_empty());
        if let Some(mhz) = machine.tsc_mhz {
            assert!((100.0..20_000.0).contains(&mhz), "{mhz} MHz");
        }
    }
}
