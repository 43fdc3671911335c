//! `malloc` and related functions, for `LD_PRELOAD` or for linking: a thin shell over `corelocal::alloc`.
//!
//! ```text
//!   c.rs              malloc, free and the rest of C's functions, with errno as in glibc
//!   cxx.rs            the operators new and delete
//!   info.rs           mallinfo2, malloc_info and the like, and corelocal_malloc_stats
//!   profile.rs        heap profiles
//!   cache_stats.rs    cache statistics, in a file for the process that started the program
//!   signals.rs        signals that ask for statistics or a profile
//!   options.rs        CORELOCAL_MALLOC in the environment
//!   process.rs        vfork
//! ```
//!
//! Invariants:
//! - This crate does not use Rust's heap, and does not panic.
//! - `errno` changes only when a function fails.

mod c;
mod cache_stats;
mod cxx;
mod info;
mod options;
mod process;
mod profile;
mod signals;
mod stats_format;
mod text_output;

/// Runs when the library is loaded; everything works before that, too.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        cxx::at_load();
        corelocal::alloc::allow_background();
        info::at_load();
        signals::at_load();
        cache_stats::at_load();
    }
    at_load
};

/// Runs when the program ends.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".fini_array"))]
static AT_EXIT: extern "C" fn() = {
    extern "C" fn at_exit() {
        info::at_exit();
        corelocal::alloc::verify();
        profile::dump();
        cache_stats::at_exit();
    }
    at_exit
};
