"""Joins the tables of two hosts by trace id, in DuckDB and in Spark, and looks at what the receiver of OTLP has: ci/fleet."""

import os
import sys
import urllib.request

import boto3
import duckdb
from pyspark.sql import SparkSession

folder, requests, otlp = sys.argv[1], int(sys.argv[2]), sys.argv[3]
bucket = boto3.resource("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1").Bucket("traces")
tables = f"{folder}/tables"
for found in bucket.objects.all():
    to = f"{tables}/{found.key}"
    os.makedirs(os.path.dirname(to), exist_ok=True)
    bucket.download_file(found.key, to)
    print(found.key)

QUESTION = """
    SELECT c.trace_id, c.host AS client, s.host AS server, c.number AS number, c.duration_ns AS client_ns,
        e.duration_ns AS server_ns
    FROM events c
    JOIN events s ON c.trace_id = s.trace_id AND s.parent_id = c.span_id
    JOIN events e ON e.span_id = s.span_id AND e.what = 'end'
    WHERE c.name = 'client::request' AND c.what = 'begin' AND s.what = 'begin'
    ORDER BY number
"""

duckdb.sql(f"CREATE VIEW events AS SELECT * FROM read_parquet('{tables}/**/*.parquet', union_by_name = true)")
in_duckdb = duckdb.sql(QUESTION).fetchall()

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
spark.read.option("mergeSchema", "true").parquet(f"{tables}/test").createOrReplaceTempView("events")
in_spark = [tuple(row) for row in spark.sql(QUESTION).collect()]
spark.stop()

assert in_duckdb == in_spark, (in_duckdb[:2], in_spark[:2])
assert len(in_duckdb) == requests, len(in_duckdb)
assert [row[3] for row in in_duckdb] == list(range(requests))
assert {row[1:3] for row in in_duckdb} == {("host-a", "host-b")}, in_duckdb[0]
assert len({row[0] for row in in_duckdb}) == requests
print(f"DuckDB and Spark: the same {len(in_duckdb)} rows")

sent = [line.split(" ") for line in urllib.request.urlopen(otlp).read().decode().splitlines()]
spans = {name: {trace: (span, parent) for of, name_of, events, trace, span, parent in sent if name_of == name}
         for name in ("client::request", "server::request")}
clients, servers = spans["client::request"], spans["server::request"]
assert len(clients) == len(servers) == requests and len(sent) == 2 * requests, len(sent)
assert all(servers[trace][1] == span for trace, (span, _) in clients.items())
assert {row[0] for row in in_duckdb} == set(clients)
assert all(events == ("1" if name == "server::request" else "0") for _, name, events, *_ in sent)
print(f"OTLP: {len(sent)} spans, each of the server's in the one of its client")
