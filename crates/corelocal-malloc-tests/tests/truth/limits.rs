//! The end of memory, by limits that are set before a program starts.

use crate::run::{Limit, Malloc, TRY, all, done, limited};

/// Names, and sizes of objects: small, medium, large.
const NAMES: [&str; 7] =
    ["malloc", "calloc", "realloc", "grown", "aligned_alloc", "posix_memalign", "reallocarray"];
const SIZES: [&str; 4] = ["64", "1000", "20000", "3000000"];

fn with_limit(malloc: &Malloc, what: Limit, bytes: u64, args: &[&str]) {
    let mut command = malloc.command(TRY);
    command.args(args);
    limited(&mut command, what, bytes);
    let done = done(command);
    assert!(
        done.well(),
        "{args:?} with {}, {what:?} of {bytes} bytes: {}",
        malloc.name,
        done.whole()
    );
}

#[test]
fn address_space_ends() {
    for malloc in all("address_space_ends") {
        for name in NAMES {
            for size in SIZES {
                // Of small objects there are many.
                let bytes: u64 = if size.len() <= 4 { 64 << 20 } else { 160 << 20 };
                let args = ["fill", name, size, &bytes.to_string()];
                with_limit(&malloc, Limit::AddressSpace, bytes, &args);
            }
        }
    }
}

#[test]
fn data_ends() {
    for malloc in all("data_ends") {
        for name in ["malloc", "calloc", "posix_memalign"] {
            for size in SIZES {
                let bytes: u64 = if size.len() <= 4 { 48 << 20 } else { 96 << 20 };
                let args = ["fill", name, size, &bytes.to_string()];
                with_limit(&malloc, Limit::Data, bytes, &args);
            }
        }
    }
}

/// Limits a few pages apart: each call site meets the end of memory in some of them.
#[test]
fn memory_ends_anywhere() {
    for malloc in all("memory_ends_anywhere") {
        for nth in 0..60 {
            let bytes = (48 << 20) + nth * 20 * 4096;
            with_limit(
                &malloc,
                Limit::AddressSpace,
                bytes,
                &["shortage", &nth.to_string(), "4000"],
            );
        }
    }
}
