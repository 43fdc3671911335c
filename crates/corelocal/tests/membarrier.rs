//! membarrier as this kernel has it, and refused.

mod forked;
mod sandbox;

use corelocal::sys::{Errno, membarrier};
use membarrier::Commands;
use sandbox::{When, run_refusing, skip};

fn commands_or_skip(test: &str, needed: Commands) -> Option<Commands> {
    match membarrier::query() {
        Ok(commands) if commands.contains(needed) => Some(commands),
        Ok(commands) => {
            skip(test, &format!("this kernel has no {needed}, only: {commands}"));
            None
        }
        Err(errno) => {
            skip(test, &format!("{errno}"));
            None
        }
    }
}

#[test]
fn private_expedited_registers_itself() {
    let needed = Commands::PRIVATE_EXPEDITED;
    if commands_or_skip("private_expedited_registers_itself", needed).is_none() {
        return;
    }
    assert_eq!(membarrier::private_expedited(), Ok(()));
    assert_eq!(membarrier::register_private_expedited(), Ok(()));
    assert_eq!(membarrier::register_private_expedited(), Ok(()));
    assert_eq!(membarrier::private_expedited(), Ok(()));
}

#[test]
fn rseq_barriers_for_all_cpus_and_for_one() {
    // The query is no guide: some kernels have the commands and leave them out.
    if let Err(errno) = membarrier::register_private_expedited_rseq() {
        assert!(
            !membarrier::query().is_ok_and(|has| has.contains(Commands::PRIVATE_EXPEDITED_RSEQ))
        );
        return skip("rseq_barriers_for_all_cpus_and_for_one", &errno.to_string());
    }
    assert_eq!(membarrier::private_expedited_rseq_on(0), Ok(()));
    assert_eq!(membarrier::private_expedited_rseq(), Ok(()));
    assert_eq!(membarrier::register_private_expedited_rseq(), Ok(()));
    // No such cpu: nothing runs there.
    assert_eq!(membarrier::private_expedited_rseq_on(1 << 20), Ok(()));
}

/// The registration is the process's and survives fork; the child's first barrier needs no other.
#[test]
fn registration_survives_fork() {
    let needed = Commands::PRIVATE_EXPEDITED;
    if commands_or_skip("registration_survives_fork", needed).is_none() {
        return;
    }
    membarrier::register_private_expedited().unwrap();
    let command = needed.bits();
    let child = forked::fork(|| {
        // SAFETY: numbers.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) as i32 }
    });
    child.succeeds();
}

fn everything_gives(errno: Errno) {
    assert_eq!(membarrier::query(), Err(errno));
    assert_eq!(membarrier::register_private_expedited(), Err(errno));
    assert_eq!(membarrier::private_expedited(), Err(errno));
    assert_eq!(membarrier::private_expedited_rseq(), Err(errno));
    assert_eq!(membarrier::private_expedited_rseq_on(0), Err(errno));
}

#[test]
fn refused_with_eperm() {
    run_refusing("refused_with_eperm", libc::SYS_membarrier, When::Always, libc::EPERM, || {
        everything_gives(Errno::EPERM);
    });
}

#[test]
fn refused_with_enosys() {
    run_refusing("refused_with_enosys", libc::SYS_membarrier, When::Always, libc::ENOSYS, || {
        everything_gives(Errno::ENOSYS);
    });
}
