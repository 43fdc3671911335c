//! The calls that tell of memory and of the malloc, those of newer standards, and C++'s operators, each as a
//! line of what came of it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::{
    Free, FreeAligned, FreeSized, Malloc, Memalign, UNTOUCHED, Usable, absent, free, given,
    required, take,
};
use crate::api::{errno, function, set_errno};

pub fn usable_of_null() -> String {
    // SAFETY: of this type in C, which takes null, too.
    let usable =
        unsafe { function::<Usable>("malloc_usable_size").map(|call| call(ptr::null_mut())) };
    usable.map_or_else(absent, |usable| usable.to_string())
}

pub fn usable() -> String {
    // SAFETY: of this type in C.
    let Some(call) = (unsafe { function::<Usable>("malloc_usable_size") }) else { return absent() };
    for size in (0..3000).chain([10_000, 100_000, 1_000_000, 10_000_000]) {
        let at = take(size);
        // SAFETY: memory that is there, and all of what is usable.
        let usable = unsafe {
            let usable = call(at);
            ptr::write_bytes(at.cast::<u8>(), 7, usable);
            usable
        };
        free(at);
        if usable < size {
            return format!("{usable} of {size} bytes");
        }
    }
    "enough".to_owned()
}

pub fn free_null() -> String {
    free(ptr::null_mut());
    "done".to_owned()
}

pub fn free_and_errno() -> String {
    for size in [10, 5000, 200_000, 20_000_000] {
        let at = take(size);
        set_errno(UNTOUCHED);
        free(at);
        if errno() != UNTOUCHED {
            return format!("errno {} after free of {size} bytes", errno());
        }
    }
    "done".to_owned()
}

pub fn free_sized() -> String {
    // SAFETY: of this type in C.
    let Some(call) = (unsafe { function::<FreeSized>("free_sized") }) else { return absent() };
    for size in [0, 1, 100, 10_000, 1_000_000] {
        let at = take(size);
        // SAFETY: memory of this size.
        unsafe { call(at, size) };
    }
    // SAFETY: null is allowed.
    unsafe { call(ptr::null_mut(), 8) };
    "done".to_owned()
}

pub fn free_aligned_sized() -> String {
    // SAFETY: of this type in C.
    let Some(call) = (unsafe { function::<FreeAligned>("free_aligned_sized") }) else {
        return absent();
    };
    for align in [8, 64, 4096, 1 << 20] {
        // SAFETY: of this type in C; the memory has this size and alignment.
        unsafe {
            let at = required::<Memalign>("aligned_alloc")(align, align * 3);
            call(at, align, align * 3);
        }
    }
    "done".to_owned()
}

/// Returns the memory that libc takes for others to free.
pub fn of_libc() -> String {
    // SAFETY: valid texts and places; what the calls give is freed once.
    unsafe {
        let copy = libc::strdup(c"text".as_ptr());
        let same = CStr::from_ptr(copy) == c"text";
        free(copy.cast());
        let mut printed: *mut c_char = ptr::null_mut();
        type Asprintf = unsafe extern "C" fn(*mut *mut c_char, *const c_char, ...) -> c_int;
        let length = required::<Asprintf>("asprintf")(&mut printed, c"%0*d".as_ptr(), 3000, 7);
        free(printed.cast());
        let (mut line, mut room) = (ptr::null_mut(), 0);
        let file = libc::fopen(c"/proc/self/maps".as_ptr(), c"r".as_ptr());
        let mut lines = 0;
        if !file.is_null() {
            while libc::getline(&mut line, &mut room, file) > 0 {
                lines += 1;
            }
            libc::fclose(file);
        }
        free(line.cast());
        if same && length == 3000 && lines != 1 {
            "libc's own memory is freed".to_owned()
        } else {
            format!("{same} {length} {lines}")
        }
    }
}

pub fn zero_or_one(code: c_int) -> String {
    if code == 0 || code == 1 { "0 or 1".to_owned() } else { code.to_string() }
}

pub fn trim() -> String {
    type Trim = unsafe extern "C" fn(usize) -> c_int;
    // SAFETY: of this type in C; takes a number.
    let code = unsafe { function::<Trim>("malloc_trim").map(|call| call(0)) };
    code.map_or_else(absent, zero_or_one)
}

