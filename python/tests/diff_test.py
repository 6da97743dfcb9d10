# SPDX-License-Identifier: Apache-2.0
"""Differences of two results of `hotset simulate`."""

import copy
import json

import pytest
from made_traces import made, refused, run

EQUAL = "5 rows equal, 0 changed, 0 removed, 0 added\n"  # four replays and the trace


@pytest.fixture(name="root")
def _root(tmp_path):
    made([[[t % 5, 5 + t % 3]] for t in range(24)], 8, name="t").save(str(tmp_path / "t.trace"))
    words = ("simulate", "t.trace", "--eviction", "lru,lfu", "--slots", "3,6", "--json", "--out", "a.json")
    assert run(tmp_path, *words).code == 0
    return json.loads((tmp_path / "a.json").read_text())


def write(folder, name, root):
    (folder / name).write_text(root if isinstance(root, str) else json.dumps(root))


def test_equal_results_in_any_order_are_0(tmp_path, root):
    root["results"].reverse()
    write(tmp_path, "b.json", root)
    done = run(tmp_path, "diff", "a.json", "b.json")
    assert (done.code, done.out, done.err) == (0, EQUAL, "")


def test_changed_numbers_are_named(tmp_path, root):
    changed = root["results"][1]
    changed["hits"] += 7
    changed["by_kind"]["decode"]["hits"] += 5
    changed["per_layer"][0]["accesses"] = 1
    root["trace"]["tokens"] = 1
    write(tmp_path, "b.json", root)
    done = run(tmp_path, "diff", "a.json", "b.json")
    assert done.code == 1 and done.err == ""
    for part in (
        "~ t\n  tokens: 24 -> 1 (-23)\n",
        "~ t: lfu always shared event-atomic slots 3\n  hits: ",
        " (+7)\n",
        "  by_kind.decode.hits: ",
        "  per_layer[0].accesses: ",
        "\n3 rows equal, 2 changed, 0 removed, 0 added\n",
    ):
        assert part in done.out


def test_rows_that_come_go_or_are_there_twice(tmp_path, root):
    root["results"].append(root["results"][0])
    del root["results"][1]
    root["results"][1].update(prefetch="previous_step", link="25GB/s")
    write(tmp_path, "b.json", root)
    done = run(tmp_path, "diff", "a.json", "b.json")
    assert done.code == 1
    assert "- t: lfu always shared event-atomic slots 3\n" in done.out
    assert "+ t: lru always shared event-atomic slots 6 prefetch previous_step link 25GB/s\n" in done.out
    assert "+ t: lru always shared event-atomic slots 3 (#2)\n" in done.out
    assert "3 rows equal, 0 changed, 2 removed, 2 added\n" in done.out


def test_tolerance_is_a_share_of_the_larger_one(tmp_path, root):
    for name, accesses in (("b.json", 99), ("c.json", 100)):
        root["results"][0]["accesses"] = accesses
        write(tmp_path, name, root)
    assert run(tmp_path, "diff", "b.json", "c.json").code == 1
    assert run(tmp_path, "diff", "b.json", "c.json", "--tolerance", "0.009").code == 1
    assert run(tmp_path, "diff", "b.json", "c.json", "--tolerance", "0.01").code == 0
    refused(tmp_path, 2, "diff", "b.json", "c.json", "--tolerance", "2", None, "--tolerance: '2'; accepted: 0..1")
    refused(tmp_path, 2, "diff", "b.json", "c.json", "--tolerance", "nan", None, "--tolerance: 'nan'")


def test_seconds_and_quality_are_compared_where_they_were_measured(tmp_path, root):
    root["results"][0].update(ttft_s=1.0, quality=2.0)
    write(tmp_path, "b.json", root)
    done = run(tmp_path, "diff", "a.json", "b.json")
    assert "  ttft_s: none -> 1\n" in done.out and "  quality: none -> 2\n" in done.out
    root["results"][0]["ttft_s"] = 1.05
    write(tmp_path, "c.json", root)
    assert "  ttft_s: 1 -> 1.05\n" in run(tmp_path, "diff", "b.json", "c.json").out
    assert run(tmp_path, "diff", "b.json", "c.json", "--tolerance", "0.1").code == 0


def test_results_of_several_traces(tmp_path, root):
    words = ("simulate", "t.trace", "t.trace", "--slots", "4", "--json", "--out", "two.json")
    assert run(tmp_path, *words).code == 0
    assert run(tmp_path, "diff", "two.json", "two.json").code == 0
    assert run(tmp_path, "diff", "a.json", "two.json").code == 1


def test_what_is_no_result_is_4_and_one_line(tmp_path, root):
    def refuses(text, *parts):
        write(tmp_path, "b.json", text)
        refused(tmp_path, 4, "diff", "a.json", "b.json", None, *parts)

    refused(tmp_path, 4, "diff", "a.json", "nowhere.json", None, "nowhere.json: cannot be opened")
    refuses('{"schema": ', "b.json: byte ", "not JSON")
    refuses('{"schema":"other/1"}', "b.json: ", "other/1", "hotset.simulate/2")
    refuses("17", "b.json: not an object")
    refuses("[" * 1000000, "b.json: nested")
    text = json.dumps(root)

    def inserted(value):
        at = text.index('"trace": {') + len('"trace": {')
        return f'{text[:at]}"x": {value}, {text[at:]}'

    refuses(inserted("[" * 20 + "]" * 20), "b.json: nested")
    refuses(inserted("1e400"), "b.json: trace.x: ", "whole number")
    refuses(inserted('1, "x": 2'), "b.json: key 'x': is there twice")
    refuses(inserted("18446744073709551616"), "b.json: trace.x: ", "whole number")
    changed = copy.deepcopy(root)
    del changed["results"][2]["eviction"]
    refuses(changed, "b.json: results[2]", '"eviction"')
    for bad in (-1, 0.5, "many", None):
        changed = copy.deepcopy(root)
        changed["results"][0]["hits"] = bad
        refuses(changed, "b.json: results[0].hits: ", json.dumps(bad), "whole number")
    changed["results"][0].update(hits=1, ttft_s="soon")
    refuses(changed, 'b.json: results[0].ttft_s: "soon"', "a number, or null")
