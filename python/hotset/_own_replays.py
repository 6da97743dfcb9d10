# SPDX-License-Identifier: Apache-2.0
"""Replays of policies of one's own beside those of the program, with the same visits."""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref
from typing import Any, Union

import numpy
from numpy.typing import NDArray

from hotset._errors import Error
from hotset._library import Stats, check, library
from hotset._pager import Pager
from hotset._policy import EvictionPolicy, is_own
from hotset._trace import Path, Trace, path_of

READING = ("format", "as", "first", "tokens", "sequences", "layers", "field", "top_k", "experts", "block_bytes")
"""Options that change what is read from a file."""
REPLAYING = ("slots", "budget", "scope", "replay", "admission", "split", "max_tokens", "expert_bytes", "jobs")
MODES = ("event-atomic", "per-access")
COUNTS = ("accesses", "hits", "misses", "compulsory_misses", "collision_misses", "fills", "evictions", "bytes_filled", "bypasses")
"""Counts of a pager that a result has too."""
UNCOUNTED = ("bytes_refetched", "by_sequence", "key")
"""Parts of a result that only the program has."""


def _each(given: Any) -> list[Any]:
    return [given] if isinstance(given, str) or not hasattr(given, "__iter__") else list(given)


class Visits:
    """A trace cut into visits as the program cuts it."""

    def __init__(self, trace: Trace, max_tokens: int, per_access: bool) -> None:
        self.trace = trace
        self.per_access = per_access
        ids = trace.ids.astype(numpy.int32)
        ids[ids == 65535] = -1
        self.ids = ids
        steps = numpy.asarray(trace.steps)
        begins = [0, *(numpy.flatnonzero(numpy.diff(steps)) + 1).tolist(), trace.tokens]
        self.passes = [
            (at, min(at + most, end))
            for begin, end in zip(begins, begins[1:])
            for most in [max_tokens or end - begin]
            for at in range(begin, end, most)
        ]
        self.most_tokens = 1 if per_access else max(end - begin for begin, end in self.passes)

    def __iter__(self) -> Iterator[tuple[int, int, int, NDArray[Any], Any, Any]]:
        """Step, kind, layer, experts, weights, sequences."""
        trace, weights = self.trace, self.trace.weights
        routed = numpy.asarray((self.ids >= 0).any(2))
        kinds, sequences = numpy.asarray(trace.kinds), numpy.ascontiguousarray(trace.sequences, numpy.uint32)
        for step, (begin, end) in enumerate(self.passes):
            kind = next((k for k in (1, 2) if (kinds[begin:end] == k).any()), 0)
            some = numpy.asarray(routed[begin:end].any(0))
            for layer in range(trace.layers):
                if not some[layer]:
                    continue
                rows = self.ids[begin:end, layer]
                gates = None if weights is None else weights[begin:end, layer]
                if not self.per_access:
                    yield step, kind, layer, rows, gates, sequences[begin:end]
                    continue
                for t, k in zip(*(at.tolist() for at in numpy.nonzero(rows >= 0))):
                    gate = None if gates is None else gates[t : t + 1, k : k + 1]
                    yield step, kind, layer, rows[t : t + 1, k : k + 1], gate, sequences[begin + t : begin + t + 1]


class Counted:
    """Counts of each visit of a replay."""

    def __init__(self, visits: Visits, pager: Pager, weigh: bool) -> None:
        stats = Stats(ctypes.sizeof(Stats))
        places, totals = [], []
        names = ("decode", "prefill", "verify")
        for step, kind, layer, rows, weights, sequences in visits:
            for group in pager.visits(layer, rows, step=step, kind=names[kind], weights=weights if weigh else None, sequences=sequences):
                group.commit()
            check(library.hotset_get_stats(pager._handle, byref(stats)))
            places.append((step, kind, layer))
            totals.append(tuple(getattr(stats, name) for name in COUNTS))
        self.step, self.kind, self.layer = numpy.array(places).T
        self.counts = numpy.diff(numpy.array([(0,) * len(COUNTS), *totals]), axis=0)

    def of(self, which: Any) -> dict[str, int]:
        """Counts of the visits that the mask selects."""
        return dict(zip(COUNTS, self.counts[which].sum(0).tolist()))

    def miss_free_steps(self) -> int:
        """Steps without a miss."""
        missed = numpy.bincount(self.step, self.counts[:, COUNTS.index("misses")])
        return int((missed[numpy.unique(self.step)] == 0).sum())


