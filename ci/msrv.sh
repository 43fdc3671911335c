#!/usr/bin/env bash
# Oldest Rust: the packages build with the `rust-version` that Cargo.toml promises.
# Beside: it measures nothing, and builds in a directory of its own.
# Builds in: msrv
# Needs: that toolchain in rustup; or root on Debian, where it is unpacked from a Debian release
# that carries it into .cache/, beside the system and not into it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

msrv=$(msrv)
suite=trixie # Its rustc is 1.85; change it together with rust-version.
kit=$root/.cache/msrv-$msrv

# unpack_kit: fills $kit with Debian's rustc and cargo.
unpack_kit() {
    echo "no Rust $msrv in rustup: unpacking Debian $suite's into .cache/ (180 MB to download)"
    unpack_beside "$kit" "$suite" rustc cargo || skip "no Rust $msrv: Debian $suite cannot be reached"
    rm -rf "${kit:?}"/usr/{include,libexec,share,lib/gcc}
}

need_rust
export CARGO_TARGET_DIR=$target/msrv
toolchain=
if command -v rustup >/dev/null; then
    toolchain=$(rustup toolchain list | grep -oE "^${msrv//./\\.}(\.[0-9]+)?-[^ ]+" | head -n 1 || true)
fi
if [ -n "$toolchain" ]; then
    cargo=(rustup run "$toolchain" cargo)
else
    is_debian_root || skip "no Rust $msrv: run 'rustup toolchain install $msrv' and ci/msrv.sh again"
    [ -e "$kit" ] || unpack_kit
    starter "$kit" usr/bin/rustc
    starter "$kit" usr/bin/cargo
    export CARGO=$kit/cargo RUSTC=$kit/rustc
    cargo=("$CARGO")
    [[ $("$RUSTC" --version) == "rustc $msrv."* ]] ||
        skip "Debian $suite has $("$RUSTC" --version), not $msrv: name another suite in ci/msrv.sh"
fi
"${cargo[@]}" --version
packages=()
for package in corelocal-{malloc,metrics,tracing,symbols,lab,cli,examples}; do
    packages+=(-p "$package")
done
"${cargo[@]}" check --locked -p corelocal # Without what others want of it.
"${cargo[@]}" check --locked "${packages[@]}"
