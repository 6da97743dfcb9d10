# SPDX-License-Identifier: Apache-2.0
"""The program `hotset`, which the package contains, as functions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any, NoReturn, Optional, Union

from hotset._errors import Error
from hotset._own_replays import replays
from hotset._policy import is_own
from hotset._trace import Path, Trace, path_of


class Rows(list[dict[str, Any]]):
    """A list of dicts; `.to_pandas()` if pandas is installed."""

    def to_pandas(self) -> Any:
        """The rows as a data frame."""
        import pandas

        return pandas.DataFrame(list(self))


class Result(dict[str, Any]):
    """The JSON object of a command."""

    @property
    def runs(self) -> Rows:
        """For `simulate`: a dict for each replay."""
        return Rows(self["results"])

    def to_pandas(self) -> Any:
        """The runs as a data frame."""
        return self.runs.to_pandas()


def program() -> str:
    """Path of the program: $HOTSET_PROGRAM, the package's own, or from PATH. Raises Error."""
    own = os.path.join(os.path.dirname(__file__), "bin", "hotset")
    for path in (os.environ.get("HOTSET_PROGRAM"), own, shutil.which("hotset")):
        if path and os.access(path, os.X_OK):
            return path
    raise Error("the program hotset is not there, accepted: a package that carries it, or $HOTSET_PROGRAM")


def run(*arguments: str) -> str:
    """Runs `hotset` and returns its output. Its errors are raised as Error, with its message."""
    return completed(*arguments).stdout


def completed(*arguments: str, where: Optional[str] = None) -> subprocess.CompletedProcess[str]:
    """Runs `hotset`, in the folder `where`, and returns both outputs. Raises Error as run() does."""
    done = subprocess.run(
        [program(), *arguments], capture_output=True, encoding="utf-8", errors="surrogateescape", check=False, cwd=where
    )
    if done.returncode < 0:
        raise Error(f"hotset was ended by signal {-done.returncode}")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"hotset ended with {done.returncode}"]
        raise Error(lines[-1].removeprefix("hotset: "))
    return done


def words_of(options: dict[str, Any]) -> list[str]:
    """`token_ids=True` becomes `--token-ids`; a list is joined by commas; None and False are left
    out."""
    out: list[str] = []
    for name, value in options.items():
        word = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            out.append(word)
        elif isinstance(value, (str, int, float)):
            out += [word, str(value)]
        elif isinstance(value, Iterable):
            out += [word, ",".join(str(v) for v in value)]
        else:
            raise Error(f"{name}: {value!r}, accepted: a text, a number, a flag, or several")
    return out


def simulate(trace: Union[Trace, Path], *, eviction: Any = None, slots: Any = None, **options: Any) -> Result:
    """Replays a trace with `hotset simulate`: options by name (`--slots 25%,50%` is slots=["25%",
    "50%"]).

    eviction: names, and EvictionPolicy objects of your own, which are replayed here with the same visits: with event-atomic or
    per-access visits, and without prefetch, links and other parts of `hotset simulate` that a pager does not have. Their results
    have `bytes_refetched` and `by_sequence` None."""
    each = list(eviction) if isinstance(eviction, Iterable) and not isinstance(eviction, (str, type)) else [eviction]
    if any([is_own(one) for one in each]):
        return Result(replays(trace, each, {"slots": slots, **options}, run, words_of))
    return _on_trace("simulate", trace, {"eviction": eviction, "slots": slots, **options})


def curve(trace: Union[Trace, Path], **options: Any) -> Result:
    """Misses of LRU at every size, from `hotset curve`."""
    return _on_trace("curve", trace, options)


def plan(**options: Any) -> Result:
    """Divides a device's memory between experts and KV cache with `hotset plan`:
    plan(model="qwen3-30b-a3b", vram="24GiB")."""
    return Result(json.loads(run("plan", "--json", *words_of(options))))


def _on_trace(command: str, trace: Union[Trace, Path], options: dict[str, Any]) -> Result:
    with tempfile.TemporaryDirectory(prefix="hotset-") as folder:
        return Result(json.loads(run(command, path_of(trace, folder), "--json", *words_of(options))))


def main() -> NoReturn:
    """The command `hotset` of an installed package."""
    path = program()
    os.execv(path, [path, *sys.argv[1:]])
