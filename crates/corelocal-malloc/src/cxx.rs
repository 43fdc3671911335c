//! C++'s operators, under the names that the Itanium ABI gives them.
//!
//! Without memory `new` asks the program's handler to find some, as long as there is one, and throws
//! `std::bad_alloc` when there is none. Both are the C++ library's, found when they are needed. That of a program in
//! C++ is found by its symbols, that of a plugin in C++, which a program in C has for itself, by its usual names.
//! Where the library is linked into somebody's code and does not show its symbols, there is `SIGABRT` instead.
//!
//! A program may bring operators of its own. The plain ones are enough then, as the standard has it: the others
//! come to these. So where it has some, each of ours is what the C++ library's is, which leads there, and to
//! malloc from what the program has not replaced. The C++ library's `new` that does not throw is also what ours is
//! when there is no memory: it catches what the handler throws.
//!
//! Invariant: an object that the program's operators made comes to malloc only if they bring it there.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use corelocal::alloc;

/// A function of the program's C++ library, or the program's own.
fn library(name: &CStr) -> *mut c_void {
    // SAFETY: a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// C++ libraries, as they are called everywhere. The second one leads to the third, where both are loaded.
const LIBRARIES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++.so.1", c"libc++abi.so.1"];

/// A function of a C++ library that is loaded, but not for the program (`RTLD_LOCAL`); null if there is none. It is
/// remembered in `known`, and its library stays.
#[cold]
fn of_plugin(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // Relaxed: an address in an object that stays.
    let function = known.load(Ordering::Relaxed);
    if !function.is_null() {
        return function;
    }
    // By its name: to link it would bring a loader into static programs.
    let open = library(c"dlopen");
    if open.is_null() {
        return open;
    }
    let find = |file: &CStr| {
        // SAFETY: `void *dlopen(const char *, int)`, which loads nothing here; C strings; a handle that nobody closes.
        unsafe {
            let open: extern "C" fn(*const c_char, c_int) -> *mut c_void =
                core::mem::transmute(open);
            let handle = open(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            let is_loaded = !handle.is_null();
            if is_loaded { libc::dlsym(handle, name.as_ptr()) } else { handle }
        }
    };
    let found = LIBRARIES.iter().map(|file| find(file)).find(|function| !function.is_null());
    let function = found.unwrap_or(core::ptr::null_mut());
    known.store(function, Ordering::Relaxed);
    function
}

/// A function of the C++ library: the program's, or else a plugin's.
#[cold]
fn of_cxx(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let function = library(name);
    if function.is_null() { of_plugin(known, name) } else { function }
}

/// What comes after us under a name of ours, remembered in `known`; null if nothing does.
#[cold]
fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // Relaxed: an address in an object that was loaded before; whoever looks finds the same.
    let mut next = known.load(Ordering::Relaxed);
    if next.is_null() {
        // SAFETY: a C string.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if next.is_null() && are_ours() {
            // Ours did not find memory.
            return of_plugin(known, name);
        }
        known.store(next, Ordering::Relaxed);
    }
    next
}

const GET_HANDLER: &CStr = c"_ZSt15get_new_handlerv";

/// Whose operators a program has: [`OURS`], [`ITS_OWN`], or nobody has looked yet.
static WHOSE: AtomicU8 = AtomicU8::new(0);
const OURS: u8 = 1;
const ITS_OWN: u8 = 2;

/// The operators that others come to.
const BASES: [&CStr; 8] = [
    c"_Znwm",
    c"_Znam",
    c"_ZdlPv",
    c"_ZdaPv",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZdlPvSt11align_val_t",
    c"_ZdaPvSt11align_val_t",
];

/// Whether the program has no operators of its own.
#[inline(always)]
fn are_ours() -> bool {
    // Relaxed: whoever looks finds the same.
    WHOSE.load(Ordering::Relaxed) == OURS || is_found_ours()
}

#[cold]
fn is_found_ours() -> bool {
    let mut whose = WHOSE.load(Ordering::Relaxed);
    if whose == 0 {
        // A program that is not C++ has none; then this is all it costs.
        let is_ours = library(GET_HANDLER).is_null()
            || BASES.iter().all(|name| is_in_this_object(library(name)));
        whose = if is_ours { OURS } else { ITS_OWN };
        WHOSE.store(whose, Ordering::Relaxed);
    }
    whose == OURS
}

/// When the library is loaded.
pub(crate) fn at_load() {
    is_found_ours();
}

/// Not by comparing with our own operators: their addresses, too, are those of who replaced them.
fn is_in_this_object(function: *mut c_void) -> bool {
    let object = |address: *const c_void| {
        // SAFETY: all bytes 0 is a `Dl_info`, which is written to; any address may be asked about.
        unsafe {
            let mut info: libc::Dl_info = core::mem::zeroed();
            libc::dladdr(address, &mut info);
            info.dli_fbase
        }
    };
    object(function) == object((&raw const WHOSE).cast())
}

/// The program's new-handler.
fn handler() -> Option<extern "C-unwind" fn()> {
    static GET: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let get = of_cxx(&GET, GET_HANDLER);
    if get.is_null() {
        return None;
    }
    // SAFETY: `std::new_handler std::get_new_handler() noexcept`; a null pointer is `None`.
    unsafe {
        let get: extern "C" fn() -> Option<extern "C-unwind" fn()> = core::mem::transmute(get);
        get()
    }
}

