# SPDX-License-Identifier: Apache-2.0
"""`hotset top`: a terminal view of a running engine's metrics, from its Prometheus page or from a file."""

from __future__ import annotations

import argparse
import contextlib
import curses
import http.client
import math
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, Optional

from hotset._errors import Error, InvalidArgument
from hotset.studies import _console
from hotset.studies._console import Parser, Usage

_REFRESH = 0.2  # seconds from frame to frame
_TIMEOUT = 2.0  # seconds until an engine that does not answer is reported
_MOST = 16 << 20  # bytes of a page
_LAYERS = 10  # layers of a frame without a height
_BAR = 20  # characters

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")

Labels = dict[str, str]


class Page:
    """The hotset samples of one reading."""

    def __init__(self, samples: dict[str, list[tuple[Labels, float]]], at: float) -> None:
        self.samples = samples
        self.at = at
        """Seconds: when the page was read, or when its file was written."""

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels, over the caches of the page; NaN if there is none."""
        values = [value for own, value in self.samples.get("hotset_" + name, []) if labels.items() <= own.items()]
        return math.fsum(values) if values else math.nan

    def values(self, name: str, label: str) -> list[str]:
        """The distinct values of a label, in the page's order."""
        found = (own[label] for own, _ in self.samples.get("hotset_" + name, []) if label in own)
        return list(dict.fromkeys(found))


