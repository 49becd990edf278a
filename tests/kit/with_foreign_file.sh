#!/bin/sh
# Starts the binary under test with a foreign file open as descriptor 9. Used through a symbolic link in a directory
# of a test, beside a link to the binary.
here=$(dirname "$0")
exec 9> "$here/foreign"
exec "$here/orrery" "$@"
