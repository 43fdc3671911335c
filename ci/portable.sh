#!/usr/bin/env bash
# Other processors: the library's unit tests in the portable form, on riscv64, ppc64le and s390x, by QEMU's emulation of
# programs. That has no MADV_WIPEONFORK, and its /proc tells of the emulator: tests that need these are left out, by name.
# Long: ten minutes of emulation.
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: portable
# Needs: root on Debian for QEMU and the linkers, or these; rustup's targets.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

# Each in one line: Rust's target, Debian's names of its linker and of that one's package, the emulator.
processors=(
    'riscv64gc-unknown-linux-gnu   riscv64-linux-gnu-gcc     gcc-riscv64-linux-gnu     qemu-riscv64-static'
    'powerpc64le-unknown-linux-gnu powerpc64le-linux-gnu-gcc gcc-powerpc64le-linux-gnu qemu-ppc64le-static'
    's390x-unknown-linux-gnu       s390x-linux-gnu-gcc       gcc-s390x-linux-gnu       qemu-s390x-static'
)
# What emulated programs do not have.
left_out=(
    # Memory that a fork wipes.
    sync::profile::hooks::tests::a_child_does_not_end_its_parents_wait
    sync::rwlock::tests::visitors_stay_behind
    sys::forks::tests::all_threads_of_a_child_know_which_thread_forked
    sys::forks::tests::threads_that_ask_at_once_get_the_next_number
    sys::forks::wipe_on_fork::tests::a_child_finds_zeros
    sys::thread::id::tests::a_child_knows_its_own_number
    sys::thread::serial::tests::a_child_keeps_its_own_alone
    sys::try_lock::tests::a_child_recovers_what_another_thread_held
    # Files of /proc that are of the program.
    alloc::debug::call_stack::tests::code_of_this_program
    alloc::page_heap::huge::tests::what_the_kernel_may_make_huge
    alloc::page_heap::mapped_chunks::tests::whole_huge_pages_are_advised_against
    sys::file::tests::what_is_not_the_kernel_s_counts_as_missing
    sys::memory::lazy_mapping::tests::it_is_not_locked
    sys::process::program::tests::of_this_program
    # A program that starts itself: the kernel does not know its format.
    sys::memory::pages_emulated::longer_pages
)

need_rust
command -v rustup >/dev/null || skip "no Rust for other processors: it comes with rustup"
export CARGO_TARGET_DIR=$target/portable CARGO_PROFILE_DEV_DEBUG=none RUSTFLAGS="-C target-feature=+crt-static"
export PROPTEST_CASES=8 CORELOCAL_TEST_SCALE=0.01
for processor in "${processors[@]}"; do
    read -r triple linker package emulator <<<"$processor"
    need "$emulator" qemu-user-static "runs programs of other processors"
    need "$linker" "$package" "links programs for $triple"
    rustup target list --installed | grep -qx "$triple" || rustup target add "$triple" ||
        skip "no Rust for $triple: run 'rustup target add $triple' and ci/portable.sh again"
    echo "== $triple"
    name=$(tr 'a-z-' 'A-Z_' <<<"$triple")
    env "CARGO_TARGET_${name}_LINKER=$linker" "CARGO_TARGET_${name}_RUNNER=$emulator" timeout 1200 \
        cargo test --quiet --locked --target "$triple" -p corelocal --all-features --lib -- \
        "${left_out[@]/#/--skip=}" 2>&1 | to_the_end tail -n 40
done