def parse(text: str, source: str, at: float) -> Page:
    """Reads Prometheus text (exposition format 0.0.4), without other programs' samples. Raises InvalidArgument."""
    samples: dict[str, list[tuple[Labels, float]]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("hotset_"):
            continue
        found = _SAMPLE.fullmatch(line)
        value = _console.real(found.group(3)) if found else math.nan
        labels = _labels(found.group(2) or "") if found else None
        if not found or labels is None or math.isnan(value):
            shown = _console.shown(line, 60)
            raise InvalidArgument(f"{source}, line {number}: '{shown}'; accepted: name{{label=\"value\"}} number")
        samples.setdefault(found.group(1), []).append((labels, value))
    if "hotset_visits_total" not in samples:
        raise InvalidArgument(f"{source}: no hotset_visits_total; accepted: the metrics of an engine with hotset")
    return Page(samples, at)


def _labels(text: str) -> Optional[Labels]:
    out: Labels = {}
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if not found:
            return None
        out[found.group(1)] = _ESCAPED.sub(lambda m: "\n" if m.group(1) == "n" else m.group(1), found.group(2))
        at = found.end()
    return out


def read(source: str) -> Page:
    """Reads a URL or a file. Raises Error, InvalidArgument, OSError."""
    if source.startswith(("http://", "https://")):
        text, at = _fetched(source), time.time()
    else:
        with open(source, "rb") as file:
            text, at = file.read(_MOST + 1), os.fstat(file.fileno()).st_mtime
    if len(text) > _MOST:
        raise InvalidArgument(f"{source}: more than {_MOST >> 20} MiB; accepted: Prometheus text")
    return parse(text.decode(errors="replace"), source, at)


def _fetched(url: str) -> bytes:
    # An engine's address is near: a proxy of the environment would not reach it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT) as answer:
            return bytes(answer.read(_MOST + 1))
    except urllib.error.HTTPError as bad:
        raise Error(f"{url}: the server answers {bad.code} {bad.reason}; accepted: the page of the metrics") from None
    except urllib.error.URLError as bad:
        raise Error(f"{url}: no answer: {_reason(bad.reason)}") from None
    except (OSError, ValueError) as bad:  # broken off, or slow, or an invalid URL
        raise Error(f"{url}: no answer: {_reason(bad)}") from None
    except http.client.HTTPException as bad:
        raise Error(f"{url}: no answer in HTTP: {_console.shown(str(bad) or type(bad).__name__, 60)}") from None


def _reason(bad: Any) -> str:
    return str(getattr(bad, "strerror", None) or bad)


class History:
    """The readings of the last seconds. Rates compare the newest with one that is `window` seconds older."""

    def __init__(self, window: float) -> None:
        self.window = window
        self.pages: deque[Page] = deque()

    def add(self, page: Page) -> None:
        """Adds a reading, unless it is a file that was not written again. A restarted engine starts a new history."""
        if self.pages and page.at <= self.pages[-1].at:
            if page.at == self.pages[-1].at:
                return
            self.pages.clear()
        if self.pages and page.total("visits_total") < self.pages[-1].total("visits_total"):
            self.pages.clear()
        self.pages.append(page)
        # A refresh is late by milliseconds, so that a reading may be a little younger than the window.
        while len(self.pages) > 2 and page.at - self.pages[1].at >= self.window - _REFRESH / 2:
            self.pages.popleft()

    @property
    def newest(self) -> Page:
        return self.pages[-1]

    @property
    def seconds(self) -> float:
        """What "now" covers; 0 after the first reading."""
        return self.pages[-1].at - self.pages[0].at

    def change(self, name: str, **labels: str) -> float:
        """By how much a counter has grown; NaN after the first reading."""
        if len(self.pages) < 2:
            return math.nan
        return self.newest.total(name, **labels) - self.pages[0].total(name, **labels)

    def rate(self, name: str, **labels: str) -> float:
        """Growth a second."""
        return self.change(name, **labels) / self.seconds if len(self.pages) > 1 else math.nan


def quantile(q: float, counts: Sequence[tuple[float, float]]) -> float:
    """A quantile of a histogram, as Prometheus computes it: linear within a bucket. `counts`: upper bound and
    cumulative count of each bucket, the last bound infinite. NaN if it is empty; infinite beyond the last bound."""
    if not counts or not counts[-1][1] > 0:
        return math.nan
    rank = q * counts[-1][1]
    below, floor = 0.0, 0.0
    for bound, count in counts:
        if count >= rank and count > below:
            return bound if math.isinf(bound) else floor + (bound - floor) * (rank - below) / (count - below)
        below, floor = count, bound
    return math.inf


# Frames.


class Line(NamedTuple):
    """A line of a frame."""

    text: str
    style: str = ""  # "", "title" or "bad"


def _number(form: str, value: float) -> str:
    """Formats a value; NaN, which no sample gave, is a dash."""
    return "-" if math.isnan(value) else form.format(value)


def _share(part: float, whole: float) -> str:
    return "-" if not whole > 0 else _number("{:.1f} %", 100 * part / whole)


def _seconds(value: float) -> str:
    unit, scale = next((pair for pair in (("s", 1.0), ("ms", 1e-3)) if value >= pair[1]), ("us", 1e-6))
    value /= scale
    return _number(f"{{:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}} {unit}", value)


def _quantile(q: float, counts: Sequence[tuple[float, float]]) -> str:
    value = quantile(q, counts)
    return "> " + _seconds(counts[-2][0]) if math.isinf(value) else _seconds(value)


def _bytes(value: float, base: int, units: Sequence[str]) -> str:
    if math.isnan(value):
        return "-"
    power = 0
    while abs(value) >= base and power < len(units) - 1:
        value /= base
        power += 1
    return f"{value:.0f} {units[0]}" if power == 0 else f"{value:.1f} {units[power]}"


def _moved(value: float) -> str:
    return _bytes(value, 1000, ("B", "kB", "MB", "GB", "TB"))


def _held(value: float) -> str:
    return _bytes(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def _per_second(text: str) -> str:
    return text if text == "-" else text + "/s"


def _bar(part: float, whole: float) -> str:
    if not whole > 0 or math.isnan(part):
        return ""
    full = round(_BAR * min(max(part / whole, 0.0), 1.0))
    return "[" + "#" * full + "." * (_BAR - full) + "]"


def _row(name: str, now: str, since: str, more: str = "") -> Line:
    return Line(f"  {name:<22}{now:>14}{since:>14}  {more}".rstrip())


def _decisions(history: History) -> Iterator[Line]:
    page, change = history.newest, history.change
    yield _row(
        "hit rate",
        _share(change("hits_total"), change("accesses_total")),
        _share(page.total("hits_total"), page.total("accesses_total")),
        _bar(change("hits_total"), change("accesses_total")),
    )
    for kind in page.values("accesses_by_kind_total", "kind"):
        accesses = page.total("accesses_by_kind_total", kind=kind)
        if 0 < accesses < page.total("accesses_total"):
            yield _row(
                "  " + kind,
                _share(change("hits_by_kind_total", kind=kind), change("accesses_by_kind_total", kind=kind)),
                _share(page.total("hits_by_kind_total", kind=kind), accesses),
            )
    for name, counter in (("steps", "steps_total"), ("misses", "misses_total"), ("stalls", "stalls_total")):
        yield _row(name, _number("{:,.1f}/s", history.rate(counter)), _number("{:,.0f}", page.total(counter)))
    yield _row(
        "waited for copies",
        _share(history.rate("stall_seconds_total"), 1.0),
        _seconds(page.total("stall_seconds_total")),
    )


def _buckets(page: Page, copy: str) -> list[tuple[float, float]]:
    bounds = page.values("copy_seconds_bucket", "le")
    counts = [(_console.real(le), page.total("copy_seconds_bucket", copy=copy, le=le)) for le in bounds]
    return sorted(pair for pair in counts if not math.isnan(pair[0]) and not math.isnan(pair[1]))


def _copies(history: History) -> Iterator[Line]:
    page = history.newest
    for copy in page.values("link_bytes_total", "copy"):
        total = page.total("link_bytes_total", copy=copy)
        yield _row(f"{copy} bytes", _per_second(_moved(history.rate("link_bytes_total", copy=copy))), _moved(total))
    for copy in page.values("copy_seconds_bucket", "copy"):
        since = _buckets(page, copy)
        before = dict(_buckets(history.pages[0], copy))
        now = [(bound, count - before.get(bound, 0.0)) for bound, count in since] if len(history.pages) > 1 else []
        for q, name in ((0.5, "median"), (0.99, "p99")):
            yield _row(f"{copy} copy, {name}", _quantile(q, now), _quantile(q, since))


def _room(page: Page) -> Iterator[Line]:
    if math.isnan(page.total("slots")):
        return
    experts, slots, resident = (page.total(name) for name in ("experts", "slots", "resident_experts"))
    yield _row("slots", f"{slots:,.0f}", _number("of {:,.0f}", experts), _bar(slots, experts))
    yield _row("resident", _number("{:,.0f}", resident), f"of {slots:,.0f}", _bar(resident, slots))
    used, limit = page.total("budget_used_bytes"), page.total("budget_bytes")
    if limit > 0:
        over = " over its limit" if used > limit else ""
        line = _row("budget", _held(used), "of " + _held(limit), _bar(used, limit) + over)
        yield line._replace(style="bad") if over else line


def _layers(history: History, most: int) -> Iterator[Line]:
    page = history.newest
    rows = []
    for layer in page.values("accesses_by_layer_total", "layer"):
        names = ("hits_by_layer_total", "accesses_by_layer_total")
        now, since = ([of(name, layer=layer) for name in names] for of in (history.change, page.total))
        hits, accesses = now if now[1] > 0 else since
        rows.append((accesses - hits, layer, now, since))
    if not rows or most < 1:
        return
    yield Line("")
    yield Line(f"{'most misses':<24}{'hit rate now':>14}{'since start':>14}  misses/s", "title")
    rows.sort(key=lambda row: -row[0])
    for missed, layer, now, since in rows[:most]:
        now_text = _share(*now)
        more = f"{_bar(missed, rows[0][0])} {(now[1] - now[0]) / history.seconds:,.1f}" if now_text != "-" else ""
        yield _row("layer " + layer, now_text, _share(*since), more)


def frame(history: History, source: str, height: Optional[int] = None, trouble: str = "") -> list[Line]:
    """The lines of a frame; at most `height` of them. `trouble`: why the newest reading is an old one."""
    page = history.newest
    info = page.samples.get("hotset_info", [])
    names = [f"{own.get('policy', '?')}, hotset {own.get('version', '?')}" for own, _ in info]
    age = time.time() - page.at
    if age >= 2:
        names.append(f"written {age:.0f} s ago")
    lines = [Line(f"hotset top: {_console.shown(source, 200)}", "title")]
    lines.append(Line(trouble, "bad") if trouble else Line(", ".join(dict.fromkeys(names))))
    now = f"last {history.seconds:.0f} s" if len(history.pages) > 1 else "now"
    lines += [Line(f"{'':<24}{now:>14}{'since start':>14}", "title"), *_decisions(history), *_copies(history)]
    room = list(_room(page))
    lines += [Line("")] * bool(room) + room
    rest = _LAYERS if height is None else height - len(lines) - 2
    lines += _layers(history, rest)
    return lines[:height]


# The terminal.


class Reader:
    """Reads a source again and again; after a failure the last reading stands, with the reason."""

    def __init__(self, source: str, window: float) -> None:
        self.source = source
        self.history = History(window)
        self.trouble = ""
        self.history.add(read(source))

    def again(self) -> None:
        try:
            self.history.add(read(self.source))
            self.trouble = ""
        except (Error, OSError) as bad:
            age = time.time() - self.history.newest.at
            self.trouble = f"{_reason(bad)}; read {age:.0f} s ago, trying again"

    def lines(self, height: Optional[int] = None) -> list[Line]:
        return frame(self.history, self.source, height, self.trouble)


def _attributes() -> dict[str, int]:
    bad = curses.A_REVERSE
    if curses.has_colors() and "NO_COLOR" not in os.environ:
        curses.start_color()
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_RED, -1)
        bad = curses.color_pair(1) | curses.A_BOLD
    return {"": curses.A_NORMAL, "title": curses.A_BOLD, "bad": bad}


def _follow_size(screen: Any) -> None:
    """Some builds of curses do not follow a change of the size themselves."""
    size = os.get_terminal_size()
    if curses.is_term_resized(size.lines, size.columns):
        curses.resizeterm(size.lines, size.columns)
        screen.clear()


def _draw(screen: Any, lines: Sequence[Line], attributes: dict[str, int]) -> None:
    height, width = screen.getmaxyx()
    screen.erase()
    for y, line in enumerate(lines[:height]):
        # curses refuses the last cell of the screen.
        with contextlib.suppress(curses.error):
            screen.addnstr(y, 0, line.text, width, attributes[line.style])
    screen.refresh()


def _watch(screen: Any, reader: Reader) -> None:
    with contextlib.suppress(curses.error):  # a terminal that cannot hide its cursor
        curses.curs_set(0)
    attributes = _attributes()
    due = time.monotonic() + _REFRESH
    while True:
        _follow_size(screen)
        height, _ = screen.getmaxyx()
        _draw(screen, reader.lines(height), attributes)
        screen.timeout(max(0, math.ceil(1000 * (due - time.monotonic()))))
        if screen.getch() in (ord("q"), ord("Q")):
            return
        if time.monotonic() >= due:  # neither another key nor a change of the size
            reader.again()
            due = time.monotonic() + _REFRESH


def _ended(number: int, _: Any) -> NoReturn:
    raise SystemExit(128 + number)


def _on_terminal(reader: Reader) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _ended)  # the terminal is restored then, too
    try:
        curses.wrapper(_watch, reader)
    except KeyboardInterrupt:  # the way to leave, as q
        pass
    except curses.error as bad:
        raise Error(f"TERM={os.environ.get('TERM', '')}: {bad}; accepted: a terminal, or --once") from None
    return _console.OK


