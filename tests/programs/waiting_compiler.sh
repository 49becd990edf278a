#!/bin/sh
# Test double for the compiler, started through a symbolic link in a directory that a test creates: creates a file
# in begun/ when it starts, and exits without output once the file `sign` exists.
here=$(dirname "$0")
: > "$here/begun/$$"
while [ ! -e "$here/sign" ]; do sleep 0.01; done
