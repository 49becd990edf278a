#!/bin/sh
# Stands in place of the compiler, in a directory that a test makes: says that it has begun, and ends without
# an answer once there is a sign.
here=$(dirname "$0")
: > "$here/begun/$$"
while [ ! -e "$here/sign" ]; do sleep 0.01; done
