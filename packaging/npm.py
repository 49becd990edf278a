#!/usr/bin/env python3
"""Writes package.json and README.md of the npm package: packaging/npm.py ARCHITECTURE VERSION DIRECTORY

The package is the binary itself: it has no scripts, so installing it runs nothing and downloads nothing."""

import json
import pathlib
import sys

# A registry has one archive for each name and version, so the package of each architecture has its own name. The command
# is `orrery` in both.
PACKAGES = {"x86_64": ("orrery", "x64"), "aarch64": ("orrery-arm64", "arm64")}
README = """# Orrery

Indexer of Stellar smart-contract events that you run yourself. `npx {name} demo` runs a small simulated network with the
service on it; `npx {name} --help` lists all commands.
"""


def main():
    architecture, version, directory = sys.argv[1:]
    name, cpu = PACKAGES[architecture]
    package = {
        "name": name,
        "version": version,
        "description": "Indexer of Stellar smart-contract events that you run yourself",
        "license": "Apache-2.0",
        "bin": {"orrery": "bin/orrery"},
        "files": ["bin/orrery", "copyright"],
        "os": ["linux"],
        "cpu": [cpu],
        "libc": ["glibc"],
    }
    directory = pathlib.Path(directory)
    (directory / "package.json").write_text(json.dumps(package, indent=2) + "\n")
    (directory / "README.md").write_text(README.format(name=name))


main()
