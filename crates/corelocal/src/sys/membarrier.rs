//! Memory barriers, and aborts of critical sections, in all running threads of this process at once.
//!
//! The cold side of an asymmetric algorithm calls these so that the hot side needs no barrier. The
//! kernel interrupts only cpus that run this process now; the others have passed a full barrier in
//! the scheduler.
//!
//! Registration is not cached here, because the kernel is the cache: it lives in the process's
//! memory descriptor, so that it survives `fork` and a second registration returns at once. A copy in
//! user space could only go stale (checkpoint and restore). A command that the kernel refuses for want of
//! registration is registered and repeated once.
//!
//! Invariant: `Ok` means that the barrier has taken place; nothing is emulated.
//!
//! Manual page: membarrier(2). Private expedited: Linux 4.14 (commit 22e4ebb97582); rseq: 5.10
//! (commit 2a36ab717e8f).

use super::errno::Errno;
use super::syscall::syscall;
use core::fmt;

/// The commands of membarrier(2), as the kernel's query reports them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Commands(u32);

impl Commands {
    /// A barrier in every thread of the machine, slow (Linux 4.3).
    pub const GLOBAL: Commands = Commands(1 << 0);
    /// A barrier in the processes registered for it (Linux 4.16).
    pub const GLOBAL_EXPEDITED: Commands = Commands(1 << 1);
    /// Registration for the former.
    pub const REGISTER_GLOBAL_EXPEDITED: Commands = Commands(1 << 2);
    /// A barrier in every thread of this process: [`private_expedited`] (Linux 4.14).
    pub const PRIVATE_EXPEDITED: Commands = Commands(1 << 3);
    /// Registration for the former: [`register_private_expedited`].
    pub const REGISTER_PRIVATE_EXPEDITED: Commands = Commands(1 << 4);
    /// The same with a serialised instruction stream, for code that was just written (Linux 4.16).
    pub const PRIVATE_EXPEDITED_SYNC_CORE: Commands = Commands(1 << 5);
    /// Registration for the former.
    pub const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: Commands = Commands(1 << 6);
    /// The end of every critical section: [`private_expedited_rseq`] (Linux 5.10).
    pub const PRIVATE_EXPEDITED_RSEQ: Commands = Commands(1 << 7);
    /// Registration for the former: [`register_private_expedited_rseq`].
    pub const REGISTER_PRIVATE_EXPEDITED_RSEQ: Commands = Commands(1 << 8);
    /// The query of what is registered (Linux 6.3).
    pub const GET_REGISTRATIONS: Commands = Commands(1 << 9);

    const NAMES: [(Commands, &'static str); 10] = [
        (Commands::GLOBAL, "global"),
        (Commands::GLOBAL_EXPEDITED, "global-expedited"),
        (Commands::REGISTER_GLOBAL_EXPEDITED, "register-global-expedited"),
        (Commands::PRIVATE_EXPEDITED, "private-expedited"),
        (Commands::REGISTER_PRIVATE_EXPEDITED, "register-private-expedited"),
        (Commands::PRIVATE_EXPEDITED_SYNC_CORE, "private-expedited-sync-core"),
        (Commands::REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, "register-private-expedited-sync-core"),
        (Commands::PRIVATE_EXPEDITED_RSEQ, "private-expedited-rseq"),
        (Commands::REGISTER_PRIVATE_EXPEDITED_RSEQ, "register-private-expedited-rseq"),
        (Commands::GET_REGISTRATIONS, "get-registrations"),
    ];

    /// Returns the mask as the kernel has it.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns `true` if all of `others` are among these.
    pub const fn contains(self, others: Commands) -> bool {
        self.0 & others.0 == others.0
    }
}

/// The names, separated by blanks; bits without a name as a hexadecimal number.
impl fmt::Display for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unnamed = self.0;
        let mut separator = "";
        for (command, name) in Commands::NAMES {
            if self.contains(command) {
                write!(f, "{separator}{name}")?;
                separator = " ";
                unnamed &= !command.0;
            }
        }
        if unnamed != 0 {
            write!(f, "{separator}{unnamed:#x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commands({self})")
    }
}

/// Calls `membarrier(MEMBARRIER_CMD_QUERY, 0, 0)`, see membarrier(2).
///
/// The commands this kernel has.
///
/// Kernels without commit 809232619f5b (Linux 5.17 and its stable releases have it) leave the rseq
/// commands out although they have them: [`register_private_expedited_rseq`] tells for certain.
///
/// # Errors
/// `ENOSYS` before Linux 4.3, on cpus reserved by `nohz_full`, or under a seccomp filter; `EPERM`
/// under another.
#[doc(alias = "MEMBARRIER_CMD_QUERY")]
pub fn query() -> Result<Commands, Errno> {
    membarrier(0, 0, 0).map(|mask| Commands(mask as u32))
}

