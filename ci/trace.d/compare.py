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
    # A field that a record may lack: whether it is there, and the value in braces.
    is_there = re.compile(r"has_\w+ = (?:\( \"_yes\" : container = 1 \)|1|true), ")
    with open(f"{folder}/{name}", encoding="utf-8") as file:
        for line in file:
            found = line_of.match(line.rstrip("\n"))
            if found is None:
                continue
            seconds, nanos, tid, text = found.groups()
            text = re.sub(r"= \{ ((?:[^{}]|\{[^{}]*\})*) \}", r"= \1", is_there.sub("", text))
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


SKIPPED = ("types::all", "types::burst")


def all_from_json():
    rows = []
    with open(f"{folder}/types.json-lines", encoding="utf-8") as file:
        for line in file:
            # A strict reader: no repeated names, no numbers beyond JSON's.
            row = json.loads(line, object_pairs_hook=unique, parse_constant=refuse)
            if row["name"] not in SKIPPED:
                rows.append((row["time"], row["name"], row["what"], row["span"], row["parent"], row["fields"], row))
    return rows


def unique(pairs):
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), names
    return dict(pairs)


def refuse(constant):
    raise ValueError(constant)


def all_from_parquet():
    table = f"'{folder}/types.parquet'"
    columns = [row[0] for row in duckdb.sql(f"DESCRIBE SELECT * FROM {table}").fetchall()]
    assert len({column.lower() for column in columns}) == len(columns), columns
    skipped = ", ".join(f"'{name}'" for name in SKIPPED)
    found = duckdb.sql(f"SELECT * FROM {table} WHERE name NOT IN ({skipped}) ORDER BY time_ns").fetchall()
    rows = []
    for row in found:
        values = dict(zip(columns, row))
        given = {name.split("/")[0]: value for name, value in values.items() if value is not None}
        rows.append((values["time_ns"], values["name"], values["what"], given, values))
    return rows


def compare_all():
    """Events with odd names, spans, parents, losses and what was cut, in each format."""
    expected = all_from_json()
    names = [name for _, name, *_ in expected]
    for name in ("types::größe", "types::case", "types::cut", "types::step", "types::request", "corelocal::lost"):
        assert name in names, f"{name} is missing"
    parents = {row[3]: row[4] for row in expected if row[2] == "begin"}
    by_id = {row[3]: row[1] for row in expected if row[2] == "begin"}
    for _, name, what, span, parent, fields, row in expected:
        if name == "types::cut":
            assert row["cut"] == ["numbers", "text"] and row["absent"] == ["absent", "blob"], row
        if name == "types::within":
            chain = []
            while span:
                chain.append(by_id[span])
                span = parents[span]
            assert chain == ["types::step", "types::request", "types::parent", "types::outer"], chain
    rows = all_from_parquet()
    assert len(rows) == len(expected), f"DuckDB: {len(rows)} rows, not {len(expected)}"
    for (time, name, what, given, values), wanted in zip(rows, sorted(expected, key=lambda row: row[0])):
        assert (time, name, what) == wanted[:3], (values, wanted)
        if name == "types::cut":
            assert values["cut"] == ["numbers", "text"], values
    print(f"DuckDB: the same {len(rows)} events, spans and losses as JSON lines")

    trace = Trace()
    with open(f"{folder}/types.perfetto", "rb") as file:
        trace.ParseFromString(file.read())
    named, tracks, stacks, begun, count, lost = {}, {}, {}, set(), 0, 0
    for packet in trace.packet:
        for name in packet.interned_data.event_names:
            named[name.iid] = name.name
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        name = named.get(event.name_iid)
        assert event.track_uuid in tracks, "an event on a track that is not described"
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append(name)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            stack.pop()
        if name is None and event.type == TrackEvent.TYPE_INSTANT:
            # Where an arrow begins.
            assert event.name.startswith("starts ") and list(event.flow_ids), event
            begun.update(event.flow_ids)
            continue
        begun.difference_update(event.terminating_flow_ids)
        if name not in SKIPPED and event.type != TrackEvent.TYPE_SLICE_END:
            count += 1
            lost += name == "corelocal::lost"
    assert count == sum(what != "end" for _, _, what, *_ in expected), count
    assert lost == names.count("corelocal::lost") and not begun
    print(f"Perfetto's definitions: the same {count} events, spans and losses as JSON lines")

    with open(f"{folder}/types.chrome-json", encoding="utf-8") as file:
        page = json.load(file, object_pairs_hook=unique, parse_constant=refuse)
    shown = [event for event in page["traceEvents"] if event["ph"] in "iBb" and event["name"] not in SKIPPED]
    assert [event["name"] for event in shown] == [row[1] for row in expected if row[2] != "end"]
    print(f"Chrome's JSON: the same {len(shown)} events, spans and losses")

    for kind in ("ctf", "ctf2"):
        if not os.path.exists(f"{folder}/types.{kind}.txt"):
            continue
        shown = []
        with open(f"{folder}/types.{kind}.txt", encoding="utf-8") as file:
            for line in file:
                found = re.match(r"\[(\d+)\.(\d{9})\] .*?((?:types|corelocal)::[^:]*?)(:begin|:end)?: \{ tid = .*? span = (\d+) \}, \{(.*)\}$", line.rstrip())
                if found and found[3] not in SKIPPED:
                    shown.append((int(found[1]) * 10**9 + int(found[2]), found[3], (found[4] or ":event")[1:], int(found[5]), found[6]))
        assert len(shown) == len(expected), f"{kind}: {len(shown)}, not {len(expected)}"
        for row, wanted in zip(shown, expected):
            assert row[:4] == wanted[:4], (row, wanted)
            if row[1] == "types::cut":
                assert 'cut = "numbers,text"' in row[4], row
            if row[2] == "begin":
                assert f"parent_id = {wanted[4]}" in row[4], (row, wanted)
        print(f"babeltrace2, {kind}: the same {len(shown)} events, spans, parents and losses")


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
compare_all()
