# Emulated machines of another architecture: boots Linux under QEMU, runs the library's tests there, and disturbs its
# critical sections, at each instruction, and at random while cpus and cpusets change. The kernels are Debian's, or
# built from Debian's source (build.bash). `ci/arm64` and `ci/riscv64` say what, and source this file:
#
#   arch, triple    as Debian and as Rust call it
#   kernels         each in one line: name, KiB in a page, Debian suite, package; a package of sources is built
#   cpus, guests    how many; what --record boots: kernels, and cpus of each
#   brief           the programs of --brief
#   left_out        programs that the whole run leaves out
#   emulator CPUS   prints the words that start the emulator: processor and machine
#   console         the kernel's name for the first serial line

gcc=${triple%%-*}-linux-gnu-
gcc=${gcc/riscv64gc/riscv64}
cache=$root/.cache/$arch
out=$target/$arch-guest
limit=2400 # Seconds for a guest, where checks beside it have the cpus.
chosen=() programs=() share=1/1 storm=5 is_recorded=
names=$(printf '%s\n' "${kernels[@]}" | cut -d ' ' -f 1)
while [ $# -gt 0 ]; do
    case $1 in
        --brief)
            chosen=(6.12) share=1/64 storm=2
            programs=("${brief[@]}")
            ;;
        --record)
            is_recorded=yes share=1/64
            programs=(unit counter stack ring queue fork alloc sync_mutex rcu trace clock torture malloc)
            ;;
        --kernel)
            grep -qxF -- "${2:-}" <<<"$names" || {
                echo "--kernel ${2:-}: choose one of $(paste -sd ' ' <<<"$names")" >&2
                exit 2
            }
            chosen+=("$2")
            shift
            ;;
        --cpus)
            [[ ${2:-} =~ ^[1-9][0-9]*$ && $2 -le 64 ]] || {
                echo "--cpus ${2:-}: a number from 1 to 64 is needed" >&2
                exit 2
            }
            cpus=$2
            shift
            ;;
        -*)
            sed -n '2,/^# Needs/{/^# Needs/!s/^# \{0,1\}//p}' "$0" >&2
            exit 2
            ;;
        *) programs+=("$1") ;;
    esac
    shift
