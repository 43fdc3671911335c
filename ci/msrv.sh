#!/usr/bin/env bash
# Oldest Rust: both packages build with the `rust-version` that Cargo.toml promises.
# Needs: that toolchain in rustup; or root on Debian, where it is unpacked from a Debian release
# that carries it into .cache/, beside the system and not into it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

msrv=$(msrv)
suite=trixie # Its rustc is 1.85; change it together with rust-version.
kit=$root/.cache/msrv-$msrv

# unpack_kit: fills $kit with Debian's rustc and cargo, the libraries they load, and wrappers that
# start them through their own dynamic loader.
unpack_kit() {
    local apt=$kit.apt new=$kit.new
    echo "no Rust $msrv in rustup: unpacking Debian $suite's into .cache/ (180 MB to download)"
    rm -rf "$new"
    mkdir -p "$new"
    if ! apt_beside "$apt" "$suite" || ! apt-get -qq install -y --download-only \
        --no-install-recommends rustc cargo >/dev/null; then
        skip "no Rust $msrv: Debian $suite cannot be reached"
    fi
    unset APT_CONFIG
    local package
    for package in "$apt"/archives/*.deb; do
        dpkg --extract "$package" "$new"
    done
    rm -rf "$apt" "${new:?}"/usr/{include,libexec,share,lib/gcc}

    local libraries loader tool
    libraries=$(cd "$new" && echo usr/lib/*-linux-gnu*)
    loader=$(cd "$new" && echo "$libraries"/ld-linux*.so.*)
    for tool in rustc cargo; do
        cat >"$new/$tool" <<WRAPPER
#!/bin/sh
kit=\$(dirname "\$(readlink -f "\$0")")
exec "\$kit/$loader" --library-path "\$kit/$libraries" --argv0 $tool "\$kit/usr/bin/$tool" "\$@"
WRAPPER
        chmod +x "$new/$tool"
    done
    rm -rf "$kit"
    mv "$new" "$kit" # Last, so that an interrupted run leaves no half of a kit behind.
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
    export CARGO=$kit/cargo RUSTC=$kit/rustc
    cargo=("$CARGO")
    [[ $("$RUSTC" --version) == "rustc $msrv."* ]] ||
        skip "Debian $suite has $("$RUSTC" --version), not $msrv: name another suite in ci/msrv.sh"
fi
"${cargo[@]}" --version
for package in corelocal corelocal-metrics corelocal-tracing corelocal-lab corelocal-cli; do
    "${cargo[@]}" check -p "$package" --locked
done
