//! C's allocation functions, with the corner cases of glibc.

use core::ffi::{c_int, c_void};

use corelocal::alloc;
use corelocal::sys::without_libc;

const WORD: usize = size_of::<*mut c_void>();

/// Sets `errno` to ENOMEM and returns null.
#[cold]
fn no_memory() -> *mut c_void {
    fail(libc::ENOMEM)
}

#[cold]
fn fail(errno: c_int) -> *mut c_void {
    // SAFETY: the thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
    core::ptr::null_mut()
}

/// Does what [`no_memory`] does, in the form that the library expects.
#[cold]
extern "C" fn missing() -> *mut u8 {
    no_memory().cast()
}

/// Returns null and leaves `errno` alone.
extern "C" fn null() -> *mut u8 {
    core::ptr::null_mut()
}

#[inline(always)]
fn or_errno(object: *mut u8) -> *mut c_void {
    if object.is_null() { no_memory() } else { object.cast() }
}

// `malloc` and `free` begin with a cache line: the processor then fetches them in fewer pieces. A section has the largest
// alignment that is asked for in it, and each of them is alone in its section.
#[cfg(target_os = "linux")]
core::arch::global_asm!(
    ".pushsection .text.corelocal_malloc, \"ax\", @progbits",
    ".p2align 6",
    ".popsection",
    ".pushsection .text.corelocal_free, \"ax\", @progbits",
    ".p2align 6",
    ".popsection",
);

/// Calls `malloc(3)`. An allocation of size 0 is a distinct object.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.corelocal_malloc"))]
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    alloc::allocate_or(size, missing).cast()
}

/// Calls `free(3)`. Does not change `errno`.
///
/// # Safety
/// - `ptr` is null, or an object of this library that has not been freed.
/// - The object is not used any more.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.corelocal_free"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(ptr: *mut c_void) {
    // SAFETY: C's contract of `free`: null, or an object that the caller gives up.
    unsafe { alloc::deallocate(ptr.cast()) };
}

/// Calls `calloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(size) => or_errno(alloc::allocate_zeroed(size)),
        None => no_memory(),
    }
}

/// Calls `realloc(3)`. With size 0 it frees the object and returns null, as in glibc.
///
/// # Safety
/// - The conditions of [`free`] hold for `ptr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    if size == 0 && !ptr.is_null() {
        // SAFETY: C's contract of `realloc`: an object that the caller gives up.
        unsafe { alloc::deallocate(ptr.cast()) };
        return core::ptr::null_mut();
    }
    // SAFETY: C's contract of `realloc`: null, or an object that the caller owns.
    or_errno(unsafe { alloc::reallocate(ptr.cast(), size) })
}

/// Calls `reallocarray(3)`.
///
/// # Safety
/// - The conditions of [`free`] hold for `ptr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(ptr: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: this function has the conditions of `realloc`.
        Some(size) => unsafe { realloc(ptr, size) },
        None => no_memory(),
    }
}

/// Calls `posix_memalign(3)`. Does not change `errno`.
///
/// # Safety
/// - `to` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align % WORD != 0 {
        return libc::EINVAL;
    }
    let object = alloc::allocate_aligned_or(align, size, null);
    if object.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: `to` is valid for a write.
    unsafe { to.write(object.cast()) };
    0
}

/// Calls `aligned_alloc(3)`: as [`memalign`].
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    aligned(align, size)
}

/// Calls `memalign(3)`. An alignment that is not a power of two is rounded up to one.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    aligned(align, size)
}

/// Does what both do, in each of them: one would jump to the other, by way of a table.
#[inline(always)]
fn aligned(align: usize, size: usize) -> *mut c_void {
    if align.is_power_of_two() {
        return alloc::allocate_aligned_or(align, size, missing).cast();
    }
    memalign_rounded(align, size)
}

#[cold]
#[inline(never)]
extern "C" fn memalign_rounded(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => alloc::allocate_aligned_or(align, size, missing).cast(),
        None => fail(libc::EINVAL),
    }
}

/// Returns the kernel's page size in bytes.
fn page_size() -> usize {
    match without_libc::auxiliary(libc::AT_PAGESZ) {
        0 => 1 << 16,
        size => size,
    }
}

/// Calls `valloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    memalign(page_size(), size)
}

/// Calls `pvalloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(page_size()) {
        Some(size) => memalign(page_size(), size),
        None => no_memory(),
    }
}

/// Calls `malloc_usable_size(3)`.
///
/// # Safety
/// - `ptr` is null, or an object of this library that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(ptr: *mut c_void) -> usize {
    // SAFETY: C's contract: null, or an object that the caller owns.
    unsafe { alloc::usable_size(ptr.cast()) }
}

/// Implements C23's `free_sized`.
///
/// # Safety
/// - The conditions of [`free`].
/// - `size` is the size that the object was allocated with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(ptr: *mut c_void, size: usize) {
    // SAFETY: C's contract: null, or an object of this size that the caller gives up.
    unsafe { alloc::deallocate_sized(ptr.cast(), size) };
}

/// Implements C23's `free_aligned_sized`.
///
/// # Safety
/// - The conditions of [`free`].
/// - `align` and `size` are those that the object was allocated with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(ptr: *mut c_void, align: usize, size: usize) {
    // SAFETY: C's contract: null, or an object of this size that the caller gives up.
    unsafe { alloc::deallocate_aligned_sized(ptr.cast(), align, size) };
}

/// Alternative names under which old programs call these functions.
macro_rules! also {
    ($($name:ident($($operand:ident: $type:ty),*) $(-> $result:ty)? = $function:path;)+) => {
        $(
            /// An alternative name of the function.
            ///
            /// # Safety
            /// - The conditions of the function.
            #[unsafe(no_mangle)]
            #[allow(unused_unsafe)]
            pub unsafe extern "C" fn $name($($operand: $type),*) $(-> $result)? {
                // SAFETY: this function has the conditions of the one that it calls.
                unsafe { $function($($operand),*) }
            }
        )+
    };
}

also! {
    __libc_malloc(size: usize) -> *mut c_void = malloc;
    __libc_free(ptr: *mut c_void) = free;
    __libc_calloc(count: usize, size: usize) -> *mut c_void = calloc;
    __libc_realloc(ptr: *mut c_void, size: usize) -> *mut c_void = realloc;
    __libc_memalign(align: usize, size: usize) -> *mut c_void = memalign;
    __libc_valloc(size: usize) -> *mut c_void = valloc;
    __libc_pvalloc(size: usize) -> *mut c_void = pvalloc;
    __posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int = posix_memalign;
}
