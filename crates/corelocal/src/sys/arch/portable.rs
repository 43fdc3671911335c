//! For architectures without critical sections, Miri, loom, and tests with `--cfg corelocal_model`: the area of a
//! thread without a registration, the same for all threads.

/// Whether critical sections exist for this architecture.
pub(crate) const SECTIONS: bool = false;

/// The signature that stands for none: no thread is ever registered.
pub(crate) const SIGNATURE: u32 = 0;

/// Reads one of several words that are written once, when the program is loaded.
macro_rules! load_settled {
    ($words:path [ $nth:expr ]) => {
        $words[$nth].load($crate::primitive::global::Ordering::Relaxed)
    };
}
pub(crate) use load_settled;

/// Reads the first two such words, the first one first.
macro_rules! load_settled_pair {
    ($words:path) => {
        // Acquire: partner is the Release with which they are settled.
        (
            $words[0].load($crate::primitive::global::Ordering::Acquire),
            $words[1].load($crate::primitive::global::Ordering::Relaxed),
        )
    };
}
pub(crate) use load_settled_pair;

/// Reads a word of this crate's, relaxed.
#[cfg(not(loom))]
macro_rules! load_here {
    ($word:path) => {
        $word.load($crate::primitive::global::Ordering::Relaxed)
    };
}
#[cfg(not(loom))]
pub(crate) use load_here;

/// Returns the address of a static of this crate's.
#[cfg(not(loom))]
macro_rules! address_here {
    ($word:path) => {
        &raw const $word
    };
}
#[cfg(not(loom))]
pub(crate) use address_here;

/// Returns the same number, of which the compiler need know nothing.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn opaque(number: usize) -> usize {
    number
}

/// See the x86-64 file; here every area is the one imaginary area at 0.
#[inline(always)]
pub(crate) fn own_area_offset() -> isize {
    0
}

/// Returns what stands for a thread in every libc.
pub(crate) fn thread_pointer() -> *mut u8 {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as *mut u8 }
}

/// Returns null: there is no thread pointer.
pub(crate) fn thread_address(_offset: isize) -> *mut u8 {
    core::ptr::null_mut()
}

/// Returns `None`: there are no thread-local words.
pub(crate) fn own_word(_at: usize) -> Option<&'static crate::primitive::global::AtomicU32> {
    None
}

/// Whether threads have such words.
pub(crate) const HAS_OWN_WORDS: bool = false;

/// Returns `None`: there are no thread-local words.
pub(crate) fn own_word_pair(_at: usize) -> Option<&'static crate::primitive::global::AtomicU64> {
    None
}

/// Returns `None`: there are no thread-local words.
pub(crate) fn read_own_word_pair<const AT: usize>() -> Option<u64> {
    None
}

/// Returns null: there is no symbol of libc.
#[cfg_attr(any(loom, not(feature = "std")), allow(dead_code))] // `sys/thread/count.rs` uses it.
pub(crate) fn libc_single_threaded() -> *const u8 {
    core::ptr::null()
}

/// There are no such words.
pub(crate) fn increment_own_word_pair<const AT: usize>() {}

/// There is none: each number is 0.
pub(crate) fn take_number_of_own_word<const AT: usize>() -> u32 {
    0
}

/// Reads a word that is never written.
pub(crate) fn read_own_word(_at: usize) -> u32 {
    0
}

/// Calls a plain fork, which keeps the promises of `vfork`.
#[cfg(not(any(loom, miri)))]
macro_rules! vfork {
    ($before:path, $after:path) => {{
        $before();
        $after(libc::fork() as isize, 0)
    }};
}
#[cfg(not(any(loom, miri)))]
pub(crate) use vfork;

/// Reads a field: every one reads as "unregistered".
///
/// # Safety
/// - None is needed; the signature is that of the other architectures.
#[inline(always)]
pub(crate) unsafe fn read_field(_offset: isize) -> u32 {
    u32::MAX
}

/// There is no field.
///
/// # Safety
/// - The conditions of [`read_field`] hold.
pub(crate) unsafe fn write_field(_offset: isize, _value: u32) {}

/// There is no field.
///
/// # Safety
/// - The conditions of [`read_field`] hold.
pub(crate) unsafe fn take_lowest_bit(_offset: isize) -> bool {
    true
}

/// Libc's area is not used.
pub(crate) fn libc_symbols() -> (*const isize, *const u32, *const u32) {
    (core::ptr::null(), core::ptr::null(), core::ptr::null())
}

/// Not needed: without sections nothing points into the object.
pub(crate) fn loader() -> crate::sys::process::nodelete::Loader {
    crate::sys::process::nodelete::Loader { dladdr1: None, dlopen: None }
}

/// Not needed: without registers no stack is copied.
///
/// # Safety
/// - None is needed; the signature is that of the other architectures.
pub(crate) unsafe fn copy_words(_to: *mut u8, _from: usize, _words: usize) {}

#[cfg(miri)]
pub(crate) use super::miri::syscall;
#[cfg(not(target_os = "linux"))]
pub(crate) use crate::elsewhere::kernel::call as syscall;

/// Makes a system call; an error is its negated number.
///
/// # Safety
/// - The conditions of [`crate::sys::syscall::syscall`] hold.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> isize {
    let [mut a, b, c, d, e, f] = args;
    if cfg!(target_arch = "s390x") && number == libc::SYS_mmap {
        // The call of this architecture takes the address of its arguments.
        a = args.as_ptr() as usize;
    }
    // SAFETY: the caller vouches for the arguments; surplus ones are ignored by the kernel.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 {
        // SAFETY: libc keeps errno per thread and valid for the thread's life.
        return -(unsafe { *libc::__errno_location() } as isize);
    }
    result as isize
}
