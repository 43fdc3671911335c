#!/usr/bin/env bash
# Traces: 100,000 events with fields of all types give the same rows through DuckDB (Parquet), Perfetto's published
# definitions, babeltrace2 (CTF 1.8 and 2) and JSON lines. So do events with odd names, spans with their parents, tasks,
# losses, and what had no room. JSON is read strictly: without repeated names.
# Needs: cargo and a C linker; python3 with venv, and babeltrace2, installed through apt where they are missing; babeltrace2
# 2.1, unpacked into .cache/, since older ones do not read CTF 2; from PyPI duckdb and perfetto, kept in .cache/.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
need python3 "python3 python3-venv" "compares what other programs read"
need babeltrace2 babeltrace2 "reads the Common Trace Format"
python=$(python_with trace duckdb perfetto) || skip "PyPI cannot be reached: duckdb and perfetto are missing"

# newer: unpacks a babeltrace2 that reads CTF 2.
newer() {
    local kit=$root/.cache/babeltrace
    if [ ! -e "$kit" ]; then
        is_debian_root || return 1
        echo "unpacking babeltrace2 2.1 of Debian trixie into .cache/"
        unpack_beside "$kit" trixie babeltrace2 || return 1
    fi
    starter "$kit" usr/bin/babeltrace2
    plugins=$(dirname "$(find "$kit" -name babeltrace-plugin-ctf.so)")
    newer=("$kit/babeltrace2" --omit-system-plugin-path --omit-home-plugin-path --plugin-path="$plugins")
}

# Features and place are those of ci/unit.sh, so little is built.
cargo build --locked "${whole[@]}" --bin corelocal --example trace_types
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$target/debug/examples/trace_types" "$folder/types.trace" 100000
for format in parquet perfetto chrome-json ctf ctf2 json-lines; do
    "$target/debug/corelocal" trace export "$folder/types.trace" --to $format -o "$folder/types.$format"
done
babeltrace2 --clock-seconds --no-delta "$folder/types.ctf" >"$folder/types.ctf.txt"
if newer; then
    "${newer[@]}" --clock-seconds --no-delta "$folder/types.ctf2" >"$folder/types.ctf2.txt"
else
    echo "skipped: trace:ctf2: there is no babeltrace2 2.1"
fi
"$python" ci/trace.d/compare.py "$folder"
