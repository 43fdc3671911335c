//! Which cpus there are: what arrays are sized by, and what the doctor prints.
//!
//! Per-core arrays must cover every id that a cpu or concurrency id can ever take. That is the
//! highest *possible* id + 1, never the number of cpus online or allowed now, because cpus are
//! hot-plugged and ids may have gaps. Sandboxes hide /sys or /proc, so each set says where it comes
//! from, and [`Topology::nr_possible_ids`] errs upwards, never downwards.
//!
//! Invariant: without /sys, `possible` is a superset of the truth, and `online` is a subset of it.

pub(super) mod cgroup;

pub use super::cpu::cpulist::{ListProblem, ParseListError};
pub use super::cpu::cpuset::{CpuSet, IdSet, Iter, NodeSet};
pub use cgroup::{CgroupCpus, CgroupVersion};

use super::cpu::cpulist::Parser;
use super::errno::Errno;
use super::file::{File, PathBuf};
use super::syscall::syscall;

/// The prefix of /sys and /proc; empty on a real system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsRoot<'a>(&'a str);

impl<'a> FsRoot<'a> {
    /// The running system.
    pub const SYSTEM: FsRoot<'static> = FsRoot("");

    /// Returns a directory that holds `sys` and `proc`, for tests and for other mount namespaces.
    pub const fn at(directory: &'a str) -> FsRoot<'a> {
        FsRoot(directory)
    }

    /// Returns the cpus of a NUMA node, online or not, from `/sys/devices/system/node/nodeN/cpulist`.
    ///
    /// `None` if there is no such node or no /sys.
    pub fn node_cpus(self, node: usize) -> Option<CpuSet> {
        let mut digits = [0; 20];
        let mut first = digits.len();
        let mut rest = node;
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let node = &digits[first..];
        read_set(&self.path(&[b"/sys/devices/system/node/node", node, b"/cpulist"])?)
    }

    /// Returns this root followed by `parts`; `None` if that is too long for a path.
    pub(crate) fn path(self, parts: &[&[u8]]) -> Option<PathBuf> {
        let mut path = match self {
            FsRoot::SYSTEM => PathBuf::join(&[]),
            FsRoot(tree) => PathBuf::of_tree(tree.as_bytes()),
        }
        .ok()?;
        parts.iter().try_for_each(|part| path.push(part)).ok()?;
        Some(path)
    }
}

/// The source of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Source {
    /// The kernel's list under /sys.
    Sysfs,
    /// The calling thread's affinity mask, or that mask's size.
    Affinity,
    /// The set could not be read, and is empty.
    Unknown,
}

/// A set, and where it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Sourced<T> {
    /// The set that was read.
    pub set: T,
    /// The source of the set.
    pub source: Source,
}

/// The machine's cpus and nodes, and which of them this thread may use.
///
/// ```
/// use corelocal::sys::topology::{FsRoot, Topology};
///
/// let topology = Topology::read(FsRoot::SYSTEM);
/// assert!(topology.nr_possible_ids() >= topology.online.set.count());
/// println!("cpus {} possible, {} online", topology.possible.set, topology.online.set);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Topology {
    /// Cpus that can ever exist while this kernel runs. Without /sys: every id up to the size of
    /// the kernel's cpu mask.
    pub possible: Sourced<CpuSet>,
    /// Cpus that run now. Without /sys: those of the affinity mask, perhaps not all.
    pub online: Sourced<CpuSet>,
    /// Cpus that are plugged in.
    pub present: Sourced<CpuSet>,
    /// NUMA nodes; their cpus are had from [`FsRoot::node_cpus`]. Unknown also where the kernel is
    /// built without NUMA: a machine of one node.
    pub nodes: Sourced<NodeSet>,
    /// Cpus this thread may run on (`sched_getaffinity(2)`).
    pub affinity: Sourced<CpuSet>,
    /// Cpus the cpuset controller leaves to this process; `None` if it is in no cpuset or that
    /// cannot be told.
    pub cgroup: Option<CgroupCpus>,
}

impl Topology {
    /// Reads everything, from `root` and from the calling thread's affinity.
    ///
    /// Never fails: what cannot be read has [`Source::Unknown`]. Uses no heap, but
    /// about 28 KiB of stack (70 KiB in a debug build): not for signal handlers.
    pub fn read(root: FsRoot<'_>) -> Topology {
        Topology::with_affinity(root, read_affinity())
    }

