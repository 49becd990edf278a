#!/bin/sh
# The role that writes rows, and one that reads them, also of projects that come later.
set -eu

psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\getenv sink SINK_PASSWORD
\getenv reader READER_PASSWORD
CREATE ROLE orrery LOGIN PASSWORD :'sink';
CREATE ROLE reader LOGIN PASSWORD :'reader';
GRANT CREATE ON DATABASE :"DBNAME" TO orrery;
ALTER DEFAULT PRIVILEGES FOR ROLE orrery GRANT USAGE ON SCHEMAS TO reader;
ALTER DEFAULT PRIVILEGES FOR ROLE orrery GRANT SELECT ON TABLES TO reader;
SQL
