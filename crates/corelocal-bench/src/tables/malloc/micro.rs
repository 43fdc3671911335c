//! Small loads: one pattern each, so that a figure has one cause.
//!
//! Invariant: each gives back all that it took.

use super::did::Did;
use super::heap::{Piece, Random, give, resize, take, take_aligned, take_zeroed, together};

/// Returns one piece, taken and given back at once.
pub fn pair(size: usize, times: u64) -> Did {
    let wall = together(1, |_| {
        for _ in 0..times {
            // SAFETY: taken here.
            unsafe { give(take(size)) };
        }
    });
    Did::alone(times, wall)
}

/// Returns the same with sizes that vary.
pub fn pair_mixed(times: u64) -> Did {
    let mut random = Random::new(1);
    let sizes: Vec<usize> = (0..1024).map(|_| random.size(16, 6)).collect();
    let wall = together(1, |_| {
        for nth in 0..times {
            // SAFETY: taken here.
            unsafe { give(take(sizes[nth as usize % 1024])) };
        }
    });
    Did::alone(times, wall)
}

/// Takes many out, then all of them in, in the same order.
pub fn out_then_in(count: usize, times: u64) -> Did {
    let wall = together(1, |_| {
        let mut out = Vec::with_capacity(count);
        for _ in 0..times / count as u64 {
            out.extend((0..count).map(|_| take(64)));
            for piece in out.drain(..) {
                // SAFETY: taken above.
                unsafe { give(piece) };
            }
        }
    });
    Did::alone(times / count as u64 * count as u64, wall)
}

/// Takes zeroed memory.
pub fn zeroed(times: u64) -> Did {
    let wall = together(1, |_| {
        for _ in 0..times {
            // SAFETY: taken here.
            unsafe { give(take_zeroed(256)) };
        }
    });
    Did::alone(times, wall)
}

/// Takes aligned memory.
pub fn aligned(times: u64) -> Did {
    let wall = together(1, |_| {
        for _ in 0..times {
            // SAFETY: taken here.
            unsafe { give(take_aligned(64, 256)) };
        }
    });
    Did::alone(times, wall)
}

/// Returns a buffer that grows by 64 bytes at a time, up to 4 KiB.
pub fn growing(times: u64) -> Did {
    let wall = together(1, |_| {
        let mut piece = take(64);
        for nth in 1..=times {
            let size = 64 + nth as usize % 64 * 64;
            if size == 64 {
                // SAFETY: taken here, and replaced.
                unsafe { give(piece) };
                piece = take(64);
            } else {
                // SAFETY: taken here, and replaced.
                piece = unsafe { resize(piece, size) };
            }
        }
        // SAFETY: taken here.
        unsafe { give(piece) };
    });
    Did::alone(times, wall)
}

/// Keeps so many live pieces, of which a random one is replaced again and again. Each thread has its own.
pub fn churn(threads: usize, live: usize, doublings: u32, times: u64) -> Did {
    let each = times / threads as u64;
    let slots: Vec<Vec<Piece>> = (0..threads)
        .map(|nth| {
            let mut random = Random::new(nth as u64);
            (0..live).map(|_| take(random.size(16, doublings))).collect()
        })
        .collect();
    let slots = std::sync::Mutex::new(slots);
    let wall = together(threads, |nth| {
        let mut random = Random::new(100 + nth as u64);
        let own = slots.lock().ok().and_then(|mut slots| slots.pop());
        let mut own = own.expect("each thread has one");
        for _ in 0..each {
            let slot = &mut own[random.below(live)];
            // SAFETY: taken before, and replaced.
            unsafe { give(*slot) };
            *slot = take(random.size(16, doublings));
        }
        // Not part of the load, but at most a hundredth of it where times are long; and the memory must be freed.
        if let Ok(mut slots) = slots.lock() {
            slots.insert(0, own);
        }
    });
    for piece in slots.into_inner().unwrap_or_default().into_iter().flatten() {
        // SAFETY: taken above, each once.
        unsafe { give(piece) };
    }
    Did::on(threads, each * threads as u64, wall)
}

/// Returns the threads that take a hundred and give them back.
pub fn batches(threads: usize, times: u64) -> Did {
    const BATCH: usize = 100;
    let rounds = times / (threads * BATCH) as u64;
    let wall = together(threads, |_| {
        let mut out = [Piece::NONE; BATCH];
        for _ in 0..rounds {
            out.fill_with(|| take(64));
            for piece in out {
                // SAFETY: taken above.
                unsafe { give(piece) };
            }
        }
    });
    Did::on(threads, rounds * (threads * BATCH) as u64, wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted() {
        assert_eq!(pair(16, 10).ops, 10);
        assert_eq!(pair_mixed(2000).ops, 2000);
        assert_eq!(out_then_in(100, 1050).ops, 1000);
        assert_eq!((zeroed(7).ops, aligned(7).ops, growing(200).ops), (7, 7, 200));
        let did = churn(3, 10, 3, 100);
        assert_eq!((did.ops, did.threads), (99, 3));
        assert_eq!(batches(2, 1000).ops, 1000);
    }
}