    fn with_affinity(root: FsRoot<'_>, affinity: Result<Affinity, Errno>) -> Topology {
        let sysfs = |file: &[u8]| {
            let path = root.path(&[b"/sys/devices/system/cpu/", file])?;
            // There is always one cpu: an empty list is a stand-in for /sys, not a fact.
            read_set(&path).filter(|set: &CpuSet| !set.is_empty())
        };
        let affinity = affinity.ok();
        let mask = affinity.map(|affinity| affinity.cpus);
        let mask_size = affinity.map(|affinity| CpuSet::first(affinity.mask_bits));
        let nodes = root.path(&[b"/sys/devices/system/node/online"]);
        Topology {
            possible: sourced(sysfs(b"possible"), mask_size),
            online: sourced(sysfs(b"online"), mask),
            present: sourced(sysfs(b"present"), None),
            nodes: sourced(nodes.and_then(|path| read_set(&path)), None),
            affinity: sourced(None, mask),
            cgroup: cgroup::read(root),
        }
    }

    /// Returns the highest possible cpu id + 1: the length of an array indexed by cpu or concurrency id.
    ///
    /// Where nothing is known it is 8192, the most that x86-64 Linux can be built for.
    pub fn nr_possible_ids(&self) -> usize {
        self.possible.set.max().map_or(CpuSet::CAPACITY, |max| max + 1)
    }

    /// Returns `true` if the possible ids have gaps, so that there are fewer cpus than ids.
    pub fn is_sparse(&self) -> bool {
        self.possible.set != CpuSet::first(self.nr_possible_ids())
    }
}

fn sourced<const WORDS: usize>(
    sysfs: Option<IdSet<WORDS>>,
    affinity: Option<IdSet<WORDS>>,
) -> Sourced<IdSet<WORDS>> {
    match (sysfs, affinity) {
        (Some(set), _) => Sourced { set, source: Source::Sysfs },
        (None, Some(set)) => Sourced { set, source: Source::Affinity },
        (None, None) => Sourced { set: IdSet::new(), source: Source::Unknown },
    }
}

/// The maximum number of parts of 512 bytes in a list.
const MOST_READS: usize = 256;

/// Returns the set that the file at `path` lists; `None` if it cannot be read or is no list.
pub(crate) fn read_set<const WORDS: usize>(path: &PathBuf) -> Option<IdSet<WORDS>> {
    let file = File::open(path).ok()?;
    let mut parser = Parser::new();
    let mut buffer = [0; 512];
    for _ in 0..MOST_READS {
        let read = file.read(&mut buffer).ok()?;
        if read == 0 {
            return parser.finish().ok();
        }
        buffer[..read].iter().try_for_each(|&byte| parser.feed(byte)).ok()?;
    }
    None
}

/// The calling thread's affinity mask, as the kernel returns it.
#[derive(Clone, Copy)]
struct Affinity {
    cpus: CpuSet,
    /// The size of the kernel's own masks, an upper bound of possible ids: the system call returns
    /// how many bytes it has copied, which its manual page mentions under "C library/kernel
    /// differences".
    mask_bits: usize,
}

/// Calls `sched_getaffinity(0, size, mask)`, see sched_getaffinity(2).
#[doc(alias = "sched_getaffinity")]
fn read_affinity() -> Result<Affinity, Errno> {
    let mut words = [0u64; CpuSet::CAPACITY / 64];
    let args = [0, size_of_val(&words), words.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the kernel writes at most the given number of bytes to `words`, which is borrowed by
    // nothing else; thread 0 means the calling thread.
    let bytes = unsafe { syscall(libc::SYS_sched_getaffinity, args) }?;
    Ok(Affinity { cpus: CpuSet::from_words(words), mask_bits: bytes * 8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: FsRoot<'static> = FsRoot::at("/nonexistent");

    #[test]
    fn without_sys_the_mask_serves() {
        let cpus = CpuSet::parse(b"2-3").unwrap();
        let topology = Topology::with_affinity(NOWHERE, Ok(Affinity { cpus, mask_bits: 64 }));
        assert_eq!(topology.nr_possible_ids(), 64);
        assert!(!topology.is_sparse());
        assert_eq!(topology.possible.source, Source::Affinity);
        assert_eq!(topology.online, Sourced { set: cpus, source: Source::Affinity });
        assert_eq!(topology.affinity, topology.online);
        assert_eq!(topology.present.source, Source::Unknown);
    }

    #[test]
    fn without_anything_the_bound_is_the_kernels() {
        let topology = Topology::with_affinity(NOWHERE, Err(Errno::EPERM));
        assert_eq!(topology.nr_possible_ids(), 8192);
        for set in [topology.possible, topology.online, topology.present, topology.affinity] {
            assert_eq!(set, Sourced { set: CpuSet::new(), source: Source::Unknown });
        }
        assert_eq!(topology.cgroup, None);
    }

    #[test]
    fn the_mask_is_at_least_as_wide_as_the_highest_allowed_cpu() {
        let affinity = read_affinity().unwrap();
        assert!(affinity.cpus.max().unwrap() < affinity.mask_bits);
        assert_eq!(affinity.mask_bits % 64, 0);
    }
}
