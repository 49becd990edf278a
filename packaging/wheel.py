#!/usr/bin/env python3
"""Packs the binary as a Python wheel: packaging/wheel.py BINARY VERSION COPYRIGHT DIRECTORY

The wheel holds no Python code: pip puts the binary beside its own scripts, and pipx runs it from there. Its platform tag
is computed from the binary, so that pip refuses it on systems on which the binary would not start."""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

import binary as facts
import published

ROOT = pathlib.Path(__file__).resolve().parent.parent


def digest(content):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main():
    binary, version, copyright_file, directory = sys.argv[1:]
    platform = f"manylinux_{'_'.join(map(str, facts.glibc(binary)))}_{facts.architecture(binary)}"
    tag = f"py3-none-{platform}"
    info = f"orrery-{version}.dist-info"
    metadata = f"""Metadata-Version: 2.1
Name: orrery
Version: {version}
Summary: Indexer of Stellar smart-contract events that you run yourself
Home-page: {published.address()}
License: Apache-2.0
Classifier: Environment :: Console
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
License-File: LICENSE
License-File: copyright
Description-Content-Type: text/markdown

"""
    # The README's links are relative and would lead nowhere.
    metadata += "`orrery demo` runs a small simulated network with the service on it. `orrery --help` lists all commands.\n"
    wheel = f"Wheel-Version: 1.0\nGenerator: orrery packaging\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = [
        (f"orrery-{version}.data/scripts/orrery", pathlib.Path(binary).read_bytes(), 0o755),
        (f"{info}/LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
        (f"{info}/METADATA", metadata.encode(), 0o644),
        (f"{info}/WHEEL", wheel.encode(), 0o644),
        (f"{info}/copyright", pathlib.Path(copyright_file).read_bytes(), 0o644),
    ]
    record = "".join(f"{name},{digest(content)},{len(content)}\n" for name, content, _ in files) + f"{info}/RECORD,,\n"
    files.append((f"{info}/RECORD", record.encode(), 0o644))
    # The zip format has no years before 1980.
    when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    with zipfile.ZipFile(pathlib.Path(directory) / f"orrery-{version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: modes are kept.
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content)


if __name__ == "__main__":
    main()
