# SPDX-License-Identifier: Apache-2.0
"""Rows of the figures: what `hotset ... --json`, a timeline or a trace says, one dict a mark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from hotset._errors import InvalidArgument
from hotset._trace import Trace

Row = dict[str, Any]

# Policies that see the future. The other results do not say which of theirs do.
_ORACLES = ("belady", "next_visit_oracle", "oracle", "best-fixed")
_MOST_POINTS = 400  # of a line; a browser draws no more of them apart
_MOST_SPANS = 300  # of a timeline, for the same reason
_WINDOWS = 100
_GIB = 2**30


class Figure(NamedTuple):
    """What one picture shows. name: of its specification in figures/."""

    name: str
    subtitle: str
    rows: list[Row]
    texts: dict[str, Any] = {}
    """Values for the specification's words that begin with a dollar."""


class Lacking(InvalidArgument):
    """A result without a field that the figure needs."""


def _needs(held: Mapping[str, Any], field: str, command: str) -> Any:
    if held.get(field) is None:
        raise Lacking(f"has no {field}; accepted: the output of {command}")
    return held[field]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _knows(policy: str) -> str:
    return "the future" if policy.split(":")[0] in _ORACLES else "the past"


def _shape(trace: Mapping[str, Any]) -> str:
    return (
        f"{trace['name'] or 'a trace'}: {trace['layers']} layers x {trace['experts']} experts,"
        f" top-{trace['top_k']}, {trace['tokens']:,} tokens"
    )


# hotset simulate

_SIMULATE = "hotset simulate TRACE --eviction LIST --slots LIST --json"
_BESIDE = ("preset", "admission", "prefetch", "miss", "routing", "precision", "replay")


def _policies_of(results: Sequence[Row]) -> list[str]:
    """Names of the results: the eviction, and what else differs between them."""
    differing = [name for name in _BESIDE if len({str(one.get(name)) for one in results}) > 1]
    return [
        ", ".join([one["eviction"], *(f"{name} {one[name]}" for name in differing if one.get(name))])
        for one in results
    ]


def _cache(one: Row) -> str:
    scope = "shared" if one["scope"] == "shared" else "per layer"
    share = f"{_percent(one['share'])}: " if one.get("share") is not None else ""
    return f"{scope}, {share}{one['slots']:,} slots"


def _results(held: Row) -> list[Row]:
    found: list[Row] = _needs(held, "results", _SIMULATE)
    if not found:
        raise Lacking(f"has no results; accepted: the output of {_SIMULATE}")
    return found


def sizes(held: Row) -> Figure:
    """Hit rate by size, of `hotset simulate`."""
    results, trace = _results(held), held["trace"]
    cycle = trace["layers"] * trace["top_k"]
    rows = []
    for one, policy in zip(results, _policies_of(results)):
        share = one["slots"] / trace["experts_total"]
        rows.append(_size(policy, one["scope"], one["slots"], share, one["misses"], one["accesses"]))
    rows.sort(key=lambda row: (row["policy"], row["scope"], row["slots"]))
    first = results[0]
    rows += _marks({one["scope"] for one in results}, cycle, trace["experts_total"], first)
    return Figure("sizes", _shape(trace), rows, {"$opacity": 1})


def _size(policy: str, scope: str, slots: int, share: float, misses: float, of: int) -> Row:
    return {
        "mark": "size", "policy": policy, "scope": scope, "slots": slots, "share": share,
        "hits": 1 - misses / of, "misses": misses, "future": _knows(policy),
    }  # fmt: skip


def _marks(scopes: Iterable[str], cycle: int, total: int, counts: Mapping[str, Any]) -> list[Row]:
    """The slots that one token's cycle takes, and the hits of a cache of all experts."""
    ceiling = 1 - counts["compulsory_misses"] / counts["accesses"]
    rows: list[Row] = []
    for scope in sorted(scopes):
        named = {"scope": scope, "future": None}
        rows.append({"mark": "cycle", "policy": "one token's cycle", "slots": cycle, "share": cycle / total, **named})
        rows.append({"mark": "ceiling", "policy": "all but first uses", "hits": ceiling, **named})
    return rows


