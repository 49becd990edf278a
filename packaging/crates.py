"""The crates that the binary is linked from, for the texts of their licences and the list of contents."""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def host():
    return re.search(r"host: (\S+)", subprocess.check_output(["rustc", "-vV"], text=True)).group(1)


def cargo(command, *options):
    # Without network access: whoever has built the binary has its crates.
    manifest = ROOT / "Cargo.toml"
    called = ["cargo", command, "--locked", "--offline", f"--manifest-path={manifest}", *options]
    ran = subprocess.run(called, capture_output=True, text=True)
    if ran.returncode != 0:
        said = ran.stderr.strip().splitlines() or ["it said nothing"]
        sys.exit(f"cargo {command} does not find the crates of the binary ({said[0].removeprefix('error: ')}): run "
                 f"cargo fetch --locked --manifest-path={manifest}")
    return ran.stdout


def linked(target):
    """Packages that the binary is linked from, the project's own included, each with the ids of those on which it
    depends; `target` is a platform as rustc names it. Procedural macros, build scripts and tests are not in the binary."""
    # Only the tree knows which optional crates a build of the binary enables, and only the metadata knows licences.
    options = ["--package=orrery", f"--target={target}", "--edges=normal,no-proc-macro", "--prefix=none", "--format={p}"]
    # A line is `name vVERSION`, and for packages of the project a directory after it.
    lines = cargo("tree", *options).splitlines()
    names = {(name, version.removeprefix("v")) for name, version in (line.split()[:2] for line in lines if line.strip())}
    metadata = json.loads(cargo("metadata", "--format-version=1", f"--filter-platform={target}"))
    dependencies = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    packages = [package for package in metadata["packages"] if (package["name"], package["version"]) in names]
    ids = {package["id"] for package in packages}
    for package in packages:
        needed = [it["pkg"] for it in dependencies[package["id"]] if any(kind["kind"] is None for kind in it["dep_kinds"])]
        package["depends_on"] = sorted(ids.intersection(needed))
        package["is_ours"] = package["id"] in metadata["workspace_members"]
    return sorted(packages, key=lambda package: (package["name"], package["version"]))
