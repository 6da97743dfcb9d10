# SPDX-License-Identifier: Apache-2.0
"""Shared by the studies' commands: options with one-line errors, traces of any format, outputs,
tables."""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Optional

import numpy

from hotset._errors import Error, InvalidArgument, InvalidConfig
from hotset._files import Output
from hotset._program import program
from hotset._trace import Trace

OK, FAILURE, USAGE, BAD_INPUT = 0, 1, 2, 4


class Usage(Exception):
    """An invalid command line."""


class Ended(Exception):
    """Ends the command with a code; the error has already been printed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def refused(option: str, text: str, accepted: str) -> Usage:
    return Usage(f"{option}: '{text}'; accepted: {accepted}")


def did_you_mean(text: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(text, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def one_of(option: str, text: str, known: Sequence[str]) -> str:
    if text not in known:
        raise Usage(f"{option}: '{text}'{did_you_mean(text, known)}; accepted: {', '.join(known)}")
    return text


def whole(text: str) -> float:
    """Parses a text of digits only, or returns NaN."""
    return int(text) if text.isascii() and text.isdigit() else math.nan


def real(text: str) -> float:
    """Parses a number, or returns NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with one-line errors that suggest similar names."""

    def __init__(self, study: str, description: str, *examples: str) -> None:
        super().__init__(
            prog=f"python3 -m hotset {study}",
            description=description,
            epilog="\n  ".join(("Examples:", *examples)),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.study = study

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{self.study}: {message}; see python3 -m hotset {self.study} --help")

    def given(self, words: Sequence[str]) -> argparse.Namespace:
        options, rest = self.parse_known_intermixed_args(words)
        for word in rest:
            name = word.split("=")[0]
            known = [n for action in self._actions for n in action.option_strings]
            self.error(f"'{name}' is no option{did_you_mean(name, known)}")
        return options

    def number(self, name: str, default: Any, least: Any, most: Any, about: str) -> None:
        """Adds an option for a number in [least, most]; an integer if the bounds are."""
        kind = type(least)

        def read(text: str) -> Any:
            value = whole(text) if kind is int else real(text)
            if not least <= value <= most:
                bounds = f"{least}..{most}" if kind is int else f"{least:g}..{most:g}"
                raise refused(name, text, bounds)
            return value

        self.add_argument(
            name, type=read, default=default, metavar="N", help=f"{about} (default: {default:g})"
        )

    def reading(self) -> None:
        """Adds the options for reading traces; those of `hotset import`."""
        group = self.add_argument_group("reading traces", "as hotset import --help describes them")
        for name, metavar in (
            ("format", "NAME"),
            ("as", "SHAPE"),
            ("first", "N"),
            ("tokens", "A:B"),
            ("sequences", "A:B"),
            ("layers", "A..B"),
            ("field", "LIST"),
            ("top-k", "N"),
            ("experts", "N"),
            ("block-bytes", "SIZE"),
        ):
            group.add_argument(
                f"--{name}", action="append", metavar=metavar, dest=f"reading_{name}", default=[]
            )


def open_trace(path: str, options: argparse.Namespace) -> Trace:
    """Opens a trace of any format. Raises InvalidArgument that begins with the path; Ended if the
    program refuses it."""
    words = []
    for key, values in vars(options).items():
        if key.startswith("reading_"):
            for value in values:
                words += [f"--{key[len('reading_'):]}", value]
    trace = Trace.load(path) if not words and _is_native(path) else _imported(path, words)
    if not trace.metadata.get("name"):
        trace.metadata["name"] = os.path.splitext(os.path.basename(path))[0]
    try:
        check(trace)
    except InvalidArgument as bad:
        raise InvalidArgument(f"{path}: {bad}") from bad
    return trace


def _is_native(path: str) -> bool:
    """Whether it is a regular file that begins like safetensors; the program converts other inputs.
    """
    try:
        facts = os.stat(path)
        if path == "-" or not stat.S_ISREG(facts.st_mode):
            return False
        with open(path, "rb") as file:
            head = file.read(9)
    except OSError:
        return False
    return head[8:] == b"{" and int.from_bytes(head[:8], "little") <= facts.st_size - 8


def _imported(path: str, words: Sequence[str]) -> Trace:
    with tempfile.TemporaryDirectory(prefix="hotset-") as folder:
        made = os.path.join(folder, "imported.trace")
        code = subprocess.run(
            [program(), "import", path, made, *words], stdout=subprocess.DEVNULL, check=False
        ).returncode
        if code != 0:
            raise Ended(code if code > 0 else FAILURE)
        return Trace.load(made)


def check(trace: Trace) -> None:
    """Refuses arrays that do not belong together, and invalid values. Raises InvalidArgument."""
    facts, arrays = trace.metadata, trace.arrays
    if not facts.get("experts", "").isdigit() or not 1 <= trace.experts <= 65535:
        raise InvalidArgument(
            f"__metadata__: experts is '{facts.get('experts', '')}'; accepted: 1..65535"
        )
    tokens, layers, top_k = trace.ids.shape
    if 0 in trace.ids.shape:
        raise InvalidArgument("the trace has no tokens, accepted: 1 or more")
    cells = (tokens, layers, trace.experts)
    width, depth = (arrays[n].shape[2:3] if n in arrays else () for n in ("hidden", "predictions"))
    for name, dtype, shape in (
        ("ids", "<u2", (tokens, layers, top_k)),
        ("step", "<u4", (tokens,)),
        ("sequence", "<u4", (tokens,)),
        ("kind", "u1", (tokens,)),
        ("weights", "<f4", (tokens, layers, top_k)),
        ("logits", "<f4", cells),
        ("probabilities", "<f2", cells),
        ("hidden", "<f2", (tokens, layers, *width)),
        ("predictions", "<f2", (tokens, layers, *depth, trace.experts)),
    ):
        if name not in arrays:
            if name in ("step", "sequence", "kind"):
                raise InvalidArgument(f"tensor '{name}': is missing")
        elif arrays[name].shape != shape or arrays[name].dtype != numpy.dtype(dtype):
            found = arrays[name]
            raise InvalidArgument(
                f"tensor '{name}': is {found.dtype} {list(found.shape)}; accepted:"
                f" {numpy.dtype(dtype)} {list(shape)}"
            )
    if (numpy.diff(trace.steps.astype(numpy.int64)) < 0).any():
        raise InvalidArgument("step: falls, accepted: steps that never decrease")
    if trace.kinds.max() > 2:
        raise InvalidArgument(
            f"kind: {trace.kinds.max()}, accepted: 0 (decode), 1 (prefill), 2 (verify)"
        )
    wrong = (trace.ids >= trace.experts) & (trace.ids != 65535)
    if wrong.any():
        raise InvalidArgument(
            f"ids: an expert {trace.ids[wrong][0]}, accepted: 0..{trace.experts - 1}, or 65535"
            " (absent)"
        )


def output(path: Optional[str], binary: bool = False) -> Output:
    """Opens an output; `-` or no path means standard output."""
    out = Output(None if path in (None, "", "-") else path)
    if binary and out.is_terminal:
        raise Usage(f"{out.name}: is a terminal; accepted: a file or a pipe for binary data")
    return out


def write_text(out: Output, text: str) -> None:
    out.write([text.encode(errors="replace")])


def write_and_report(out: Output, data: bytes, report: str) -> None:
    """Writes the data, and the report where it does not mix with the file."""
    out.write([data])
    if out.is_standard_output:
        sys.stderr.write(report)
    else:
        write_text(Output(None), report)


def json_line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n"


def plain(number: float) -> str:
    """Formats with the fewest digits: 0.8, 1, 95."""
    return repr(number)[:-2] if repr(number).endswith(".0") else repr(number)


def shown(name: str, most: int) -> str:
    """A printable name: no control characters, and truncated."""
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text if len(text) <= most else text[:most] + "..."


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a table: first column left-aligned, numbers right-aligned."""
    cells = [list(titles), *map(list, rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(titles))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))])
        for row in cells
    ]
    return "\n".join(lines) + "\n"


