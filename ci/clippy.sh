#!/usr/bin/env bash
# Lints: clippy finds nothing in any target, with all features and with none.
# Beside: it measures nothing, and builds in a directory of its own, which ci/doc.sh uses, too.
# Builds in: lint
# Needs: clippy.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_component clippy clippy
export CARGO_TARGET_DIR=$target/lint
cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
# The command without what it compares with.
cargo clippy -p corelocal-cli --all-targets --no-default-features --locked -- -D warnings
# What tests are without features, ci/model.sh compiles, and takes no warning either.
cargo clippy -p corelocal --lib --no-default-features --locked -- -D warnings
