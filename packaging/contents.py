#!/usr/bin/env python3
"""Lists what the binary is made of: packaging/contents.py BINARY VERSION

Prints a CycloneDX 1.6 document with the crates that the binary is linked from, their licences, checksums and
dependencies, and the SHA-256 sum of the binary itself."""

import hashlib
import json
import os
import pathlib
import sys
import time
import tomllib
import urllib.parse
import uuid

import binary as facts
import crates


def purl(package):
    return f"pkg:cargo/{package['name']}@{urllib.parse.quote(package['version'], safe='')}"


def licences(package):
    # Old crates separate alternatives with a slash, which SPDX does not know.
    expression = " OR ".join(part.strip() for part in package["license"].split("/")) if package["license"] else None
    return [{"expression": expression}] if expression else []


def component(package, checksums):
    listed = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "licenses": licences(package),
        "purl": purl(package),
    }
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        listed["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        listed["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return listed


def main():
    binary, version = sys.argv[1:]
    packages = crates.linked(f"{facts.architecture(binary)}-unknown-linux-gnu")
    lock = tomllib.loads((crates.ROOT / "Cargo.lock").read_text())
    checksums = {(it["name"], it["version"]): it.get("checksum") for it in lock["package"]}
    references = {package["id"]: purl(package) for package in packages}
    program = next(package for package in packages if package["name"] == "orrery" and package["is_ours"])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))),
            "component": {
                "type": "application",
                "bom-ref": references[program["id"]],
                "name": "orrery",
                "version": version,
                "licenses": licences(program),
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(pathlib.Path(binary).read_bytes()).hexdigest()}],
            },
        },
        "components": [component(package, checksums) for package in packages if package is not program],
        "dependencies": [
            {"ref": references[package["id"]], "dependsOn": sorted(references[it] for it in package["depends_on"])}
            for package in packages
        ],
    }
    # The serial number is that of the contents, so that equal lists have equal numbers.
    name = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, name)}"
    print(json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False))


main()
