//! C++'s operators `new` and `delete`, under their names in the Itanium ABI.
//!
//! Out of memory, `new` calls the program's new-handler as long as there is one, and otherwise throws
//! `std::bad_alloc`. Both belong to the C++ library, which is looked up when it is needed: that of a C++ program by
//! its symbols, that of a C++ plugin of a C program by its usual file names. If the library is linked statically and
//! does not export its symbols, the process ends with `SIGABRT` instead.
//!
//! A program may define operators of its own. According to the standard it suffices to define the plain ones, which
//! the others call. So if the program defines any, each of our operators calls the C++ library's, which calls the
//! program's where it is defined and malloc otherwise. The C++ library's non-throwing `new` also serves when we are
//! out of memory: it catches what the handler throws.
//!
//! Invariant: an object that the program's own operators made reaches malloc only through them.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use corelocal::alloc;

/// Returns a function of the program's C++ library, or of the program itself.
fn library(name: &CStr) -> *mut c_void {
    // SAFETY: a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Usual names of C++ libraries. The second one leads to the third if both are loaded.
const LIBRARIES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++.so.1", c"libc++abi.so.1"];

/// Returns a function of a C++ library that a plugin has loaded for itself (`RTLD_LOCAL`); null if there is none. It is
/// cached in `known`, and its library is never unloaded.
#[cold]
fn of_plugin(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // Relaxed: an address in an object that is never unloaded.
    let function = known.load(Ordering::Relaxed);
    if !function.is_null() {
        return function;
    }
    // Resolved at run time: linking dlopen would pull the dynamic loader into static programs.
    let open = library(c"dlopen");
    if open.is_null() {
        return open;
    }
    let find = |file: &CStr| {
        // SAFETY: `void *dlopen(const char *, int)`, which with these flags loads nothing; C strings; the handle is
        // never closed.
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

/// Returns a function of the C++ library: the program's, or else a plugin's.
#[cold]
fn of_cxx(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let function = library(name);
    if function.is_null() { of_plugin(known, name) } else { function }
}

/// Returns the next definition of our name in the search order, cached in `known`; null if there is none.
#[cold]
fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // Relaxed: an address in an object loaded earlier; every thread finds the same.
    let mut next = known.load(Ordering::Relaxed);
    if next.is_null() {
        // SAFETY: a C string.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if next.is_null() && are_ours() {
            // Our own operator is out of memory.
            return of_plugin(known, name);
        }
        known.store(next, Ordering::Relaxed);
    }
    next
}

const GET_HANDLER: &CStr = c"_ZSt15get_new_handlerv";

/// Whether the program uses our operators ([`OURS`]) or defines some itself ([`ITS_OWN`]); 0 if not determined.
static WHOSE: AtomicU8 = AtomicU8::new(0);
const OURS: u8 = 1;
const ITS_OWN: u8 = 2;

/// The operators that the others call.
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

/// Returns `true` if the program defines no operators of its own.
#[inline(always)]
fn are_ours() -> bool {
    // Relaxed: every thread determines the same.
    WHOSE.load(Ordering::Relaxed) == OURS || is_found_ours()
}

#[cold]
fn is_found_ours() -> bool {
    let mut whose = WHOSE.load(Ordering::Relaxed);
    if whose == 0 {
        // A program without C++ has none, and pays only for this lookup.
        let is_ours = library(GET_HANDLER).is_null()
            || BASES.iter().all(|name| is_in_this_object(library(name)));
        whose = if is_ours { OURS } else { ITS_OWN };
        WHOSE.store(whose, Ordering::Relaxed);
    }
    whose == OURS
}

/// Called when the library is loaded.
pub(crate) fn at_load() {
    is_found_ours();
}

/// Does not compare addresses with our own operators: those, too, resolve to the definitions that replace them.
fn is_in_this_object(function: *mut c_void) -> bool {
    let object = |address: *const c_void| {
        // SAFETY: zero is a valid `Dl_info`, which is written to; any address may be passed.
        unsafe {
            let mut info: libc::Dl_info = core::mem::zeroed();
            libc::dladdr(address, &mut info);
            info.dli_fbase
        }
    };
    object(function) == object((&raw const WHOSE).cast())
}

/// Returns the program's new-handler.
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

/// Retries an allocation each time that the new-handler has run; null once there is no handler.
#[cold]
fn again(align: usize, size: usize) -> *mut c_void {
    while let Some(handler) = handler() {
        // The handler may throw through this function, which has nothing to clean up.
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
    // SAFETY: C++'s contract of `delete`: null, or an object that the program gives up.
    unsafe { alloc::deallocate(ptr.cast()) };
}

const PLAIN: usize = 16;

/// Accepts any result.
fn always<R>(_: &R) -> bool {
    true
}

/// Accepts an object that is not null.
fn if_some(object: &*mut c_void) -> bool {
    !object.is_null()
}

/// Defines the operators of these names: `new` and `new[]`, or `delete` and `delete[]`. Each runs the block. If the
/// program defines operators itself, or the block's result is not acceptable, it calls the next definition of its
/// name instead, if there is one.
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
                // SAFETY: the name ends with a zero byte.
                let next = next(&NEXT, unsafe { CStr::from_ptr(name) });
                if next.is_null() {
                    return $body;
                }
                // SAFETY: the operator of this name has this type, and the caller has met its conditions.
                unsafe {
                    let next: unsafe extern $abi fn($($type),*) $(-> $result)? = core::mem::transmute(next);
                    next($($operand),*)
                }
            }
            // SAFETY: the caller has met the operator's conditions.
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

/// The size is checked in checking mode, and costs nothing otherwise.
#[inline(always)]
fn delete_of_size(ptr: *mut c_void, size: usize) {
    // SAFETY: C++'s contract of `delete`: null, or an object of this size that the program gives up.
    unsafe { alloc::deallocate_sized(ptr.cast(), size) };
}
