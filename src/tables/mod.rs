//! DuckDB, and the only place that knows it: types, rows, the process that runs SQL.
