//! The edges of the interface, one line each: what a call gives and what it does to `errno`.
//!
//! What is expected is what POSIX, C and glibc's manual say; where they leave it open there are several
//! answers, with `|` between. A name that a libc lacks is "absent".
//!
//! Invariant: every line is printed, also after one that is wrong.

mod calls;
mod kin;

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;

use crate::Outcome;
use crate::api::{errno, function, set_errno};
use calls::*;
use kin::*;

/// More than any object may have.
const HUGE: usize = isize::MAX as usize + 1;
/// As `errno` before each call: no error has this number.
const UNTOUCHED: c_int = 4242;

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Reallocarray = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
type Memalign = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void);
type Usable = unsafe extern "C" fn(*mut c_void) -> usize;
type FreeSized = unsafe extern "C" fn(*mut c_void, usize);
type FreeAligned = unsafe extern "C" fn(*mut c_void, usize, usize);

/// A call and what may come of it.
struct Edge {
    name: &'static str,
    expected: &'static str,
    call: fn() -> String,
}

macro_rules! edges {
    ($($name:literal => $expected:literal, $call:expr;)*) => {
        &[$(Edge { name: $name, expected: $expected, call: $call }),*]
    };
}

const EDGES: &[Edge] = edges![
    "malloc(0)" => "some", || malloc(0);
    "malloc(0) twice" => "two", twice;
    "malloc(1)" => "some", || malloc(1);
    "malloc(HUGE)" => "null ENOMEM", || malloc(HUGE);
    "malloc(HUGE - 1)" => "null ENOMEM", || malloc(HUGE - 1);
    "malloc(MAX)" => "null ENOMEM", || malloc(usize::MAX);
    "malloc(MAX - 4095)" => "null ENOMEM", || malloc(usize::MAX - 4095);
    "malloc, every alignment" => "aligned", alignments;
    "calloc(0, 0)" => "some", || calloc(0, 0);
    "calloc(0, MAX)" => "some", || calloc(0, usize::MAX);
    "calloc(MAX, 0)" => "some", || calloc(usize::MAX, 0);
    "calloc, product 2^64" => "null ENOMEM", || calloc(1 << 33, 1 << 31);
    "calloc, product over 2^64" => "null ENOMEM", || calloc(usize::MAX / 2, 3);
    "calloc(1, HUGE)" => "null ENOMEM", || calloc(1, HUGE);
    "calloc of used memory" => "zero", zeroed;
    "realloc(NULL, 8)" => "some", || realloc_of_null(8);
    "realloc(NULL, 0)" => "some", || realloc_of_null(0);
    "realloc(NULL, HUGE)" => "null ENOMEM", || realloc_of_null(HUGE);
    "realloc(p, 0)" => "null", realloc_to_nothing;
    "realloc(p, HUGE)" => "null ENOMEM, kept", || realloc_kept(HUGE);
    "realloc(p, MAX)" => "null ENOMEM, kept", || realloc_kept(usize::MAX);
    "realloc through all sizes" => "kept", realloc_through_sizes;
    "reallocarray(NULL, 2, 8)" => "some|absent", || reallocarray(2, 8);
    "reallocarray(p, MAX, 2)" => "null ENOMEM, kept|absent", || reallocarray_kept(usize::MAX, 2);
    "reallocarray(p, 2^33, 2^31)" => "null ENOMEM, kept|absent", || reallocarray_kept(1 << 33, 1 << 31);
    "posix_memalign(0)" => "EINVAL, untouched", || posix_memalign(0, 8);
    "posix_memalign(3)" => "EINVAL, untouched", || posix_memalign(3, 8);
    "posix_memalign(4)" => "EINVAL, untouched", || posix_memalign(4, 8);
    "posix_memalign(24)" => "EINVAL, untouched", || posix_memalign(24, 8);
    "posix_memalign(HUGE + 8)" => "EINVAL, untouched", || posix_memalign(HUGE + 8, 8);
    "posix_memalign(8)" => "some", || posix_memalign(8, 1);
    "posix_memalign(16), size 0" => "some|null", || posix_memalign(16, 0);
    "posix_memalign(64)" => "some", || posix_memalign(64, 100);
    "posix_memalign(4096)" => "some", || posix_memalign(4096, 1);
    "posix_memalign(1 M)" => "some", || posix_memalign(1 << 20, 100);
    "posix_memalign(32 M)" => "some", || posix_memalign(32 << 20, 100);
    "posix_memalign(8), HUGE" => "ENOMEM, untouched", || posix_memalign(8, HUGE);
    "posix_memalign(1 M), MAX - 1 M" => "ENOMEM, untouched", || posix_memalign(1 << 20, usize::MAX - (1 << 20));
    "posix_memalign(HUGE)" => "ENOMEM, untouched|EINVAL, untouched", || posix_memalign(HUGE, 8);
    "aligned_alloc(64, 64)" => "some", || aligned(64, 64);
    "aligned_alloc(64, 100)" => "some|null EINVAL", || aligned(64, 100);
    "aligned_alloc(1, 1)" => "some", || aligned(1, 1);
    "aligned_alloc(3, 9)" => "some|null EINVAL", || aligned(3, 9);
    "aligned_alloc(0, 8)" => "some|null EINVAL", || aligned(0, 8);
    "aligned_alloc(64, HUGE)" => "null ENOMEM", || aligned(64, HUGE);
    "aligned_alloc(HUGE, 64)" => "null ENOMEM|null EINVAL", || aligned(HUGE, 64);
    "memalign(8, 8)" => "some|absent", || memalign(8, 8);
    "memalign(256, 0)" => "some|absent", || memalign(256, 0);
    "memalign(3, 9)" => "some|null EINVAL|absent", || memalign(3, 9);
    "memalign(HUGE + 1, 8)" => "null EINVAL|absent", || memalign(HUGE + 1, 8);
    "memalign(64, MAX - 8)" => "null ENOMEM|absent", || memalign(64, usize::MAX - 8);
    "valloc(1)" => "page|absent", || of_pages("valloc", 1);
    "valloc(MAX)" => "null ENOMEM|absent", || of_pages("valloc", usize::MAX);
    "pvalloc(1)" => "page, whole|absent", || of_pages("pvalloc", 1);
    "pvalloc(4097)" => "page, whole|absent", || of_pages("pvalloc", 4097);
    "pvalloc(0)" => "page, whole|page|absent", || of_pages("pvalloc", 0);
    "pvalloc(MAX)" => "null ENOMEM|absent", || of_pages("pvalloc", usize::MAX);
    "malloc_usable_size(NULL)" => "0|absent", usable_of_null;
    "malloc_usable_size" => "enough|absent", usable;
    "free(NULL)" => "done", free_null;
    "free leaves errno" => "done", free_and_errno;
    "free_sized" => "done|absent", free_sized;
    "free_aligned_sized" => "done|absent", free_aligned_sized;
    "strdup, getline, asprintf" => "libc's own memory is freed", of_libc;
    "malloc_trim(0)" => "0 or 1|absent", trim;
    "mallopt(M_MMAP_THRESHOLD)" => "0 or 1|absent", mallopt;
    "mallinfo2" => "counts|absent", mallinfo2;
    "malloc_info(0)" => "xml|absent", || info(0);
    "malloc_info(1)" => "refused|absent", || info(1);
    "new, delete" => "done|absent", || operators(&["_Znwm", "_ZdlPv"], false);
    "new[], delete[]" => "done|absent", || operators(&["_Znam", "_ZdaPv"], false);
    "new, delete(size)" => "done|absent", || operators(&["_Znwm", "_ZdlPvm"], true);
    "new[], delete[](size)" => "done|absent", || operators(&["_Znam", "_ZdaPvm"], true);
    "new(align)" => "done|absent", || aligned_operators("_ZnwmSt11align_val_t", "_ZdlPvSt11align_val_t");
    "new[](align)" => "done|absent", || aligned_operators("_ZnamSt11align_val_t", "_ZdaPvSt11align_val_t");
    "new(nothrow), HUGE" => "null|absent", || nothrow("_ZnwmRKSt9nothrow_t", HUGE);
    "new(nothrow)" => "some|absent", || nothrow("_ZnwmRKSt9nothrow_t", 64);
];

