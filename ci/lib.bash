# What the check scripts share. Sourced, never run.
#
# Invariants:
# - A script runs from any directory: sourcing this file moves to the repository root.
# - A check that cannot run here ends through `skip`, exit code 77, and is never called passed.
# - The network is touched only for what is missing: crates the lock file names, apt packages.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
check=$(basename "$0" .sh)
export DEBIAN_FRONTEND=noninteractive
cd "$root"
# shellcheck disable=SC2034 # The scripts use it.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# skip REASON: this check cannot run here.
skip() {
    echo "skipped: ci/$check.sh: $1" >&2
    exit 77
}

# fail REASON: this check found a fault.
fail() {
    echo "failed: ci/$check.sh: $1" >&2
    exit 1
}

is_debian_root() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && command -v dpkg >/dev/null
}

# need COMMAND PACKAGES WHY: COMMAND exists from here on, installed from the Debian PACKAGES where
# that is possible; otherwise this check is skipped.
need() {
    command -v "$1" >/dev/null && return
    if is_debian_root; then
        mkdir -p "$root/.cache"
        exec 9>"$root/.cache/apt.lock"
        ! command -v flock >/dev/null || flock 9 # Checks run beside each other.
        if ! command -v "$1" >/dev/null; then
            echo "$1 is missing ($3): installing $2 through apt"
            # Another apt may be at work on this machine: its lock is waited for.
            local -a packages options=(-qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=300)
            read -ra packages <<<"$2"
            apt-get "${options[@]}" update || true # The package lists at hand may still do.
            apt-get "${options[@]}" install -y --no-install-recommends "${packages[@]}" >/dev/null || true
        fi
        exec 9>&-
    fi
    command -v "$1" >/dev/null ||
        skip "$1 is missing ($3): install $2 and run ci/$check.sh again"
}

# apt_beside DIRECTORY SUITE...: from here on apt works in DIRECTORY, beside the system and not in
# it, with the packages of these Debian suites, from the system's own mirror. Fails where they cannot
# be reached; `unset APT_CONFIG` goes back to the system.
apt_beside() {
    local directory=$1 release mirror keyring suite signed=
    shift
    # shellcheck source=/dev/null
    release=$(source /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016 # apt-get expands it.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' \
        "Release: $release" | head -n 1)
    [ -n "$mirror" ] || return
    for keyring in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
        [ ! -e "$keyring" ] || signed="[signed-by=$keyring]"
    done

    rm -rf "$directory"
    mkdir -p "$directory"/{lists,archives}/partial
    for suite in "$@"; do
        echo "deb $signed $mirror $suite main"
    done >"$directory/sources.list"
    {
        # The host's way to the network, and nothing else of its configuration. The signatures of
        # snapshots and of suites that are done are valid, but expired.
        apt-config dump --no-empty | grep -E '^Acquire::(https?|Retries)' || true
        cat <<CONF
Acquire::http::Timeout "20";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "$directory/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$directory";
Dir::State::status "/dev/null";
Dir::Cache "$directory";
DPkg::Lock::Timeout "300";
APT::Sandbox::User "root";
CONF
    } >"$directory/apt.conf"
    export APT_CONFIG=$directory/apt.conf
    apt-get -qq -o APT::Update::Error-Mode=any update
}

# unpack_beside DIRECTORY SUITE PACKAGE...: unpacks these packages of a Debian suite, and all that they
# load, into DIRECTORY, beside the system. Fails where they cannot be had.
unpack_beside() {
    local directory=$1 suite=$2 apt=$1.apt new=$1.new package
    shift 2
    rm -rf "$new"
    mkdir -p "$new"
    apt_beside "$apt" "$suite" &&
        apt-get -qq install -y --download-only --no-install-recommends "$@" >/dev/null || return
    unset APT_CONFIG
    for package in "$apt"/archives/*.deb; do
        dpkg --extract "$package" "$new"
    done
    rm -rf "$apt" "$directory"
    mv "$new" "$directory" # Last, so that an interrupted run leaves no half of it behind.
}

# starter DIRECTORY PROGRAM: makes a script in DIRECTORY, of the same name, that starts the PROGRAM unpacked
# there with the dynamic loader and the libraries that are there.
starter() {
    local name loader place path=
    name=$(basename "$2")
    # Packages had libraries in lib/ before Debian 13.
    for place in "$1"/{usr/lib,lib}/*-linux-gnu*; do
        [ ! -d "$place" ] || path+=${path:+:}\$kit${place#"$1"}
    done
    loader=$(cd "$1" && find . -path './*lib/*-linux-gnu*/ld-linux*.so.*' -print -quit)
    cat >"$1/$name" <<WRAPPER
#!/bin/sh
kit=\$(dirname "\$(readlink -f "\$0")")
exec "\$kit/$loader" --library-path "$path" --argv0 $name "\$kit/$2" "\$@"
WRAPPER
    chmod +x "$1/$name"
}