def layers(held: Row) -> Figure:
    """Misses by layer, of `hotset simulate`."""
    results = _results(held)
    rows = []
    for one, policy in zip(results, _policies_of(results)):
        for layer in _needs(one, "per_layer", _SIMULATE):
            missed = layer["accesses"] - layer["hits"]
            rows.append({
                "policy": policy, "cache": _cache(one), "order": one["slots"], "layer": layer["layer"],
                "missed": missed / layer["accesses"] if layer["accesses"] else None,
                "misses": missed, "accesses": layer["accesses"],
            })  # fmt: skip
    return Figure("layers", _shape(held["trace"]), rows)


def over_time(held: Row) -> Figure:
    """Hit rate of windows of steps, of `hotset simulate`."""
    results = _results(held)
    rows = []
    for one, policy in zip(results, _policies_of(results)):
        for window in _needs(one, "windows", f"{_SIMULATE} (schema hotset.simulate/2)"):
            rows.append({
                "policy": policy, "cache": _cache(one), "order": one["slots"], **window,
                "hit_rate": window["hits"] / window["accesses"] if window["accesses"] else None,
            })  # fmt: skip
    return Figure("time", _shape(held["trace"]), rows)


# hotset curve


def _curves(held: Any) -> list[Row]:
    return held if isinstance(held, list) else [held]


def points(curve: Row) -> list[tuple[int, float]]:
    """Slots of all pools and misses, where visits fit; at most so many that a line shows them."""
    pools = [pool["misses"] for pool in _needs(curve, "curves", "hotset curve TRACE --json")]
    if not pools:
        raise Lacking("has no curves; accepted: the output of hotset curve TRACE --json")
    length = max(map(len, pools))
    total = numpy.zeros(length)
    for pool in pools:
        known = numpy.array([numpy.nan if one is None else one for one in pool], float)
        total += numpy.append(known, numpy.full(length - len(known), known[-1]))
    fit = numpy.flatnonzero(~numpy.isnan(total))
    chosen = fit[numpy.unique(numpy.linspace(0, len(fit) - 1, min(len(fit), _MOST_POINTS)).astype(int))]
    return [(int(at) * len(pools), float(total[at])) for at in chosen]


def _policy_of(curve: Row) -> str:
    return str(curve.get("eviction") or "lru")


def _cycle_of(curve: Row) -> int:
    """Slots of all pools."""
    cycle: int = _needs(curve, "cycle", "hotset curve TRACE --json (schema hotset.curve/2)")
    return cycle * len(curve["curves"])


def curve_sizes(held: Any) -> Figure:
    """Hit rate at every size, of `hotset curve`."""
    rows = []
    for curve in _curves(held):
        total, accesses = curve["experts_total"], curve["accesses"]
        for slots, misses in points(curve):
            rows.append(_size(_policy_of(curve), curve["scope"], slots, slots / total, misses, accesses))
    for scope, curve in {curve["scope"]: curve for curve in _curves(held)}.items():
        rows += _marks([scope], _cycle_of(curve), curve["experts_total"], curve)
    return Figure("sizes", _about_curve(held), rows, {"$opacity": 0})


def _about_curve(held: Any) -> str:
    first = _curves(held)[0]
    return f"{first['name'] or 'a trace'}: {first['experts_total']:,} experts, {first['accesses']:,} accesses"


def curve_value(held: Any) -> Figure:
    """What more slots save, of `hotset curve`: the slope of its misses."""
    rows = []
    known = all(pool.get("slot_bytes") for curve in _curves(held) for pool in curve["curves"])
    for curve in _curves(held):
        for slots, more, saved in _slopes(curve, 60):
            rows.append({
                "policy": _policy_of(curve), "scope": curve["scope"], "slots": slots,
                "share": slots / curve["experts_total"], "more_slots": more,
                "saved": saved * (_GIB / _slot_bytes(curve) if known else 1),
            })  # fmt: skip
    unit = "misses that one more GiB saves" if known else "misses that one more slot saves"
    return Figure("value", f"{_about_curve(held)}; misses of the whole trace", rows, {"$unit": unit})


