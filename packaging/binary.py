#!/usr/bin/env python3
"""Facts about a binary, read from its ELF headers with readelf:

    packaging/binary.py architecture BINARY    x86_64 or aarch64
    packaging/binary.py glibc BINARY           the oldest glibc whose systems run it, as 2.35
"""

import re
import subprocess
import sys

ARCHITECTURES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}
# Libraries that every system with glibc and a C++ runtime has. A binary that needs another one would not start.
LIBRARIES = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux[a-z0-9-]*)\.so\.\d+$")
# The C++ runtime is older than the glibc of its system: newest symbol version by glibc version, as in the platform tags
# of Python wheels (PEP 600) and the distributions on which these are based.
CPP_RUNTIMES = [((3, 4, 28), (2, 31)), ((3, 4, 29), (2, 34)), ((3, 4, 30), (2, 35)), ((3, 4, 33), (2, 39))]
C_RUNTIME_OF_GCC = [((12, 0, 0), (2, 35)), ((14, 0, 0), (2, 39))]


def readelf(option, binary):
    return subprocess.check_output(["readelf", "--wide", option, binary], text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})


def architecture(binary):
    machine = re.search(r"Machine:\s+(.*)", readelf("--file-header", binary)).group(1).strip()
    if machine not in ARCHITECTURES:
        sys.exit(f"packaging: {binary} is for {machine}: only x86-64 and arm64 are packaged")
    return ARCHITECTURES[machine]


def newest(prefix, symbols):
    """The newest version of a library's symbols that a binary needs."""
    found = re.findall(rf"\b{prefix}_(\d+(?:\.\d+)+)", symbols)
    return max((tuple(map(int, version.split("."))) for version in found), default=(0,))


def at_least(needed, runtimes, what):
    for provided, glibc in runtimes:
        if needed <= provided:
            return glibc
    sys.exit(f"packaging: the binary needs {what} {'.'.join(map(str, needed))}, which is newer than any listed in "
             "packaging/binary.py: build on an older system, or extend the list")


def glibc(binary):
    foreign = [name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", binary)) if not LIBRARIES.match(name)]
    if foreign:
        sys.exit(f"packaging: the binary needs {', '.join(foreign)}, which not every system has: link it statically")
    symbols = readelf("--version-info", binary)
    return max(
        newest("GLIBC", symbols),
        at_least(newest("GLIBCXX", symbols), CPP_RUNTIMES, "GLIBCXX"),
        at_least(newest("GCC", symbols), C_RUNTIME_OF_GCC, "GCC"),
    )[:2]


def main():
    match sys.argv[1:]:
        case ["architecture", binary]:
            print(architecture(binary))
        case ["glibc", binary]:
            print(".".join(map(str, glibc(binary))))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
