"""Reads tables of an export with each engine that is installed, as often as asked: a question is a line of JSON, and so
is the answer. Of each table: the number of rows and the sum of a column, as the engine computes them, and a digest of
all rows."""

import hashlib
import importlib
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "iceberg"))
from reader import duckdb_connection  # noqa: E402


def text(value):
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def digest(rows):
    """The SHA-256 of the sorted lines of rows."""
    lines = sorted("|".join(map(text, row)) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def answer(count, total, rows):
    return [int(count), text(total), digest(rows)]


def of_scan(scan, table):
    import pyarrow.compute as pc

    read = scan.to_arrow()
    rows = ([row[column] for column in table["columns"]] for row in read.to_pylist())
    return answer(scan.count(), pc.sum(read[table["sum"]]).as_py(), rows)


def pyiceberg_static(at, table):
    from pyiceberg.table import StaticTable

    found = StaticTable.from_metadata(table["metadata"], at.get("s3", {}))
    return of_scan(found.scan(selected_fields=tuple(table["columns"])), table)


def pyiceberg_catalog(at, table):
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake", type="rest", uri=at["address"], token=at["token"])
    found = catalog.load_table(tuple(table["name"]))
    assert found.metadata_location == table["metadata"], found.metadata_location
    return of_scan(found.scan(selected_fields=tuple(table["columns"])), table)


def polars_scan(at, table):
    import polars as pl

    frame = pl.scan_iceberg(table["metadata"], storage_options=at.get("s3"))
    count, total = frame.select(pl.len(), pl.col(table["sum"]).sum()).collect().row(0)
    # The sum of no rows is 0 here, and null in SQL.
    return answer(count, total if count else None, frame.select(table["columns"]).collect().rows())


def quoted(columns):
    return ", ".join(f'"{column}"' for column in columns)


def of_duckdb(connection, source, table):
    count, total = connection.execute(f'select count(*), sum("{table["sum"]}") from {source}').fetchone()
    return answer(count, total, connection.execute(f"select {quoted(table['columns'])} from {source}").fetchall())


def duckdb_scan(at, table):
    connection = duckdb_connection(["avro", "httpfs", "iceberg"])
    if "s3" in at:
        s3 = {name.removeprefix("s3."): value for name, value in at["s3"].items()}
        endpoint = s3["endpoint"].removeprefix("http://").rstrip("/")
        connection.execute(
            f"create secret (type s3, key_id '{s3['access-key-id']}', secret '{s3['secret-access-key']}', "
            f"endpoint '{endpoint}', region '{s3['region']}', url_style 'path', use_ssl false)"
        )
    return of_duckdb(connection, f"iceberg_scan('{table['metadata']}')", table)


def duckdb_views(at, table):
    import duckdb

    connection = duckdb.connect()
    connection.execute(open(os.path.join(at["root"], "views.sql")).read())
    return of_duckdb(connection, ".".join(f'"{part}"' for part in table["name"]), table)


def duckdb_catalog(at, table):
    connection = duckdb_connection(["avro", "httpfs", "iceberg"])
    connection.execute(f"create secret lake_token (type iceberg, token '{at['token']}')")
    connection.execute(f"attach '' as lake (type iceberg, endpoint '{at['address']}', secret lake_token)")
    return of_duckdb(connection, "lake." + ".".join(f'"{part}"' for part in table["name"]), table)


def chdb_scan(at, table):
    import chdb

    # It reads files below the directory in which it runs.
    os.chdir(at["root"])
    relative = os.path.relpath(table["metadata"], at["root"])
    source = f"icebergLocal('{at['root']}', settings iceberg_metadata_file_path = '{relative}')"

    def query(selected):
        return json.loads(str(chdb.query(f"select {selected} from {source}", "JSONCompact")))["data"]

    [[count, total]] = query(f"toString(count()), toString(sum(\"{table['sum']}\"))")
    return answer(count, total, query(quoted(table["columns"])))


# What reads a directory, a bucket, and through the catalogue of a service.
ENGINES = {
    "pyiceberg": (pyiceberg_static, ["pyiceberg"], {"directory", "bucket"}),
    "pyiceberg through the catalogue": (pyiceberg_catalog, ["pyiceberg"], {"catalogue"}),
    "polars": (polars_scan, ["polars", "pyiceberg"], {"directory", "bucket"}),
    "DuckDB": (
        duckdb_scan,
        ["duckdb", "duckdb_extension_avro", "duckdb_extension_httpfs", "duckdb_extension_iceberg"],
        {"directory", "bucket"},
    ),
    "DuckDB with the views": (duckdb_views, ["duckdb"], {"views"}),
    "DuckDB through the catalogue": (
        duckdb_catalog,
        ["duckdb", "duckdb_extension_avro", "duckdb_extension_httpfs", "duckdb_extension_iceberg"],
        {"catalogue"},
    ),
    "ClickHouse": (chdb_scan, ["chdb"], {"directory"}),
}


def read(at):
    found = {}
    for engine, (ask, modules, ways) in ENGINES.items():
        if ways.isdisjoint(at["ways"]):
            continue
        try:
            for module in modules:
                importlib.import_module(module)
        except ImportError as error:
            found[engine] = f"absent: {error}"
            continue
        try:
            found[engine] = [ask(at, table) for table in at["tables"]]
        except Exception as error:
            found[engine] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    # What an engine prints is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(read(json.loads(line))), file=answers, flush=True)
