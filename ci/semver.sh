#!/usr/bin/env bash
# Versions: what the crates for programs offer has changed since the last release as their version says.
#
#   ci/semver.sh [REVISION]    since this commit, or the last tag of a version
#
# Long: ten minutes, where there is a release.
# Needs: cargo; git; cargo-semver-checks, which is built into .cache/ the first time (eight minutes).
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
since=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null)} ||
    skip "there is no release with which to compare; name a commit"
tool=$root/.cache/semver
if [ ! -e "$tool/bin/cargo-semver-checks" ]; then
    echo "building cargo-semver-checks into .cache/"
    cargo install --quiet --locked --root "$tool" cargo-semver-checks || skip "cargo-semver-checks cannot be built"
fi
export PATH=$tool/bin:$PATH CARGO_TARGET_DIR=$target/semver
choice=()
for name in corelocal corelocal-trace corelocal-tracing corelocal-metrics; do choice+=(-p "$name"); done
cargo semver-checks --baseline-rev "$since" "${choice[@]}"
