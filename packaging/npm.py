#!/usr/bin/env python3
"""Writes package.json and README.md of the npm package: packaging/npm.py ARCHITECTURE VERSION DIRECTORY

The package is the binary itself: it has no scripts, so installing it runs nothing and downloads nothing."""

import json
import pathlib
import sys

import published

# A registry has one archive for each name and version, so the package of each architecture has its own name. The command
# is `orrery` in both.
PACKAGES = {"x86_64": ("orrery", "x64"), "aarch64": ("orrery-arm64", "arm64")}
# The name belongs to another project in the registry, so the file has to be named, by a relative path.
README = """# Orrery

Indexer of Stellar smart-contract events that you run yourself. In the directory with the file of this package,
`npx ./{name}-{version}.tgz demo` runs a small simulated network with the service on it, and
`npx ./{name}-{version}.tgz --help` lists all commands. Name the file and not only the program: in the registry, `{name}`
is another project.
"""


def main():
    architecture, version, directory = sys.argv[1:]
    name, cpu = PACKAGES[architecture]
    package = {
        "name": name,
        "version": version,
        "description": "Indexer of Stellar smart-contract events that you run yourself",
        "homepage": published.address(),
        "license": "Apache-2.0",
        "bin": {"orrery": "bin/orrery"},
        "files": ["bin/orrery", "copyright"],
        "os": ["linux"],
        "cpu": [cpu],
        "libc": ["glibc"],
    }
    directory = pathlib.Path(directory)
    (directory / "package.json").write_text(json.dumps(package, indent=2) + "\n")
    (directory / "README.md").write_text(README.format(name=name, version=version))


main()
