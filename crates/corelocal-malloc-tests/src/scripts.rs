//! Random scripts of all operations on many objects, whose contents, alignments and usable sizes are
//! looked at all the time. The model is the list of objects: what is in it is there and unchanged.

use std::ffi::{c_int, c_void};

use crate::Outcome;
use crate::api;
use crate::object::{Object, Random};

/// At most so many objects, and so many bytes.
const OBJECTS: u64 = 4000;
const BYTES: usize = 192 << 20;

type Reallocarray = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
type Usable = unsafe extern "C" fn(*mut c_void) -> usize;
type Memalign = unsafe extern "C" fn(usize, usize) -> *mut c_void;

/// So many operations, the same ones for the same seed.
pub fn run(seed: u64, operations: u64) -> Outcome {
    let mut script = Script::new(seed);
    for nth in 0..operations {
        script.step().map_err(|wrong| format!("seed {seed}, operation {nth}: {wrong}"))?;
    }
    script.end().map_err(|wrong| format!("seed {seed}, at the end: {wrong}"))?;
    Ok(format!("{operations} operations"))
}

struct Script {
    random: Random,
    objects: Vec<Object>,
    bytes: usize,
    reallocarray: Option<Reallocarray>,
    usable: Option<Usable>,
    memalign: Option<Memalign>,
}

impl Script {
    fn new(seed: u64) -> Self {
        // SAFETY: these are their types in C.
        let (reallocarray, usable, memalign) = unsafe {
            (
                api::function("reallocarray"),
                api::function("malloc_usable_size"),
                api::function("memalign"),
            )
        };
        let random = Random::new(seed);
        Script { random, objects: Vec::new(), bytes: 0, reallocarray, usable, memalign }
    }

    fn step(&mut self) -> Result<(), String> {
        let is_full = self.objects.len() as u64 >= OBJECTS || self.bytes > BYTES;
        match self.random.below(12) {
            // SAFETY: takes a number.
            0..=2 if !is_full => self.add(1, |size| unsafe { libc::malloc(size) }),
            3 if !is_full => self.zeroed(),
            4 if !is_full => self.aligned(),
            5 | 6 if !self.objects.is_empty() => self.resized(),
            _ if self.objects.is_empty() => Ok(()),
            _ => self.removed(),
        }
    }

    fn add(&mut self, align: usize, take: impl FnOnce(usize) -> *mut c_void) -> Result<(), String> {
        let size = self.random.size();
        let at = take(size);
        self.keep(at, size, align)
    }

    fn keep(&mut self, at: *mut c_void, size: usize, align: usize) -> Result<(), String> {
        if at.is_null() {
            return Err(format!("nothing for {size} bytes"));
        }
        let least = if size >= 16 { 16 } else { 8 };
        if at as usize % align.max(least) != 0 {
            return Err(format!("{size} bytes at {at:p}, not aligned to {}", align.max(least)));
        }
        let mut size = size;
        if let Some(usable) = self.usable {
            // SAFETY: just taken.
            let more = unsafe { usable(at) };
            if more < size {
                return Err(format!("{more} bytes are usable of {size}"));
            }
            // All that is said to be usable is used, now and then.
            if self.random.below(4) == 0 {
                size = more;
            }
        }
        self.bytes += size;
        self.objects.push(Object::fill(at, size, self.random.next()));
        Ok(())
    }

    fn zeroed(&mut self) -> Result<(), String> {
        let (count, each) = (self.random.below(64) as usize + 1, self.random.size() / 16 + 1);
        // SAFETY: takes numbers.
        let at = unsafe { libc::calloc(count, each) };
        if !at.is_null() {
            let size = count * each;
            // SAFETY: just taken, and calloc has written to all of it.
            let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) };
            if let Some(place) = bytes.iter().position(|&byte| byte != 0) {
                return Err(format!("byte {place} of {size} from calloc is {:#x}", bytes[place]));
            }
        }
        self.keep(at, count * each, 1)
    }

    fn aligned(&mut self) -> Result<(), String> {
        let align = 8_usize << self.random.below(15);
        let kind = self.random.below(3);
        let memalign = self.memalign;
        self.add(align, |size| {
            // SAFETY: takes numbers, of which `align` is a power of two; the place is valid for writes.
            unsafe {
                match (kind, memalign) {
                    (0, Some(memalign)) => memalign(align, size),
                    (1, _) => libc::aligned_alloc(align, size.next_multiple_of(align)),
                    _ => {
                        let mut at = std::ptr::null_mut();
                        let code: c_int = libc::posix_memalign(&mut at, align, size);
                        if code == 0 { at } else { std::ptr::null_mut() }
                    }
                }
            }
        })
    }

    fn resized(&mut self) -> Result<(), String> {
        let nth = self.random.below(self.objects.len() as u64) as usize;
        let before = self.objects.swap_remove(nth);
        self.bytes -= before.size;
        before.check(before.size)?;
        // A little more or less, or anything.
        let size = match self.random.below(3) {
            0 => before.size + self.random.below(64) as usize + 1,
            1 => before.size / 2 + 1,
            _ => self.random.size().max(1),
        };
        let at = before.at.cast();
        let by_array = self.random.below(4) == 0;
        // SAFETY: taken before, and replaced.
        let at = unsafe {
            match self.reallocarray {
                Some(reallocarray) if by_array => reallocarray(at, 1, size),
                _ => libc::realloc(at, size),
            }
        };
        if at.is_null() {
            return Err(format!("no {size} bytes in the place of {}", before.size));
        }
        let moved = Object { at: at.cast(), ..before };
        // The places that were written to depend on the old size.
        moved
            .check(size.min(before.size))
            .map_err(|wrong| format!("after realloc to {size}: {wrong}"))?;
        self.keep(at, size, 1)
    }

    fn removed(&mut self) -> Result<(), String> {
        let nth = self.random.below(self.objects.len() as u64) as usize;
        let object = self.objects.swap_remove(nth);
        self.bytes -= object.size;
        give(object)
    }

    fn end(mut self) -> Result<(), String> {
        std::mem::take(&mut self.objects).into_iter().try_for_each(give)
    }
}

fn give(object: Object) -> Result<(), String> {
    object.check(object.size)?;
    // SAFETY: taken before, and forgotten.
    unsafe { libc::free(object.at.cast()) };
    Ok(())
}
