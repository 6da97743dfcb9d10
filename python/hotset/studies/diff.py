# SPDX-License-Identifier: Apache-2.0
"""Differences between two results of `hotset simulate --json` (schema hotset.simulate/2).

A row is a replay, or the facts of a trace. Rows are matched by name: trace, policies, scope,
replay, slots, budget, and other choices that are not the default; rows with equal names by their
order.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple, NoReturn, Optional, Union

from hotset._errors import InvalidArgument

SCHEMA = "hotset.simulate/2"
Number = Union[int, float]

_NAMED = ("eviction", "admission", "scope", "replay")
_USUAL: dict[str, Optional[str]] = {
    "preset": None,
    "prefetch": "no_prefetch",
    "prefetch_guard": "named",
    "miss": "fetch",
    "routing": "router_order",
    "precision": None,
    "link": None,
    "pre_eviction": "none",
    "predictor": "recorded",
    "prefetch_order": "nearest",
    "target": None,
}
# Seconds, shares and qualities: null if they were not measured.
_MEASURED = frozenset(
    "ttft_s tpot_s blocking_io_s total_io_s total_s prefetch_precision prefetch_recall quality"
    " quality_full_precision lost_gate_mass forecast_confidence reached next_smaller".split()
)
# Counts that are null if they do not exist.
_UNKNOWN = ("bytes_per_expert", "slots")
# Parts whose sums are compared, and the key, which differs whenever an option does.
_PARTS = frozenset(("windows", "by_sequence", "key"))
_DEEPEST = 16


class Row(NamedTuple):
    name: str
    numbers: dict[str, Number]
    """By the path to each, such as per_layer[1].hits."""


class Differences(NamedTuple):
    lines: list[str]
    equal: int
    changed: int
    removed: int
    added: int


def read(text: bytes, file: str) -> list[Row]:
    """The rows of a result, or of an array of results. Raises InvalidArgument with the file and the
    place."""
    return _Reader(file).read(text)


def compare(before: list[Row], after: list[Row], tolerance: float = 0.0) -> Differences:
    """Numbers are equal if they differ by at most `tolerance` of the larger one."""
    lines, equal, changed = [], 0, 0
    names = {row.name: row for row in after}
    for row in before:
        if row.name not in names:
            lines.append(f"- {row.name}")
            continue
        found = _changes(row.numbers, names[row.name].numbers, tolerance)
        equal += not found
        changed += bool(found)
        lines += [f"~ {row.name}", *found] if found else []
    removed = len(before) - equal - changed
    known = {row.name for row in before}
    added = [f"+ {row.name}" for row in after if row.name not in known]
    return Differences(lines + added, equal, changed, removed, len(added))


def _changes(
    before: dict[str, Number], after: dict[str, Number], tolerance: float
) -> list[str]:
    found = []
    for path in [*before, *(path for path in after if path not in before)]:
        a, b = before.get(path), after.get(path)
        if a == b or (a is not None and b is not None and abs(a - b) <= tolerance * max(abs(a), abs(b))):
            continue
        apart = f" ({b - a:+d})" if isinstance(a, int) and isinstance(b, int) else ""
        found.append(f"  {path}: {_shown(a)} -> {_shown(b)}{apart}")
    return found


def _shown(value: Optional[Number]) -> str:
    text = "none" if value is None else repr(value)
    return text[:-2] if text.endswith(".0") else text


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._rows: list[Row] = []
        self._seen: Counter[str] = Counter()

    def read(self, text: bytes) -> list[Row]:
        root = self._parsed(text)
        if isinstance(root, list):
            for at, sweep in enumerate(root):
                self._add_sweep(sweep, f"[{at}]")
        else:
            self._add_sweep(root, "")
        return self._rows

    def _refuse(self, place: str, found: str, accepted: str) -> NoReturn:
        at = f"{self._file}: {place}" if place else self._file
        raise InvalidArgument(f"{at}: {found}; accepted: {accepted}")

    def _parsed(self, text: bytes) -> Any:
        wrote = "what hotset simulate --json wrote"

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            for key, times in Counter(key for key, _ in pairs).items():
                if times > 1:
                    self._refuse(f"key '{key}'", "is there twice", "each key once")
            return dict(pairs)

        def no_constant(word: str) -> NoReturn:
            self._refuse("", f"not JSON: {word}", wrote)

        try:
            return json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)
        except RecursionError:
            self._refuse("", f"nested more than {_DEEPEST} deep", wrote)
        except json.JSONDecodeError as bad:
            self._refuse(f"byte {bad.pos}", "not JSON", wrote)
        except UnicodeDecodeError as bad:
            self._refuse(f"byte {bad.start}", "not JSON", wrote)

    def _member(self, value: Any, name: str, place: str) -> Any:
        if not isinstance(value, dict):
            self._refuse(place, "not an object", "an object")
        if name not in value:
            self._refuse(place, f'no "{name}"', "an object with it")
        return value[name]

    def _text(self, value: Any, name: str, place: str) -> str:
        text = self._member(value, name, place)
        if not isinstance(text, str):
            self._refuse(place, f'"{name}" is no text', "a string")
        return "".join(c if c.isprintable() else "?" for c in text)

    def _count(self, value: Any, place: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
            self._refuse(place, json.dumps(value)[:40], "a whole number of 0 or more")
        return value

    def _add_sweep(self, sweep: Any, place: str) -> None:
        schema = self._text(sweep, "schema", place)
        if schema != SCHEMA:
            self._refuse(place, f'schema "{schema}"', f'"{SCHEMA}"')
        trace = self._member(sweep, "trace", place)
        name = self._text(trace, "name", place)
        self._add_row(name, trace, {"name"}, f"{place}trace")
        results = self._member(sweep, "results", place)
        if not isinstance(results, list):
            self._refuse(f"{place}results", "not an array", "an array")
        for at, result in enumerate(results):
            self._add_result(name, result, f"{place}results[{at}]")

    def _add_result(self, trace: str, result: Any, place: str) -> None:
        words = [f"{trace}:", *(self._text(result, choice, place) for choice in _NAMED)]
        slots = self._count(self._member(result, "slots", place), f"{place}.slots")
        words += ["slots", str(slots)]
        budget = self._member(result, "budget_bytes", place)
        if budget is not None:
            words += ["budget", str(self._count(budget, f"{place}.budget_bytes"))]
        for choice, usual in _USUAL.items():
            if result.get(choice) is not None:
                chosen = self._text(result, choice, place)
                words += [choice, chosen] if chosen != usual else []
        besides = {*_NAMED, *_USUAL, *_PARTS, "slots", "budget_bytes", "notes", "size", "share"}
        self._add_row(" ".join(words), result, besides, place)

    def _add_row(self, name: str, value: Any, besides: set[str], place: str) -> None:
        if not isinstance(value, dict):
            self._refuse(place, "not an object", "an object")
        self._seen[name] += 1
        nth = self._seen[name]
        row = Row(name if nth == 1 else f"{name} (#{nth})", {})
        for path, entry in value.items():
            if path not in besides:
                self._add_numbers(row, path, entry, f"{place}.{path}", 1)
        self._rows.append(row)

    def _add_numbers(self, row: Row, path: str, value: Any, place: str, depth: int) -> None:
        if depth > _DEEPEST:
            self._refuse("", f"nested more than {_DEEPEST} deep", "what hotset simulate --json wrote")
        if isinstance(value, dict):
            for key, entry in value.items():
                self._add_numbers(row, f"{path}.{key}", entry, f"{place}.{key}", depth + 1)
        elif isinstance(value, list):
            for at, entry in enumerate(value):
                self._add_numbers(row, f"{path}[{at}]", entry, f"{place}[{at}]", depth + 1)
        elif value is None and path.rpartition(".")[2] in _UNKNOWN:
            return
        elif path not in _MEASURED:
            row.numbers[path] = self._count(value, place)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            if value in (float("inf"), float("-inf")):
                self._refuse(place, "a number is out of range", "a number, or null")
            row.numbers[path] = float(value)
        elif value is not None:
            self._refuse(place, json.dumps(value)[:40], "a number, or null")
