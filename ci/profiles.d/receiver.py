"""A receiver of OTLP profiles on this machine, made from the published protobufs: prints its address, takes one message,
checks it by what the schema says, and prints the bytes in use by function as JSON."""

import collections
import gzip
import json
from http.server import BaseHTTPRequestHandler, HTTPServer

from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesServiceRequest,
    ExportProfilesServiceResponse,
)

TABLES = ["mapping", "location", "function", "link", "attribute", "stack"]


def summary(request):
    dictionary = request.dictionary
    assert dictionary.string_table[0] == ""
    assert len(set(dictionary.string_table)) == len(dictionary.string_table)
    for name in TABLES:
        table = getattr(dictionary, f"{name}_table")
        assert table[0].ByteSize() == 0, name
        assert len({entry.SerializeToString() for entry in table}) == len(table), name
        assert not any(len(UnknownFieldSet(entry)) for entry in table), name
    text = dictionary.string_table
    kinds, functions = [], collections.Counter()
    for resource in request.resource_profiles:
        attributes = {a.key: a.value.string_value or a.value.int_value for a in resource.resource.attributes}
        for profile in (profile for scope in resource.scope_profiles for profile in scope.profiles):
            kind = (text[profile.sample_type.type_strindex], text[profile.sample_type.unit_strindex])
            kinds.append(kind)
            assert profile.period > 0 and profile.time_unix_nano > 0
            assert not len(UnknownFieldSet(profile))
            for sample in profile.samples:
                assert not len(UnknownFieldSet(sample))
                assert len(sample.values) == 1 and sample.values[0] > 0
                keys = [text[dictionary.attribute_table[a].key_strindex] for a in sample.attribute_indices]
                assert {"allocation_size", "thread.id"} <= set(keys) and len(keys) == len(set(keys)), keys
                if kind[0] != "inuse_space":
                    continue
                stack = dictionary.stack_table[sample.stack_index]
                lines = [line for at in stack.location_indices for line in dictionary.location_table[at].lines]
                for name in {text[dictionary.function_table[line.function_index].name_strindex] for line in lines}:
                    functions[name] += sample.values[0]
    return {"kinds": kinds, "resource": attributes, "functions": functions}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        assert self.path == "/v1development/profiles", self.path
        assert self.headers["Content-Type"] == "application/x-protobuf"
        body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        print(json.dumps(summary(ExportProfilesServiceRequest.FromString(body))), flush=True)
        answer = ExportProfilesServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


receiver = HTTPServer(("127.0.0.1", 0), Receiver)
print(f"http://127.0.0.1:{receiver.server_address[1]}", flush=True)
receiver.handle_request()