# need_rust: cargo and a C linker exist from here on.
need_rust() {
    local installed=${CARGO_HOME:-${HOME:-}/.cargo}/bin
    command -v cargo >/dev/null || PATH=$PATH:$installed
    command -v cargo >/dev/null ||
        fail "no cargo in PATH: install a Rust toolchain, $(msrv) or newer, and run it again"
    need cc "gcc libc6-dev" "links every Rust program"
}

# need_component COMMAND COMPONENT: the cargo COMMAND exists from here on.
need_component() {
    need_rust
    cargo "$1" --version >/dev/null 2>&1 ||
        skip "cargo $1 is missing: run 'rustup component add $2' and ci/$check.sh again"
}

# The oldest Rust the workspace promises to build with.
msrv() {
    sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml"
}

# The triple of the machine this runs on.
host() {
    rustc -vV | sed -n 's/^host: //p'
}

# cargo_test ARGUMENTS [-- ARGUMENTS OF TESTS]: cargo test, digested. ci/again runs the programs.
cargo_test() {
    local arguments=() triple
    triple=$(host)
    triple=${triple//-/_}
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        arguments+=("$1")
        shift
    done
    env "CARGO_TARGET_${triple^^}_RUNNER=ci/again" \
        cargo test --locked --no-fail-fast "${arguments[@]}" -- --show-output "${@:2}" 2>&1 | digest
}

# to_the_end COMMAND...: of the end of a pipe. Ends with its input, not before: when the check is ended for its
# time, with its group of processes, what it was at is to be seen.
to_the_end() (
    trap '' HUP INT TERM
    apart=()
    ! command -v setsid >/dev/null || apart=(setsid)
    exec "${apart[@]}" "$@"
)

# digest: of what test programs print, when no test failed, how many there are, what was skipped, what a sanitizer
# reports and the result; everything (but the names of passing tests a second time) of one that failed or did not
# end.
digest() {
    # shellcheck disable=SC2016 # awk expands it.
    to_the_end awk '
        # held: what the program printed since it began.
        function tell_all(  i, names) {
            for (i = 0; i < held; i++) {
                if (line[i] == "successes:") { names = 1; continue }
                if (line[i] ~ /^(---- |test result|failures:$)/) names = 0
                if (!names || line[i] !~ /^(    |$)/) print line[i]
            }
            held = 0
        }
        /^running [0-9]+ tests?$/ { tell_all(); print; inside = 1; reports = 0; fflush(); next }
        inside && /^test result: ok/ { held = inside = 0 }
        # A child of a test may have one of which the test knows nothing.
        inside && /ERROR: (Address|Leak)Sanitizer/ { reports = 1 }
        inside && reports && !/^test result: / { print; fflush(); reports = !/^SUMMARY: /; next }
        inside && /^skipped: / { print; fflush(); next }
        inside && !/^test result: / { line[held++] = $0; next }
        { tell_all(); inside = 0; print; fflush() }
        END { tell_all() }
    '
}

# What cargo builds for a debugger, it builds of all packages with all features, for every check: a package by itself
# has other features of its dependencies, and all would be built again.
# shellcheck disable=SC2034 # The scripts use it.
whole=(--workspace --all-features)

# What is long in the tests' own work, optimised.
optimised=()
for package in corelocal corelocal-lab iced-x86 object gimli addr2line; do
    optimised+=(--config "profile.dev.package.$package.opt-level=1")
done

# Sets $options for cargo, and the environment, for programs without a dynamic loader: the same ones for every
# check, so that they are built once.
without_loader() {
    export RUSTFLAGS="-C target-feature=+crt-static -D warnings" CARGO_TARGET_DIR=$target/static
    # With an explicit target the flags reach the programs, not the procedural macros.
    # shellcheck disable=SC2034 # For who calls.
    options=("${optimised[@]}" --target "$(host)")
}

# c_tests PREFIX LIBRARY DIRECTORY: the C library's tests as DIRECTORY/capi-NAME, linked statically with it, by PREFIXgcc.
c_tests() {
    local path name
    mkdir -p "$3"
    for path in crates/corelocal-capi/tests/c/{counter,area,histogram,containers,mutex,rcu,trace,process}.c; do
        name=$(basename "$path" .c)
        "$1gcc" -std=gnu99 -O2 -s -static -pthread -Wall -Wextra -Werror -Icrates/corelocal-capi/include "$path" \
            -o "$3/capi-$name" "$2" -lgcc_eh -lm
    done
}

# python_with NAME PACKAGE...: prints a Python that has these packages of PyPI, in an environment of this name in .cache/.
# Fails where they are missing and cannot be had.
python_with() {
    local place=$root/.cache/python-$1 wanted=${*:2}
    if [ "$(cat "$place/packages" 2>/dev/null)" != "$wanted" ]; then
        echo "installing $wanted from PyPI into .cache/" >&2
        rm -rf "$place"
        python3 -m venv "$place" && "$place/bin/pip" install -q "${@:2}" >&2 || return 1
        echo "$wanted" >"$place/packages"
    fi
    echo "$place/bin/python"
}
