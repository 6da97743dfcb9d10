#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/models.md from what `hotset plan` says of each model that it knows by name.

Usage: cmake/models-table.py PROGRAM            rewrite the table between <!-- models --> and <!-- end -->
       cmake/models-table.py PROGRAM --check    write nothing; exit code 1 if the table differs
"""
import json
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "models.md"
MARKED = re.compile(r"(<!-- models -->\n).*?(<!-- end -->)", re.S)
FORMATS = ("", "Q8_0", "Q4_K_M")  # as released, and wished
HEAD = """| model | parameters | layers x experts | top-k | an expert | as Q8_0 | as Q4_K_M | KV of a token |
|---|---|---|---|---|---|---|---|
"""


def run(program, name, *words):
    words = ["plan", "--model", name, "--vram", "100000GiB", "--context", "1024", *words]
    return subprocess.run([program, *words], capture_output=True, text=True)


def names(program):
    """The refusal of an unknown model lists the known ones."""
    return re.search(r"accepted: (.*), or the path", run(program, "no-model").stderr)[1].split(", ")


def model(program, name, weights=""):
    out = run(program, name, "--json", *(["--weights", weights] if weights else []))
    if out.returncode:
        sys.exit(f"models-table.py: {name}: {out.stderr.strip()}")
    return json.loads(out.stdout)["model"]


def parameters(program, name):
    plain = model(program, name, "bf16")
    count = (plain["bytes_per_expert_slot"] * plain["experts"] + plain["resident_bytes"]) / 2
    return f"{count / 1e9:.1f} B" if count < 1e12 else f"{count / 1e12:.2f} T"


def row(program, name):
    all_formats = [model(program, name, weights) for weights in FORMATS]
    first = all_formats[0]
    experts = [one["bytes_per_expert_slot"] / one["moe_layers"] / 2**20 for one in all_formats]
    cells = [f"`{name}`", parameters(program, name), f"{first['moe_layers']} x {first['experts']}",
             str(first["top_k"]), *(f"{size:.2f} MiB" for size in experts),
             f"{first['kv_bytes_per_token'] / 1024:.1f} KiB"]
    return f"| {' | '.join(cells)} |\n"


def main(program, check=""):
    table = HEAD + "".join(row(program, name) for name in names(program))
    old = PAGE.read_text()
    new, count = MARKED.subn(lambda found: found[1] + table + found[2], old)
    if count != 1:
        sys.exit(f"models-table.py: docs/{PAGE.name}: {count} tables; accepted: one, between the marks")
    if check and new != old:
        sys.exit(f"docs/{PAGE.name} differs from the program; repair: python3 cmake/models-table.py {program}")
    if not check:
        PAGE.write_text(new)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__)
    main(*sys.argv[1:])
