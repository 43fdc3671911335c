//! `malloc` and its kin, for `LD_PRELOAD` or to link: a thin shell over `corelocal::alloc`.
//!
//! ```text
//!   c.rs        malloc, free and all that C has, with errno as glibc sets it
//!   cxx.rs      the operators new and delete
//!   info.rs     mallinfo2, malloc_info and the like, and corelocal_malloc_stats
//!   idle.rs     what gives back idle memory: a thread (background.rs), or cold paths
//!   profile.rs  files with who has how much memory
//!   cache_stats.rs    what caches did, told to who started the program
//!   signals.rs  signals that ask for one of these
//!   options.rs  CORELOCAL_MALLOC in the environment
//!   process.rs  vfork
//! ```
//!
//! Invariants:
//! - Nothing here allocates from Rust's heap, or panics.
//! - `errno` changes only where a function fails.

mod background;
mod c;
mod cache_stats;
mod cxx;
mod idle;
mod info;
mod options;
mod process;
mod profile;
mod signals;
mod stats_format;
mod text_output;

/// What is done when the library is loaded; before that everything works, too.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        cxx::at_load();
        idle::at_load();
        info::at_load();
        signals::at_load();
        cache_stats::at_load();
    }
    at_load
};

/// What is done when the program ends.
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
