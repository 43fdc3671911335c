//! The calls of C and POSIX, each as a line of what came of it.

use std::ffi::c_void;
use std::ptr;

use super::{
    Calloc, Malloc, Memalign, PosixMemalign, Realloc, Reallocarray, UNTOUCHED, Usable, absent,
    free, given, number, required, take,
};
use crate::api::{errno, function, set_errno};

pub fn malloc(size: usize) -> String {
    given(|| take(size))
}

pub fn twice() -> String {
    let (a, b) = (take(0), take(0));
    let text = if a.is_null() || b.is_null() || a == b { "the same, or null" } else { "two" };
    free(a);
    free(b);
    text.to_owned()
}

pub fn alignments() -> String {
    let sizes =
        (1..2048).chain((11..26).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]));
    for size in sizes {
        let at = take(size);
        let least = if size >= 16 { 16 } else { 8 };
        let ok = !at.is_null() && at as usize % least == 0;
        free(at);
        if !ok {
            return format!("{size} bytes at {at:p}");
        }
    }
    "aligned".to_owned()
}

pub fn calloc(count: usize, size: usize) -> String {
    // SAFETY: of this type in C; takes numbers.
    given(|| unsafe { required::<Calloc>("calloc")(count, size) })
}

pub fn zeroed() -> String {
    for size in [1, 15, 64, 1000, 5000, 70_000, 300_000, 5_000_000] {
        let dirty = take(size);
        // SAFETY: memory of so many bytes; then of calloc's, which has written to all of it.
        let is_zero = unsafe {
            ptr::write_bytes(dirty.cast::<u8>(), 0xa5, size);
            free(dirty);
            let clean = required::<Calloc>("calloc")(size, 1).cast::<u8>();
            let is_zero = std::slice::from_raw_parts(clean, size).iter().all(|&byte| byte == 0);
            free(clean.cast());
            is_zero
        };
        if !is_zero {
            return format!("{size} bytes are not zero");
        }
    }
    "zero".to_owned()
}

pub fn realloc(at: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: of this type in C; the caller owns the memory, or passes null.
    unsafe { required::<Realloc>("realloc")(at, size) }
}

pub fn realloc_of_null(size: usize) -> String {
    given(|| realloc(ptr::null_mut(), size))
}

/// glibc gives the memory back and nothing in its place; it does not touch `errno`.
pub fn realloc_to_nothing() -> String {
    let at = take(100);
    given(|| realloc(at, 0))
}

/// Asks for what cannot be had in the place of memory that must stay.
pub fn kept(call: impl FnOnce(*mut c_void) -> *mut c_void) -> String {
    let at = take(100);
    // SAFETY: memory of so many bytes.
    unsafe { ptr::write_bytes(at.cast::<u8>(), 0x5a, 100) };
    let text = given(|| call(at));
    // SAFETY: memory of 100 bytes, written above.
    let same =
        unsafe { std::slice::from_raw_parts(at.cast::<u8>(), 100) }.iter().all(|&b| b == 0x5a);
    free(at);
    format!("{text}, {}", if same { "kept" } else { "changed" })
}

pub fn realloc_kept(size: usize) -> String {
    kept(|at| realloc(at, size))
}

pub fn realloc_through_sizes() -> String {
    let mut at = ptr::null_mut();
    let mut before = 0;
    let up = (0..27).map(|bits| 1_usize << bits);
    let sizes: Vec<usize> = up.clone().chain(up.rev()).flat_map(|size| [size + 3, size]).collect();
    for size in sizes {
        at = realloc(at, size);
        if at.is_null() {
            return format!("nothing for {size} bytes");
        }
        let bytes = at.cast::<u8>();
        let same = before.min(size);
        // SAFETY: the memory has `size` bytes, of which the first `same` were written.
        unsafe {
            let ends = [0, same.saturating_sub(1)].into_iter().take(if same > 0 { 2 } else { 0 });
            if ends.into_iter().any(|end| bytes.add(end).read() != 0x3c) {
                return format!("from {before} to {size} bytes: the content has changed");
            }
            ptr::write_bytes(bytes, 0x3c, size);
        }
        before = size;
    }
    free(at);
    "kept".to_owned()
}

pub fn reallocarray(count: usize, size: usize) -> String {
    // SAFETY: of this type in C.
    let Some(call) = (unsafe { function::<Reallocarray>("reallocarray") }) else { return absent() };
    // SAFETY: of nothing.
    given(|| unsafe { call(ptr::null_mut(), count, size) })
}

pub fn reallocarray_kept(count: usize, size: usize) -> String {
    // SAFETY: of this type in C.
    let Some(call) = (unsafe { function::<Reallocarray>("reallocarray") }) else { return absent() };
    // SAFETY: memory that is there.
    kept(|at| unsafe { call(at, count, size) })
}

pub fn posix_memalign(align: usize, size: usize) -> String {
    let mark = ptr::without_provenance_mut(0x1234);
    let mut at: *mut c_void = mark;
    set_errno(UNTOUCHED);
    // SAFETY: of this type in C; the place is valid for writes.
    let code = unsafe { required::<PosixMemalign>("posix_memalign")(&mut at, align, size) };
    // It returns the error instead; glibc and musl differ in what they leave in errno.
    if code != 0 {
        let place = if at == mark { "untouched" } else { "written to" };
        return format!("{}, {place}", number(code).trim_start());
    }
    if at.is_null() {
        return "null".to_owned();
    }
    let text = if at as usize % align == 0 { "some" } else { "misaligned" };
    // SAFETY: memory of so many bytes.
    unsafe { ptr::write_bytes(at.cast::<u8>(), 1, size) };
    free(at);
    text.to_owned()
}

pub fn aligned_at(at: *mut c_void, align: usize) -> *mut c_void {
    let is_aligned = align < 2 || !align.is_power_of_two() || at as usize % align == 0;
    assert!(is_aligned, "{at:p} is not aligned to {align}");
    at
}

pub fn aligned(align: usize, size: usize) -> String {
    // SAFETY: of this type in C; takes numbers.
    given(|| aligned_at(unsafe { required::<Memalign>("aligned_alloc")(align, size) }, align))
}

pub fn memalign(align: usize, size: usize) -> String {
    // SAFETY: of this type in C.
    let Some(call) = (unsafe { function::<Memalign>("memalign") }) else { return absent() };
    // SAFETY: takes numbers.
    given(|| aligned_at(unsafe { call(align, size) }, align))
}

pub fn page() -> usize {
    // SAFETY: takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

pub fn of_pages(name: &str, size: usize) -> String {
    // SAFETY: both are of this type in C.
    let Some(call) = (unsafe { function::<Malloc>(name) }) else { return absent() };
    set_errno(UNTOUCHED);
    // SAFETY: takes a number.
    let at = unsafe { call(size) };
    if at.is_null() {
        return format!("null{}", number(errno()));
    }
    let mut text = if at as usize % page() == 0 { "page" } else { "misaligned" }.to_owned();
    // SAFETY: of this type in C; memory that is there.
    let usable = unsafe { function::<Usable>("malloc_usable_size").map(|call| call(at)) };
    if name == "pvalloc"
        && usable.is_none_or(|usable| usable >= size.max(1).next_multiple_of(page()))
    {
        text.push_str(", whole");
    }
    free(at);
    text
}