def row_of(template: dict[str, Any], name: str, counted: Counted) -> dict[str, Any]:
    """A result like the program's of the same cache: `template` gives all that no decision changes."""

    def replaced(row: dict[str, Any], which: Any) -> dict[str, Any]:
        counts = counted.of(which)
        return {key: counts.get(key, value) for key, value in row.items()}

    whole = replaced(template, slice(None))
    whole.update(eviction=name, miss_free_steps=counted.miss_free_steps(), reuse_hits=whole["hits"], bytes_demand=whole["bytes_filled"])
    whole["by_kind"] = {
        kind: replaced(row, counted.kind == ("decode", "prefill", "verify").index(kind)) for kind, row in template["by_kind"].items()
    }
    whole["per_layer"] = [replaced(row, counted.layer == row["layer"]) for row in template["per_layer"]]
    if "windows" in template:
        whole["windows"] = [
            replaced(row, (counted.step >= row["first_step"]) & (counted.step < row["first_step"] + row["steps"])) for row in template["windows"]
        ]
    whole.update({key: None for key in UNCOUNTED if key in whole})
    return whole


def _read(trace: Union[Trace, Path], folder: str, reading: dict[str, Any], run: Callable[..., str], words: Any) -> tuple[str, Trace]:
    """The trace as the program reads it, and its file."""
    if isinstance(trace, Trace) and not reading:
        return path_of(trace, folder), trace
    out = os.path.join(folder, "read.trace")
    run("import", path_of(trace, folder), out, *words(reading))
    return out, Trace.load(out)


def _checked(options: dict[str, Any]) -> None:
    """Refuses options that a replay of one's own policy does not have."""
    for name, value in options.items():
        if name.rstrip("_") not in READING + REPLAYING and value is not None and value is not False:
            raise Error(
                f"{name}: not with an eviction policy of your own, accepted: {', '.join(REPLAYING)}, and {', '.join(READING)}"
            )
    for mode in _each(options.get("replay") or MODES[0]):
        if mode not in MODES:
            raise Error(f"replay: {mode!r} with an eviction policy of your own, accepted: {', '.join(MODES)}")
    for name in ("admission", "split"):
        if not isinstance(options.get(name) or "", str):
            raise Error(f"{name}: {options[name]!r} with an eviction policy of your own, accepted: one name")


def _pager(trace: Trace, visits: Visits, row: dict[str, Any], options: dict[str, Any], policy: EvictionPolicy) -> Pager:
    sizes = trace.arrays.get("expert_bytes")
    expert_bytes = options.get("expert_bytes") or (None if sizes is None else sizes.tolist())
    in_layers = row["scope"] == "per-layer"
    budget = row["budget_bytes"]
    return Pager(
        trace.layers,
        trace.experts,
        1 if visits.per_access else trace.top_k,
        max_tokens=visits.most_tokens,
        slots=None if budget is not None else row["slots"] // (trace.layers if in_layers else 1),
        budget=budget,
        expert_bytes=expert_bytes,
        scope="per_layer" if in_layers else "shared",
        split=(options.get("split") or "by_token").replace("-", "_"),
        admission=options.get("admission") or "always",
        eviction=policy,
    )


def replays(
    trace: Union[Trace, Path], evictions: Sequence[Any], options: dict[str, Any], run: Callable[..., str], words: Callable[..., list[str]]
) -> dict[str, Any]:
    """The JSON object of `hotset simulate`, with a result for each policy in the given order."""
    _checked(options)
    reading = {name: value for name, value in options.items() if name.rstrip("_") in READING}
    replaying = {name: value for name, value in options.items() if name.rstrip("_") in REPLAYING}
    names = [each for each in evictions if not is_own(each)]
    with tempfile.TemporaryDirectory(prefix="hotset-") as folder:
        path, whole = _read(trace, folder, reading, run, words)
        # Without a name, lru's results give the sizes.
        out: dict[str, Any] = json.loads(run("simulate", path, "--json", *words({"eviction": names or ["lru"], **replaying})))
        width = len(names) or 1
        results = []
        for at in range(0, len(out["results"]), width):
            native = out["results"][at : at + width]
            visits = Visits(whole, options.get("max_tokens") or 0, native[0]["replay"] == "per-access")
            theirs = iter(native)
            for each in evictions:
                if is_own(each):
                    pager = _pager(whole, visits, native[0], options, each)
                    results.append(row_of(native[0], type(each).__name__, Counted(visits, pager, bool(each.needs_weights))))
                    del pager
                else:
                    results.append(next(theirs))
        out["results"] = results
        return out
