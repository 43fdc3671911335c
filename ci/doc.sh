#!/usr/bin/env bash
# Documentation: rustdoc warns about nothing, for users and for maintainers (private items), and
# every relative link in a Markdown file leads to a file that exists.
# Beside: it measures nothing, and builds where ci/clippy.sh does.
# Builds in: lint
# Needs: cargo.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
export RUSTDOCFLAGS="-D warnings" CARGO_TARGET_DIR=$target/lint
# One package at a time: the library and the command share the name `corelocal`, and the
# library's public pages are the ones that stay.
for package in corelocal-cli corelocal-bench corelocal-capi corelocal-clockd corelocal-support corelocal-lab corelocal-malloc corelocal-metrics corelocal-symbols \
    corelocal-trace corelocal-tracing corelocal; do
    cargo doc -p "$package" --no-deps --all-features --locked --document-private-items
    cargo doc -p "$package" --no-deps --all-features --locked
done

# links FILE: the relative link targets in FILE outside code blocks, without their anchors.
links() {
    awk '/^ *```/ { code = !code } !code' "$1" |
        grep -oE '\]\([^)[:space:]]+' | sed -e 's/^](//' -e 's/#.*//' |
        grep -vE '^([a-z]+:|$)' || true
}

broken=0
while IFS= read -r -d '' file; do
    while IFS= read -r link; do
        case $link in
            /*) path=.$link ;;
            *) path=$(dirname "$file")/$link ;;
        esac
        if [ -n "$link" ] && [ ! -e "$path" ]; then
            echo "$file: the link to $link leads nowhere" >&2
            broken=$((broken + 1))
        fi
    done <<<"$(links "$file")"
done < <(find . \( -path ./target -o -path ./.cache -o -path ./.git \) -prune -o -name '*.md' -print0)
[ "$broken" = 0 ] || fail "$broken broken links in Markdown files: correct them"
