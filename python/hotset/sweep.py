# SPDX-License-Identifier: Apache-2.0
"""Sweeps of `hotset simulate` over any concurrent.futures.Executor.

    from concurrent.futures import ProcessPoolExecutor
    from hotset import sweep

    cells = sweep.cells(["a.trace", "b.trace"], eviction=["lru", "belady"], slots=["25%", "50%"])
    with ProcessPoolExecutor() as pool:
        sweep.run(cells, pool, folder="done")
    result = sweep.merge(cells, "done")
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from hotset._errors import Error
from hotset._files import Output
from hotset._program import Result, completed, run as _output_of, words_of
from hotset._trace import Path

LISTS = (
    "eviction",
    "admission",
    "scope",
    "replay",
    "preset",
    "prefetch",
    "prefetch_guard",
    "prefetch_order",
    "predictor",
    "miss",
    "routing",
    "pre_eviction",
    "precision",
    "slots",
    "budget",
    "link",
)
"""Options of which one command of `hotset simulate` replays several values."""
REFUSED = (
    "columns",
    "compare",
    "csv",
    "decisions",
    "dry_run",
    "help",
    "jobs",
    "json",
    "only",
    "out",
    "progress",
    "rank",
    "resume",
    "timeline",
    "until",
)
"""Options of `hotset simulate` that a sweep does not have."""


@dataclass(frozen=True)
class Cell:
    """One replay of a trace."""

    trace: str
    key: str
    """Hash of the trace's content, the options and the version; names the cell's file."""
    words: tuple[str, ...]
    """Options of the command that has this replay among its own."""
    options: dict[str, Any] = field(compare=False)
    """Options of this replay, named as in a result of `hotset simulate --json`."""

    def __str__(self) -> str:
        name = self.options["preset"] or self.options["eviction"]
        return f"{name} {self.options['size']} {self.options['scope']} of {self.trace}"


def cells(traces: Union[Path, Iterable[Path]], **grid: Any) -> list[Cell]:
    """Lists the cells of a sweep: every trace under every combination of options.

    traces: a file or several. grid: options of `hotset simulate`, with underscores for dashes; a list has the values to combine
    (eviction=["lru", "belady"]). Order: that of the program's results. A list of an option that the program takes one value of,
    such as tokens=["0:1000", "1000:2000"], makes a command for each value, in the order given.

    Reads the traces. Raises Error, with the program's message, for what the program refuses."""
    paths = [os.fspath(each) for each in ([traces] if isinstance(traces, (str, os.PathLike)) else traces)]
    for path in paths:
        if paths.count(path) > 1:
            raise Error(f"{path}: given twice, accepted: each trace once")
    names = list(grid)
    choices = [_choices(name, grid[name]) for name in names]
    out = []
    for chosen in itertools.product(*choices):
        words = tuple(words_of(dict(zip(names, chosen))))
        for path in paths:
            out += [Cell(path, line.pop("key"), words, line) for line in _listed(path, words)]
    if not out:
        raise Error("no trace, accepted: one or more")
    return out


def run(cells: Sequence[Cell], executor: Executor, folder: Path, *, progress: bool = False) -> None:
    """Runs the cells that the folder does not have. Each result is a file of the folder, as with `hotset simulate --resume`.

    executor: its workers need hotset of the same version, and the files under the same paths. If a worker or the call ends early,
    call again: only missing cells run. progress: without a terminal, too, print the cells done and the time left on standard
    error every 10 s.

    Raises Error if cells failed, after all others have run."""
    path = os.fspath(folder)
    missing = {cell.key: cell for cell in _missing(cells, _finished(cells, path))}
    shown = _Progress(len({cell.key for cell in cells}), len(missing), progress)
    failed: list[tuple[Cell, BaseException]] = []
    futures: dict[Future[None], Cell] = {}
    try:
        for cell in missing.values():
            try:
                futures[executor.submit(_replay, cell, path, os.getcwd())] = cell
            except BrokenExecutor as why:
                failed.append((cell, why))
        for future in as_completed(futures):
            try:
                future.result()
            except Exception as why:
                failed.append((futures[future], why))
            else:
                shown.add()
    finally:
        for future in futures:
            future.cancel()
        shown.end()
    if failed:
        raise Error(
            f"{len(failed)} of {len(cells)} cells failed, first {failed[0][0]}: {_reason(failed[0][1])};"
            f" the same call runs them again and keeps what {path} has"
        ) from failed[0][1]


def merge(cells: Sequence[Cell], folder: Path, out: Optional[Path] = None) -> Union[Result, list[Result]]:
    """Merges the results of the cells: the JSON object of `hotset simulate --json`, or a list of one for each trace and command.

    The text, which `out` gets, is byte for byte what the command in its member `generator` prints, however the cells were run.
    Raises Error if cells are missing; CannotWrite."""
    path = os.fspath(folder)
    listed = _finished(cells, path) if os.path.isdir(path) else {}
    missing = _missing(cells, listed) if listed else list(cells)
    if missing:
        raise Error(f"{len(missing)} of {len(cells)} cells are missing in {path}, first {missing[0]}; accepted: all, from run()")
    texts = []
    for words, of_words in _commands(cells).items():
        keys = {cell.key for some in of_words.values() for cell in some}
        only = () if all(keys.issuperset(listed[words, trace]) for trace in of_words) else ("--only", ",".join(sorted(keys)))
        texts.append(_output_of("simulate", *of_words, *words, *only, "--json", "--resume", path))
    text = texts[0] if len(texts) == 1 else "[\n" + ",\n".join(map(_objects, texts)) + "\n]\n"
    if out is not None:
        Output(out).write([text.encode("utf-8", "surrogateescape")])
    whole = json.loads(text)
    return [Result(each) for each in whole] if isinstance(whole, list) else Result(whole)


