#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of a page that need one engine, in order, and compares what they print with the page.

    run-page.py PAGE ENGINE    in the folder where the blocks run

The opening line of a block names its language, its engine, and what else it needs:
    ```console llama.cpp       "$ " begins a command; the lines after it are its output
    ```python transformers     a script; "# " begins its output, the last lines
    ```console vllm GPU        listed, not run
In an output "..." is any text, and numbers with a decimal point may differ: they are measured.
"""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ENGINES = ("llama.cpp", "transformers", "vllm")
MARK = "\x1f"  # begins the output of a command


class Block(NamedTuple):
    language: str
    needs: list[str]
    lines: list[str]


def blocks_of(page: str) -> list[Block]:
    out: list[Block] = []
    inside = False
    for line in Path(page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = not inside
            if inside:
                language, *needs = line[3:].split() or [""]
                if language not in ("console", "python") or not set(needs[:1]) & set(ENGINES):
                    sys.exit(f"{page}: '{line}', accepted: console or python, then an engine: {', '.join(ENGINES)}")
                out.append(Block(language, needs, []))
        elif inside:
            out[-1].lines.append(line)
    return out


def steps_of(block: Block) -> list[tuple[str, str]]:
    """Commands, and the output that the page shows of each."""
    text = "\n".join(block.lines)
    if block.language == "python":
        return [(f"python - <<'END'\n{text}\nEND", re.sub("^# ", "", re.search(r"(\n# .*)*\Z", text)[0], flags=re.M))]
    steps = (step.split("\n", 1) for step in re.split(r"^\$ ", text, flags=re.M)[1:])
    return [(command, "".join(shown)) for command, *shown in steps]


def printed_by(commands: list[str]) -> list[str]:
    """The output of each command; all run in one shell. Ends what they leave running."""
    script = "".join(f"printf '\\037'\n{command}\ncode=$?; [ $code = 0 ] || echo exit code $code\n" for command in commands)
    shell = subprocess.Popen(
        ["bash", "-c", f"exec 2>&1\n{script}"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        return shell.communicate(timeout=600)[0].split(MARK)[1:]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)


def is_shown(shown: str, printed: str) -> bool:
    without_measured = (re.sub(r"\d+\.\d+", "0.0", text).strip() for text in (shown, printed))
    return doctest.OutputChecker().check_output(*without_measured, doctest.ELLIPSIS)


def main(page: str, engine: str) -> int:
    begin = time.monotonic()
    run = failed = 0
    for block in blocks_of(page):
        if block.needs[:1] != [engine]:
            continue
        if len(block.needs) > 1:
            print(f"not run, needs {', '.join(block.needs[1:])}: {block.lines[0]}")
            continue
        steps = steps_of(block)
        for (command, shown), printed in zip(steps, printed_by([step[0] for step in steps]), strict=True):
            run += 1
            if not is_shown(shown, printed):
                failed += 1
                print(f"FAILED: {command}\nThe page shows:\n{shown}\nIt prints:\n{printed}")
    print(f"{page}: commands for {engine}: {run} run, {failed} failed, {time.monotonic() - begin:.0f} s")
    return 1 if failed or not run else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
