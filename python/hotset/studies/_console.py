# SPDX-License-Identifier: Apache-2.0
"""What the commands of the studies share: options that refuse in one line, traces of any format,
outputs, tables."""

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
    """A command line that means nothing."""


class Ended(Exception):
    """Ends the command with a code: what is wrong has been said."""

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
    """A number of digits alone, or NaN."""
    return int(text) if text.isascii() and text.isdigit() else math.nan


def real(text: str) -> float:
    """A number, or NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, and that says what was probably meant."""

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
        """An option that holds a number in [least, most], whole if the bounds are."""
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
        """The options by which traces are read; those of `hotset import`."""
        group = self.add_argument_group("reading traces", "as hotset import --help describes them")
        for name, metavar in (
            ("format", "NAME"),
            ("as", "SHAPE"),
            ("first", "N"),
            ("field", "LIST"),
            ("top-k", "N"),
            ("experts", "N"),
            ("block-bytes", "SIZE"),
        ):
            group.add_argument(
                f"--{name}", action="append", metavar=metavar, dest=f"reading_{name}", default=[]
            )


def open_trace(path: str, options: argparse.Namespace) -> Trace:
    """A trace of any format. Raises InvalidArgument that begins with the path; Ended if the program
    refuses to read it."""
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
    """A regular file that begins as safetensors do: of other inputs the program makes one."""
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
    """Refuses arrays that do not belong together, and numbers that mean nothing. Raises
    InvalidArgument."""
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
    """What `-` or no path means is standard output."""
    out = Output(None if path in (None, "", "-") else path)
    if binary and out.is_terminal:
        raise Usage(f"{out.name}: is a terminal; accepted: a file or a pipe for binary data")
    return out


def write_text(out: Output, text: str) -> None:
    out.write([text.encode(errors="replace")])


def write_and_report(out: Output, data: bytes, report: str) -> None:
    """The report goes where it is not taken for a part of the file."""
    out.write([data])
    if out.is_standard_output:
        sys.stderr.write(report)
    else:
        write_text(Output(None), report)


def json_line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n"


def plain(number: float) -> str:
    """In the fewest digits: 0.8, 1, 95."""
    return repr(number)[:-2] if repr(number).endswith(".0") else repr(number)


def shown(name: str, most: int) -> str:
    """A name for people: no control characters, and cut."""
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text if len(text) <= most else text[:most] + "..."


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, numbers to the right."""
    cells = [list(titles), *map(list, rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(titles))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))])
        for row in cells
    ]
    return "\n".join(lines) + "\n"


def progress(label: str) -> Callable[[int, int], None]:
    """A line on standard error that is written anew some ten times a second, and cleared at the
    end; nothing unless that is a terminal."""
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
    """Everything that is raised ends here, as one line and an exit code."""
    try:
        code = body()
        sys.stdout.flush()
        return code
    except Ended as ended:
        return ended.code
    except BrokenPipeError:  # a reader that had enough; Python would say so at its end
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


def _code_of(bad: Error) -> int:
    if isinstance(bad, InvalidConfig):
        return USAGE
    return BAD_INPUT if isinstance(bad, InvalidArgument) else FAILURE


def _failed(message: str, code: int) -> int:
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{clear}hotset: {shown(message, 4096)}\n")
    return code
