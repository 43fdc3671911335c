//! The environment and the auxiliary vector, read where they lie.
//!
//! libc's `getenv` and `getauxval` are calls that a preloaded library may answer, and such a library may allocate: a
//! malloc that is built on this would enter itself. So the variables are looked for in `environ`, which is a word of
//! libc, and the vector behind the environment that the kernel put on the stack:
//!
//! ```text
//!   __libc_stack_end ──► argc │ argv … 0 │ envp … 0 │ auxiliary vector …, 0 0
//! ```
//!
//! # Invariants
//! 1. The vector never changes and is never unmapped. `unsetenv` moves pointers of the environment down and leaves zeros
//!    behind, and a program may write a zero over the first pointer. So the vector begins with the first word that is
//!    neither 0 nor a pointer: kinds of entries are below 4096, where nothing is mapped.
//! 2. Static programs have no preloaded libraries, and where glibc's loader did not start the program its word is unknown:
//!    they ask libc.
//!
//! Manual pages: environ(7), getauxval(3); the layout is that of the System V ABI ("process initialization").

use core::ffi::{CStr, c_char};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Returns `true` if there is an environment: the dynamic linker allocates before libc has begun.
pub(crate) fn is_there() -> bool {
    // SAFETY: libc's own word.
    !unsafe { environ }.is_null()
}

/// Returns the value of a variable. Async-signal-safe, and no call of libc.
///
/// # Safety
/// - The value is used at once: as in libc's `getenv`, a change of the environment ends it.
pub unsafe fn variable<'a>(name: &CStr) -> Option<&'a CStr> {
    // SAFETY: libc's own word.
    let mut at = unsafe { environ };
    if at.is_null() {
        return None;
    }
    loop {
        // SAFETY: the environment ends with a null pointer.
        let entry = unsafe { *at };
        if entry.is_null() {
            return None;
        }
        // SAFETY: a string that ends with a zero byte.
        if let Some(value) = unsafe { value_of(entry, name.to_bytes()) } {
            return Some(value);
        }
        // SAFETY: not the last one.
        at = unsafe { at.add(1) };
    }
}

/// Returns the value in an entry `name=value`, if it is of this name.
///
/// # Safety
/// - `entry` is a string that ends with a zero byte.
unsafe fn value_of<'a>(entry: *const c_char, name: &[u8]) -> Option<&'a CStr> {
    for (nth, byte) in name.iter().chain(b"=").enumerate() {
        // SAFETY: no byte before it was the zero.
        if unsafe { *entry.add(nth) } as u8 != *byte {
            return None;
        }
    }
    // SAFETY: behind the `=`, up to the zero.
    Some(unsafe { CStr::from_ptr(entry.add(name.len() + 1)) })
}

/// Returns `true` if another user than the program's may have made its environment (`AT_SECURE`).
pub fn is_foreign() -> bool {
    auxiliary(libc::AT_SECURE) != 0
}

/// Returns an entry of the auxiliary vector; 0 if it is not there. Async-signal-safe.
pub fn auxiliary(kind: libc::c_ulong) -> usize {
    if cfg!(miri) { 0 } else { imp::auxiliary(kind) }
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(target_feature = "crt-static")))]
mod imp {
    use crate::primitive::global::{AtomicPtr, Ordering};

    unsafe extern "C" {
        /// The address of the argument count on the initial stack, which glibc's loader stores here.
        static __libc_stack_end: *const usize;
    }

    /// The start of the auxiliary vector, once it is known.
    static VECTOR: AtomicPtr<usize> = AtomicPtr::new(core::ptr::null_mut());

    pub(in crate::sys) fn auxiliary(kind: libc::c_ulong) -> usize {
        // Relaxed: every racer finds the same, which the kernel wrote.
        let mut at = VECTOR.load(Ordering::Relaxed).cast_const();
        if at.is_null() {
            let Some(found) = find() else {
                // SAFETY: no preconditions.
                return unsafe { libc::getauxval(kind) } as usize; // (2)
            };
            VECTOR.store(found.cast_mut(), Ordering::Relaxed);
            at = found;
        }
        loop {
            // SAFETY: pairs up to one that begins with 0. (1)
            let (entry, value) = unsafe { (*at, *at.add(1)) };
            match entry {
                0 => return 0,
                entry if entry == kind as usize => return value,
                // SAFETY: not the last one.
                _ => at = unsafe { at.add(2) },
            }
        }
    }

    /// The bound of entry kinds, of which there are some 50. Pointers are above it: `vm.mmap_min_addr` is at least a
    /// page.
    const MOST_KINDS: usize = 4096;

    #[cold]
    fn find() -> Option<*const usize> {
        // SAFETY: the loader's word, and what it points to.
        let (start, arguments) = unsafe {
            let start = __libc_stack_end;
            (start, if start.is_null() { 0 } else { *start })
        };
        if start.is_null() {
            return None;
        }
        // SAFETY: the kernel's layout: see the module's text. (1)
        Some(unsafe { behind_pointers(start.add(1 + arguments + 1)) })
    }

    /// Returns the first word that is a kind of an entry.
    ///
    /// # Safety
    /// - A null pointer ends the array, and all words up to it can be read.
    unsafe fn behind_pointers(mut at: *const usize) -> *const usize {
        // SAFETY: the caller guarantees that all words up to the first kind can be read.
        unsafe {
            while !(1..MOST_KINDS).contains(&*at) {
                at = at.add(1);
            }
        }
        at
    }

    #[cfg(all(test, not(any(loom, miri))))]
    mod tests {
        #[test]
        fn a_cleared_environment_is_passed() {
            let text = c"A=1".as_ptr().addr();
            for before in [
                &[0][..],
                &[text, text, 0],
                &[text, 0, 0],
                &[0, text, text, 0],
                &[text, 0, text, 0],
            ] {
                let words = [before, &[33, 0x7000, 6, 4096, 0, 0]].concat();
                // SAFETY: the last words have kinds.
                let found = unsafe { super::behind_pointers(words.as_ptr()) };
                assert_eq!(found, words[before.len()..].as_ptr(), "{before:x?}");
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu", not(target_feature = "crt-static"))))]
mod imp {
    pub(in crate::sys) fn auxiliary(kind: libc::c_ulong) -> usize {
        // SAFETY: no preconditions.
        unsafe { libc::getauxval(kind) as usize }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn as_libc_says() {
        // glibc answers with its own words for a few others, such as AT_HWCAP.
        let rseq = [27, 28];
        let kinds = [libc::AT_PAGESZ, libc::AT_RANDOM, libc::AT_SECURE, libc::AT_SYSINFO_EHDR];
        for kind in kinds.into_iter().chain(rseq) {
            // SAFETY: no preconditions.
            assert_eq!(auxiliary(kind), unsafe { libc::getauxval(kind) } as usize, "{kind}");
        }
        assert_ne!(auxiliary(libc::AT_PAGESZ), 0);
        assert!(!is_foreign() && is_there());
        for (name, value) in std::env::vars() {
            let name = CString::new(name).unwrap();
            // SAFETY: used at once.
            let ours = unsafe { variable(&name) };
            assert_eq!(ours.map(CStr::to_bytes), Some(value.as_bytes()), "{name:?}");
        }
        // SAFETY: used at once.
        assert_eq!(unsafe { variable(c"PAT") }, None);
        // SAFETY: used at once.
        assert_eq!(unsafe { variable(c"CORELOCAL_NO_SUCH_VARIABLE") }, None);
    }
}
