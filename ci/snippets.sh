#!/usr/bin/env bash
# Snippets: the Rust code in README.md and docs/*.md compiles, with the features that the text tells the reader to enable.
#
# Features are those of the last `features = [...]` or `cargo add corelocal --features LIST` before a snippet in its file;
# none if the file names none. What a snippet uses and does not show, such as the reader's own types, is in a comment
# before it, which pages do not show:
#   <!-- with
#   struct Request;
#   -->
# A snippet without `main` is the body of one, unless it begins with an attribute.
# Beside: it measures nothing, and builds where ci/clippy.sh does.
# Builds in: lint
# Needs: cargo.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# One file for each snippet: FEATURES/src/bin/FILE_LINE.rs.
awk -v scratch="$scratch" '
    FNR == 1 { features = "none"; with = "" }
    /^<!-- with$/ { inside = "with"; with = ""; next }
    inside == "with" && /^-->$/ { inside = ""; next }
    inside == "with" { with = with $0 "\n"; next }
    match($0, /cargo add corelocal --features [a-z_,]+/) {
        features = substr($0, RSTART, RLENGTH)
        sub(/.* /, "", features)
    }
    match($0, /^corelocal = .*features = \[[^]]*\]/) {
        features = substr($0, RSTART, RLENGTH)
        sub(/.*\[/, "", features)
        gsub(/[]" ]/, "", features)
    }
    !inside && /^```rust$/ { inside = "code"; code = ""; line = FNR; next }
    inside == "code" && /^```$/ {
        inside = ""
        name = FILENAME
        gsub(/[^A-Za-z0-9]/, "_", name)
        folder = scratch "/" features "/src/bin"
        system("mkdir -p \"" folder "\"")
        file = folder "/" name "_" line ".rs"
        print "#![allow(warnings)]" >file
        if (code ~ /(^|\n)fn main/) print with code >file
        else if (code ~ /^#\[/) print with code "fn main() {}" >file
        else print with "fn main() -> Result<(), Box<dyn std::error::Error>> {\n" code "Ok(())\n}" >file
        close(file)
        with = ""
        next
    }
    inside == "code" { code = code $0 "\n" }
' README.md docs/*.md

export CARGO_TARGET_DIR=$target/lint
count=0
for folder in "$scratch"/*/; do
    features=$(basename "$folder")
    [ "$features" != none ] || features=
    # Its own workspace, with the versions of ours.
    cat >"$folder/Cargo.toml" <<TOML
[package]
name = "snippets"
version = "0.0.0"
edition = "2024"
[dependencies]
corelocal = { path = "$root/crates/corelocal", features = [$(sed -E 's/[a-z_]+/"&"/g' <<<"$features")] }
[workspace]
TOML
    cp Cargo.lock "$folder/"
    cargo check --quiet --bins --manifest-path "$folder/Cargo.toml" || fail "snippets with the features '$features' do not compile: the names above are FILE_LINE"
    found=("$folder"/src/bin/*.rs)
    count=$((count + ${#found[@]}))
done
# As many as there are, so that none is passed over.
all=$(cat README.md docs/*.md | grep -c '^```rust')
[ "$count" = "$all" ] || fail "$count of $all snippets were found"
echo "$count snippets compile"
