//! Out of memory: the caller of this program sets the limit. Every request returns memory or a null pointer with
//! `ENOMEM`, existing memory stays as it is, and freed memory can be allocated again.
//!
//! Invariants:
//! 1. At most the limit is allocated, so a malloc that ignores it does no harm.
//! 2. Lists are linked through the objects themselves: no other memory is needed while there is none.

use std::ffi::c_void;
use std::ptr;

use crate::Outcome;
use crate::api::{self, errno, set_errno};
use crate::object::{Object, Random};

/// Takes memory of a size; null if there is none.
type Take = fn(usize) -> *mut c_void;

/// Every name that gives memory.
const NAMES: &[(&str, Take)] = &[
    ("malloc", malloc),
    ("calloc", calloc),
    ("realloc", realloc),
    ("grown", grown),
    ("aligned_alloc", aligned_alloc),
    ("posix_memalign", posix_memalign),
    ("reallocarray", reallocarray),
];

fn malloc(size: usize) -> *mut c_void {
    // SAFETY: takes a number.
    unsafe { libc::malloc(size) }
}

fn calloc(size: usize) -> *mut c_void {
    // SAFETY: takes numbers.
    unsafe { libc::calloc(1, size) }
}

fn realloc(size: usize) -> *mut c_void {
    // SAFETY: of nothing.
    unsafe { libc::realloc(ptr::null_mut(), size) }
}

/// In two steps, of which the second may fail.
fn grown(size: usize) -> *mut c_void {
    let first = malloc(size / 2 + 1);
    if first.is_null() {
        return first;
    }
    // SAFETY: just taken, and replaced or given back.
    unsafe {
        let grown = libc::realloc(first, size);
        if grown.is_null() {
            let why = errno();
            libc::free(first);
            set_errno(why);
        }
        grown
    }
}

fn aligned_alloc(size: usize) -> *mut c_void {
    // SAFETY: takes numbers, the first a power of two.
    unsafe { libc::aligned_alloc(64, size.next_multiple_of(64)) }
}

/// Its error is what it returns; here it becomes `errno`, as for the others.
fn posix_memalign(size: usize) -> *mut c_void {
    let mut at = ptr::null_mut();
    // SAFETY: the place is valid for writes; the alignment is a power of two.
    let code = unsafe { libc::posix_memalign(&mut at, 4096, size) };
    if code != 0 {
        set_errno(code);
        return ptr::null_mut();
    }
    at
}

fn reallocarray(size: usize) -> *mut c_void {
    type Call = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
    // SAFETY: of this type in C; of nothing.
    unsafe {
        match api::function::<Call>("reallocarray") {
            Some(call) => call(ptr::null_mut(), size, 1),
            None => libc::malloc(size),
        }
    }
}

/// Takes objects of a size under one name until there are no more, below `limit` bytes.
pub fn fill(words: &[String], size: u64, limit: u64) -> Outcome {
    let name = words.first().map_or("", String::as_str);
    let found = NAMES.iter().find(|(known, _)| *known == name);
    let (_, take) = found.ok_or_else(|| format!("no name `{name}`"))?;
    let (size, limit) = (size as usize, limit as usize);
    let (first, list) = all_there_are(*take, size, limit)?;
    given_back(list, size)?;
    let (second, list) = all_there_are(*take, size, limit)?;
    if second < first / 2 {
        return Err(format!(
            "{first} objects of {size} bytes at first, {second} when they were given back"
        ));
    }
    given_back(list, size)?;
    // What one size had is not lost to the others.
    let other = if size > 4096 { 128 } else { 20_000 };
    let (others, list) = all_there_are(malloc, other, limit)?;
    if others * other < first * size / 4 {
        return Err(format!(
            "{first} objects of {size} bytes were given back, and {others} of {other} can be had"
        ));
    }
    given_back(list, other)?;
    Ok(format!("{first} objects, {second} again, {others} of {other} bytes"))
}

/// Until there are no more: how many, and the list of them.
fn all_there_are(take: Take, size: usize, limit: usize) -> Result<(usize, *mut c_void), String> {
    let (mut count, mut list) = (0, ptr::null_mut());
    loop {
        set_errno(0);
        let at = take(size);
        if at.is_null() {
            return match errno() {
                libc::ENOMEM if count > 0 => Ok((count, list)),
                libc::ENOMEM => Err(format!("not a single object of {size} bytes")),
                other => Err(format!("no memory, but errno {other}")),
            };
        }
        // SAFETY: just taken, with room for a word and the content behind it.
        unsafe { at.cast::<*mut c_void>().write(list) };
        Object::fill(at.wrapping_byte_add(8), size - 8, size as u64);
        (count, list) = (count + 1, at);
        if count * size > limit {
            return Err(format!(
                "{count} objects of {size} bytes, where the limit is {limit} in all"
            ));
        }
    }
}

fn given_back(mut list: *mut c_void, size: usize) -> Result<(), String> {
    while !list.is_null() {
        let content =
            Object { at: list.wrapping_byte_add(8).cast(), size: size - 8, seed: size as u64 };
        content.check(size - 8)?;
        // SAFETY: a list that `all_there_are` made, of which this is the first.
        unsafe {
            let next = list.cast::<*mut c_void>().read();
            libc::free(list);
            list = next;
        }
    }
    Ok(())
}

/// Returns a script that goes on when it gets nothing: so each call meets the end of memory somewhere.
pub fn shortage(seed: u64, operations: u64) -> Outcome {
    const SLOTS: usize = 2000;
    let mut random = Random::new(seed);
    let mut slots = [Object::NONE; SLOTS];
    let (mut had, mut refused) = (0_u64, 0_u64);
    for _ in 0..operations {
        let slot = &mut slots[random.below(SLOTS as u64) as usize];
        slot.check(slot.size)?;
        let size = random.size() + 8;
        set_errno(0);
        let grows = random.below(3) == 0;
        let at = if grows {
            // SAFETY: taken before, or null; it stays where there is no more.
            unsafe { libc::realloc(slot.at.cast(), size) }
        } else {
            // SAFETY: taken before, or null.
            unsafe { libc::free(slot.at.cast()) };
            *slot = Object::NONE;
            set_errno(0);
            NAMES[random.below(NAMES.len() as u64) as usize].1(size)
        };
        if at.is_null() {
            refused += 1;
            if errno() != libc::ENOMEM {
                return Err(format!("no {size} bytes, but errno {}", errno()));
            }
            // What was there is as it was.
            slot.check(slot.size)?;
            continue;
        }
        had += 1;
        if grows {
            Object { at: at.cast(), ..*slot }.check(size)?;
        }
        *slot = Object::fill(at, size, random.next());
    }
    for slot in slots {
        slot.check(slot.size)?;
        // SAFETY: taken before, or null.
        unsafe { libc::free(slot.at.cast()) };
    }
    Ok(format!("had {had} refused {refused}"))
}
