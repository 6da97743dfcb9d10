#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets PyPI's torch run on a processor without its 3 GB of CUDA packages (pip install --no-deps).

    cuda_stubs.py SITE_PACKAGES

Puts one library beside torch, under the name of each CUDA library that torch links. Its functions
return 100 (cudaErrorNoDevice), or a text. Needs nm, readelf and a C compiler.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PREFIXES = ("libcu", "libnccl", "libnv")
UNVERSIONED = ("cu", "nccl")
TEXTS = ("String", "ErrorName", "ncclGetLastError")  # ends of functions that return a text


def lines(*command: str) -> list[str]:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def linked(library: Path) -> set[str]:
    """CUDA libraries that a library links."""
    entries = (line for line in lines("readelf", "-dW", str(library)) if "(NEEDED)" in line)
    names = {entry.split("[")[1].rstrip("]") for entry in entries}
    return {name for name in names if name.startswith(PREFIXES)}


def symbols(library: Path, which: str) -> set[tuple[str, str]]:
    """Names and versions. A CUDA library's version is its own name, except NVSHMEM's."""
    parts = (line.split()[-1].partition("@") for line in lines("nm", "-D", which, str(library)))
    return {(name, version.lstrip("@")) for name, _, version in parts}


def stub(name: str) -> str:
    if name.endswith(TEXTS):
        return f'const char* {name}(void) {{ return "no device"; }}\n'
    return f"int {name}(void) {{ return 100; }}\n"


def main(site: Path) -> None:
    libraries = sorted((site / "torch" / "lib").glob("*.so"))
    stubs = set().union(*map(linked, libraries))
    defined = {name for path in libraries for name, _ in symbols(path, "--defined-only")}
    versions: dict[str, set[str]] = {}
    plain: set[str] = set()
    for path in libraries:
        for name, version in symbols(path, "--undefined-only"):
            if version in stubs or version == "NVSHMEM":
                versions.setdefault(version, set()).add(name)
            elif not version and name.startswith(UNVERSIONED) and name not in defined:
                plain.add(name)
    functions = plain.union(*versions.values())

    folder = site / "nvidia" / "cu13" / "lib"  # in the run path of torch's libraries
    folder.mkdir(parents=True, exist_ok=True)
    source, script, library = (folder / f"stub.{end}" for end in ("c", "map", "so"))
    source.write_text("".join(map(stub, functions)))
    nodes = (f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in versions.items())
    script.write_text("".join(nodes))
    build = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,--version-script={script}"]
    subprocess.run([*build, str(source), "-o", str(library)], check=True)
    for name in stubs:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(library.name)
    print(f"{len(functions)} functions for {', '.join(sorted(stubs))}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "torch", "lib").is_dir():
        sys.exit("cuda_stubs.py: accepted: the site-packages folder that holds torch")
    main(Path(sys.argv[1]))
