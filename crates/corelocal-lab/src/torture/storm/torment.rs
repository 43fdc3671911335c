//! The disturbances of a storm: signals, migrations, and slots that are taken away.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use corelocal::cid::{self, Cid, NodeCid, Revocable};
use corelocal::percpu;

use super::{Random, Shared, objects};
use crate::torture::confine;

/// Disturbs random threads until the storm ends.
pub fn torment(shared: &Shared, cpus: &[usize], mut random: Random) {
    // SAFETY: no arguments.
    let process = unsafe { libc::getpid() };
    while !shared.done.load(Ordering::Relaxed) {
        let seat = random.below(shared.threads.len() as u64) as usize;
        let thread = shared.threads[seat].load(Ordering::Relaxed);
        if thread == 0 {
            thread::yield_now();
            continue;
        }
        match random.below(32) {
            0..14 => {
                // SAFETY: no addresses. For a thread that has ended the result is ESRCH. If its id belongs to another
                // thread of this process by now, that one handles the signal.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, objects::SIGNAL) };
            }
            14..24 => {
                let cpu = cpus[random.below(cpus.len() as u64) as usize];
                confine(thread, &[cpu]);
                shared.moves.fetch_add(1, Ordering::Relaxed);
            }
            24..27 => confine(thread, cpus),
            27..30 => freeze::<Cid>(shared, &mut random),
            30 => freeze::<NodeCid>(shared, &mut random),
            _ => take_back(shared, &mut random),
        }
        // A pause, so that most signals hit a working thread and not the previous handler.
        thread::sleep(Duration::from_micros(random.below(60)));
    }
}

/// Takes a slot away from its id for a moment.
fn freeze<I: Revocable>(shared: &Shared, random: &mut Random) {
    let slot = random.below(u64::from(cid::high_water::<I>()).max(1)) as u32;
    // Another thread may have it frozen, or the fence may be refused.
    if let Ok(_frozen) = cid::freeze_of::<I>(slot) {
        shared.freezes.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_micros(random.below(100)));
    }
}

/// Takes all slots away, so that ids get the lowest ones again; sometimes only the spare ones, with their memory.
fn take_back(shared: &Shared, random: &mut Random) {
    let done = match random.below(8) {
        0 | 1 => percpu::trim().is_ok(),
        2 | 3 => cid::compact_of::<NodeCid>().is_ok(),
        _ => cid::compact().is_ok(),
    };
    if done {
        shared.compactions.fetch_add(1, Ordering::Relaxed);
    }
}
