#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes libraries to link with, so that a program runs with glibc 2.28 and needs no other library at run time.

    cmake/wheel/link_libraries.py FOLDER     then link with -LFOLDER

libc.so and libm.so have this machine's symbols, each in its last version up to 2.28: the linker reports a newer one as
undefined. compatibility.c replaces the few that programs cannot avoid. libarchive.so and liburing.so stand for static archives.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

GLIBC = (2, 28)
# Moved from libpthread.so.0, which is linked, into libc.so.6 after 2.28. Other moved functions are left out.
PTHREAD = re.compile(r"_*(pthread|sem)_\w+")


def run(*words: object) -> str:
    return subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def file_of(name: str) -> str:
    return run("gcc", f"-print-file-name={name}").strip()


def symbols(soname: str) -> dict[str, tuple[tuple[int, ...], str, int]]:
    """The version, kind and size of each symbol."""
    found: dict[str, tuple[tuple[int, ...], str, int]] = {}
    newest: dict[str, tuple[int, ...]] = {}
    for line in run("readelf", "--dyn-syms", "-W", file_of(soname)).splitlines():
        words = re.match(r"\s*\d+: \w+\s+(\d+) (\w+)\s+(?:GLOBAL|WEAK)\s+DEFAULT\s+(\d+) (\w+)@@?GLIBC_([\d.]+)", line)
        if not words or words[2] == "TLS":
            continue
        size, kind, _, name, text = words.groups()
        version = tuple(int(part) for part in text.split("."))
        newest[name] = max(newest.get(name, version), version)
        if version <= GLIBC and version >= found.get(name, (version,))[0]:
            found[name] = (version, "object" if kind == "OBJECT" else "function", int(size))
    if soname != "libc.so.6":
        return found
    return {n: s for n, s in found.items() if newest[n] <= GLIBC or PTHREAD.fullmatch(n) or n == "__libc_start_main"}


def write_stub(folder: pathlib.Path, soname: str) -> None:
    """A library of this name with the symbols, and nothing behind them."""
    code, versions = [], set()
    for number, (name, (version, kind, size)) in enumerate(symbols(soname).items()):
        node = "GLIBC_" + ".".join(map(str, version))
        versions.add(version)
        place = ".bss" if kind == "object" else ".text"
        code.append(f"{place}\n.globl s{number}\n.type s{number}, @{kind}\n.size s{number}, {size}\ns{number}: .zero {max(size, 1)}")
        code.append(f".symver s{number}, {name}@@{node}")
    source, script = folder / f"{soname}.s", folder / f"{soname}.map"
    source.write_text("\n".join(code) + '\n.section .note.GNU-stack,"",@progbits\n')
    script.write_text("".join("GLIBC_" + ".".join(map(str, v)) + " {};\n" for v in sorted(versions)) + "LOCAL { local: s*; };\n")
    run("gcc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}", "-o", folder / soname, source)


def main() -> None:
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for soname in ("libc.so.6", "libm.so.6"):
        write_stub(folder, soname)
    (folder / "libm.so").write_text(f"INPUT({folder}/libm.so.6)\n")
    own = [folder / f"{name}.o" for name in ("compatibility", "startup", "no_encryption", "no_bzip2")]
    for each in own:
        source = pathlib.Path(__file__).with_name(each.with_suffix(".c").name)
        run("gcc", "-O2", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-c", source, "-o", each)
    run("ar", "rcs", folder / "libcompatibility.a", *own)
    archives = ["archive", "lzma", "zstd", "z"]
    (folder / "libarchive.so").write_text(f"INPUT({' '.join(file_of(f'lib{name}.a') for name in archives)})\n")
    (folder / "liburing.so").write_text(f"INPUT({file_of('liburing.a')})\n")
    loader = file_of("ld-linux-x86-64.so.2")
    (folder / "libc.so").write_text(
        f"GROUP({folder}/libcompatibility.a {folder}/libc.so.6 {file_of('libc_nonshared.a')} AS_NEEDED({loader}))\n"
        f"INPUT({file_of('libpthread.so.0')})\n"
    )


if __name__ == "__main__":
    main()
