#!/usr/bin/env bash
# Traces: 100,000 events with fields of all types give the same rows through DuckDB (Parquet), Perfetto's published
# definitions, babeltrace2 (CTF) and JSON lines.
# Needs: cargo and a C linker; python3 with venv, and babeltrace2, installed through apt where they are missing; from PyPI
# duckdb and perfetto, kept in .cache/.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

need_rust
need python3 "python3 python3-venv" "compares what other programs read"
need babeltrace2 babeltrace2 "reads the Common Trace Format"
python=$(python_with trace duckdb perfetto) || skip "PyPI cannot be reached: duckdb and perfetto are missing"

# Features and place are those of ci/unit.sh, so little is built.
cargo build --locked "${whole[@]}" --bin corelocal --example trace_types
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$target/debug/examples/trace_types" "$folder/types.trace" 100000
for format in parquet perfetto ctf json-lines; do
    "$target/debug/corelocal" trace export "$folder/types.trace" --to $format -o "$folder/types.$format"
done
babeltrace2 --clock-seconds --no-delta "$folder/types.ctf" >"$folder/types.babeltrace"
"$python" ci/trace.d/compare.py "$folder"
