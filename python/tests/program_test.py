# SPDX-License-Identifier: Apache-2.0
"""The program as functions; its decisions equal the pager's."""

import numpy
import pytest

import hotset


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "t.trace"
    hotset.run("synth", str(path), "--layers", "4", "--experts", "16", "--top-k", "2", "--tokens", "300", "--seed", "3")
    return hotset.Trace.load(path)


@pytest.mark.parametrize("eviction", ["lru", "lfu", "similar_steps", "protect_hot+lru"])
@pytest.mark.parametrize("scope, slots", [("shared", 20), ("per_layer", 5)])
def test_a_pager_decides_as_the_simulator_does(trace, eviction, scope, slots):
    result = hotset.simulate(trace, eviction=eviction, slots=slots, scope=scope.replace("_", "-"))
    (run,) = result.runs
    pager = hotset.Pager(trace.layers, trace.experts, trace.top_k, slots=slots, scope=scope, eviction=eviction)
    ids = trace.ids.astype(numpy.int32)
    for token in range(trace.tokens):
        for layer in range(trace.layers):
            for visit in pager.visits(layer, ids[token, layer], step=token):
                visit.commit()
    stats = pager.stats()
    assert stats["misses"] == run["misses"]
    assert stats["fills"] == run["fills"]
    if "decision_hash" in run:
        assert int(str(run["decision_hash"]), 0) == pager.decision_hash()


def test_results_are_dicts(trace):
    result = hotset.simulate(trace, eviction=["lru", "belady"], slots=["25%", "50%"])
    assert result["schema"].startswith("hotset.")
    assert len(result.runs) == 4
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    assert isinstance(result.to_pandas(), pandas.DataFrame)


def test_curve_and_plan(trace):
    curve = hotset.curve(trace)
    assert curve["schema"] == "hotset.curve/2"
    plan = hotset.plan(model="qwen3-30b-a3b", vram="24GiB")
    assert plan["schema"] == "hotset.plan/1"


def test_what_the_program_refuses_is_raised_in_its_words(trace):
    with pytest.raises(hotset.Error, match="unknown eviction policy 'lur'"):
        hotset.simulate(trace, eviction="lur", slots=4)
    with pytest.raises(hotset.Error, match="absent.trace"):
        hotset.simulate("absent.trace", eviction="lru", slots=4)
    with pytest.raises(hotset.Error, match="has no unit"):
        hotset.plan(model="qwen3-30b-a3b", vram="24")
    with pytest.raises(hotset.Error, match="accepted: a text, a number"):
        hotset.plan(model=object())


def test_a_program_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("HOTSET_PROGRAM", "/absent")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("os.path.dirname", lambda _: "/absent")
    with pytest.raises(hotset.Error, match="the program hotset is not there"):
        hotset.run("--version")