done
[ ${#chosen[@]} -gt 0 ] || mapfile -t chosen <<<"$names"
# Not what needs the sources, or x86-64, or counts memory that has gone back by itself after so long.
if [ ${#programs[@]} = 0 ]; then
    programs=(unit callers adapters capi torture malloc unloading models)
    for path in crates/corelocal/tests/*.rs; do
        name=$(basename "$path" .rs)
        case $name in
            alloc_nodes | alloc_timed | alloc_worlds | circles | compile_fail | examples | file_size_limit | layering | leaks | \
                rcu_fork_steps | soundness | stepped | unloading | words) ;;
            *) programs+=("$name") ;;
        esac
    done
fi
for name in "${left_out[@]}"; do
    for i in "${!programs[@]}"; do
        [ "${programs[i]}" != "$name" ] || unset "programs[i]"
    done
done

source ci/kernels.d/build.bash

# fetch NAME...: fills $cache with NAME/vmlinuz and NAME/kib for each of these kernels, and with busybox.
fetch() {
    local apt=$cache.apt new=$cache.new kernel name kib suite pattern package
    is_debian_root || skip "the kernels come through apt: run ci/$arch as root on Debian"
    echo "fetching $arch kernels $* from Debian's archive into .cache/ (10 to 110 MB each; a source has 160)"
    rm -rf "$new"
    mkdir -p "$new" "$cache"
    # shellcheck disable=SC2046 # Several words.
    apt_beside "$apt" $(printf '%s\n' "${kernels[@]}" | awk '{ print $3 }' | sort -u) ||
        skip "the archive with the kernels cannot be reached through apt"
    cat >>"$apt/apt.conf" <<CONF
#clear APT::Architectures;
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
CONF
    apt-get -qq -o APT::Update::Error-Mode=any update || skip "the archive has no $arch here"
    for kernel in "${kernels[@]}"; do
        read -r name kib suite pattern <<<"$kernel"
        [[ " $* " == *" $name "* ]] || continue
        mkdir "$new/$name"
        echo "$kib" >"$new/$name/kib"
        if [[ $pattern == linux-source* ]]; then
            build_kernel "$name" "$pattern" "$new/$name/vmlinuz"
        else
            package=$(apt-cache pkgnames | grep -xE "$pattern" | sort -V | tail -n 1 || true)
            [ -n "$package" ] || skip "Debian $suite has no kernel $name for $arch: name another in ci/$arch"
            take "$package"
            find "$new/unpacked" -name 'vmlinu[xz]*' -type f -exec mv {} "$new/$name/vmlinuz" \;
        fi
        rm -rf "${cache:?}/$name"
        mv "$new/$name" "$cache" # Last, so that an interrupted run leaves no half of a kernel behind.
    done
    if [ ! -e "$cache/busybox" ]; then
        take busybox-static
        find "$new/unpacked" -name busybox -type f -exec mv {} "$cache/busybox" \;
    fi
    unset APT_CONFIG
    rm -rf "$apt" "$new"
}

# take PACKAGE: nothing else stays in $new/unpacked.
take() {
    rm -rf "$new/unpacked"
    (cd "$apt" && apt-get -qq download "$1") || skip "$1 cannot be downloaded"
    dpkg --extract "$apt/$1"_*.deb "$new/unpacked"
}

# build: the test programs into the guest's directory /tests, and the command.
build() {
    local options=() name path linker=${triple//-/_}
    for name in "${programs[@]}"; do
        case $name in
            unit) options+=(--lib) ;;
            torture | malloc | callers | adapters | capi | unloading | models) ;;
            *) options+=(--test "$name") ;;
        esac
    done
    export "CARGO_TARGET_${linker^^}_LINKER=${gcc}gcc" CARGO_PROFILE_DEV_DEBUG=none
    export RUSTFLAGS="-C target-feature=+crt-static" CARGO_TARGET_DIR=$target/$arch
    local common=(--locked --target "$triple" --config profile.dev.package.corelocal.opt-level=1)
    if [ ${#options[@]} -gt 0 ]; then
        build_tests '' -p corelocal --all-features "${options[@]}"
    fi
    if has adapters; then
        build_tests metrics- -p corelocal-metrics --tests
        build_tests tracing- -p corelocal-tracing --tests
    fi
    if has callers; then
        # With what names of functions and lines are read from.
        CARGO_PROFILE_DEV_DEBUG=line-tables-only build_tests '' -p corelocal-symbols --test callers
    fi
    if has torture; then
        cargo build "${common[@]}" -p corelocal-cli --bin corelocal
        path=$CARGO_TARGET_DIR/$triple/debug/corelocal
        "${gcc}strip" --strip-debug -o "$out/guest/bin/corelocal" "$path"
        echo "$share" >"$out/guest/share"
    fi
    if has models; then
        # All interleavings of the sections of arm64's programs, on this machine.
        RUSTFLAGS='' CARGO_TARGET_DIR=$target CORELOCAL_SECTIONS_OF=$path \
            cargo test --locked -p corelocal-lab --all-features --test sim -- another_processor
    fi
    if has capi; then
        # The C library's tests, linked statically, with its sections inline.
        cargo build "${common[@]}" -p corelocal-capi
        c_tests "$gcc" "$CARGO_TARGET_DIR/$triple/debug/libcorelocal_capi.a" "$out/guest/tests"
    fi
    mkdir -p "$out/guest/"{lib,examples}
    if has malloc || has unloading; then
        # A shared object, and so not linked as the programs are.
        export RUSTFLAGS=""
        "${gcc}gcc" -O2 -pthread -o "$out/guest/bin/churn" ci/kernels.d/churn.c
        # What the linker names as the loader, and the libraries.
        path=$("${gcc}readelf" -l "$out/guest/bin/churn" | sed -n 's/.*interpreter: \(.*\)]/\1/p')
        for name in "${path##*/}" libc.so.6 libgcc_s.so.1; do
            cp -L "$("${gcc}gcc" -print-file-name="$name")" "$out/guest/lib"
        done
    fi
    if has malloc; then
        cargo build "${common[@]}" -p corelocal-malloc
        "${gcc}strip" --strip-debug -o "$out/guest/lib/libcorelocal_malloc.so" \
            "$CARGO_TARGET_DIR/$triple/debug/libcorelocal_malloc.so"
    fi
    if has unloading; then
        build_tests '' -p corelocal --all-features --test unloading
        cargo build "${common[@]}" -p corelocal --all-features --example plugin
        cp "$CARGO_TARGET_DIR/$triple/debug/examples/libplugin.so" "$out/guest/examples"
    fi
}

# has NAME: it was chosen.
has() {
    [[ " ${programs[*]} " == *" $1 "* ]]
}

# build_tests PREFIX ARGUMENTS...: the test programs that these arguments of cargo name, each with the prefix.
build_tests() {
    local prefix=$1 name path
    shift
    cargo test "${common[@]}" --no-run "$@" 2>&1 | to_the_end tee "$out/build.log"
    while read -r name path; do
        if [ "$name" = callers ]; then
            cp "$path" "$out/guest/tests/$name"
        else
            "${gcc}strip" --strip-debug -o "$out/guest/tests/$prefix$name" "$path"
        fi
    done < <(
        sed -nE 's/^ *Executable (unittests )?([^ ]*) \((.*)\)$/\2 \3/p' "$out/build.log" |
            sed -E 's!^src/lib\.rs !unit !; s!^tests/([^ ]*)\.rs !\1 !'
    )
}

need_rust
if command -v rustup >/dev/null; then
    rustup target list --installed | grep -qx "$triple" || rustup target add "$triple" ||
        skip "no Rust for $triple: run 'rustup target add $triple' and ci/$arch again"
else
    skip "no Rust for $triple: it comes with rustup"
fi
need "$(emulator 1 | cut -d ' ' -f 1)" "$package" "emulates the processor"
need "${gcc}gcc" "gcc-${gcc%-} libc6-dev-$arch-cross" "links programs for $arch"
need cpio cpio "packs what the guest starts from"
missing=()
for name in "${chosen[@]}"; do
    [ ! -e "$cache/$name" ] || continue
    missing+=("$name")
    if printf '%s\n' "${kernels[@]}" | grep -q "^$name .*linux-source"; then
        for tool in flex bison bc make; do
            need "$tool" "$tool" "builds kernels"
        done
    fi
done
[ ${#missing[@]} = 0 ] || fetch "${missing[@]}"
rm -rf "$out"
mkdir -p "$out/guest/"{bin,tests} "$out/guest$root/crates/corelocal/tests"
cp "$cache/busybox" "$out/guest/bin"
# The tests look for their fixtures where the sources were.
cp -r crates/corelocal/tests/fixtures "$out/guest$root/crates/corelocal/tests"
install -m 755 ci/kernels.d/init-guest "$out/guest/init"
build
(cd "$out/guest" && find . | cpio --quiet -o -H newc) >"$out/initramfs"

# boot NAME CPUS: one guest with this kernel.
boot() {
    local console_file=$out/console-$1-$2 kib status=0 failed name cpus=$2 started=$SECONDS threads=multi command
    # A guest of many more cpus than there are here does not get through its boot; by turns it does.
    [ "$cpus" -le 16 ] || threads=single
    kib=$(<"$cache/$1/kib")
    read -ra command < <(emulator "$cpus")
    timeout --foreground --kill-after=5 "$limit" "${command[@]}" \
        -accel "tcg,thread=$threads" -smp "$cpus" -m 2G -nodefaults -display none -no-reboot -serial "file:$console_file" \
        -kernel "$cache/$1/vmlinuz" -initrd "$out/initramfs" \
        -append "console=$console quiet panic=1 storm=$storm kernel=$1" || status=$?
    echo "kernel $1, $cpus cpus, $((SECONDS - started)) s:"
    grep -aE '^(page size|ran|skipped:|test .* FAILED|[0-9]+ triples|operations |disturbed|the guest)' "$console_file" | tr -d '\r' || true
    [ "$status" = 0 ] || fail "the guest ended with $status: see $console_file"
    grep -aq "^page size $((kib * 1024))" "$console_file" || fail "the guest's pages are not $kib KiB: see $console_file"
    grep -aq '^the guest is done' "$console_file" || fail "the guest did not come to its end: see $console_file"
    [ -z "$is_recorded" ] || row "$1" "$cpus" "$console_file" $((SECONDS - started)) >>"$out/rows"
    failed=$(sed -n 's/^ran \([^ ]*\) status \([0-9]*\).*/\1 \2/p' <(tr -d '\r' <"$console_file") | awk '$2 != 0 { print $1 }')
    for name in $failed; do
        echo "$name ended with:"
        tr -d '\r' <"$console_file" | grep -a -B 12 "^ran $name status" | sed 's/^/    /'
    done
    [ -z "$failed" ] || fail "failed on $1: $(tr '\n' ' ' <<<"$failed"); see $console_file"
}

# row NAME CPUS CONSOLE SECONDS: the guest's line in the table.
row() {
    tr -d '\r' <"$3" | awk -v name="$1" -v cpus="$2" -v seconds="$4" '
        $1 == "ran" && $4 == "0," { tests += $5 }
        $1 == "ran" && $4 !~ /^0,?$/ { failed = 1 }
        /^skipped:/ { skipped++ }
        / triples: / { triples = $1 }
        $1 == "operations" { operations += $2 }
        $1 == "disturbed" { count[$2] = $3 }
        END {
            for (kind in count) if (!count[kind]) failed = 1
            if (cpus > 1) disturbed = (count["unplug"] + 0) " | " (count["cpuset"] + 0)
            else disturbed = "- | -"
            result = failed ? "failed" : "passed"
            printf("| %s | %d | %s | %d | %d | %d | %d | %s | %d |\n",
                name, cpus, result, tests, skipped, triples, operations, disturbed, seconds)
        }'
}

# record: the table of all guests. Rows of those that were not booted now stay.
record() {
    local table=docs/kernel-matrix-$arch.md guest row
    {
        echo "# Linux for $arch"
        echo
        echo "Made by \`ci/$arch --record\`, last on $(date -u +%F); not to be edited. The guests run under"
        echo "QEMU $("${command[0]}" --version | sed -nE '1s/.*version ([0-9.]+).*/\1/p'), in software: they show behaviour, never speed."
        echo
        echo "| kernel | cpus | result | tests passed | not run | triples | storm operations | cpus unplugged | cpuset changes | seconds |"
        echo "|---|---|---|---|---|---|---|---|---|---|"
        for guest in "${guests[@]}"; do
            row="^| ${guest%:*} | ${guest#*:} |"
            grep "$row" "$out/rows" || grep -s "$row" "$table" || true
        done
    } >"$out/matrix.md"
    mv "$out/matrix.md" "$table"
}

if [ -n "$is_recorded" ]; then
    read -ra command < <(emulator 1)
    for name in "${guests[@]}"; do
        [[ " ${chosen[*]} " == *" ${name%:*} "* ]] || continue
        boot "${name%:*}" "${name#*:}"
        record
    done
else
    for name in "${chosen[@]}"; do
        boot "$name" "$cpus"
    done
fi
