#!/usr/bin/env bash
# Static world: the command and the library's tests linked without a dynamic loader, where libc
# publishes its rseq area differently and nothing can be looked up at run time.
# Long: four minutes, and what it builds is used by ci/kernels.
# Builds in: static
# Needs: cargo, a C linker with the static libc, readelf.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
need readelf binutils "shows whether a program is static"
host=$(host)
case $host in
    *-linux-gnu | *-linux-musl) ;;
    *) skip "$host has no static C library known to this check" ;;
esac
without_loader
cargo build -p corelocal-cli --locked "${options[@]}"
program=$CARGO_TARGET_DIR/$host/debug/corelocal
headers=$(readelf --program-headers --wide "$program")
! grep -q INTERP <<<"$headers" || fail "corelocal asks for a dynamic loader: it is not static"
"$program" doctor
cargo_test -p corelocal "${options[@]}" --lib --tests
