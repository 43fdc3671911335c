#!/usr/bin/env bash
# Formatting: every Rust file is as rustfmt leaves it.
# Beside: it measures nothing, and builds nothing with cargo.
# Needs: rustfmt.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_component fmt rustfmt
cargo fmt --all --check -- --color never
