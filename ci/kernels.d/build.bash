# Kernels that Debian has no package of, built from its package of the sources: with large pages or few bits of
# addresses, and with the fault of Linux 6.19 and 7.0 on arm64. For kernels.d/guests.bash.

# What each is configured with besides kernels.d/config, and changed in its sources. 7.0-broken is Linux 7.2 without the
# line by which commit 411c1cf43039 mended arm64, and 7.0-mended has the line; both say that they are 7.0.1.
configure() {
    case $1 in
        7.2-64k) printf '%s\n' CONFIG_ARM64_64K_PAGES=y CONFIG_ARM64_VA_BITS_52=y CONFIG_ARM64_PA_BITS_52=y ;;
        7.2-39bit) printf '%s\n' CONFIG_ARM64_4K_PAGES=y CONFIG_ARM64_VA_BITS_39=y ;;
        7.0-*) printf '%s\n' CONFIG_ARM64_4K_PAGES=y CONFIG_ARM64_VA_BITS_48=y ;;
    esac
}
change() {
    local file=arch/arm64/kernel/entry-common.c line='rseq_note_user_irq_entry();'
    [[ $1 == 7.0-* ]] || return 0
    sed -i 's/^PATCHLEVEL = .*/PATCHLEVEL = 0/; s/^SUBLEVEL = .*/SUBLEVEL = 1/' Makefile
    grep -q "$line" "$file" || fail "this source has not the line to leave out"
    touch "$file" # Newer than its object: of these two kernels the second one is built from what the first one left.
    [ "$1" = 7.0-mended ] || sed -i "/$line/d" "$file"
}

# build_kernel NAME PACKAGE IMAGE: 4 to 8 minutes on two cpus, and 2 GB below target/ while it builds.
build_kernel() {
    local sources=$target/$arch/linux package
    if [ ! -e "$sources/original" ]; then
        package=$(apt-cache pkgnames | grep -xE "$2" | sort -V | tail -n 1 || true)
        [ -n "$package" ] || skip "Debian has no $2"
        take "$package"
        rm -rf "$sources"
        mkdir -p "$sources"
        tar --directory "$sources" --extract --file "$(find "$new/unpacked" -name 'linux-source*.tar.xz')"
        mv "$sources"/linux-source* "$sources/original"
    fi
    echo "building kernel $1 (4 to 8 minutes)"
    rm -rf "$sources/changed"
    cp -r --preserve=timestamps "$sources/original" "$sources/changed"
    { cat "$root/ci/kernels.d/config" && configure "$1"; } >"$sources/wanted"
    if ! cmp --silent "$sources/wanted" "$sources/objects/wanted"; then
        rm -rf "$sources/objects"
        mkdir "$sources/objects"
        cp "$sources/wanted" "$sources/objects"
    fi
    (
        cd "$sources/changed"
        change "$1"
        unset RUSTFLAGS CARGO_TARGET_DIR
        make=(make -s "-j$(nproc)" ARCH="$arch" CROSS_COMPILE="$gcc" O="$sources/objects")
        "${make[@]}" KCONFIG_ALLCONFIG="$sources/wanted" allnoconfig
        while read -r line; do
            grep -qxF "$line" "$sources/objects/.config" || fail "the kernel's configuration has not taken $line"
        done <"$sources/wanted"
        "${make[@]}" Image.gz
    )
    cp "$sources/objects/arch/$arch/boot/Image.gz" "$3"
}
