//! Loads after which memory is idle while the program goes on with little: it comes back within seconds, or never.
//!
//! The first two are programs that other projects' users complain about: threads allocate much, free all of it or all
//! but a sixteenth, and go on with a few objects that caches serve. The third is a program of one thread in which one
//! block of three stays.
//!
//! Invariant: the malloc is called through [`Heap`] alone, which is libc's name for it or our library inside the
//! program.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use corelocal::alloc;
use corelocal_support::mallocs::resident::Process;
use serde::{Deserialize, Serialize};

/// The moments that are looked at, in the order of [`LOADS`].
pub const LOOKS: [&str; 3] = ["spike freed", "15/16 freed", "2/3 freed"];
/// The names of the loads.
pub const LOADS: [&str; 3] = ["spike", "spike-kept", "holes"];

/// The size of the loads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Size {
    /// The threads, and the MiB that each allocates.
    pub threads: u32,
    pub mib: usize,
    /// The time for which the program goes on before the look.
    pub wait_ms: u64,
}

pub const SIZE: Size = Size { threads: 8, mib: 64, wait_ms: 10_000 };

/// The malloc that a load calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Heap {
    /// That of the process, by its C names.
    Process,
    /// Our library inside the program, as `CoreLocal` calls it.
    Inside,
    /// The same with a background thread.
    InsideWithBackground,
}

impl Heap {
    fn begin(self) {
        if self == Heap::InsideWithBackground {
            alloc::allow_background();
        }
    }

    fn take(self, size: usize) -> *mut u8 {
        let piece = match self {
            // SAFETY: takes a number.
            Heap::Process => unsafe { libc::malloc(size) }.cast(),
            _ => alloc::allocate(size),
        };
        assert!(!piece.is_null(), "the malloc returned null");
        // SAFETY: just allocated, of this size. Volatile: the compiler leaves no allocation out.
        (0..size).step_by(64).for_each(|at| unsafe { piece.add(at).write_volatile(1) });
        piece
    }

    /// Frees a piece.
    ///
    /// # Safety
    /// - It is from `take` of this heap, and is gone afterwards.
    unsafe fn give(self, piece: *mut u8) {
        match self {
            // SAFETY: by the contract.
            Heap::Process => unsafe { libc::free(piece.cast()) },
            // SAFETY: by the contract.
            _ => unsafe { alloc::deallocate(piece) },
        }
    }
}

/// Runs a load, and returns the KiB that are resident and no file's after the wait.
///
/// # Errors
/// When the process cannot read its own memory use, or a thread panics.
pub fn run(load: &str, size: Size, heap: Heap) -> anyhow::Result<u64> {
    heap.begin();
    match load {
        "spike" => spike(size, heap, |_| false),
        "spike-kept" => spike(size, heap, |nth| nth % 16 == 0),
        "holes" => holes(size, heap),
        _ => bail!("unknown load"),
    }
}

fn look() -> anyhow::Result<u64> {
    Process::This
        .anonymous()
        .context("this process cannot read its own memory use; is /proc mounted?")
}

/// A list of a thread's pieces, in memory that is not the malloc's: it would count.
struct List {
    at: *mut *mut u8,
    len: usize,
    room: usize,
}

impl List {
    fn new(room: usize) -> anyhow::Result<List> {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(ptr::null_mut(), room * 8, access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            bail!("no memory for a list");
        }
        Ok(List { at: at.cast(), len: 0, room })
    }

    fn push(&mut self, piece: *mut u8) {
        assert!(self.len < self.room);
        // SAFETY: within the mapping.
        unsafe { self.at.add(self.len).write(piece) };
        self.len += 1;
    }

    /// Frees the pieces that are not kept.
    fn give_others(&mut self, heap: Heap, is_kept: impl Fn(usize) -> bool) {
        let mut kept = 0;
        for nth in 0..self.len {
            // SAFETY: written by `push`; each piece is given back once, or moves down.
            unsafe {
                let piece = self.at.add(nth).read();
                if is_kept(nth) {
                    self.at.add(kept).write(piece);
                    kept += 1;
                } else {
                    heap.give(piece);
                }
            }
        }
        self.len = kept;
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, of which nothing is used any more.
        unsafe { libc::munmap(self.at.cast(), self.room * 8) };
    }
}

fn spike(size: Size, heap: Heap, is_kept: fn(usize) -> bool) -> anyhow::Result<u64> {
    let gates = Arc::new([(); 2].map(|()| Barrier::new(size.threads as usize + 1)));
    let done = Arc::new(AtomicBool::new(false));
    let work = |nth: u32| {
        let (gates, done) = (gates.clone(), done.clone());
        thread::spawn(move || {
            let bytes = size.mib << 20;
            // The smallest piece has 32 bytes, the mean one 2 KiB.
            let mut pieces = List::new(bytes / 32)?;
            let (mut taken, mut random) = (0, nth * 7919 + 1);
            while taken < bytes {
                random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
                let len = 32 + (random >> 8) as usize % 4065;
                pieces.push(heap.take(len));
                taken += len;
            }
            gates[0].wait();
            pieces.give_others(heap, is_kept);
            gates[1].wait();
            while !done.load(Ordering::Relaxed) {
                // SAFETY: just allocated.
                (0..20).for_each(|_| unsafe { heap.give(heap.take(100)) });
                thread::sleep(Duration::from_millis(500));
            }
            pieces.give_others(heap, |_| false);
            anyhow::Ok(())
        })
    };
    let threads: Vec<_> = (0..size.threads).map(work).collect();
    gates[0].wait();
    gates[1].wait();
    thread::sleep(Duration::from_millis(size.wait_ms));
    let seen = look();
    done.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a thread panicked"))??;
    }
    seen
}

fn holes(size: Size, heap: Heap) -> anyhow::Result<u64> {
    const BLOCK: usize = 64 << 10;
    let count = (size.mib << 20) / BLOCK * size.threads as usize;
    let mut blocks = List::new(count)?;
    (0..count).for_each(|_| blocks.push(heap.take(BLOCK)));
    blocks.give_others(heap, |nth| nth % 3 == 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(size.wait_ms) {
        // SAFETY: just allocated.
        (0..20).for_each(|_| unsafe { heap.give(heap.take(BLOCK)) });
        thread::sleep(Duration::from_millis(10));
    }
    let seen = look();
    blocks.give_others(heap, |_| false);
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_loads_run_on_every_heap() {
        let size = Size { threads: 2, mib: 2, wait_ms: 1 };
        for heap in [Heap::Process, Heap::Inside] {
            for load in LOADS {
                assert!(run(load, size, heap).unwrap() > 0, "{load} {heap:?}");
            }
        }
        assert!(run("other", size, Heap::Process).is_err());
    }
}