/// Calls `membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)`, see membarrier(2).
///
/// Makes the process's first [`private_expedited`] cheap. It may take milliseconds when other
/// threads run, so call it before it matters; a repetition costs one system call.
///
/// # Errors
/// `EINVAL` or `ENOSYS` where the kernel has no such command; `EPERM` under a seccomp filter.
#[doc(alias = "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED")]
pub fn register_private_expedited() -> Result<(), Errno> {
    membarrier(Commands::REGISTER_PRIVATE_EXPEDITED.0, 0, 0).map(drop)
}

/// Calls `membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0)`, see membarrier(2).
///
/// Makes the process's first [`private_expedited_rseq`] cheap; see [`register_private_expedited`].
///
/// # Errors
/// As for [`register_private_expedited`].
#[doc(alias = "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ")]
pub fn register_private_expedited_rseq() -> Result<(), Errno> {
    membarrier(Commands::REGISTER_PRIVATE_EXPEDITED_RSEQ.0, 0, 0).map(drop)
}

/// Calls `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)`, see membarrier(2).
///
/// Every thread of this process passes a full memory barrier between the call and its return.
///
/// It orders what this thread does before and after against plain, compiler-ordered accesses of the
/// others, each of which needs only a compiler fence.
///
/// # Errors
/// `EINVAL` before Linux 4.14; `ENOSYS` or `EPERM` under a seccomp filter.
#[doc(alias = "MEMBARRIER_CMD_PRIVATE_EXPEDITED")]
pub fn private_expedited() -> Result<(), Errno> {
    registered(register_private_expedited, || {
        membarrier(Commands::PRIVATE_EXPEDITED.0, 0, 0).map(drop)
    })
}

/// Calls `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0)`, see membarrier(2).
///
/// Ends every critical section that another thread of this process is in at the call: by the return
/// it has committed or was aborted. The caller's own thread, not in a section, is passed over.
///
/// Sections indexed by concurrency id need this form: an id is not a cpu.
///
/// # Errors
/// `EINVAL` before Linux 5.10 or where the kernel has no rseq; `ENOSYS` or `EPERM` under a seccomp
/// filter.
#[doc(alias = "MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ")]
pub fn private_expedited_rseq() -> Result<(), Errno> {
    registered(register_private_expedited_rseq, || {
        membarrier(Commands::PRIVATE_EXPEDITED_RSEQ.0, 0, 0).map(drop)
    })
}

/// Calls `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU, cpu)`, see membarrier(2).
///
/// [`private_expedited_rseq`] for the thread that runs on `cpu`, for sections indexed by cpu. A cpu
/// that is offline or does not exist runs nothing: `Ok`.
///
/// # Errors
/// As for [`private_expedited_rseq`].
#[doc(alias = "MEMBARRIER_CMD_FLAG_CPU")]
pub fn private_expedited_rseq_on(cpu: u32) -> Result<(), Errno> {
    let flag_cpu = 1;
    registered(register_private_expedited_rseq, || {
        membarrier(Commands::PRIVATE_EXPEDITED_RSEQ.0, flag_cpu, cpu).map(drop)
    })
}

/// Runs `command`; if the kernel wants a registration first (`EPERM`), registers and repeats it.
fn registered(
    register: fn() -> Result<(), Errno>,
    command: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match command() {
        Err(Errno::EPERM) => register().and_then(|()| command()),
        result => result,
    }
}

/// Calls `membarrier(command, flags, cpu)`, see membarrier(2).
fn membarrier(command: u32, flags: u32, cpu: u32) -> Result<usize, Errno> {
    let args = [command as usize, flags as usize, cpu as usize, 0, 0, 0];
    // SAFETY: no argument is an address.
    unsafe { syscall(libc::SYS_membarrier, args) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::string::ToString;

    #[test]
    fn names() {
        assert_eq!(Commands(0).to_string(), "");
        assert_eq!(
            Commands(1 << 3 | 1 << 4).to_string(),
            "private-expedited register-private-expedited"
        );
        assert_eq!(Commands(1 | 1 << 20).to_string(), "global 0x100000");
        assert!(Commands(0b11).contains(Commands::GLOBAL));
        assert!(!Commands(0b10).contains(Commands(0b11)));
    }

    #[test]
    fn a_refusal_is_repeated_once() {
        let calls = Cell::new(0);
        let refuse = |times: u32| {
            calls.set(0);
            registered(
                || Ok(()),
                || {
                    calls.set(calls.get() + 1);
                    if calls.get() <= times { Err(Errno::EPERM) } else { Ok(()) }
                },
            )
        };
        assert_eq!((refuse(0), calls.get()), (Ok(()), 1));
        assert_eq!((refuse(1), calls.get()), (Ok(()), 2));
        assert_eq!((refuse(9), calls.get()), (Err(Errno::EPERM), 2));
        assert_eq!(registered(|| Err(Errno::ENOSYS), || Err(Errno::EPERM)), Err(Errno::ENOSYS));
    }
}