def progress(label: str) -> Callable[[int, int], None]:
    """A line on standard error, rewritten about ten times a second and cleared at the end. Nothing
    unless standard error is a terminal."""
    if not sys.stderr.isatty():
        return lambda done, total: None
    said = 0.0

    def told(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if done >= total:
            sys.stderr.write("\r\033[K")
        elif now - said >= 0.1:
            said = now
            sys.stderr.write(
                f"\r{label} [{'#' * (30 * done // total):<30}] {100 * done // total:3} %\033[K"
            )
        sys.stderr.flush()

    return told


def guarded(body: Callable[[], int]) -> int:
    """Runs the body; every exception becomes one line and an exit code."""
    try:
        code = body()
        sys.stdout.flush()
        return code
    except Ended as ended:
        return ended.code
    except BrokenPipeError:  # the reader has closed its end; Python would report it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    except MemoryError:
        return _failed("out of memory", FAILURE)
    except Usage as bad:
        return _failed(str(bad), USAGE)
    except Error as bad:
        return _failed(str(bad), _code_of(bad))
    except OSError as bad:
        return _failed(f"{bad.filename}: {bad.strerror}" if bad.filename else str(bad), FAILURE)


def note(message: str) -> None:
    """One line on standard error that is no error."""
    sys.stderr.write(f"hotset: note: {shown(message, 4096)}\n")


def _code_of(bad: Error) -> int:
    if isinstance(bad, InvalidConfig):
        return USAGE
    return BAD_INPUT if isinstance(bad, InvalidArgument) else FAILURE


def _failed(message: str, code: int) -> int:
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{clear}hotset: {shown(message, 4096)}\n")
    return code