def _slot_bytes(curve: Row) -> float:
    pools = curve["curves"]
    return float(sum(pool["slot_bytes"] for pool in pools)) / len(pools)


def _slopes(curve: Row, most: int) -> list[tuple[int, int, float]]:
    """Slots, slots to the next point, misses that each of these saves."""
    known = points(curve)
    chosen = [known[at] for at in numpy.unique(numpy.linspace(0, len(known) - 1, min(len(known), most)).astype(int))]
    return [(a, b - a, (before - after) / (b - a)) for (a, before), (b, after) in zip(chosen, chosen[1:])]


# hotset simulate --rank


def rank(held: Row) -> Figure:
    """Avoidable misses that policies remove, of `hotset simulate --rank`."""
    command = "hotset simulate TRACE --rank --json"
    cells, policies = _needs(held, "cells", command), _needs(held, "policies", command)
    rows = []
    for at, cell in enumerate(cells):
        cache = f"{_scope(cell)}, {cell['size']}"
        rows.append({
            "mark": "room", "order": at, **_cell(cell), "cache": f"{cell['trace']}: {cache}" if "trace" in cell else cache,
            "slots": cell["slots"],
        })  # fmt: skip
    for at, policy in enumerate(policies):
        named = {"policy": policy["eviction"] + (" (knows the future)" if policy["offline"] else ""), "order": at}
        for cell, removed, misses in zip(cells, policy["gap_closed"], policy["misses"]):
            rows.append({"mark": "cell", **named, **_cell(cell), "removed": removed, "misses": misses})
        rows.append({"mark": "all", **named, "removed": policy["saved"]})
    caption = "points: one cache each; ticks and numbers: all caches together"
    # The last ranking of several traces is over all: its cells have traces.
    about = _shape(held["trace"]) if "trace" in held else f"over {', '.join(held['traces'])}"
    least = min([0.0, *(row["removed"] for row in rows if row.get("removed") is not None)])
    return Figure("rank", f"{about}; {caption}", rows, {"$least": max(-1.0, least)})


def _scope(cell: Row) -> str:
    return "shared" if cell["scope"] == "shared" else "per layer"


def _cell(cell: Row) -> Row:
    return {"scope": _scope(cell), "size": cell["size"], "room": cell["room"] / cell["accesses"]}


# hotset plan, simulate-split, adapters plan


def marginals(held: Row) -> Figure:
    """What the next byte saves, of `hotset plan`."""
    rows = [
        {
            "consumer": one["consumer"], "ms_per_gib": 1000 * _GIB * one["seconds_per_byte"],
            "kind": "KV cache" if one["consumer"] == "kv" else "experts",
        }
        for one in _needs(held, "marginals", "hotset plan --model MODEL --json")
    ]  # fmt: skip
    return Figure("marginals", _about_plan(held), rows)


def divisions(held: Row) -> Figure:
    """Divisions of the memory that `hotset plan` compares."""
    rows = [
        {
            "division": one["name"], "ms_per_step": 1000 * one["seconds_per_step"], "cap": one["cap"],
            "kv_bytes": one["kv_bytes"], "starts": "starts" if one["feasible"] else "lacks memory",
        }
        for one in _needs(held, "alternatives", "hotset plan --model MODEL --json")
    ]  # fmt: skip
    return Figure("divisions", _about_plan(held), rows)


def _about_plan(held: Row) -> str:
    return (
        f"{held['model']['name']}: {held['budget_bytes'] / _GIB:.2f} GiB to divide,"
        f" {sum(held['quotas']) / held['model']['moe_layers']:.1f} experts of a layer,"
        f" {held['kv_tokens']:,} tokens of KV cache"
    )


