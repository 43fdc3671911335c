//! Memory with a content that tells whose it is: overlaps, losses and overwriting show when it is looked
//! at again. And random numbers.
//!
//! Invariant: an object has its content from `fill` until it is given back; `check` compares all that
//! `fill` wrote.

use std::ffi::c_void;

/// So many bytes at the beginning and at the end have content.
const ENDS: usize = 512;
/// In between, one in so many.
const STEP: usize = 509;

/// A piece of memory with content.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    pub at: *mut u8,
    pub size: usize,
    pub seed: u64,
}

impl Object {
    /// No memory.
    pub const NONE: Object = Object { at: std::ptr::null_mut(), size: 0, seed: 0 };

    /// Returns the memory of the caller's, which gets its content.
    pub fn fill(at: *mut c_void, size: usize, seed: u64) -> Self {
        let object = Object { at: at.cast(), size, seed };
        object.each(size, |place, value| {
            // SAFETY: within the memory, which is the caller's.
            unsafe { place.write_volatile(value) };
        });
        object
    }

    /// Whether the first `size` bytes have the content that they had.
    pub fn check(&self, size: usize) -> Result<(), String> {
        let mut wrong = None;
        self.each(size.min(self.size), |place, value| {
            // SAFETY: within the memory, which is the caller's.
            let found = unsafe { place.read_volatile() };
            if found != value && wrong.is_none() {
                wrong = Some((place, value, found));
            }
        });
        let Some((place, value, found)) = wrong else { return Ok(()) };
        let at = place as usize - self.at as usize;
        Err(format!(
            "an object of {} bytes at {:p} has {found:#x} in byte {at}, where {value:#x} was written",
            self.size, self.at
        ))
    }

    /// Every byte with content among the first `size`, and what it has.
    fn each(&self, size: usize, mut act: impl FnMut(*mut u8, u8)) {
        let mut at = 0;
        while at < size {
            let value = (self.seed >> (at % 8 * 8)) as u8 ^ (at / 8) as u8;
            act(self.at.wrapping_add(at), value);
            // The same bytes whatever `size` is asked for.
            at += if at < ENDS || at + ENDS >= self.size { 1 } else { STEP };
        }
    }
}

/// Random numbers: xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit.max(1)
    }

    /// Mostly small, up to 4 MiB; around powers of two more often than by chance.
    pub fn size(&mut self) -> usize {
        let doublings = match self.below(100) {
            0..=79 => 10,
            80..=96 => 16,
            _ => 22,
        };
        let base = 1_usize << self.below(doublings);
        match self.below(4) {
            0 => base - 1,
            1 => base,
            2 => base + 1,
            _ => base + self.below(base as u64) as usize,
        }
    }
}
