#!/usr/bin/env bash
# Fuzzing: the targets in fuzz/ compile, and libFuzzer, which sees which branches a script of calls reaches, finds
# nothing wrong in half a minute. Who wants more gives seconds: ci/fuzz.sh 3600. Scripts that reach something new
# stay in .cache/fuzz/ and are where the next run begins.
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: fuzz
# Needs: cargo, a C++ compiler; the network for libFuzzer's crate, the first time.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

seconds=${1:-30}
need_rust
need g++ "g++" "compiles libFuzzer"
# What cargo-fuzz says to the compiler, but for the sanitizer: the malloc's memory is its own.
export CARGO_TARGET_DIR=$target/fuzz
export RUSTFLAGS="--cfg fuzzing -C debug-assertions -C overflow-checks -C codegen-units=1
    -C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=4
    -C llvm-args=-sanitizer-coverage-inline-8bit-counters -C llvm-args=-sanitizer-coverage-pc-table
    -C llvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS=$(tr -s '\n ' ' ' <<<"$RUSTFLAGS")
fuzz=(--manifest-path fuzz/Cargo.toml --locked)
cargo fetch "${fuzz[@]}" || skip "libFuzzer's crate is not here and cannot be fetched"
# With an explicit target build scripts and procedural macros stay as they are.
cargo build "${fuzz[@]}" --release --target "$(host)"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for source in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$source" .rs)
    corpus=$root/.cache/fuzz/$name
    mkdir -p "$corpus"
    "$CARGO_TARGET_DIR/$(host)/release/$name" -max_total_time="$seconds" -print_final_stats=1 -timeout=60 \
        -artifact_prefix="$root/.cache/fuzz/failed-$name-" "$corpus" 2>&1 | tee "$log" | grep -vE '^#[0-9]+.*(REDUCE|NEW)|^("|#####)' ||
        fail "$name: a script that goes wrong, see above"
    # A target that was not instrumented, or that reaches nothing, finds nothing.
    reached=$(sed -nE 's/^#[0-9]+\s+(DONE|pulse|NEW|INITED).* cov: ([0-9]+) .*/\2/p' "$log" | tail -n 1)
    [ "${reached:-0}" -gt 100 ] || fail "$name reaches ${reached:-no} branches: nothing was tried"
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") scripts, $reached branches reached"
done
