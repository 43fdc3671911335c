//! Scripts of what a program does with a malloc, and what must hold at every step. For `alloc.rs`, which
//! makes them up, and for `fuzz/`, which reads them from bytes.

use std::collections::BTreeMap;

use corelocal::alloc;

/// An object, filled with a pattern of its own.
pub struct Object {
    at: *mut u8,
    size: usize,
    seed: u8,
}

/// Bytes that are looked at: all of a short object, those about both ends of a long one.
pub fn looked_at(size: usize) -> impl Iterator<Item = usize> {
    let near = 300.min(size);
    (0..near).chain(size - near..size)
}

pub fn pattern(seed: u8, at: usize) -> u8 {
    seed.wrapping_add(at as u8).wrapping_mul(31)
}

impl Object {
    fn new(at: *mut u8, size: usize, seed: u8) -> Object {
        assert!(!at.is_null());
        // SAFETY: allocated by the caller, with so many bytes.
        unsafe {
            assert!(alloc::usable_size(at) >= size);
            looked_at(size).for_each(|byte| at.add(byte).write(pattern(seed, byte)));
        }
        Object { at, size, seed }
    }

    /// Its first bytes are as they were written.
    fn check(&self, size: usize) {
        for byte in looked_at(self.size).filter(|byte| *byte < size) {
            // SAFETY: so many bytes.
            let found = unsafe { self.at.add(byte).read() };
            assert_eq!(found, pattern(self.seed, byte), "byte {byte} of {}", self.size);
        }
    }

    fn free(self) {
        self.check(self.size);
        // SAFETY: ours.
        unsafe { alloc::deallocate(self.at) };
    }
}

/// What a program does. Objects are named by a number, modulo those that there are.
#[derive(Clone, Debug)]
pub enum Step {
    Allocate(usize),
    Zeroed(usize),
    /// To 2 to the power of the first.
    Aligned(u32, usize),
    Free(usize),
    Resize(usize, usize),
    Trim,
}

/// The largest size of a step.
pub const MOST: usize = 8_000_000;
/// The largest alignment, as a power of two.
#[allow(dead_code, reason = "who has scripts as bytes has that from here")]
pub const MOST_ALIGNED: u32 = 22;

/// Reads a script: four bytes are a step, so that a change of a byte is one of a step.
#[allow(dead_code, reason = "not every one who uses scripts has them as bytes")]
pub fn of_bytes(bytes: &[u8]) -> impl Iterator<Item = Step> + '_ {
    bytes.chunks_exact(4).map(|step| {
        let [what, which, low, high] = [step[0], step[1], step[2], step[3]];
        let number = usize::from(u16::from_le_bytes([low, high]));
        let size = match which % 8 {
            0..4 => number % 1024,
            4..6 => number,
            6 => number << 4,
            _ => number << 7,
        };
        let size = size.min(MOST);
        match what % 16 {
            0..5 => Step::Allocate(size),
            5 => Step::Zeroed(size),
            6 => Step::Aligned(u32::from(what) / 16 + u32::from(which) / 32, size),
            7..12 => Step::Free(number),
            12..15 => Step::Resize(usize::from(what) / 16, size),
            _ => Step::Trim,
        }
    })
}

/// Does all that; objects are apart, aligned, long enough, keep what is in them; zeroed ones are.
pub fn run(steps: impl IntoIterator<Item = Step>) {
    let mut objects: Vec<Object> = Vec::new();
    for (nth, step) in steps.into_iter().enumerate() {
        let seed = nth as u8;
        match step {
            Step::Allocate(size) => {
                let at = alloc::allocate(size);
                assert_eq!(at as usize % 16, 0);
                objects.push(Object::new(at, size, seed));
            }
            Step::Zeroed(size) => {
                let at = alloc::allocate_zeroed(size);
                assert!(!at.is_null());
                // SAFETY: so many bytes, initialised.
                let bytes = unsafe { std::slice::from_raw_parts(at, size) };
                assert!(bytes.iter().all(|byte| *byte == 0));
                objects.push(Object::new(at, size, seed));
            }
            Step::Aligned(shift, size) => {
                let at = alloc::allocate_aligned(1 << shift, size);
                assert_eq!(at as usize % (1 << shift), 0);
                objects.push(Object::new(at, size, seed));
            }
            Step::Free(which) if !objects.is_empty() => {
                objects.swap_remove(which % objects.len()).free();
            }
            Step::Resize(which, size) if !objects.is_empty() => {
                let which = which % objects.len();
                let object = &mut objects[which];
                // SAFETY: ours.
                object.at = unsafe { alloc::reallocate(object.at, size) };
                object.check(size);
                *object = Object::new(object.at, size, seed);
            }
            Step::Trim => {
                alloc::trim(0);
                alloc::release_idle();
            }
            Step::Free(_) | Step::Resize(..) => {}
        }
        let places: BTreeMap<usize, usize> =
            objects.iter().map(|object| (object.at as usize, object.size)).collect();
        assert_eq!(places.len(), objects.len());
        let apart = places.iter().zip(places.iter().skip(1));
        assert!(apart.into_iter().all(|((at, size), (next, _))| at + size <= *next));
    }
    objects.into_iter().for_each(Object::free);
}
