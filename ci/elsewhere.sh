#!/usr/bin/env bash
# Other systems and processors: the library compiles for macOS and for Windows, with each of its features, and for Linux on
# riscv64, ppc64le and s390x, in the portable form. Nothing is run there.
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: elsewhere
# Needs: cargo; rustup, for the standard libraries of all.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
export CARGO_TARGET_DIR=$target/elsewhere RUSTFLAGS='-D warnings'
linux=(riscv64gc-unknown-linux-gnu powerpc64le-unknown-linux-gnu s390x-unknown-linux-gnu)
for triple in x86_64-apple-darwin x86_64-pc-windows-gnu "${linux[@]}"; do
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple/lib" ]; then
        if ! command -v rustup >/dev/null || ! timeout 300 rustup target add "$triple" >/dev/null 2>&1; then
            skip "no standard library of $triple: run 'rustup target add $triple' and ci/elsewhere.sh again"
        fi
    fi
    for features in '' '--features std' --all-features; do
        # shellcheck disable=SC2086 # Words, or none.
        cargo check --locked --quiet -p corelocal --target "$triple" $features
        echo "$triple $features: compiles"
    done
done
