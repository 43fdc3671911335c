#!/usr/bin/env bash
# musl: the library's unit tests in a static program; the malloc as a shared object under a program of musl's, in four worlds,
# and compared with others on the load of a backup program; the command, static.
# Long: six minutes.
# Builds in: musl
# Needs: rustup's target x86_64-unknown-linux-musl; musl-tools, installed through apt where it is missing.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
[ "$(uname -m)" = x86_64 ] || skip "it is for x86-64"
triple=x86_64-unknown-linux-musl
if command -v rustup >/dev/null; then
    rustup target list --installed | grep -qx "$triple" || rustup target add "$triple" ||
        skip "no Rust for $triple: run 'rustup target add $triple' and ci/musl.sh again"
else
    skip "no Rust for $triple: it comes with rustup"
fi
need musl-gcc musl-tools "links programs with musl"

export CARGO_TARGET_DIR=$target/musl
RUSTFLAGS="-C target-feature=-crt-static -C linker=musl-gcc" cargo build --release --locked --target "$triple" -p corelocal-malloc
library=$CARGO_TARGET_DIR/$triple/release/libcorelocal_malloc.so
needed=$(readelf -d "$library" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
[ "$needed" = libc.so ] || fail "the malloc needs more than musl: $needed"
musl-gcc -O2 -pthread -o "$CARGO_TARGET_DIR/churn" ci/kernels.d/churn.c
for setting in '' CORELOCAL_MALLOC=check CORELOCAL_MALLOC=stats CORELOCAL_RSEQ=off; do
    # shellcheck disable=SC2086 # No word, or one.
    said=$(env $setting LD_PRELOAD="$library" "$CARGO_TARGET_DIR/churn" 2>&1) || fail "the malloc with $setting: $said"
done
echo "the malloc preloaded in four worlds: passed"
# What it takes at most is no matter of chance.
ci/musl.d/compare "$library" 1 | tee "$CARGO_TARGET_DIR/compared"
awk '{ peak[$1] = $3 } END { exit !(peak["corelocal"] <= 1.5 * peak["mallocng"]) }' "$CARGO_TARGET_DIR/compared" ||
    fail "the malloc takes more than 1.5 times the memory of musl's"
cargo build --locked --target "$triple" -p corelocal-cli --no-default-features
command=$CARGO_TARGET_DIR/$triple/debug/corelocal
! readelf -l "$command" | grep -q INTERP || fail "the command is not static"
"$command" doctor >"$CARGO_TARGET_DIR/doctor" || fail "$(cat "$CARGO_TARGET_DIR/doctor")"
grep -qE '^critical sections +active' "$CARGO_TARGET_DIR/doctor" || fail "$(cat "$CARGO_TARGET_DIR/doctor")"
"$command" check --strict "$command" "$library" | tail -n 1
"$command" torture --for 2s
CARGO_PROFILE_DEV_DEBUG=none cargo test --locked --no-fail-fast "${optimised[@]}" --target "$triple" -p corelocal --all-features \
    --lib -- --show-output 2>&1 | digest