def split(held: Row) -> Figure:
    """Costs of a division that moves, of `hotset simulate-split`."""
    rows = []
    for flow in _needs(held, "results", "hotset simulate-split TRACE --kv-trace REQUESTS --budget SIZE --json"):
        for one in flow["outcomes"]:
            rows.append({
                "workflow": flow["name"], "policy": one["policy"], "ms_per_burst": 1000 * one["seconds_per_burst"],
                "over_oracle": one["over_oracle"], "cap": one["cap"], "moves": one["moves"],
                "future": _knows(one["policy"]),
            })  # fmt: skip
    bursts = ", ".join(f"{flow['bursts']} bursts" for flow in held["results"][:1])
    return Figure("split", f"{len(held['results'])} workflow(s), {bursts}", rows)


def adapters(held: Row) -> Figure:
    """Bytes of adapters by placement, of `hotset adapters plan`."""
    tokens = held.get("kv_tokens") or {}
    kinds = {"exact": "lower bound", held.get("smallest"): "fewest bytes"}
    rows = []
    for name, size in _needs(held, "bytes", "hotset adapters plan --base MxL --expert-bytes SIZE CONFIG... --json").items():
        kept = tokens.get(name)
        rows.append({
            "placement": name, "bytes": size, "gib": size / _GIB, "kv_tokens": kept,
            "kind": kinds.get(name, "other placement"),
            "label": f"{size / _GIB:.2f}" + (f", leaves {kept:,} tokens" if kept is not None else ""),
        })  # fmt: skip
    adapted = held["adapters"]
    about = f"{len(adapted)} adapter{'s' if len(adapted) > 1 else ''}: {', '.join(one['name'] for one in adapted[:6])}"
    return Figure("adapters", about + (", ..." if len(adapted) > 6 else ""), rows)


# hotset simulate --timeline

_TRACKS = ("compute stream", "link: demand", "link: prefetch", "link: victims copied back")
_DOING = dict(zip(_TRACKS, ("arithmetic", "copy for a miss", "prefetch", "copy back")))


