#!/usr/bin/env bash
# Tests: every test of the workspace with all features. Without features the library's unit tests run here,
# its integration tests in ci/model.sh, ci/static.sh and ci/kernels.
# Python's own tests under the malloc, which take a minute and more, run once: optimised, in ci/malloc.sh.
# Needs: cargo and a C linker; chronyd for one test, unpacked into .cache/ where it is not installed, since
# to install it would put another in charge of this machine's clock.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

# chrony: CORELOCAL_CHRONYD names a chronyd, if one can be had.
chrony() {
    local kit=$root/.cache/chrony
    ! command -v chronyd >/dev/null || return 0
    if [ ! -e "$kit" ]; then
        is_debian_root || return 0
        echo "no chronyd: unpacking Debian's into .cache/ (20 MB to download)"
        unpack_beside "$kit" trixie chrony || return 0
    fi
    starter "$kit" usr/sbin/chronyd
    export CORELOCAL_CHRONYD=$kit/chronyd
}

need_rust
chrony
cargo_test "${whole[@]}" -- --skip programs::python3_tests
cargo_test -p corelocal --no-default-features --lib