pub fn mallopt() -> String {
    type Mallopt = unsafe extern "C" fn(c_int, c_int) -> c_int;
    // SAFETY: of this type in C; takes numbers. The value is the default.
    let code = unsafe { function::<Mallopt>("mallopt").map(|call| call(-3, 128 << 10)) };
    code.map_or_else(absent, zero_or_one)
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Mallinfo2([usize; 10]);

pub fn mallinfo2() -> String {
    type Call = unsafe extern "C" fn() -> Mallinfo2;
    // SAFETY: of this type in C: a structure of ten words.
    let Some(call) = (unsafe { function::<Call>("mallinfo2") }) else { return absent() };
    // SAFETY: takes nothing.
    let before = unsafe { call() };
    let pieces: Vec<*mut c_void> = (0..1000).map(|_| take(10_000)).collect();
    // SAFETY: the function takes no arguments.
    let after = unsafe { call() };
    pieces.into_iter().for_each(free);
    // arena and hblkhd, what came from the system; uordblks, what is in use.
    let grown = |at: usize| after.0[at].saturating_sub(before.0[at]);
    if grown(7) >= 9_000_000 {
        "counts".to_owned()
    } else {
        format!("{} bytes more in use", grown(7))
    }
}

pub fn info(options: c_int) -> String {
    type Info = unsafe extern "C" fn(c_int, *mut libc::FILE) -> c_int;
    // SAFETY: of this type in C.
    let Some(call) = (unsafe { function::<Info>("malloc_info") }) else { return absent() };
    let (mut text, mut length) = (ptr::null_mut(), 0);
    // SAFETY: the places are valid for writes until the stream is closed; then the text is ours.
    unsafe {
        let stream = libc::open_memstream(&mut text, &mut length);
        if stream.is_null() {
            return "no stream".to_owned();
        }
        let code = call(options, stream);
        libc::fclose(stream);
        let said = std::slice::from_raw_parts(text.cast::<u8>(), length).to_vec();
        free(text.cast());
        match code {
            0 if said.starts_with(b"<malloc") && said.trim_ascii_end().ends_with(b"</malloc>") => {
                "xml".to_owned()
            }
            0 => format!("not xml: {}", String::from_utf8_lossy(&said)),
            _ => "refused".to_owned(),
        }
    }
}

pub fn operators(names: &[&str; 2], sized: bool) -> String {
    // SAFETY: the operators are of these types in C++'s ABI for Linux.
    unsafe {
        let Some(new) = function::<Malloc>(names[0]) else { return absent() };
        for size in [0, 1, 100, 10_000, 1_000_000] {
            let at = new(size);
            if at.is_null() {
                return format!("nothing for {size} bytes");
            }
            if sized {
                let Some(delete) = function::<FreeSized>(names[1]) else { return absent() };
                delete(at, size);
            } else {
                let Some(delete) = function::<Free>(names[1]) else { return absent() };
                delete(at);
            }
        }
    }
    "done".to_owned()
}

pub fn aligned_operators(new: &str, delete: &str) -> String {
    // SAFETY: the operators are of these types in C++'s ABI for Linux.
    unsafe {
        let Some(new) = function::<Memalign>(new) else { return absent() };
        let Some(delete) = function::<FreeSized>(delete) else { return absent() };
        for align in [8, 64, 4096] {
            // The size comes first here.
            let at = new(3 * align, align);
            if at.is_null() || at as usize % align != 0 {
                return format!("{at:p} for an alignment of {align}");
            }
            delete(at, align);
        }
    }
    "done".to_owned()
}

pub fn nothrow(new: &str, size: usize) -> String {
    type New = unsafe extern "C" fn(usize, *const c_void) -> *mut c_void;
    // SAFETY: of this type in C++'s ABI for Linux; the second argument is an object without content.
    let Some(new) = (unsafe { function::<New>(new) }) else { return absent() };
    let nothing = 0_u8;
    // SAFETY: `new` has this type; its second argument is an object without content.
    let text = given(|| unsafe { new(size, ptr::from_ref(&nothing).cast()) });
    // Whatever it says in errno.
    text.split(' ').next().unwrap_or_default().to_owned()
}
