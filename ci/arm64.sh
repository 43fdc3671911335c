#!/usr/bin/env bash
# Long pages: boots Linux on an emulated arm64 whose pages are 16 KiB, and runs the library's tests there. They are
# those of the portable form, since this processor has no critical sections yet.
#
#   ci/arm64.sh                    all of the tests below
#   ci/arm64.sh unit cid alloc     these alone: test programs by name, `unit` for the library's own
#
# Long: fifteen minutes of emulation; ci/model.sh has the portable form.
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: arm64
# Needs: root on Debian for QEMU, a linker for arm64 and the kernel, which stays in .cache/arm64; rustup's target
# aarch64-unknown-linux-gnu.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

suite=trixie # Its kernels have the flavour arm64-16k.
triple=aarch64-unknown-linux-gnu
cache=$root/.cache/arm64
out=$target/arm64-guest
limit=2400 # Seconds for the guest, where checks beside it have the cpus.
programs=("$@")
[ $# -gt 0 ] || programs=(unit counter cid word stack ring queue per_cpu area lock before_main worlds fork alloc \
    sync_mutex)

# fetch: fills $cache with vmlinuz and busybox.
fetch() {
    local apt=$cache.apt new=$cache.new package
    is_debian_root || skip "the kernel comes through apt: run ci/arm64.sh as root on Debian"
    echo "fetching an arm64 kernel with pages of 16 KiB from Debian's archive into .cache/ (95 MB)"
    rm -rf "$new"
    mkdir -p "$new/unpacked"
    apt_beside "$apt" "$suite" || skip "Debian $suite cannot be reached through apt"
    cat >>"$apt/apt.conf" <<'CONF'
#clear APT::Architectures;
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
CONF
    apt-get -qq -o APT::Update::Error-Mode=any update || skip "Debian $suite has no arm64 here"
    package=$(apt-cache pkgnames | grep -xE 'linux-image-[0-9.]+.*-arm64-16k-unsigned' | sort -V | tail -n 1 || true)
    [ -n "$package" ] || skip "Debian $suite has no arm64 kernel with pages of 16 KiB"
    (cd "$apt" && apt-get -qq download "$package" busybox-static) || skip "$package cannot be downloaded"
    for package in "$apt"/*.deb; do
        dpkg --extract "$package" "$new/unpacked"
    done
    find "$new/unpacked" -name 'vmlinuz*' -type f -exec mv {} "$new/vmlinuz" \;
    find "$new/unpacked" -name busybox -type f -exec mv {} "$new/busybox" \;
    unset APT_CONFIG
    rm -rf "$apt" "$cache" "$new/unpacked"
    mv "$new" "$cache" # Last, so that an interrupted run leaves no half of a cache behind.
}

# build: the test programs into the guest's directory /tests.
build() {
    local options=() name path
    for name in "${programs[@]}"; do
        [ "$name" = unit ] && options+=(--lib) || options+=(--test "$name")
    done
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CARGO_PROFILE_DEV_DEBUG=none
    RUSTFLAGS="-C target-feature=+crt-static -D warnings" CARGO_TARGET_DIR=$target/arm64 \
        cargo test --locked --no-run -p corelocal --all-features --target "$triple" "${options[@]}" \
        --config profile.dev.package.corelocal.opt-level=1 2>&1 | to_the_end tee "$out/build.log"
    while read -r name path; do
        aarch64-linux-gnu-strip --strip-debug -o "$out/guest/tests/$name" "$path"
    done < <(
        sed -nE 's/^ *Executable (unittests )?([^ ]*) \((.*)\)$/\2 \3/p' "$out/build.log" |
            sed -E 's!^src/lib\.rs !unit !; s!^tests/([^ ]*)\.rs !\1 !'
    )
}

need_rust
if command -v rustup >/dev/null; then
    rustup target list --installed | grep -qx "$triple" || rustup target add "$triple" ||
        skip "no Rust for $triple: run 'rustup target add $triple' and ci/arm64.sh again"
else
    skip "no Rust for $triple: it comes with rustup"
fi
need qemu-system-aarch64 qemu-system-arm "emulates the processor"
need aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross" "links programs for arm64"
need cpio cpio "packs what the guest starts from"
[ -e "$cache" ] || fetch
rm -rf "$out"
mkdir -p "$out/guest/"{bin,tests} "$out/guest$root/crates/corelocal/tests"
cp "$cache/busybox" "$out/guest/bin"
# The tests look for their fixtures where the sources were.
cp -r crates/corelocal/tests/fixtures "$out/guest$root/crates/corelocal/tests"
install -m 755 ci/kernels.d/init-arm64 "$out/guest/init"
build
(cd "$out/guest" && find . | cpio --quiet -o -H newc) >"$out/initramfs"
status=0
timeout --foreground --kill-after=5 "$limit" qemu-system-aarch64 -M virt -cpu max,pauth-impdef=on \
    -accel tcg,thread=multi -smp 4 -m 1G -nodefaults -display none -no-reboot -serial "file:$out/console" \
    -kernel "$cache/vmlinuz" -initrd "$out/initramfs" -append "console=ttyAMA0 quiet panic=1" || status=$?
grep -aE '^(page size|ran|skipped:|test .* FAILED|the guest)' "$out/console" | tr -d '\r' || true
[ "$status" = 0 ] || fail "the guest ended with $status: see $out/console"
grep -aq '^page size 16384' "$out/console" || fail "the guest's pages are not 16 KiB: see $out/console"
grep -aq '^the guest is done' "$out/console" || fail "the guest did not come to its end: see $out/console"
failed=$(sed -n 's/^ran \([^ ]*\) status \([0-9]*\).*/\1 \2/p' <(tr -d '\r' <"$out/console") | awk '$2 != 0 { print $1 }')
for name in $failed; do
    echo "$name ended with:"
    tr -d '\r' <"$out/console" | grep -a -B 12 "^ran $name status" | sed 's/^/    /'
done
[ -z "$failed" ] || fail "failed with pages of 16 KiB: $(tr '\n' ' ' <<<"$failed"); see $out/console"
