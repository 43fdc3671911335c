#!/usr/bin/env bash
# Peers: tests that others wrote for their libraries, on ours. liburcu's rcutorture (readers that look for freed versions)
# and its test of forks run with corelocal/urcu.h in place of urcu.h.
# Needs: cargo, gcc, and as root on Debian liburcu-dev; the tests come from Debian's package of the sources, and stay in
# .cache/peers.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
need gcc "gcc libc6-dev" "compiles the tests"
[ -e /usr/include/urcu/uatomic.h ] || {
    is_debian_root || skip "liburcu's headers are not here: install liburcu-dev"
    apt-get -qq install -y liburcu-dev >/dev/null || skip "liburcu-dev cannot be installed"
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# sources PACKAGE: Debian's sources of it are in $kit/PACKAGE.
kit=$root/.cache/peers
sources() {
    local apt=$kit.apt new=$kit.new suite
    [ ! -e "$kit/$1" ] || return 0
    is_debian_root || skip "the sources of $1 come through apt: run this as root on Debian"
    # shellcheck source=/dev/null
    suite=$(source /etc/os-release && echo "${VERSION_CODENAME:-}")
    echo "fetching the sources of $1 from Debian's archive into .cache/"
    rm -rf "$new"
    mkdir -p "$new/unpacked" "$kit"
    apt_beside "$apt" "$suite" || skip "the archive with the sources cannot be reached through apt"
    sed 's/^deb /deb-src /' "$apt/sources.list" >>"$apt/sources.list.new"
    mv "$apt/sources.list.new" "$apt/sources.list"
    (
        cd "$new"
        apt-get -qq update && apt-get -qq source --download-only "$1"
    ) || skip "the sources of $1 cannot be fetched"
    unset APT_CONFIG
    tar --directory "$new/unpacked" --extract --file "$(find "$new" -name '*.orig.tar.*' ! -name '*.asc')"
    mv "$new"/unpacked/* "$kit/$1"
    rm -rf "$apt" "$new"
}

sources liburcu
tests=$kit/liburcu/tests
prefix=$scratch/prefix
ci/install-capi "$prefix"
mkdir "$scratch/names"
echo '#include <corelocal/urcu.h>' >"$scratch/names/urcu.h"

# compile NAME FILE: a test of liburcu's with our names before its own.
compile() {
    gcc -O2 -w -D_GNU_SOURCE -DRCU_MEMBARRIER -I"$scratch/names" -I"$prefix/include" -I"$tests/common" -I"$tests/utils" \
        "$tests/regression/$2" "$tests/utils/tap.c" -o "$scratch/$1" -L"$prefix/lib" -lcorelocal \
        "-Wl,-rpath,$prefix/lib" -pthread
    # It calls our functions.
    nm -u "$scratch/$1" | grep -q corelocal_rcu_read_lock || fail "$1 does not use the library"
}
compile torture urcutorture.c
compile fork test_urcu_fork.c
said=$("$scratch/torture" 4 stress 2>&1) || fail "rcutorture: $said"
echo "$said"
# A reader that found a version older than the last but one would have read freed memory.
grep -qE '^# rcu_stress_count: [0-9]+ [0-9]+( 0)+$' <<<"$said" || fail "rcutorture: readers found old versions"
grep -q 'n_mberror: 0' <<<"$said" || fail "rcutorture: an order is missing"
said=$("$scratch/torture" 2 perf 2>&1) || fail "rcutorture: $said"
said=$("$scratch/fork" 2>&1) || fail "the test of forks: $said"
[ "$(grep -c '^ok' <<<"$said")" = 10 ] || fail "the test of forks: $said"
echo "liburcu's test of forks: 10 of 10"
