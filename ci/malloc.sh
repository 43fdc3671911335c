#!/usr/bin/env bash
# Malloc: corelocal's malloc, optimised, beside libc's: what its C names promise, forks, signals, threads that
# end, the end of memory; and real programs that run with it.
# Needs: cargo and a C linker; sqlite3, python3, git, gcc and g++, installed through apt where they are missing;
# redis, unpacked into .cache/ where it is not installed, since to install it would start a server; node, chromium
# and Python's own tests, if they are installed. CORELOCAL_MALLOC_LIBRARY may name another library.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

# wish COMMAND PACKAGES WHY: as `need`, but only a part of this check is skipped without it.
wish() {
    (need "$@") || [ $? = 77 ]
}

# redis: redis-server and redis-benchmark are in PATH, if they can be had.
redis() {
    local kit=$root/.cache/redis suite
    ! command -v redis-server >/dev/null || return 0
    if [ ! -e "$kit" ]; then
        is_debian_root || return 0
        # shellcheck source=/dev/null
        suite=$(source /etc/os-release && echo "${VERSION_CODENAME:-}")
        echo "no redis-server: unpacking Debian's into .cache/"
        unpack_beside "$kit" "$suite" redis-server redis-tools || return 0
    fi
    starter "$kit" usr/bin/redis-server
    starter "$kit" usr/bin/redis-benchmark
    PATH=$kit:$PATH
}

need_rust
if [ -z "${CORELOCAL_MALLOC_LIBRARY:-}" ]; then
    cargo build --release --locked -p corelocal-malloc
    export CORELOCAL_MALLOC_LIBRARY=$target/release/libcorelocal_malloc.so
fi
wish sqlite3 sqlite3 "runs with the malloc"
wish python3 "python3 libpython3-testsuite" "runs with the malloc"
wish git git "runs with the malloc"
wish gcc "gcc libc6-dev" "runs with the malloc"
wish g++ "g++ libc6-dev" "compiles what tries the operators of C++"
redis
cargo_test --release -p corelocal-malloc-tests
