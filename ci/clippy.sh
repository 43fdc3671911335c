#!/usr/bin/env bash
# Lints: clippy finds nothing in any target, with all features and with none.
# Needs: clippy.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_component clippy clippy
cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
cargo clippy -p corelocal --all-targets --no-default-features --locked -- -D warnings
