//! Everything this kernel and libc offer, as one value.
//!
//! For people and reports: no fast path looks here. A fast path finds out by failing (see
//! [`crate::rseq`]).

use core::fmt;

use super::errno::Errno;
use super::futex;
use super::membarrier::{self, Commands};
#[cfg(not(loom))]
use super::once::OnceMap;
use super::rseq::Registration;
use super::topology::{FsRoot, Topology};
use super::vdso;

/// The features that this machine's kernel and libc offer to this process.
///
/// ```
/// let caps = corelocal::sys::Caps::get();
/// println!("{caps}");
/// if !caps.rseq.mm_cid {
///     println!("concurrency ids are cpu numbers here");
/// }
/// ```
///
/// With the feature `serde` it can be serialised.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Caps {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: Release,
    /// The length of a page in bytes.
    pub page_size: usize,
    /// The rseq registration of the thread that probed.
    pub rseq: Registration,
    /// Commands of `membarrier(2)`, or why it is refused.
    pub membarrier: Result<Commands, Errno>,
    /// Whether `membarrier(2)` can end critical sections. Asked by registering where the query
    /// leaves it out, as kernels from 5.10 to 5.16 do that can.
    pub membarrier_rseq: bool,
    /// The features of `futex(2)` and its successors.
    pub futex: futex::Features,
    /// Functions mapped by the kernel.
    pub vdso: Vdso,
    /// Cpus and nodes.
    pub topology: Topology,
}

/// The functions of the vDSO that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Vdso {
    /// Whether clocks can be read without a system call.
    pub clock_gettime: bool,
    /// Whether the cpu number can be read without a system call.
    pub getcpu: bool,
}

/// A kernel release such as `6.12.5-cloud-amd64`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Release {
    text: [u8; 65],
    len: usize,
}

impl Release {
    /// Returns the release as text; empty where `uname(2)` gives none.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text[..self.len]).unwrap_or("")
    }

    /// Returns the major and minor version; `None` when the text does not begin with two numbers.
    ///
    /// ```
    /// let kernel = corelocal::sys::Caps::get().kernel;
    /// if kernel.version() < Some((6, 3)) {
    ///     println!("{} has no concurrency ids", kernel.as_str());
    /// }
    /// ```
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.as_str().split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    fn of_this_kernel() -> Release {
        let mut release = Release { text: [0; 65], len: 0 };
        // SAFETY: all-zero bytes are a valid utsname, which is arrays of characters.
        let mut name: libc::utsname = unsafe { core::mem::zeroed() };
        // SAFETY: a valid place for the answer; the call fails for bad addresses only.
        unsafe { libc::uname(&mut name) };
        let text = name.release.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0);
        for (to, byte) in release.text.iter_mut().zip(text) {
            *to = byte;
            release.len += 1;
        }
        release
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Caps {
    /// Probes once for the process and gives the same answer ever after.
    ///
    /// Takes some tens of microseconds the first time, and 40 KiB of stack. The registration is
    /// that of the thread that came first; ask [`Registration::of_this_thread`] for another's.
    pub fn get() -> Caps {
        // Loom's atomics cannot stand in a static.
        #[cfg(not(loom))]
        static CAPS: OnceMap<Caps> = OnceMap::new();
        #[cfg(not(loom))]
        if let Some(caps) = CAPS.get_or_try_init(Caps::probe) {
            return caps.clone();
        }
        // No page of memory to keep it in: probe each time.
        Caps::probe()
    }

    /// Probes anew, for instance after a change of affinity.
    pub fn probe() -> Caps {
        let membarrier = membarrier::query();
        let reported = |commands: Commands| commands.contains(Commands::PRIVATE_EXPEDITED_RSEQ);
        // SAFETY: no preconditions.
        let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        Caps {
            kernel: Release::of_this_kernel(),
            page_size: usize::try_from(page_size).unwrap_or(4096),
            rseq: Registration::of_this_thread(),
            membarrier,
            membarrier_rseq: membarrier.is_ok_and(reported)
                || membarrier::register_private_expedited_rseq().is_ok(),
            futex: futex::features(),
            vdso: Vdso {
                clock_gettime: in_vdso(["__vdso_clock_gettime", "__kernel_clock_gettime"]),
                getcpu: in_vdso(["__vdso_getcpu", "__kernel_getcpu"]),
            },
            topology: Topology::read(FsRoot::SYSTEM),
        }
    }
}

impl fmt::Display for Caps {
    /// Writes one line for each facility, the names aligned.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rseq = &self.rseq;
        writeln!(f, "kernel      {}", self.kernel)?;
        match rseq.refusal {
            None => writeln!(
                f,
                "rseq        registered by {:?}, {} of {} bytes, {:?}",
                rseq.owner,
                rseq.len,
                rseq.feature_size.max(rseq.len),
                rseq.abi.unwrap_or(super::Abi::V1),
            )?,
            Some(refusal) => writeln!(f, "rseq        unavailable: {refusal}")?,
        }
        writeln!(f, "node_id     {}", yes(rseq.node_id))?;
        writeln!(f, "mm_cid      {}", yes(rseq.mm_cid))?;
        writeln!(f, "slice ext.  {}", yes(rseq.slice_available))?;
        match &self.membarrier {
            Ok(commands) => writeln!(f, "membarrier  {commands}")?,
            Err(errno) => writeln!(f, "membarrier  unavailable: {errno}")?,
        }
        writeln!(
            f,
            "futex       private {}, lock_pi2 {}, waitv {}, futex2 {}",
            yes(self.futex.private),
            yes(self.futex.lock_pi2),
            yes(self.futex.waitv),
            yes(self.futex.futex2),
        )?;
        writeln!(
            f,
            "vdso        clock_gettime {}, getcpu {}",
            yes(self.vdso.clock_gettime),
            yes(self.vdso.getcpu),
        )?;
        let topology = &self.topology;
        write!(
            f,
            "cpus        possible {}, online {}, allowed {}",
            topology.possible.set, topology.online.set, topology.affinity.set,
        )
    }
}

/// Returns `true` if the vDSO has a function of one of these names, which depend on the architecture.
fn in_vdso(names: [&str; 2]) -> bool {
    names.iter().any(|name| vdso::symbol(name).is_some())
}

fn yes(available: bool) -> &'static str {
    if available { "yes" } else { "no" }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn release_and_version() {
        let release = Release::of_this_kernel();
        assert!(release.version() >= Some((4, 0)), "{release}");
        let mut text = [0; 65];
        text[..4].copy_from_slice(b"next");
        assert_eq!(Release { text, len: 4 }.version(), None);
    }

    #[test]
    fn probed_once_and_printable() {
        let caps = Caps::get();
        assert_eq!(caps, Caps::get());
        assert!(caps.page_size.is_power_of_two());
        let text = caps.to_string();
        for name in ["kernel", "rseq", "mm_cid", "membarrier", "futex", "vdso", "cpus"] {
            assert!(text.contains(name), "{name} is missing in:\n{text}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serialises() {
        let json = serde_json::to_value(Caps::get()).expect("caps have text keys");
        assert!(json["rseq"]["owner"].is_string(), "{json}");
        assert!(json["topology"]["possible"]["set"].is_string(), "{json}");
    }
}
