# SPDX-License-Identifier: Apache-2.0
"""`hotset plot`: pictures of results and traces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hotset import _draw, _figures
from hotset._errors import InvalidArgument
from hotset._figures import KINDS, Figure
from hotset.studies import _console
from hotset.studies._console import Usage

_FIGURES = list(dict.fromkeys(name for figures in KINDS.values() for name in figures))


def plot(words: Sequence[str]) -> int:
    """The command. Returns its exit code."""
    parser = _console.Parser(
        "plot",
        "Draws a result of hotset (--json), a timeline or a trace, and writes the numbers of each"
        " figure as CSV beside it.",
        "hotset simulate demo.trace --eviction lru,lfu,belady --slots 12.5%,25%,50% --json --out run.json",
        "hotset plot run.json -o run.svg",
        "hotset plot run.json --figure layers --theme dark -o layers.png",
        "hotset plot demo.trace -o demo.html",
    )
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="JSON of simulate, curve, plan, counts, simulate-split or adapters plan; a timeline; or a trace")
    add("-o", "--out", metavar="FILE", help="picture to write: .svg, .png or .html (zooms, tells its numbers)")
    add("--figure", metavar="NAME", help=f"draw this figure alone (default: all of the file): {', '.join(_FIGURES)}")
    add("--theme", default="light", metavar="NAME", help="light (default), dark")
    add("--list", action="store_true", help="name the figures of the file, or of every kind of file")
    parser.reading()
    options = parser.given(words)
    _console.one_of("--theme", options.theme, _draw.THEMES)
    if options.file is None and options.list:
        _console.write_text(_console.output(None), "".join(f"{kind}: {', '.join(names)}\n" for kind, names in KINDS.items()))
        return _console.OK
    if options.file is None:
        parser.error("no file; accepted: a result of hotset --json, a timeline or a trace")
    kind, held = read(options.file, options)
    if options.list:
        _console.write_text(_console.output(None), "".join(f"{name}\n" for name in KINDS[kind]))
        return _console.OK
    if not options.out:
        parser.error("no --out; accepted: a path that ends with .svg, .png or .html")
    figures = figures_of(options.file, kind, held, options.figure)
    _write(options.out, figures, options.theme)
    return _console.OK


def read(path: str, options: Any) -> tuple[str, Any]:
    """Kind of a file, and its value: JSON, or a trace of any format. Raises InvalidArgument."""
    try:
        with open(path, "rb") as file:
            text = file.read() if file.peek(1)[:1] in (b"{", b"[") else b""
    except OSError as bad:
        raise InvalidArgument(f"{path}: cannot be opened: {bad.strerror}; accepted: a result of hotset, or a trace") from bad
    held = _figures.parsed(text)
    kind = _figures.kind_of(held)
    if kind:
        return kind, held
    if isinstance(held, dict) and "schema" in held:
        raise InvalidArgument(f"{path}: schema {held['schema']!r}; accepted: hotset.{', hotset.'.join(k for k in KINDS if k not in ('timeline', 'trace'))}")
    return "trace", _console.open_trace(path, options)


def figures_of(path: str, kind: str, held: Any, only: Any = None) -> list[Figure]:
    """Figures of a file. If no figure is named, those are left out that lack a field, unless all do.
    Raises InvalidArgument."""
    if only is not None and only not in KINDS[kind]:
        raise Usage(f"--figure: '{only}'{_console.did_you_mean(only, _FIGURES)}; accepted of this {kind}: {', '.join(KINDS[kind])}")
    found, lacking = [], []
    for value in [held] if kind in ("trace", "timeline") else _figures.values_of(held):
        for name in [only] if only else KINDS[kind]:
            try:
                found.append(_figures.made(kind, name, value))
            except _figures.Lacking as bad:
                lacking.append(str(bad))
            except InvalidArgument as bad:
                raise InvalidArgument(f"{path}: {bad}") from bad
    if lacking and (only or not found):
        raise InvalidArgument(f"{path}: {lacking[0]}")
    for one in lacking:
        _console.note(f"{path}: {one}")
    return found


def _write(path: str, figures: Sequence[Figure], theme: str) -> None:
    stem, end = os.path.splitext(path)
    form = end[1:].lower()
    if form not in _draw.FORMATS:
        raise Usage(f"--out: '{path}'; accepted: a path that ends with .{', .'.join(_draw.FORMATS)}")
    outputs = [_console.output(path), *(_console.output(name) for name in _tables(stem, figures))]
    specs = [_draw.specification(one, theme) for one in figures]
    outputs[0].write([_draw.drawn(specs, form, figures[0].subtitle)])
    for out, figure in zip(outputs[1:], figures):
        _console.write_text(out, _draw.csv_of(figure.rows))


def _tables(stem: str, figures: Sequence[Figure]) -> list[str]:
    """x.csv of one figure; of several x-NAME.csv, numbered if a name comes again."""
    if len(figures) == 1:
        return [f"{stem}.csv"]
    names = [one.name for one in figures]
    again = [names[:at].count(name) for at, name in enumerate(names)]
    return [f"{stem}-{name}{f'-{number + 1}' if number else ''}.csv" for name, number in zip(names, again)]