def _once(reader: Reader) -> int:
    if reader.history.window > 0:
        time.sleep(reader.history.window)
        reader.history.add(read(reader.source))
    _console.write_text(_console.output(None), "".join(line.text + "\n" for line in reader.lines()))
    return _console.OK


def main(words: Sequence[str]) -> int:
    """The command `top`."""
    parser = Parser(
        "top",
        "Shows the metrics of a running engine in the terminal, five times a second; q or Ctrl-C ends it.",
        "hotset top http://127.0.0.1:9100/metrics",
        "hotset top /var/lib/node_exporter/hotset.prom",
        "hotset top --once --window 1 http://127.0.0.1:9100/metrics",
    )
    parser.add_argument(
        "source", metavar="FILE|URL", help="Prometheus text of the engine: a URL, or a file that it rewrites"
    )
    parser.add_argument("--once", action="store_true", help="print one frame as plain text after --window, and end")
    parser.number("--window", 2.0, 0.0, 3600.0, "seconds of the column 'now'; 0 with --once: no such column's values")
    options: argparse.Namespace = parser.given(words)
    if not options.once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Usage("top: standard input and output are not a terminal; accepted: --once, or a terminal")
    reader = Reader(options.source, options.window)
    return _once(reader) if options.once else _on_terminal(reader)
