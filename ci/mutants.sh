#!/usr/bin/env bash
# A test of the tests: critical sections with one planted fault each are noticed by `corelocal
# torture` or `corelocal check`, and sound ones are not.
# Needs: cargo, a C linker, ptrace(2).
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo test --locked "${whole[@]}" --test mutants 2>&1 | to_the_end tee "$log"
! grep -q '^skipped: mutants:' "$log" || skip "$(sed -n 's/^skipped: mutants: //p' "$log")"