def _choices(name: str, given: Any) -> list[Any]:
    """Values of an option, each for commands of its own."""
    if name.rstrip("_") in REFUSED:
        raise Error(f"{name}: not in a sweep, accepted: options of hotset simulate without {', '.join(REFUSED)}")
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    values = list(given) if several else [given]
    if not values or not all(value is None or isinstance(value, (str, int, float)) for value in values):
        raise Error(f"{name}: {given!r}, accepted: a text, a number, a flag, or a list of at least one")
    return [values] if several and name.rstrip("_") in LISTS else values


def _listed(trace: str, words: Sequence[str], folder: Optional[str] = None) -> list[dict[str, Any]]:
    """The program's list of a command's runs. Repeats what it says of damaged files."""
    done = completed("simulate", trace, *words, "--dry-run", *(() if folder is None else ("--resume", folder)))
    for line in done.stderr.splitlines():
        if ": damaged (" in line:
            print(line, file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _commands(cells: Iterable[Cell]) -> dict[tuple[str, ...], dict[str, list[Cell]]]:
    """Cells by command and trace."""
    out: dict[tuple[str, ...], dict[str, list[Cell]]] = {}
    for cell in cells:
        out.setdefault(cell.words, {}).setdefault(cell.trace, []).append(cell)
    return out


_Listed = dict[tuple[tuple[str, ...], str], dict[str, bool]]


def _finished(cells: Sequence[Cell], folder: str) -> _Listed:
    """Keys that the program lists for each command and trace, and whether the folder has a whole file. Makes the folder."""
    listed = dict.fromkeys((cell.words, cell.trace) for cell in cells)
    return {(words, trace): {line["key"]: line["finished"] for line in _listed(trace, words, folder)} for words, trace in listed}


def _missing(cells: Sequence[Cell], listed: _Listed) -> list[Cell]:
    """Cells without a whole file. Raises Error for a cell that no longer exists."""
    for cell in cells:
        if cell.key not in listed[cell.words, cell.trace]:
            raise Error(f"{cell}: the trace or hotset has changed, accepted: cells() of now")
    return [cell for cell in cells if not listed[cell.words, cell.trace][cell.key]]


def _replay(cell: Cell, folder: str, where: str) -> None:
    """Runs a cell on a worker. where: the folder that paths are relative to."""
    words = (*cell.words, "--only", cell.key, "--json", "--jobs", "1", "--resume", folder)
    completed("simulate", cell.trace, *words, where=where if os.path.isdir(where) else None)


def _reason(why: BaseException) -> str:
    """One line."""
    said = str(why).strip().split("\n")[0]
    if isinstance(why, Error):
        return said
    name = type(why).__name__
    ended = isinstance(why, BrokenExecutor) or name == "KilledWorker"  # of Dask
    return f"a worker ended early ({name}: {said})" if ended else f"{name}: {said}"


def _objects(text: str) -> str:
    """The objects of a JSON text of the program, without the array around several."""
    return text[2:-3] if text.startswith("[") else text[:-1]


class _Progress:
    """Progress on standard error, as `hotset simulate` shows it."""

    def __init__(self, cells: int, missing: int, asked: bool) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = self._terminal or asked
        self._pause = 0.1 if self._terminal else 10
        self._cells, self._begun, self._done = cells, cells - missing, cells - missing
        self._start = self._last = time.monotonic()

    def add(self) -> None:
        """Counts a cell."""
        self._done += 1
        now = time.monotonic()
        if not self._shown or (now - self._last < self._pause and self._done < self._cells):
            return
        self._last = now
        percent = 100 * self._done // self._cells
        rest = f"{percent:3} %  {self._done} of {self._cells} cells{self._left(now)}"
        if self._terminal:
            print(f"\rsweep [{'#' * (12 * self._done // self._cells):12}] {rest}\033[K", end="", file=sys.stderr, flush=True)
        else:
            print(f"hotset: sweep: {rest.strip()}", file=sys.stderr, flush=True)

    def _left(self, now: float) -> str:
        if now - self._start < 1 or self._done == self._cells:
            return ""
        left = int((now - self._start) * (self._cells - self._done) / (self._done - self._begun))
        minutes, seconds = divmod(left, 60)
        hours, minutes = divmod(minutes, 60)
        return f", {hours}:{minutes:02}:{seconds:02} left" if hours else f", {minutes}:{seconds:02} left"

    def end(self) -> None:
        """Clears the line of a terminal."""
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


__all__ = ["Cell", "cells", "merge", "run"]
