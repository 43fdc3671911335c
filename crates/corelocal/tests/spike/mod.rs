//! A load after which memory is idle: threads that allocate much, free all or most of it, and go on with a little.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub const MIB: usize = 1 << 20;
/// A machine may do other things for long.
pub const SOON: Duration = Duration::from_secs(60);

/// Threads after their spike; they end when this is dropped.
pub struct Spike {
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// The MiB resident while all was allocated.
    pub peak: usize,
}

/// Has so many threads allocate `mib` MiB each, in pieces of 32 to 4096 bytes, and free those of which `is_kept` is
/// false. Then each allocates and frees 20 pieces of 100 bytes, from its core's cache, after each `pause`; `None`: none.
pub fn spike(
    threads: u32,
    mib: usize,
    is_kept: fn(usize) -> bool,
    pause: Option<Duration>,
) -> Spike {
    let done = Arc::new(AtomicBool::new(false));
    let gates = Arc::new([(); 3].map(|()| Barrier::new(threads as usize + 1)));
    let work = |nth: u32| {
        let (done, gates) = (done.clone(), gates.clone());
        thread::spawn(move || {
            let (mut pieces, mut taken, mut random) = (Vec::new(), 0, nth * 7919 + 1);
            while taken < mib * MIB {
                random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
                let size = 32 + (random >> 8) as usize % 4065;
                pieces.push(vec![1_u8; size]);
                taken += size;
            }
            gates[0].wait();
            gates[1].wait();
            let pieces = pieces.into_iter().enumerate();
            let kept: Vec<_> = pieces.filter(|(nth, _)| is_kept(*nth)).collect();
            gates[2].wait();
            while !done.load(Ordering::Relaxed) {
                let calls = if pause.is_some() { 20 } else { 0 };
                (0..calls).for_each(|_| _ = black_box(vec![1_u8; 100]));
                thread::park_timeout(pause.unwrap_or(SOON));
            }
            drop(kept);
        })
    };
    let threads = (0..threads).map(work).collect();
    gates[0].wait();
    let peak = resident();
    gates[1].wait();
    gates[2].wait();
    Spike { done, threads, peak }
}

impl Spike {
    /// Waits until at most so many MiB are resident. The waiting thread allocates only to read that.
    pub fn wait_until_resident_is_at_most(&self, mib: usize) {
        let began = Instant::now();
        while resident() > mib {
            assert!(began.elapsed() < SOON, "{} of {} MiB are resident", resident(), self.peak);
            thread::sleep(Duration::from_millis(500));
        }
    }
}

impl Drop for Spike {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            _ = thread.join();
        }
    }
}

/// Returns the resident MiB of this process.
pub fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    pages.expect("a number of pages") * page / MIB
}