def timeline(held: Any) -> Figure:
    """Spans of a timeline, from its middle, because its begin is a cold cache."""
    events = held if isinstance(held, list) else held["traceEvents"]
    names = {one["tid"]: one["args"]["name"] for one in events if one.get("name") == "thread_name"}
    spans = sorted((one for one in events if one.get("ph") == "X"), key=lambda one: one["ts"])
    if not spans:
        raise Lacking("has no spans; accepted: a file of hotset simulate --link RATE --timeline FILE")
    begin = max(0, (len(spans) - _MOST_SPANS) // 2)
    rows = []
    for one in spans[begin : begin + _MOST_SPANS]:
        track = names.get(one["tid"], str(one["tid"]))
        doing = "wait for copies" if one["name"] == "wait" else _DOING.get(track, track)
        rows.append({
            "track": track, "order": _TRACKS.index(track) if track in _TRACKS else len(_TRACKS),
            "name": one["name"], "doing": doing, "begin_ms": one["ts"] / 1000,
            "end_ms": (one["ts"] + one["dur"]) / 1000, "ms": one["dur"] / 1000,
            "bytes": one.get("args", {}).get("bytes"),
        })  # fmt: skip
    end = max(one["ts"] + one["dur"] for one in spans) / 1000
    return Figure("timeline", f"{len(rows):,} of {len(spans):,} spans, from the middle of {end:,.2f} ms", rows)


# a trace


def _keys(trace: Trace) -> tuple[Any, Any]:
    """bool [tokens, layers, top_k]: routed; and numbers of (layer, expert)."""
    ids = trace.ids.astype(numpy.int64)
    first = (numpy.arange(trace.layers) * trace.experts)[None, :, None]
    return ids != 65535, ids + first


def _about_trace(trace: Trace) -> str:
    return _shape({
        "name": trace.metadata.get("name", ""), "layers": trace.layers, "experts": trace.experts,
        "top_k": trace.top_k, "tokens": trace.tokens,
    })  # fmt: skip


def working_set(trace: Trace) -> Figure:
    """Different experts that windows of equal numbers of steps use."""
    routed, keys = _keys(trace)
    starts = numpy.flatnonzero(numpy.diff(trace.steps.astype(numpy.int64), prepend=-1))
    steps = len(starts)
    window = -(-steps // _WINDOWS)
    pool = trace.layers * trace.experts
    seen, before = numpy.zeros(pool, bool), numpy.zeros(pool, bool)
    rows = []
    for begin in range(0, steps, window):
        end = min(begin + window, steps)
        tokens = slice(starts[begin], starts[end] if end < steps else trace.tokens)
        used = numpy.zeros(pool, bool)
        used[keys[tokens][routed[tokens]]] = True
        parts = (
            ("in the window before, too", used & before),
            ("before that", used & seen & ~before),
            ("for the first time", used & ~seen),
        )
        for order, (part, members) in enumerate(parts):
            count = int(members.sum())
            rows.append({
                "first_step": begin, "end_step": end, "steps": end - begin, "part": part, "order": order,
                "experts": count, "share": count / pool,
            })  # fmt: skip
        seen |= used
        before = used
    unit = "1 step" if window == 1 else f"{window} steps"
    return Figure("working-set", f"{_about_trace(trace)}; windows of {unit}", rows)


def heat(trace: Trace) -> Figure:
    """Uses of each expert of each layer."""
    routed, keys = _keys(trace)
    pool = trace.layers * trace.experts
    uses = numpy.bincount(keys[routed], minlength=pool).reshape(trace.layers, trace.experts)
    return Figure("heat", _about_trace(trace), _heat_rows(range(trace.layers), uses))


def counts_heat(held: Row) -> Figure:
    """Uses of each expert of each layer, of `hotset counts`."""
    counted = numpy.array(_needs(held, "logical_count", "hotset counts FILE --json"), float)
    about = f"{held['name']}: {len(held['layers'])} layers x {held['experts']} experts, {held['uses']:,.0f} uses"
    return Figure("heat", about, _heat_rows(held["layers"], counted))


def _heat_rows(numbers: Iterable[int], uses: Any) -> list[Row]:
    rows = []
    for layer, counted in zip(numbers, uses):
        total = float(counted.sum()) or 1.0
        for expert, count in enumerate(counted.tolist()):
            rows.append({"layer": int(layer), "expert": expert, "uses": count, "share": round(count / total, 6)})
    return rows


# all

Maker = Callable[[Any], Figure]
KINDS: dict[str, dict[str, Maker]] = {
    "simulate": {"sizes": sizes, "layers": layers, "time": over_time},
    "curve": {"sizes": curve_sizes, "value": curve_value},
    "rank": {"rank": rank},
    "plan": {"marginals": marginals, "divisions": divisions},
    "split": {"split": split},
    "adapters": {"adapters": adapters},
    "counts": {"heat": counts_heat},
    "timeline": {"timeline": timeline},
    "trace": {"working-set": working_set, "heat": heat},
}
"""Figures by the kind of a file."""


def kind_of(held: Any) -> str:
    """Kind of a JSON value; empty if it is none of ours."""
    first = held[0] if isinstance(held, list) and held else held
    if not isinstance(first, dict):
        return ""
    if isinstance(first.get("traceEvents"), list) or (isinstance(held, list) and "ph" in first):
        return "timeline"  # of Chrome trace events: an object, or their array
    schema = str(first.get("schema", ""))
    kind = schema.removeprefix("hotset.").split("/")[0] if schema.startswith("hotset.") else ""
    return kind if kind in KINDS else ""


def parsed(text: bytes) -> Any:
    """The JSON value of a file, or None if it is no JSON: a trace."""
    if text[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def values_of(held: Any) -> list[Any]:
    """One value for each trace; curves of one trace stay together."""
    if not isinstance(held, list):
        return [held]
    if kind_of(held) != "curve":
        return held
    by_name: dict[str, list[Any]] = {}
    for one in held:
        by_name.setdefault(one["name"], []).append(one)
    return list(by_name.values())


def made(kind: str, name: str, held: Any) -> Figure:
    """Raises Lacking with the figure's name if a field is missing."""
    try:
        return KINDS[kind][name](held)
    except Lacking as bad:
        raise Lacking(f"figure {name}: {bad}") from bad
    except (KeyError, TypeError, IndexError) as bad:
        raise InvalidArgument(f"figure {name}: a damaged result ({type(bad).__name__}: {bad}); accepted: a file that hotset wrote") from bad
