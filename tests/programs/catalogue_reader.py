"""Reads tables of an export with each engine that is installed: of each, the number of rows and a digest."""

import hashlib
import importlib
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "iceberg"))
from reader import duckdb_connection  # noqa: E402


def digest(rows):
    """The number of rows and the SHA-256 of their sorted lines."""
    lines = sorted("|".join("" if value is None else str(value) for value in row) for row in rows)
    return [len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()]


def of_arrow(table, columns):
    return digest([[row[column] for column in columns] for row in table.to_pylist()])


def pyiceberg_static(at, table):
    from pyiceberg.table import StaticTable

    scan = StaticTable.from_metadata(table["metadata"]).scan(selected_fields=tuple(table["columns"]))
    return of_arrow(scan.to_arrow(), table["columns"])


def pyiceberg_catalog(at, table):
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake", type="rest", uri=at["address"], token=at["token"])
    found = catalog.load_table(tuple(table["name"]))
    assert found.metadata_location == table["metadata"], found.metadata_location
    return of_arrow(found.scan(selected_fields=tuple(table["columns"])).to_arrow(), table["columns"])


def polars_scan(at, table):
    import polars as pl

    return digest(pl.scan_iceberg(table["metadata"]).select(table["columns"]).collect().rows())


def quoted(columns):
    return ", ".join(f'"{column}"' for column in columns)


def duckdb_scan(at, table):
    connection = duckdb_connection(["avro", "iceberg"])
    return digest(connection.execute(f"select {quoted(table['columns'])} from iceberg_scan('{table['metadata']}')").fetchall())


def duckdb_views(at, table):
    import duckdb

    connection = duckdb.connect()
    connection.execute(open(os.path.join(at["root"], "views.sql")).read())
    name = ".".join(f'"{part}"' for part in table["name"])
    return digest(connection.execute(f"select {quoted(table['columns'])} from {name}").fetchall())


def duckdb_catalog(at, table):
    connection = duckdb_connection(["avro", "httpfs", "iceberg"])
    connection.execute(f"create secret lake_token (type iceberg, token '{at['token']}')")
    connection.execute(f"attach '' as lake (type iceberg, endpoint '{at['address']}', secret lake_token)")
    name = ".".join(f'"{part}"' for part in table["name"])
    return digest(connection.execute(f"select {quoted(table['columns'])} from lake.{name}").fetchall())


def chdb_scan(at, table):
    from chdb import session

    # It reads files below the directory in which it runs.
    os.chdir(at["root"])
    relative = os.path.relpath(table["metadata"], at["root"])
    source = f"icebergLocal('{at['root']}', settings iceberg_metadata_file_path = '{relative}')"
    text = str(session.Session().query(f"select {quoted(table['columns'])} from {source}", "JSONCompact"))
    return digest(json.loads(text)["data"])


ENGINES = {
    "pyiceberg": (pyiceberg_static, ["pyiceberg"]),
    "pyiceberg through the catalogue": (pyiceberg_catalog, ["pyiceberg"]),
    "polars": (polars_scan, ["polars", "pyiceberg"]),
    "DuckDB": (duckdb_scan, ["duckdb", "duckdb_extension_avro", "duckdb_extension_iceberg"]),
    "DuckDB with the views": (duckdb_views, ["duckdb"]),
    "DuckDB through the catalogue": (
        duckdb_catalog,
        ["duckdb", "duckdb_extension_avro", "duckdb_extension_httpfs", "duckdb_extension_iceberg"],
    ),
    "ClickHouse": (chdb_scan, ["chdb"]),
}


def main(at):
    found = {}
    for engine, (ask, modules) in ENGINES.items():
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
    print(json.dumps(main(json.loads(sys.argv[1]))))
