#!/usr/bin/env bash
# Portable world: the library's tests with the architecture-neutral model in place of the
# assembly, as on a machine corelocal has no critical sections for. And the tracer's times, which are exact there.
# Builds in: model
# Needs: cargo and a C linker.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
export RUSTFLAGS="--cfg corelocal_model -D warnings" CARGO_TARGET_DIR=$target/model
export CARGO_PROFILE_DEV_DEBUG=none # A test that fails says where; ci/unit.sh has lines for backtraces.
cargo_test -p corelocal --lib --tests
cargo_test -p corelocal-trace --test modes times
