//! The registration of a thread: its owner and size, or why there is none.

use core::fmt;

use super::{
    LIBC, OWN_LEN, STATE, V1_LEN, area, field, kernel_offer, libc_area, read, register_this_thread,
};
use crate::primitive::global::Ordering;
use crate::sys::errno::Errno;

/// The owner of the calling thread's registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Owner {
    /// The C library, at thread creation.
    Libc,
    /// This library, at the thread's first use of it.
    Corelocal,
    /// There is no registration: [`Registration::refusal`] says why.
    Nobody,
}

/// The reason why a thread has no registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Refusal {
    /// `CORELOCAL_RSEQ=off` is in the environment.
    Disabled,
    /// This library has no critical sections for this processor.
    Architecture,
    /// This kernel goes on with a section after a preemption, or may: arm64's 6.19, and 7.0 before 7.0.14, unless a trial
    /// shows that it does not.
    BrokenKernel,
    /// The system call failed: ENOSYS from a kernel without it, valgrind or gVisor, EPERM or
    /// ENOSYS from a seccomp filter, EINVAL or EBUSY when another library registered the thread.
    Kernel(Errno),
    /// libc uses rseq, but this thread's registration was refused when it was created.
    LibcThread,
    /// The caller is a vfork child, which borrows its parent's memory.
    Vfork,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Disabled => f.write_str("switched off by CORELOCAL_RSEQ=off"),
            Refusal::Architecture => f.write_str("no critical sections for this processor yet"),
            Refusal::BrokenKernel => {
                f.write_str("this kernel does not abort sections at each preemption")
            }
            Refusal::Kernel(errno) => write!(f, "rseq(2) failed: {errno}"),
            Refusal::LibcThread => f.write_str("libc could not register this thread"),
            Refusal::Vfork => f.write_str("a vfork child runs in its parent's memory"),
        }
    }
}

impl core::error::Error for Refusal {}

/// The revision of the registration's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Abi {
    /// 32 bytes: ids are rewritten at every return from preemption.
    V1,
    /// More than 32 bytes, Linux 7.x: ids are rewritten only when they change, read-only fields
    /// are policed, time slices can be extended.
    V2,
}

/// The calling thread's registration, and the features that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Registration {
    /// The code that registered the thread.
    pub owner: Owner,
    /// The reason why there is no registration.
    pub refusal: Option<Refusal>,
    /// The length of the area that was registered; 0 without a registration.
    pub len: u32,
    /// Bytes the kernel knows (`AT_RSEQ_FEATURE_SIZE`); 0 before Linux 6.3.
    pub feature_size: u32,
    /// Alignment the kernel asks for (`AT_RSEQ_ALIGN`); 0 before Linux 6.3.
    pub align: u32,
    /// Offset of the area in use from the thread pointer; `None` without a registration.
    pub offset: Option<isize>,
    /// libc's `__rseq_size`, where libc has one: 0 when it did not register.
    pub libc_size: Option<u32>,
    /// The rules that the registration follows; `None` without one.
    pub abi: Option<Abi>,
    /// `node_id` is published (6.3).
    pub node_id: bool,
    /// `mm_cid` is published (6.3).
    pub mm_cid: bool,
    /// The kernel offers the time-slice extension to this thread (7.x).
    pub slice_available: bool,
    /// It is switched on for this thread.
    pub slice_enabled: bool,
}

impl Registration {
    /// Returns the calling thread's, made now if it can be.
    pub fn of_this_thread() -> Registration {
        let refusal = register_this_thread().err();
        let libc = libc_area();
        let (feature_size, align) = kernel_offer();
        let owner = match (refusal, STATE.load(Ordering::Relaxed)) {
            (Some(_), _) => Owner::Nobody,
            (None, LIBC) => Owner::Libc,
            (None, _) => Owner::Corelocal,
        };
        let len = match owner {
            Owner::Nobody => 0,
            // glibc tells 20 or the feature size for a registration of 32 bytes.
            Owner::Libc => libc.map_or(0, |area| area.size.max(V1_LEN)),
            Owner::Corelocal => OWN_LEN.load(Ordering::Relaxed),
        };
        let flags = match owner {
            Owner::Nobody => 0,
            // SAFETY: a field of the area in use.
            _ => unsafe { read(area() + field::FLAGS) },
        };
        let published = feature_size.min(len);
        Registration {
            owner,
            refusal,
            len,
            feature_size,
            align,
            offset: (owner != Owner::Nobody).then(area),
            libc_size: libc.map(|area| area.size),
            abi: (len > 0).then_some(if len > V1_LEN { Abi::V2 } else { Abi::V1 }),
            node_id: published >= 24,
            mm_cid: published >= 28,
            slice_available: flags & (1 << 4) != 0,
            slice_enabled: flags & (1 << 5) != 0,
        }
    }
}
