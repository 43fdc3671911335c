//! `malloc` and related functions, for `LD_PRELOAD` or for linking: a thin shell over `corelocal::alloc`.
//!
//! ```text
//!   c.rs              malloc, free and the rest of C's functions, with errno as in glibc
//!   cxx.rs            the operators new and delete
//!   info.rs           mallinfo2, malloc_info and the like, and corelocal_malloc_stats
//!   control.rs        the rest of corelocal_malloc.h: limits, the hook when memory is missing, profiles on and off
//!   profile.rs        corelocal_malloc_profile
//!   cache_stats.rs    cache statistics, in a file for the process that started the program
//!   process.rs        vfork
//! ```
//!
//! Invariants:
//! - This crate does not use Rust's heap, and does not panic.
//! - `errno` changes only when a function fails.

mod c;
mod cache_stats;
mod control;
mod cxx;
mod info;
mod process;
mod profile;

use corelocal::alloc::{allow_background, reports};

/// Runs when the library is loaded; everything works before that, too.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        cxx::at_load();
        allow_background();
        reports::begin();
        cache_stats::at_load();
    }
    at_load
};

/// Runs when the program ends.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".fini_array"))]
static AT_EXIT: extern "C" fn() = {
    extern "C" fn at_exit() {
        reports::end();
        cache_stats::at_exit();
    }
    at_exit
};
