#!/usr/bin/env bash
# Packages: every crate that is published can be packed without a warning, has what crates.io and docs.rs show, and its
# licences; all could be published now, where the network is there (`cargo publish --dry-run`). The package corelocal-support
# has the sources of the malloc that it carries. `ci/arrive` installs these packages.
# Beside: it measures nothing, and compiles nothing.
# Needs: cargo; python3 to read its metadata.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
need python3 python3 "reads cargo's metadata"
cargo fetch --locked
# NAME of each package that is published; a line with `!` for each that lacks something.
published=$(cargo metadata --no-deps --offline --locked --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] is not None:
        continue
    print(package["name"])
    docs = (package["metadata"] or {}).get("docs", {}).get("rs")
    wanted = {key: package[key] for key in ("description", "categories", "keywords", "license", "documentation")}
    wanted["package.metadata.docs.rs"] = docs
    for key, value in wanted.items():
        if not value:
            print("!", package["name"], "has no", key)
')
! grep '^!' <<<"$published" >&2 || fail "complete these manifests, or say publish = false"
[ "$(wc -l <<<"$published")" -ge 11 ] || fail "packages are missing: $published"

choice=()
while read -r name; do choice+=(-p "$name"); done <<<"$published"
log=$(cargo package --no-verify --offline --locked --allow-dirty "${choice[@]}" 2>&1) || fail "$log"
! grep -A 3 '^warning' <<<"$log" >&2 || fail "cargo package warns"
# What crates.io would be sent, in the order in which it is.
if ! cargo publish --help | grep -q -- --workspace; then
    echo "skipped: publish: this cargo publishes no workspaces"
elif ! log=$(cargo publish --workspace --dry-run --no-verify --locked --allow-dirty 2>&1); then
    grep -qiE 'network|could not resolve|timed out|failed to (connect|download|fetch)' <<<"$log" || fail "$log"
    echo "skipped: publish: no network"
else
    ! grep -A 3 '^warning' <<<"$log" | grep -v 'aborting upload due to dry run\|^--$\|^   Uploading' >&2 || fail "cargo publish warns"
    mapfile -t order < <(sed -nE 's/^ +Uploading ([^ ]+) .*/\1/p' <<<"$log")
    [ $((2 * ${#order[@]})) = ${#choice[@]} ] || fail "not all are published: ${order[*]}"
    echo "order of publication: ${order[*]}"
fi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
while read -r name; do
    files=$(tar -tzf "$target/package/$name-$version.crate")
    wanted=(LICENSE-MIT LICENSE-APACHE Cargo.toml)
    case $name in
        corelocal-cli) wanted+=(README.md) ;;
        corelocal-support) wanted+=(malloc/src/lib.rs malloc/build.rs) ;;
    esac
    for file in "${wanted[@]}"; do
        grep -qx "$name-$version/$file" <<<"$files" || fail "the package of $name has no $file"
    done
    echo "$name $version: $(wc -l <<<"$files") files"
done <<<"$published"
