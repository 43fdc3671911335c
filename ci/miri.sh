#!/usr/bin/env bash
# Undefined behaviour: Miri interprets the library's unit tests of containers, with the model in place of
# the assembly and a kernel that maps memory and knows futexes (sys/arch/miri.rs).
# Where there is no Miri, as on every machine this was written on, it is only checked that the library
# and its unit tests compile as Miri would have them: what Miri says about them is not known yet. Assumed is a
# Miri of 2025 or later. It takes addresses for pointers (exposed provenance), since slots are found by
# adding numbers to a base, and cannot fork: such tests are left out.
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: miri
# Needs: cargo miri, of a nightly toolchain.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

# Those that lock, count or own; a loop of 20000 that others do would take an hour.
modules=(once_slot word words try_lock ring queue stack::batch stack::tests lock pool::)
# Tests that fork, and one that reads what may be padding, word by word, which only real memory allows.
cannot=(child fork trim)

need_rust
export CARGO_TARGET_DIR=$target/miri
cargo=(cargo)
if ! cargo miri --version >/dev/null 2>&1; then
    if cargo +nightly miri --version >/dev/null 2>&1; then
        cargo=(cargo +nightly)
    else
        RUSTFLAGS="--cfg miri" cargo check -p corelocal --locked --lib --profile test ||
            fail "the library does not compile for Miri"
        skip "cargo miri is missing: run 'rustup toolchain install nightly --component miri' and ci/miri.sh again"
    fi
fi
export MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation ${MIRIFLAGS:-}"
arguments=()
for module in "${modules[@]}"; do
    arguments+=("percpu::$module")
done
for test in "${cannot[@]}"; do
    echo "skipped: miri:$test: tests with this in their name fork, or look at bytes that no value has" >&2
    arguments+=(--skip "$test")
done
"${cargo[@]}" miri test -p corelocal --locked --lib -- "${arguments[@]}"
