#!/usr/bin/env bash
# Emulated arm64: boots Linux with pages of 4 and of 16 KiB under QEMU, and runs the library's tests there.
#
#   ci/arm64.sh                    all of the tests below, with 4 cpus
#   ci/arm64.sh --pages 16         this page size alone
#   ci/arm64.sh --cpus 8           so many cpus
#   ci/arm64.sh unit cid alloc     these tests alone: programs by name, `unit` for the library's own
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
limit=2400 # Seconds for a guest, where checks beside it have the cpus.
pages=() cpus=4 programs=()
while [ $# -gt 0 ]; do
    case $1 in
        --pages) pages+=("$2") && shift ;;
        --cpus) cpus=$2 && shift ;;
        -*) sed -n '2,/^# Long/{/^# Long/!s/^# \{0,1\}//p}' "$0" >&2 && exit 2 ;;
        *) programs+=("$1") ;;
    esac
    shift
done
[ ${#pages[@]} -gt 0 ] || pages=(4 16)
[ ${#programs[@]} -gt 0 ] || programs=(unit counter cid word stack ring queue per_cpu area lock before_main worlds fork \
    alloc sync_mutex)

# fetch: fills $cache with vmlinuz-4, vmlinuz-16 and busybox.
fetch() {
    local apt=$cache.apt new=$cache.new size flavour package
    is_debian_root || skip "the kernels come through apt: run ci/arm64.sh as root on Debian"
    echo "fetching arm64 kernels with pages of 4 and 16 KiB from Debian's archive into .cache/ (130 MB)"
    rm -rf "$new"
    mkdir -p "$new"
    apt_beside "$apt" "$suite" || skip "Debian $suite cannot be reached through apt"
    cat >>"$apt/apt.conf" <<'CONF'
#clear APT::Architectures;
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
CONF
    apt-get -qq -o APT::Update::Error-Mode=any update || skip "Debian $suite has no arm64 here"
    for size in 4 16; do
        [ "$size" = 4 ] && flavour=cloud-arm64-unsigned || flavour=arm64-16k-unsigned
        package=$(apt-cache pkgnames | grep -xE "linux-image-[0-9.]+.*-$flavour" | sort -V | tail -n 1 || true)
        [ -n "$package" ] || skip "Debian $suite has no arm64 kernel with pages of $size KiB"
        take "$package"
        find "$new/unpacked" -name 'vmlinuz*' -type f -exec mv {} "$new/vmlinuz-$size" \;
    done
    take busybox-static
    find "$new/unpacked" -name busybox -type f -exec mv {} "$new/busybox" \;
    unset APT_CONFIG
    rm -rf "$apt" "$cache" "$new/unpacked"
    mv "$new" "$cache" # Last, so that an interrupted run leaves no half of a cache behind.
}

# take PACKAGE: nothing else stays in $new/unpacked.
take() {
    rm -rf "$new/unpacked"
    (cd "$apt" && apt-get -qq download "$1") || skip "$1 cannot be downloaded"
    dpkg --extract "$apt/$1"_*.deb "$new/unpacked"
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
# boot PAGES: one guest with pages of so many KiB.
boot() {
    local console=$out/console-$1 status=0 failed name
    timeout --foreground --kill-after=5 "$limit" qemu-system-aarch64 -M virt -cpu max,pauth-impdef=on \
        -accel tcg,thread=multi -smp "$cpus" -m 2G -nodefaults -display none -no-reboot -serial "file:$console" \
        -kernel "$cache/vmlinuz-$1" -initrd "$out/initramfs" -append "console=ttyAMA0 quiet panic=1" || status=$?
    grep -aE '^(page size|ran|skipped:|test .* FAILED|the guest)' "$console" | tr -d '\r' || true
    [ "$status" = 0 ] || fail "the guest ended with $status: see $console"
    grep -aq "^page size $(($1 * 1024))" "$console" || fail "the guest's pages are not $1 KiB: see $console"
    grep -aq '^the guest is done' "$console" || fail "the guest did not come to its end: see $console"
    failed=$(sed -n 's/^ran \([^ ]*\) status \([0-9]*\).*/\1 \2/p' <(tr -d '\r' <"$console") | awk '$2 != 0 { print $1 }')
    for name in $failed; do
        echo "$name ended with:"
        tr -d '\r' <"$console" | grep -a -B 12 "^ran $name status" | sed 's/^/    /'
    done
    [ -z "$failed" ] || fail "failed with pages of $1 KiB: $(tr '\n' ' ' <<<"$failed"); see $console"
}

for size in "${pages[@]}"; do
    boot "$size"
done
