"""Compares what other programs read of one recording: ci/trace.sh."""

import json
import os
import re
import sys

import duckdb
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

folder = sys.argv[1]
FIELDS = "nth a b c d e f g h i j yes text blob list floats".split()


def blob(value):
    return value.hex() if isinstance(value, (bytes, bytearray)) else value


def from_json():
    rows = []
    with open(f"{folder}/types.json-lines", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["name"] == "types::all":
                rows.append((row["time"], row["thread"], *(row["fields"][name] for name in FIELDS)))
    return rows


def from_parquet():
    names = ", ".join(f'"{name}"' for name in FIELDS)
    table = f"'{folder}/types.parquet'"
    found = duckdb.sql(f"SELECT time_ns, thread, {names} FROM {table} WHERE name = 'types::all' ORDER BY nth")
    rows = []
    for row in found.fetchall():
        whole = [int(value) if type(value).__name__ == "Decimal" else blob(value) for value in row]
        lists = [[int(element) for element in whole[-2]], whole[-1]]
        rows.append((*whole[:-2], *lists))
    return rows


def from_perfetto():
    trace = Trace()
    with open(f"{folder}/types.perfetto", "rb") as file:
        trace.ParseFromString(file.read())
    events, names, threads, rows = {}, {}, {}, []
    kinds = {"bool_value", "uint_value", "int_value", "double_value", "string_value"}

    def value(annotation):
        if annotation.array_values:
            return [value(element) for element in annotation.array_values]
        kind = annotation.WhichOneof("value")
        # An array without elements has no value.
        return getattr(annotation, kind) if kind in kinds else []

    opened = 0
    for packet in trace.packet:
        for name in packet.interned_data.event_names:
            events[name.iid] = name.name
        for name in packet.interned_data.debug_annotation_names:
            names[name.iid] = name.name
        if packet.HasField("track_descriptor") and packet.track_descriptor.HasField("thread"):
            threads[packet.track_descriptor.uuid] = packet.track_descriptor.thread.tid
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        opened += {TrackEvent.TYPE_SLICE_BEGIN: 1, TrackEvent.TYPE_SLICE_END: -1}.get(event.type, 0)
        if events.get(event.name_iid) == "types::all":
            fields = {names[field.name_iid]: value(field) for field in event.debug_annotations}
            rows.append((packet.timestamp, threads[event.track_uuid], *(fields[name] for name in FIELDS)))
    assert opened == 0, f"{opened} spans do not end"
    return rows


def from_babeltrace(name):
    rows = []
    line_of = re.compile(
        r"\[(\d+)\.(\d{9})\].* types::all: \{ tid = (\d+), .*? span = \d+ \}, \{ (.*) \}$"
    )
    with open(f"{folder}/{name}", encoding="utf-8") as file:
        for line in file:
            found = line_of.match(line.rstrip("\n"))
            if found is None:
                continue
            seconds, nanos, tid, text = found.groups()
            fields = dict(re.findall(r"(\w+) = (\[.*?\](?= [,}]|,|$)|\{.*?\}|\"[^\"]*\"|[^,]+)", re.sub(r"\[\d+\] = ", "", text)))

            def number(name):
                return float(fields[name]) if name in "ij" else int(fields[name])

            def elements(name, of):
                return [of(element) for element in fields[name].strip("[] ").split(", ") if element]

            rows.append(
                (
                    int(seconds) * 10**9 + int(nanos),
                    int(tid),
                    *(number(name) for name in "nth a b c d e f g h i j".split()),
                    fields["yes"] in ("1", "true"),
                    fields["text"].strip('"'),
                    # Version 1.8 has an array of numbers, version 2 a blob.
                    "".join(f"{int(byte, 16):02x}" for byte in re.findall(r"\w+", fields["blob"])),
                    elements("list", int),
                    elements("floats", float),
                )
            )
    return rows


expected = from_json()
assert len(expected) == 100_000, len(expected)
assert [row[2] for row in expected] == list(range(100_000))
for name, rows in [
    ("DuckDB", from_parquet()),
    ("Perfetto's definitions", from_perfetto()),
    ("babeltrace2, CTF 1.8", from_babeltrace("types.ctf.txt")),
    *([("babeltrace2, CTF 2", from_babeltrace("types.ctf2.txt"))] if os.path.exists(f"{folder}/types.ctf2.txt") else []),
]:
    assert len(rows) == len(expected), f"{name}: {len(rows)} rows"
    for row, wanted in zip(rows, expected):
        # JSON has floats with all digits, babeltrace2 six: compared as numbers.
        near = [
            value == want
            or (isinstance(want, float) and abs(value - want) <= 1e-5 * max(1, abs(want)))
            # babeltrace2 2.0.4 shows an earlier text in place of an empty one.
            or (want == "" and name.startswith("babeltrace2"))
            for value, want in zip(row, wanted)
        ]
        assert all(near), f"{name}:\n{row}\n{wanted}"
    print(f"{name}: the same {len(rows)} rows as JSON lines")
