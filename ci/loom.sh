#!/usr/bin/env bash
# Interleavings: loom runs the library's models in every order the memory model allows.
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: loom
# Needs: cargo and a C linker.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
export RUSTFLAGS="--cfg loom -D warnings" CARGO_TARGET_DIR=$target/loom
# Optimised, as models take minutes otherwise, but not to the last.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo_test -p corelocal --release --lib loom | to_the_end tee "$log"
# A filter that matches nothing passes too.
grep -qE '^test result: ok\. [1-9]' "$log" || fail "no test has loom in its name: nothing was checked"
