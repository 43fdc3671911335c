//! Common code of the malloc tables' loads: allocation and deallocation through the C names, so that the preloaded
//! malloc is used; random numbers; threads that begin together.
//!
//! Invariants:
//! 1. A pointer from `take` or its variants is freed once, by `give`.
//! 2. Memory is written to, by a volatile store, so that the compiler cannot remove the allocation.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Memory of the malloc that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece(*mut u8);

// SAFETY: any thread that has the pointer may use the memory; it is freed once (invariant 1).
unsafe impl Send for Piece {}
// SAFETY: any thread that has the pointer may use the memory; a shared piece is only copied.
unsafe impl Sync for Piece {}

impl Piece {
    /// The piece that stands for none.
    pub const NONE: Piece = Piece(std::ptr::null_mut());

    /// Returns it as a number, for shared words.
    pub fn into_word(self) -> *mut u8 {
        self.0
    }

    /// Converts back from [`into_word`](Self::into_word).
    pub fn from_word(word: *mut u8) -> Self {
        Piece(word)
    }

    /// Returns `true` if there is any memory.
    pub fn is_some(self) -> bool {
        !self.0.is_null()
    }

    /// Writes `value` into the first word.
    ///
    /// # Safety
    /// - The piece has 8 bytes, and is not shared.
    pub unsafe fn mark(self, value: u64) {
        // SAFETY: by the contract; malloc aligns to 8 bytes at least.
        unsafe { self.0.cast::<u64>().write_volatile(value) };
    }

    /// Returns the first word.
    ///
    /// # Safety
    /// - The piece has 8 initialised bytes, and no thread writes to it.
    pub unsafe fn marked(self) -> u64 {
        // SAFETY: by the contract.
        unsafe { self.0.cast::<u64>().read_volatile() }
    }

    /// Touches every page of its `size` bytes.
    ///
    /// # Safety
    /// - The piece has `size` bytes, and is not shared.
    pub unsafe fn touch(self, size: usize) {
        for at in (0..size).step_by(4096) {
            // SAFETY: within the piece, by the contract.
            unsafe { self.0.add(at).write_volatile(1) };
        }
    }

    #[inline(always)]
    fn new(pointer: *mut libc::c_void) -> Self {
        let pointer = pointer.cast::<u8>();
        assert!(!pointer.is_null(), "the malloc returned null");
        // SAFETY: the piece has a byte: nothing here is asked for with size 0.
        unsafe { pointer.write_volatile(1) };
        Piece(pointer)
    }
}

/// Calls `malloc`.
#[inline(always)]
pub fn take(size: usize) -> Piece {
    // SAFETY: takes a number.
    Piece::new(unsafe { libc::malloc(size) })
}

/// Calls `calloc` of single bytes. One in the middle is looked at.
#[inline(always)]
pub fn take_zeroed(size: usize) -> Piece {
    // SAFETY: takes numbers.
    let pointer = unsafe { libc::calloc(1, size) };
    if !pointer.is_null() {
        // SAFETY: within the piece, which calloc has set to zero.
        let byte = unsafe { pointer.cast::<u8>().add(size / 2).read_volatile() };
        assert_eq!(byte, 0, "calloc returned memory that is not zero");
    }
    Piece::new(pointer)
}

/// Calls `aligned_alloc`.
#[inline(always)]
pub fn take_aligned(align: usize, size: usize) -> Piece {
    // SAFETY: takes numbers.
    Piece::new(unsafe { libc::aligned_alloc(align, size) })
}

/// Calls `realloc`.
///
/// # Safety
/// - The piece is there, and is gone afterwards.
#[inline(always)]
pub unsafe fn resize(piece: Piece, size: usize) -> Piece {
    // SAFETY: by the contract.
    Piece::new(unsafe { libc::realloc(piece.0.cast(), size) })
}

/// Calls `free`.
///
/// # Safety
/// - The piece is there, or [`Piece::NONE`]; it is gone afterwards.
#[inline(always)]
pub unsafe fn give(piece: Piece) {
    // SAFETY: by the contract.
    unsafe { libc::free(piece.0.cast()) };
}

/// Random numbers: xorshift64*.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the same ones for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next one.
    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Returns one below `limit`, which is not 0.
    #[inline(always)]
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// From `smallest`, a power of two, up to so many doublings above it, each doubling as likely as the
    /// others: most are small, as in programs.
    #[inline(always)]
    pub fn size(&mut self, smallest: usize, doublings: u32) -> usize {
        let bits = self.next();
        let base = smallest << ((bits as u32 & 0xffff) % doublings);
        base + (bits >> 16) as usize % base
    }
}

/// Returns the time from the first beginning to the last end of `work`, on so many threads that begin together.
pub fn together(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    if threads == 1 {
        let begin = Instant::now();
        work(0);
        return begin.elapsed();
    }
    let gate = Barrier::new(threads);
    let times: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let (gate, work) = (&gate, &work);
        let start = |nth| {
            scope.spawn(move || {
                gate.wait();
                let begin = Instant::now();
                work(nth);
                (begin, Instant::now())
            })
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended.map(|times| times.expect("no load panics but for a fault")).collect()
    });
    let first = times.iter().map(|times| times.0).min();
    let last = times.iter().map(|times| times.1).max();
    last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn sizes_are_within_their_bounds() {
        let mut random = Random::new(7);
        let sizes: Vec<usize> = (0..100_000).map(|_| random.size(16, 6)).collect();
        assert!(sizes.iter().all(|size| (16..1024).contains(size)));
        for doubling in 0..6 {
            let from = 16 << doubling;
            let share = sizes.iter().filter(|size| (from..2 * from).contains(*size)).count();
            assert!((10_000..25_000).contains(&share), "{share} from {from}");
        }
    }

    #[test]
    fn pieces() {
        let piece = take(64);
        // SAFETY: the piece has 64 bytes, of this thread alone, until it is given back.
        unsafe {
            piece.mark(42 << 8);
            let grown = resize(piece, 10_000);
            assert_eq!(grown.marked() >> 8, 42, "only the first byte is written to");
            grown.touch(10_000);
            give(grown);
            give(take_zeroed(333));
            let aligned = take_aligned(256, 512);
            assert_eq!(aligned.into_word() as usize % 256, 0);
            give(aligned);
            give(Piece::NONE);
        }
    }

    #[test]
    fn all_threads_work() {
        let count = AtomicUsize::new(0);
        for threads in [1, 5] {
            together(threads, |nth| {
                count.fetch_add(nth + 1, Ordering::Relaxed);
            });
        }
        assert_eq!(count.load(Ordering::Relaxed), 1 + 15);
    }
}
