# SPDX-License-Identifier: Apache-2.0
"""Figures: their rows, what is drawn of them, and the command."""

import csv
import io
import json
import re

import numpy
import pytest
from made_traces import made, refused, run

from hotset import _draw, _figures

TRACE = {"name": "hand", "layers": 2, "experts": 4, "top_k": 1, "tokens": 10, "visits": 20, "experts_total": 8}


def _result(eviction, scope, slots, hits):
    per_layer = [{"layer": layer, "accesses": 10, "hits": hits // 2, "collision_misses": 0} for layer in (0, 1)]
    windows = [
        {"first_step": at, "steps": 5, "tokens": 5, "accesses": 10, "hits": hits // 2, "fills": 10 - hits // 2}
        for at in (0, 5)
    ]
    return {
        "eviction": eviction, "admission": "always", "scope": scope, "replay": "event-atomic", "slots": slots,
        "share": slots / 8, "accesses": 20, "hits": hits, "misses": 20 - hits, "compulsory_misses": 4,
        "per_layer": per_layer, "windows": windows,
    }  # fmt: skip


SIMULATE = {
    "schema": "hotset.simulate/2",
    "trace": TRACE,
    "results": [_result("lru", "shared", 4, 8), _result("belady", "shared", 4, 12), _result("lru", "per-layer", 6, 14)],
}
CURVE = {
    "schema": "hotset.curve/2", "name": "hand", "scope": "per-layer", "accesses": 20, "compulsory_misses": 4.0,
    "widest": 1, "cycle": 1, "experts_total": 8,
    "curves": [
        {"layer": layer, "widest": 1, "misses": [None, 8, 6, 3, 2], "slot_bytes": 2**20} for layer in (0, 1)
    ],
}  # fmt: skip
CELL = {"scope": "shared", "slots": 2, "budget_bytes": None, "accesses": 20, "belady_misses": 6, "share": 0.25}
RANK = {
    "schema": "hotset.rank/2",
    "trace": TRACE,
    "cells": [
        {**CELL, "size": "25%", "lru_misses": 10, "room": 4},
        {**CELL, "size": "50%", "lru_misses": 8, "room": 2},
    ],
    "policies": [
        {"eviction": "lfu", "offline": False, "misses": [8, 10], "gap_closed": [0.5, -1.5], "saved": 0.0},
        {"eviction": "lru", "offline": False, "misses": [10, 8], "gap_closed": [0.0, 0.0], "saved": 0.0},
        {"eviction": "belady", "offline": True, "misses": [6, 6], "gap_closed": [1.0, 1.0], "saved": 1.0},
    ],
}
PLAN = {
    "schema": "hotset.plan/1",
    "model": {"name": "made", "moe_layers": 2, "experts": 4, "bytes_per_expert_slot": 1024},
    "budget_bytes": 2**31, "quotas": [2, 3], "kv_tokens": 512,
    "marginals": [
        {"consumer": "layer 0", "seconds_per_byte": 2.0 / 2**30}, {"consumer": "kv", "seconds_per_byte": 0.5 / 2**30}
    ],
    "alternatives": [
        {"name": "hotset", "cap": 3, "kv_bytes": 64, "seconds_per_step": 0.25, "feasible": True},
        {"name": "flux-prop", "cap": 4, "kv_bytes": 0, "seconds_per_step": 0.125, "feasible": False},
    ],
}  # fmt: skip
SPLIT = {
    "schema": "hotset.split/1",
    "results": [{
        "name": "hand", "bursts": 9,
        "outcomes": [
            {"policy": "oracle", "cap": 3, "seconds_per_burst": 0.5, "over_oracle": 0.0, "moves": 0, "caps": []},
            {"policy": "mv-wsa", "cap": 2, "seconds_per_burst": 0.75, "over_oracle": 0.5, "moves": 4, "caps": [2]},
        ],
    }],
}  # fmt: skip
ADAPTERS = {
    "schema": "hotset.adapters/1", "adapters": [{"name": "law"}], "smallest": "virtual",
    "bytes": {"virtual": 2**30, "padding": 3 * 2**30}, "kv_tokens": {"virtual": 4096, "padding": None},
}  # fmt: skip
COUNTS = {
    "schema": "hotset.counts/1", "name": "hand", "layers": [3, 4], "experts": 2, "uses": 8,
    "logical_count": [[1.0, 3.0], [4.0, 0.0]],
}  # fmt: skip


def _span(name, tid, ts, dur, **args):
    return {"name": name, "ph": "X", "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


TIMELINE = {
    "traceEvents": [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "compute stream"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 2, "args": {"name": "link: demand"}},
        _span("layer 0 expert 3", 2, 0.0, 250.0, bytes=4096),
        _span("wait", 1, 0.0, 250.0),
        _span("layer 0", 1, 250.0, 125.0, step=0, tokens=1),
    ]
}


@pytest.fixture(scope="module")
def trace():
    return made([[[0], [1]], [[0], [2]], [[1], [2]]], 4)


def _held(kind, trace):
    held = {
        "simulate": SIMULATE, "curve": CURVE, "rank": RANK, "plan": PLAN, "split": SPLIT, "adapters": ADAPTERS,
        "counts": COUNTS, "timeline": TIMELINE,
    }  # fmt: skip
    return trace if kind == "trace" else held[kind]


ALL = [(kind, name) for kind, names in _figures.KINDS.items() for name in names]


def _rows(kind, name, trace=None, **where):
    rows = _figures.made(kind, name, _held(kind, trace)).rows
    return [row for row in rows if all(row.get(key) == value for key, value in where.items())]


# rows


def test_sizes_of_simulate():
    (row,) = _rows("simulate", "sizes", mark="size", policy="belady")
    assert (row["scope"], row["slots"], row["share"], row["hits"], row["misses"]) == ("shared", 4, 0.5, 0.6, 8)
    assert row["future"] == "the future"
    assert {row["slots"] for row in _rows("simulate", "sizes", mark="cycle")} == {2}
    assert {row["hits"] for row in _rows("simulate", "sizes", mark="ceiling")} == {0.8}


def test_results_that_differ_elsewhere_have_names_of_their_own():
    both = [_result("lru", "shared", 4, 8), {**_result("lru", "shared", 4, 8), "admission": "never"}]
    names = {row["policy"] for row in _figures.layers({**SIMULATE, "results": both}).rows}
    assert names == {"lru, admission always", "lru, admission never"}


def test_layers_and_windows_of_simulate():
    row = _rows("simulate", "layers", policy="belady", layer=1)[0]
    assert (row["missed"], row["misses"], row["accesses"]) == (0.4, 4, 10)
    row = _rows("simulate", "time", policy="belady", first_step=5)[0]
    assert (row["hit_rate"], row["fills"], row["cache"]) == (0.6, 4, "shared, 50 %: 4 slots")


def test_pools_of_a_curve_are_added_up():
    rows = _rows("curve", "sizes", mark="size")
    assert [(row["slots"], row["misses"], row["hits"]) for row in rows] == [
        (2, 16, pytest.approx(0.2)), (4, 12, pytest.approx(0.4)), (6, 6, pytest.approx(0.7)), (8, 4, pytest.approx(0.8))
    ]  # fmt: skip
    assert [row["slots"] for row in _rows("curve", "sizes", mark="cycle")] == [2]


def test_value_is_the_slope_of_the_curve():
    per_gib = 2**30 / 2**20
    assert [(row["slots"], row["saved"]) for row in _rows("curve", "value")] == [
        (2, 2 * per_gib), (4, 3 * per_gib), (6, 1 * per_gib)
    ]  # fmt: skip
    unknown = {**CURVE, "curves": [{**pool, "slot_bytes": None} for pool in CURVE["curves"]]}
    assert [row["saved"] for row in _figures.curve_value(unknown).rows] == [2, 3, 1]


def test_rank_has_cells_sums_and_room():
    assert [row["removed"] for row in _rows("rank", "rank", mark="cell", policy="lfu")] == [0.5, -1.5]
    assert [row["room"] for row in _rows("rank", "rank", mark="room")] == [0.2, 0.1]
    assert [row["policy"] for row in _rows("rank", "rank", mark="all")] == ["lfu", "lru", "belady (knows the future)"]


def test_plan_split_and_adapters_keep_their_numbers():
    assert [(r["kind"], r["ms_per_gib"]) for r in _rows("plan", "marginals")] == [("experts", 2000), ("KV cache", 500)]
    assert [(r["ms_per_step"], r["starts"]) for r in _rows("plan", "divisions")] == [
        (250, "starts"), (125, "lacks memory")
    ]  # fmt: skip
    assert [(r["policy"], r["ms_per_burst"], r["future"]) for r in _rows("split", "split")] == [
        ("oracle", 500, "the future"), ("mv-wsa", 750, "the past")
    ]  # fmt: skip
    assert [(r["placement"], r["gib"], r["label"]) for r in _rows("adapters", "adapters")] == [
        ("virtual", 1.0, "1.00, leaves 4,096 tokens"), ("padding", 3.0, "3.00")
    ]  # fmt: skip


def test_timeline_tells_arithmetic_from_waits_and_copies():
    rows = _rows("timeline", "timeline")
    assert [(r["doing"], r["begin_ms"], r["end_ms"], r["bytes"]) for r in rows] == [
        ("copy for a miss", 0, 0.25, 4096), ("wait for copies", 0, 0.25, None), ("arithmetic", 0.25, 0.375, None)
    ]  # fmt: skip


def test_a_timeline_may_be_an_array():
    assert _figures.kind_of(TIMELINE) == _figures.kind_of(TIMELINE["traceEvents"]) == "timeline"
    assert _figures.timeline(TIMELINE["traceEvents"]) == _figures.timeline(TIMELINE)


def test_a_long_timeline_is_shown_from_its_middle():
    spans = [_span("layer 0", 1, 10.0 * at, 5.0) for at in range(1000)]
    figure = _figures.timeline({"traceEvents": spans})
    assert len(figure.rows) == 300
    assert figure.rows[0]["begin_ms"] == 3.5
    assert figure.subtitle.startswith("300 of 1,000 spans")


def test_working_set_is_divided_by_when_an_expert_was_used(trace):
    parts = [row["experts"] for row in _rows("trace", "working-set", trace)]
    assert parts == [0, 0, 2, 1, 0, 1, 1, 0, 1]  # too, before that, first; three windows of a step
    again = made([[[0]], [[1]], [[0]]], 2)
    assert [row["experts"] for row in _figures.working_set(again).rows][-3:] == [0, 1, 0]


def test_heat_counts_uses(trace):
    uses = numpy.array([row["uses"] for row in _rows("trace", "heat", trace)]).reshape(2, 4)
    assert uses.tolist() == [[2, 1, 0, 0], [0, 1, 2, 0]]
    assert [(r["layer"], r["expert"], r["share"]) for r in _rows("counts", "heat")][:3] == [
        (3, 0, 0.25), (3, 1, 0.75), (4, 0, 1.0)
    ]  # fmt: skip


def test_a_missing_field_names_the_command():
    old = {**SIMULATE, "results": [{k: v for k, v in SIMULATE["results"][0].items() if k != "windows"}]}
    with pytest.raises(_figures.Lacking, match="figure time: has no windows; accepted: the output of hotset simulate"):
        _figures.made("simulate", "time", old)
    with pytest.raises(Exception, match="figure rank: a damaged result .*accepted: a file that hotset wrote"):
        _figures.made("rank", "rank", {**RANK, "cells": [{}]})


def test_csv_has_every_field():
    text = _draw.csv_of([{"a": 1}, {"a": 2, "b": None}])
    assert list(csv.DictReader(io.StringIO(text))) == [{"a": "1", "b": ""}, {"a": "2", "b": ""}]


# specifications and marks


@pytest.mark.parametrize("kind, name", ALL)
def test_specifications_use_fields_that_rows_have(kind, name, trace):
    figure = _figures.made(kind, name, _held(kind, trace))
    text = json.dumps(_draw.specification(figure, "light"))
    made_here = set(re.findall(r'"as": "(\w+)"', text)) | set(re.findall(r'"as": \[([^\]]*)\]', text))
    fields = {name for row in figure.rows for name in row}
    known = fields | {name for one in made_here for name in re.findall(r"\w+", one)}
    used = set(re.findall(r'"field": "(\w+)"', text))
    assert used <= known, used - known
    assert '"$' not in text
    assert "params" in text and "tooltip" in text  # zooms, tells its numbers


def _marks(node, role="mark"):
    """Items of all marks of data in a scene graph."""
    found = []
    if isinstance(node, dict):
        if node.get("role") == role and node.get("marktype") != "group":
            found += node.get("items", [])
        for one in node.values():
            found += _marks(one, role)
    elif isinstance(node, list):
        for one in node:
            found += _marks(one, role)
    return found


EXPECTED = {
    ("simulate", "sizes"): ["hits: 0.6", "misses: 12", "slots: 6"],
    ("simulate", "layers"): ["layer: 1", "misses, % of accesses: 40"],
    ("simulate", "time"): ["step: 5", "hits, % of accesses: 60"],
    ("curve", "sizes"): ["misses: 16", "hits: 0.4", "slots: 8"],
    ("curve", "value"): ["saves: 2,048.00", "saves: 3,072.00"],
    ("rank", "rank"): ["removed: 50.0%", "room, of all accesses: 20.0%", "removed: 1"],
    ("plan", "marginals"): ["ms a step and GiB: 2,000", "consumer: kv"],
    ("plan", "divisions"): ["ms a step: 250.000", "the engine: lacks memory"],
    ("split", "split"): ["ms a burst: 750.000", "over the oracle: 50.0%"],
    ("adapters", "adapters"): ["GiB: 3.000", "bytes: 1,073,741,824", "tokens of KV cache beside it: 4,096"],
    ("counts", "heat"): ["uses: 3", "of the layer's uses: 75.00%"],
    ("timeline", "timeline"): ["takes, ms: 0.2500", "bytes: 4,096", "name: wait"],
    ("trace", "working-set"): ["experts: 2", "used: for the first time", "of all experts: 12.5%"],
    ("trace", "heat"): ["uses: 2", "layer: 1"],
}


@pytest.mark.parametrize("theme", _draw.THEMES)
@pytest.mark.parametrize("kind, name", ALL)
def test_marks_have_the_numbers_of_the_result(kind, name, theme, trace):
    convert = pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    figure = _figures.made(kind, name, _held(kind, trace))
    spec = _draw.specification(figure, theme)
    marks = _marks(convert.vegalite_to_scenegraph(spec, vl_version=_draw.VEGA_LITE))
    told = "\n".join(str(one.get("description", "")) for one in marks)
    for number in EXPECTED[kind, name]:
        assert number in told, told


@pytest.mark.parametrize("form", _draw.FORMATS)
def test_several_figures_share_a_picture(form, trace):
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    specs = [_draw.specification(_figures.made("trace", name, trace), "dark") for name in ("working-set", "heat")]
    picture = _draw.drawn(specs, form, "hand")
    begins = {"svg": b"<svg", "png": b"\x89PNG", "html": b"<!DOCTYPE html>"}
    assert picture.startswith(begins[form])
    if form != "png":
        for title in (b"Working set over time", b"Uses by layer and expert"):
            assert title in picture


# the command


def _saved(folder, held):
    (folder / "r.json").write_text(json.dumps(held))
    return folder


def test_lists(tmp_path):
    done = run(tmp_path, "plot", "--list")
    assert "rank: rank\n" in done.out and "curve: sizes, value\n" in done.out
    assert run(_saved(tmp_path, SIMULATE), "plot", "r.json", "--list").out == "sizes\nlayers\ntime\n"


def test_picture_and_table(tmp_path):
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    done = run(_saved(tmp_path, SIMULATE), "plot", "r.json", "--figure", "layers", "-o", "x.svg")
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "x.svg").read_text().startswith("<svg")
    with open(tmp_path / "x.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["misses"] for row in rows if row["policy"] == "belady"] == ["4", "4"]
    assert run(tmp_path, "plot", "r.json", "-o", "all.svg").code == 0
    assert {path.name for path in tmp_path.glob("all*")} == {"all.svg", "all-sizes.csv", "all-layers.csv", "all-time.csv"}


def test_refusals(tmp_path):
    _saved(tmp_path, SIMULATE)
    refused(tmp_path, 2, "plot", None, "no file; accepted: a result")
    refused(tmp_path, 2, "plot", "r.json", None, "no --out; accepted: a path that ends with .svg, .png or .html")
    refused(tmp_path, 2, "plot", "r.json", "-o", "x.pdf", None, "'x.pdf'; accepted: a path that ends with .svg")
    refused(tmp_path, 2, "plot", "r.json", "--figure", "laiers", "-o", "x.svg", None, "did you mean layers?", "sizes")
    refused(tmp_path, 2, "plot", "r.json", "--theme", "blue", "-o", "x.svg", None, "accepted: light, dark")
    refused(tmp_path, 4, "plot", "absent.json", "-o", "x.svg", None, "absent.json: cannot be opened")
    (tmp_path / "r.json").write_text('{"schema": "hotset.history/1"}')
    refused(tmp_path, 4, "plot", "r.json", "-o", "x.svg", None, "schema 'hotset.history/1'; accepted: hotset.simulate")
    assert not list(tmp_path.glob("x.*"))


def test_without_vl_convert_one_line_says_how_to_get_it(tmp_path, monkeypatch):
    (tmp_path / "vl_convert.py").write_text("raise ImportError('made for this test')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{__import__('os').environ.get('PYTHONPATH', '')}")
    _saved(tmp_path, SIMULATE)
    refused(tmp_path, 1, "plot", "r.json", "-o", "x.svg", None, "pip install vl-convert-python")