/// Returns all lines; wrong ones end with what was expected.
pub fn run() -> Outcome {
    let (mut lines, mut wrong) = (String::new(), Vec::new());
    for Edge { name, expected, call } in EDGES {
        let found = call();
        let _ = writeln!(lines, "{name}: {found}");
        if !expected.split('|').any(|one| one == found) {
            wrong.push(format!("{name} gave `{found}`, not `{expected}`"));
        }
    }
    if wrong.is_empty() {
        Ok(lines.trim_end().to_owned())
    } else {
        Err(format!("{lines}{}", wrong.join("\n")))
    }
}

/// Returns a function that every libc has.
///
/// # Safety
/// - The conditions of [`function`] hold.
unsafe fn required<F>(name: &str) -> F {
    // SAFETY: by the contract.
    unsafe { function(name) }.unwrap_or_else(|| panic!("no {name}"))
}

fn number(error: c_int) -> String {
    match error {
        UNTOUCHED => String::new(),
        libc::ENOMEM => " ENOMEM".to_owned(),
        libc::EINVAL => " EINVAL".to_owned(),
        other => format!(" errno {other}"),
    }
}

/// Returns what a call gave, with what it did to `errno`; and it is given back.
fn given(call: impl FnOnce() -> *mut c_void) -> String {
    set_errno(UNTOUCHED);
    let at = call();
    let error = errno();
    if at.is_null() {
        return format!("null{}", number(error));
    }
    let text = if at as usize % 8 == 0 { "some" } else { "misaligned" };
    free(at);
    format!("{text}{}", number(error))
}

fn take(size: usize) -> *mut c_void {
    // SAFETY: of this type in C; takes a number.
    unsafe { required::<Malloc>("malloc")(size) }
}

fn free(at: *mut c_void) {
    // SAFETY: of this type in C; the caller owns the memory, or passes null.
    unsafe { required::<Free>("free")(at) }
}

/// Returns a name that does not exist.
fn absent() -> String {
    "absent".to_owned()
}
