//! The end of memory, by limits that are set before a program starts.

use crate::run::{Limit, Malloc, TRY, all, done, installed, limited};

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

/// Programs of a desktop's shell, with little more than they have with libc's malloc.
#[test]
fn programs_start_with_little_address_space() {
    let test = "programs_start_with_little_address_space";
    for malloc in all(test) {
        let programs: [(&str, &[&str], u64); 3] =
            [("ls", &["/"], 40), ("perl", &["-e", "1"], 40), ("python3", &["-c", "print(1)"], 48)];
        for (program, args, mebibytes) in programs {
            let Some(path) = installed(program) else {
                crate::skip(test, &format!("{program} is not installed"));
                continue;
            };
            let mut command = malloc.command(path);
            command.args(args);
            limited(&mut command, Limit::AddressSpace, mebibytes << 20);
            let done = done(command);
            assert!(done.well(), "{program} with {}: {}", malloc.name, done.whole());
        }
    }
}

/// A process of no size has as little to dump and to be charged for, however many cpus the machine has.
#[test]
fn a_small_program_reserves_little() {
    for malloc in all("a_small_program_reserves_little") {
        malloc.tries(&["small", &(10 << 20).to_string()]);
    }
}

/// Under strict overcommit too, which `ci/kernels` tries.
#[test]
fn many_small_programs_fit() {
    for malloc in all("many_small_programs_fit") {
        malloc.tries(&["crowd", &crate::run::scaled(100)]);
    }
}

/// Stacks of signals have 8 KiB, and the shortest ones of threads 16. libc and the kernel keep something in both. Of a
/// thread's a build without optimisations was seen to take 10 KiB where the machine was busy.
#[test]
fn little_stack_is_enough() {
    let of_handler = 8 << 10;
    let of_thread = if cfg!(debug_assertions) { 12 << 10 } else { of_handler };
    for malloc in all("little_stack_is_enough") {
        malloc.tries(&["stack", &of_handler.to_string(), &of_thread.to_string()]);
        malloc.tries(&["shortest_stack"]);
    }
}

#[test]
fn a_limit_that_is_set_later_holds() {
    for malloc in all("a_limit_that_is_set_later_holds") {
        for limit in [256_u64 << 20, 1 << 30, 3 << 30] {
            malloc.tries(&["later", &limit.to_string()]);
        }
    }
}

#[test]
fn mallinfo_counts_as_that_of_glibc() {
    for malloc in all("mallinfo_counts_as_that_of_glibc") {
        malloc.tries(&["accounts"]);
    }
}

/// Address space that is free can be used for stacks: by `RLIMIT_AS`, and by `RLIMIT_MEMLOCK` after `mlockall`.
#[test]
fn a_process_at_its_limit_starts_threads() {
    let test = "a_process_at_its_limit_starts_threads";
    for malloc in all(test) {
        for (kind, limit) in [(0, 400_u64 << 20), (0, 2 << 30), (1, 7 << 20)] {
            let done = malloc.tries(&["room_for_others", &kind.to_string(), &limit.to_string()]);
            if done.out.contains("no such limit can be set") {
                crate::skip(test, done.out.trim());
            }
        }
    }
}

/// What a malloc writes down of the addresses that it would use is address space as well.
#[test]
fn what_is_refused_costs_nothing() {
    for malloc in all("what_is_refused_costs_nothing") {
        for gib in ["1", "20", "300"] {
            malloc.tries(&["refused", gib, &(64 << 20).to_string()]);
        }
    }
}

#[test]
fn locked_memory_is_what_is_in_use() {
    let test = "locked_memory_is_what_is_in_use";
    for malloc in all(test) {
        for flags in [libc::MCL_CURRENT, libc::MCL_FUTURE, libc::MCL_CURRENT | libc::MCL_FUTURE] {
            let done = malloc.tries(&["locked", &flags.to_string()]);
            if done.out.contains("no memory may be locked") {
                crate::skip(test, done.out.trim());
            }
        }
        malloc.tries(&["locked_by_steps"]);
    }
}

#[test]
fn memory_goes_back_when_it_is_not_locked_any_more() {
    let test = "memory_goes_back_when_it_is_not_locked_any_more";
    for malloc in all(test) {
        let done = malloc.tries(&["unlocked"]);
        if done.out.contains("no memory may be locked") {
            crate::skip(test, done.out.trim());
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
