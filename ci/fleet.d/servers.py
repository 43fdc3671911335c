"""An S3 server and a receiver of OTLP on this machine: prints their addresses, and runs until it is ended."""

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from moto.server import ThreadedMotoServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-east-1")
import boto3  # noqa: E402 (it reads the environment)

spans = []


class Receiver(BaseHTTPRequestHandler):
    """Keeps the spans that are posted, and answers with them as lines."""

    def do_POST(self):
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in request.resource_spans:
            host = next(a.value.string_value for a in resource.resource.attributes if a.key == "host.name")
            for scope in resource.scope_spans:
                for span in scope.spans:
                    ids = [span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()]
                    spans.append(" ".join([host, span.name, str(len(span.events)), *ids]))
        self.send_response(200)
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write("\n".join(spans).encode())

    def log_message(self, *_):
        pass


s3 = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
s3.start()
address = "http://{}:{}".format(*s3.get_host_and_port())
boto3.client("s3", endpoint_url=address).create_bucket(Bucket="traces")
receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(address, f"http://127.0.0.1:{receiver.server_address[1]}/v1/traces", flush=True)
threading.Thread(target=receiver.serve_forever).start()
