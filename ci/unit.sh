#!/usr/bin/env bash
# Tests: every test of the workspace, and the library's again without its `serde` feature.
# Needs: cargo and a C linker.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
cargo_test --workspace --all-features
cargo_test -p corelocal --no-default-features