/// What there was no memory for, once the handler found some; null if it did not.
#[cold]
fn again(align: usize, size: usize) -> *mut c_void {
    while let Some(handler) = handler() {
        // It may throw, through this function, which has nothing to clean up.
        handler();
        let object = alloc::allocate_aligned(align, size);
        if !object.is_null() {
            return object.cast();
        }
    }
    core::ptr::null_mut()
}

#[cold]
fn bad_alloc() -> ! {
    static THROW: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let throw = of_cxx(&THROW, c"_ZSt17__throw_bad_allocv");
    if !throw.is_null() {
        // SAFETY: `void std::__throw_bad_alloc()`, which does not return.
        unsafe {
            let throw: extern "C-unwind" fn() -> ! = core::mem::transmute(throw);
            throw()
        }
    }
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

#[inline(always)]
fn new(align: usize, size: usize) -> *mut c_void {
    let object = alloc::allocate_aligned(align, size);
    if !object.is_null() {
        return object.cast();
    }
    let object = again(align, size);
    if object.is_null() { bad_alloc() } else { object }
}

#[inline(always)]
fn new_or_null(align: usize, size: usize) -> *mut c_void {
    alloc::allocate_aligned(align, size).cast()
}

#[inline(always)]
fn delete(ptr: *mut c_void) {
    // SAFETY: what the program promises of an operator's operand.
    unsafe { alloc::deallocate(ptr.cast()) };
}

const PLAIN: usize = 16;

/// Whatever it is.
fn always<R>(_: &R) -> bool {
    true
}

/// An object.
fn if_some(object: &*mut c_void) -> bool {
    !object.is_null()
}

/// An operator for each name: of `new` and `new[]`, or `delete` and `delete[]`. It is the block, but where the program
/// has operators of its own, and where what the block gives is not what it should be, the operator that comes next
/// under this name, if one does.
macro_rules! operators {
    ($($abi:literal $one:literal $array:literal: $name:ident $operands:tt $(-> $result:ty)?, $should:ident $body:block)+) => {
        $(mod $name {
            use super::*;
            operators!(@ $abi $one one $operands ($(-> $result)?) $should $body);
            operators!(@ $abi $array array $operands ($(-> $result)?) $should $body);
        })+
    };
    (@ $abi:literal $symbol:literal $name:ident ($($operand:ident: $type:ty),*) ($(-> $result:ty)?) $should:ident $body:block) => {
        #[unsafe(export_name = $symbol)]
        unsafe extern $abi fn $name($($operand: $type),*) $(-> $result)? {
            if are_ours() {
                let result = $body;
                if $should(&result) {
                    return result;
                }
            }
            #[cold]
            #[inline(never)]
            unsafe extern $abi fn from_next($($operand: $type),*) $(-> $result)? {
                static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                let name = concat!($symbol, "\0").as_ptr().cast();
                // SAFETY: it ends with a zero byte.
                let next = next(&NEXT, unsafe { CStr::from_ptr(name) });
                if next.is_null() {
                    return $body;
                }
                // SAFETY: the operator of this name is of this type, and gets what the caller has promised of it.
                unsafe {
                    let next: unsafe extern $abi fn($($type),*) $(-> $result)? = core::mem::transmute(next);
                    next($($operand),*)
                }
            }
            // SAFETY: the caller's promise.
            unsafe { from_next($($operand),*) }
        }
    };
}

operators! {
    "C-unwind" "_Znwm" "_Znam": plain(size: usize) -> *mut c_void, always { new(PLAIN, size) }
    "C-unwind" "_ZnwmSt11align_val_t" "_ZnamSt11align_val_t":
        aligned(size: usize, align: usize) -> *mut c_void, always { new(align, size) }
    "C" "_ZnwmRKSt9nothrow_t" "_ZnamRKSt9nothrow_t":
        nothrow(size: usize, _tag: *const c_void) -> *mut c_void, if_some { new_or_null(PLAIN, size) }
    "C" "_ZnwmSt11align_val_tRKSt9nothrow_t" "_ZnamSt11align_val_tRKSt9nothrow_t":
        aligned_nothrow(size: usize, align: usize, _tag: *const c_void) -> *mut c_void, if_some {
            new_or_null(align, size)
        }
    "C" "_ZdlPv" "_ZdaPv": delete_plain(ptr: *mut c_void), always { delete(ptr) }
    "C" "_ZdlPvm" "_ZdaPvm": delete_sized(ptr: *mut c_void, size: usize), always { delete_of_size(ptr, size) }
    "C" "_ZdlPvSt11align_val_t" "_ZdaPvSt11align_val_t":
        delete_aligned(ptr: *mut c_void, _align: usize), always { delete(ptr) }
    "C" "_ZdlPvmSt11align_val_t" "_ZdaPvmSt11align_val_t":
        delete_aligned_sized(ptr: *mut c_void, size: usize, _align: usize), always { delete_of_size(ptr, size) }
    "C" "_ZdlPvRKSt9nothrow_t" "_ZdaPvRKSt9nothrow_t":
        delete_nothrow(ptr: *mut c_void, _tag: *const c_void), always { delete(ptr) }
    "C" "_ZdlPvSt11align_val_tRKSt9nothrow_t" "_ZdaPvSt11align_val_tRKSt9nothrow_t":
        delete_aligned_nothrow(ptr: *mut c_void, _align: usize, _tag: *const c_void), always { delete(ptr) }
}

/// The size is looked at in a program that is checked, and costs nothing else.
#[inline(always)]
fn delete_of_size(ptr: *mut c_void, size: usize) {
    // SAFETY: likewise.
    unsafe { alloc::deallocate_sized(ptr.cast(), size) };
}
