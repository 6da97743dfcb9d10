# SPDX-License-Identifier: Apache-2.0
"""Placement in engines without an engine: variables, the arithmetic that all ranks repeat, fallbacks, lines. Substitute
modules stand for torch, vLLM and SGLang; python/tests/engines uses the real ones."""

import json
import logging
import os
import subprocess
import sys
import types

import numpy
import pytest

import hotset
import hotset.sglang
import hotset.vllm as plugin
from hotset import _rebalance, placement

LAYERS, EXPERTS, RANKS, SLOTS = 3, 32, 4, 40
VARIABLES = ("HOTSET_PLACEMENT", "HOTSET_PLACEMENT_PROFILE", "HOTSET_PLACEMENT_MOVE_COST")


def made_steps(seed, steps=60, topics=3):
    """Each step favours the experts of one topic."""
    random = numpy.random.default_rng(seed)
    of_expert = numpy.random.default_rng(99).integers(topics, size=(LAYERS, EXPERTS))
    favoured = random.integers(topics, size=(steps, 1, 1))
    return random.poisson(numpy.where(of_expert == favoured, 20, 4)).astype(numpy.int64)


def engine_map():
    return numpy.tile(_rebalance.engine_start(EXPERTS, SLOTS), (LAYERS, 1))


def write_placement(path, rows, **changes):
    held = {"schema": "hotset.placement/1", "experts": EXPERTS, "ranks": RANKS, "nodes": 1, "groups": 1, "dense_layers": 0}
    path.write_text(json.dumps({**held, "physical_to_logical_map": numpy.asarray(rows).tolist(), **changes}))
    return str(path)


def write_profile(path, steps):
    sample = placement.StepSample(*steps.shape[1:], steps=len(steps))
    for step in steps:
        sample.add(step)
    sample.save(path)
    return str(path)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_the_variable_there_are_no_settings(monkeypatch):
    assert _rebalance.settings() is None
    monkeypatch.setenv("HOTSET_PLACEMENT", "")
    assert _rebalance.settings() is None


def test_the_variables_are_read(monkeypatch, tmp_path):
    monkeypatch.setenv("HOTSET_PLACEMENT", "1")
    assert _rebalance.settings() == _rebalance.Settings(None, None, 0.0015)
    placed = placement.place(made_steps(1), ranks=RANKS, redundant=8)
    monkeypatch.setenv("HOTSET_PLACEMENT", write_placement(tmp_path / "place.json", placed))
    monkeypatch.setenv("HOTSET_PLACEMENT_PROFILE", write_profile(tmp_path / "p.safetensors", made_steps(1)))
    monkeypatch.setenv("HOTSET_PLACEMENT_MOVE_COST", "0.01")
    found = _rebalance.settings()
    assert (found.file.rows == placed).all() and (found.profile == made_steps(1)).all() and found.move_cost == 0.01


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"schema": "other"}, "schema 'other'"),
        ({"experts": 31}, "layer 0 does not hold the experts 0 to 30"),
        ({"ranks": 3}, "rows [3, 40] of int64 on 3 ranks"),
        ({"physical_to_logical_map": [[0, 1], [0]]}, "layers with different numbers of slots"),
        ({"physical_to_logical_map": []}, "no layer"),
        ({"physical_to_logical_map": [7]}, "has no len()"),
        ({"physical_to_logical_map": [[0.5] * SLOTS]}, "rows [1, 40] of float64"),
        ({"physical_to_logical_map": [[0] * SLOTS]}, "layer 0 does not hold the experts 0 to 31"),
        ({"physical_to_logical_map": [[10**15, *range(39)]]}, "layer 0 does not hold"),
        ({"physical_to_logical_map": [[-1, *range(39)]]}, "layer 0 does not hold"),
    ],
)
def test_a_wrong_file_gets_one_line(monkeypatch, tmp_path, changes, words):
    path = write_placement(tmp_path / "place.json", engine_map(), **changes)
    monkeypatch.setenv("HOTSET_PLACEMENT", path)
    with pytest.raises(hotset.InvalidArgument) as refused:
        _rebalance.settings()
    assert str(refused.value).startswith(f"HOTSET_PLACEMENT is '{path}': ") and "\n" not in str(refused.value)
    assert words in str(refused.value) and str(refused.value).endswith("accepted: a file of hotset place --format vllm, or 1")


def test_files_that_are_none_get_one_line(monkeypatch, tmp_path):
    for text, words in (('{"phy2log": []}', "no 'schema'"), ("{", "Expecting"), ("[1]", "indices"), (None, "No such file")):
        path = tmp_path / "place.json"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        monkeypatch.setenv("HOTSET_PLACEMENT", str(path))
        with pytest.raises(hotset.InvalidArgument) as refused:
            _rebalance.settings()
        assert words in str(refused.value) and "\n" not in str(refused.value)


def test_wrong_variables_get_one_line(monkeypatch, tmp_path):
    path = write_placement(tmp_path / "place.json", engine_map())
    profile = tmp_path / "p.safetensors"
    monkeypatch.setenv("HOTSET_PLACEMENT", path)
    for name, value, words in (
        ("HOTSET_PLACEMENT_MOVE_COST", "dear", "HOTSET_PLACEMENT_MOVE_COST is 'dear', accepted: 0 to 1"),
        ("HOTSET_PLACEMENT_MOVE_COST", "nan", "accepted: 0 to 1"),
        ("HOTSET_PLACEMENT_PROFILE", str(tmp_path / "absent"), "HOTSET_PLACEMENT_PROFILE: "),
        ("HOTSET_PLACEMENT_PROFILE", path, "accepted: a profile of hotset place --profile"),
        ("HOTSET_PLACEMENT_PROFILE", write_profile(profile, made_steps(1)[:, :2]), "2 layers x 32 experts, accepted: 3 x 32"),
    ):
        with monkeypatch.context() as one, pytest.raises(hotset.InvalidArgument) as refused:
            one.setenv(name, value)
            _rebalance.settings()
        assert words in str(refused.value) and "\n" not in str(refused.value)


def test_deviations_keep_the_means_and_grow_with_their_root():
    profile = made_steps(3, steps=50)
    sums = profile.sum(0)
    assert numpy.abs(_rebalance.with_deviations(sums, profile) - 64 * profile).max() <= 2, "the profile's own sums give the profile"
    assert (_rebalance.with_deviations(sums * 7, profile) == _rebalance.with_deviations(sums, profile)).all(), "only shares count"
    other = sums.copy()
    other[:, ::2] *= 4
    found = _rebalance.with_deviations(other, profile) / 64
    size = sums.sum(1) / other.sum(1)
    means = other * size[:, None] / 50
    expected = means + (profile - profile.mean(0)) * numpy.sqrt(means / profile.mean(0))
    assert numpy.abs(found - numpy.maximum(0, expected)).max() < 0.1
    assert (found >= 0).all()


def test_deviations_are_these_integers_on_every_machine():
    profile = numpy.array([[[200, 0]], [[400, 200]]])
    assert _rebalance.with_deviations(numpy.array([[3, 1]]), profile).tolist() == (64 * profile).tolist()
    # 6400 and 19200 on average; 6400 deviates by 591 / 1024 and 1773 / 1024: roots of 1/3 and 3, rounded down.
    assert _rebalance.with_deviations(numpy.array([[1, 3]]), profile).tolist() == [[[2706, 8118]], [[10093, 30281]]]


def test_rare_experts_and_empty_layers_have_steps():
    profile = made_steps(3, steps=50)
    profile[:, 0] = 0
    profile[:, 1, 5] = 0
    profile[7, 1, 6:] = 0
    sums = made_steps(4).sum(0)
    sums[2] = 0
    found = _rebalance.with_deviations(sums, profile)
    assert (found[:, 0] == found[0, 0]).all() and found[:, 0].any(), "without a record the sums count alone"
    assert (found[:, 1, 5] == found[0, 1, 5]).all() and found[0, 1, 5] > 0
    assert not found[:, 2].any()


def test_the_first_rearrangement_goes_to_the_file_and_the_next_starts_there():
    rows = placement.place(made_steps(1), ranks=RANKS, redundant=8).astype(numpy.int64)
    given = _rebalance.Settings(_rebalance.PlacementFile("place.json", EXPERTS, RANKS, rows), made_steps(1))
    sums = made_steps(2).sum(0)
    nothing = _rebalance.by_sums(given, sums * 0, engine_map(), SLOTS, RANKS, 1, 1)
    assert (nothing.placed == engine_map()).all() and nothing.line == "", "vLLM reserves memory by a call without loads"
    first = _rebalance.by_sums(given, sums, engine_map(), SLOTS, RANKS, 1, 1)
    assert (first.placed == rows).all()
    moved = placement.moved(engine_map(), rows, ranks=RANKS)
    assert first.line.startswith(f"{moved} experts move, balancedness 0.") and first.line.endswith(", to place.json")
    sums[:, 3] *= 9
    later = _rebalance.by_sums(given, sums, rows, SLOTS, RANKS, 1, 1)
    moved = placement.moved(rows, later.placed, ranks=RANKS)
    assert 0 < moved and (later.placed != rows).sum() == moved
    before, after = (placement.balancedness(sums[None], p, ranks=RANKS) for p in (rows, later.placed))
    assert later.line == f"{moved} experts move, balancedness {before:.4f} -> {after:.4f}" and after > before
    start = _rebalance.Settings(_rebalance.PlacementFile("place.json", EXPERTS, RANKS, engine_map()))
    assert (_rebalance.by_sums(start, sums, engine_map(), SLOTS, RANKS, 1, 1).placed != engine_map()).any(), "a file that is the start"


def test_a_profile_places_better_than_sums_on_later_steps():
    sums, later = made_steps(5).sum(0), made_steps(6)
    found = [_rebalance.by_sums(_rebalance.Settings(None, p), sums, engine_map(), SLOTS, RANKS, 1, 1).placed for p in (None, made_steps(4))]
    alone, helped = (placement.balancedness(later, p, ranks=RANKS) for p in found)
    assert helped > alone + 0.02


def test_a_dearer_move_moves_fewer():
    counts = []
    for cost in (0.0, 0.0015, 1.0):
        found = _rebalance.by_sums(_rebalance.Settings(move_cost=cost), made_steps(5).sum(0), engine_map(), SLOTS, RANKS, 1, 1)
        counts.append(placement.moved(engine_map(), found.placed, ranks=RANKS))
    assert counts[0] >= counts[1] > counts[2] == 0


def test_sums_of_any_size_are_placed():
    small = made_steps(5).sum(0)
    found = [_rebalance.by_sums(_rebalance.Settings(), small << bits, engine_map(), SLOTS, RANKS, 1, 1).placed for bits in (10, 40)]
    assert (found[0] == found[1]).all()


def test_groups_get_into_one_node_and_stay():
    steps = made_steps(7)
    first = _rebalance.by_steps(steps, engine_map(), SLOTS, RANKS, 2, 4, 0.0015).placed
    again = _rebalance.by_steps(made_steps(8), first, SLOTS, RANKS, 2, 4, 0.0015).placed
    for layer in (*first, *again):
        halves = [set((half // 8).tolist()) for half in layer.reshape(2, -1)]
        assert halves[0].isdisjoint(halves[1])
    fresh = placement.place(made_steps(8), ranks=RANKS, redundant=8, nodes=2, groups=4)
    assert 2 * placement.moved(first, again, ranks=RANKS) < placement.moved(first, fresh, ranks=RANKS)
    flat = _rebalance.by_steps(steps, engine_map(), SLOTS, RANKS, 2, 3, 0.0015).placed
    assert (flat == _rebalance.by_steps(steps, engine_map(), SLOTS, RANKS, 1, 1, 0.0015).placed).all(), "like the engines: 3 groups, 2 nodes"


def test_many_steps_are_thinned_and_empty_ones_dropped():
    steps = made_steps(9, steps=600)
    thin = steps[::3]
    with_gaps = numpy.zeros((1200, LAYERS, EXPERTS), numpy.int64)
    with_gaps[::2] = steps
    found = [_rebalance.by_steps(s, engine_map(), SLOTS, RANKS, 1, 1, 0.0015).placed for s in (thin, steps, with_gaps)]
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
    nothing = _rebalance.by_steps(steps * 0, engine_map(), SLOTS, RANKS, 1, 1, 0.0015)
    assert (nothing.placed == engine_map()).all() and nothing.line == ""


BYTES = """
import sys
sys.path.insert(0, sys.argv[1])
import os, numpy
os.cpu_count = lambda: int(sys.argv[2])
import rebalance_test as t
from hotset import _rebalance
given = _rebalance.Settings(None, t.made_steps(4))
found = _rebalance.by_sums(given, t.made_steps(5).sum(0), t.engine_map(), t.SLOTS, t.RANKS, 1, 1)
sys.stdout.buffer.write(_rebalance.with_deviations(t.made_steps(5).sum(0), given.profile).tobytes() + found.placed.tobytes())
"""


def test_other_processes_seeds_and_threads_give_the_same_bytes():
    found = set()
    for seed, cpus in (("0", "1"), ("1", "4"), ("77", "64")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": cpus}
        folder = os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run([sys.executable, "-B", "-c", BYTES, folder, cpus], env=environment, capture_output=True, check=True)
        found.add(done.stdout)
    sums, profile = made_steps(5).sum(0), made_steps(4)
    placed = _rebalance.by_sums(_rebalance.Settings(None, profile), sums, engine_map(), SLOTS, RANKS, 1, 1).placed
    assert found == {_rebalance.with_deviations(sums, profile).tobytes() + placed.tobytes()}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"old": numpy.where(engine_map() == 5, -1, engine_map())}, "the engine's map: -1, as in elastic expert parallelism"),
        ({"old": engine_map()[:, :36]}, "the engine's map: [3, 36] up to 31, with 3 layers, 40 slots, 32 experts"),
        ({"old": engine_map() + 1}, "the engine's map: [3, 40] up to 32"),
        ({"old": engine_map()[0]}, "the engine's map: int64 [40]"),
        ({"old": numpy.zeros((LAYERS, SLOTS), int)}, "no slot holds expert 1"),
        ({"sums": made_steps(1).sum(0) * 1.5}, "loads: float64 [3, 32]"),
        ({"sums": -made_steps(1).sum(0)}, "loads: -"),
        ({"sums": made_steps(1).sum(0)[:, :31]}, "place.json: 3 layers, 32 experts in 40 slots on 4 ranks; the model: 3, 31 in 40 on 4"),
        ({"slots": 44}, "the model: 3, 32 in 44 on 4"),
        ({"ranks": 8}, "the model: 3, 32 in 40 on 8"),
        ({"file": None, "ranks": 7}, "40 slots on 7 ranks"),
        ({"file": None, "ranks": 1}, "slots_per_rank = 40, accepted: 32 to 32"),
        ({"file": None, "nodes": 3, "groups": 3}, "nodes = 3, accepted: a divisor of the 4 ranks"),
        ({"file": None, "nodes": 2, "groups": 6}, "groups = 6, accepted: a divisor of the 32 experts"),
        ({"file": None, "nodes": 4, "groups": 4}, "slots_per_rank = 10, accepted: 8 to 8"),
        ({"file": None, "sums": made_steps(1).sum(0)[:2], "old": engine_map()[:2]}, "the profile: 3 layers x 32 experts; the model: 2 x 32"),
    ],
)
def test_calls_that_are_not_understood_are_refused(change, words):
    file = _rebalance.PlacementFile("place.json", EXPERTS, RANKS, placement.place(made_steps(1), ranks=RANKS, redundant=8))
    call = {"file": file, "sums": made_steps(2).sum(0), "old": file.rows, "slots": SLOTS, "ranks": RANKS, "nodes": 1, "groups": 1, **change}
    given = _rebalance.Settings(call.pop("file"), made_steps(1))
    with pytest.raises(hotset.InvalidArgument) as refused:
        _rebalance.by_sums(given, call["sums"], call["old"], call["slots"], call["ranks"], call["nodes"], call["groups"])
    assert words in str(refused.value) and "\n" not in str(refused.value)


class Tensor:
    """Stands for torch's."""

    def __init__(self, array):
        self.array = numpy.asarray(array)

    def cpu(self):
        return self

    def numpy(self):
        return self.array


def module(monkeypatch, name, **held):
    made = types.ModuleType(name)
    made.__dict__.update(held)
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.fixture
def vllm(monkeypatch):
    """vLLM's policies in a process without registration. Its own policy answers with the text "own"."""

    class Own:
        @classmethod
        def rebalance_experts(cls, weight, *others):
            return "own"

    state = types.SimpleNamespace(policies={"default": Own}, own=Own, group=types.SimpleNamespace(rank_in_group=0))
    module(monkeypatch, "torch", from_numpy=Tensor, Tensor=Tensor)
    state.module = module(monkeypatch, "vllm", __version__="0.32.0+cpu")
    module(monkeypatch, "vllm.distributed")
    policy = module(monkeypatch, "vllm.distributed.eplb.policy", EPLB_POLICIES=state.policies)
    module(monkeypatch, "vllm.distributed.eplb", policy=policy)
    module(monkeypatch, "vllm.distributed.parallel_state", get_ep_group=lambda: state.group)
    monkeypatch.delitem(sys.modules, "hotset._vllm_placement", raising=False)
    monkeypatch.delattr(hotset, "_vllm_placement", raising=False)
    monkeypatch.setattr(plugin, "_places", False)
    monkeypatch.setenv("HOTSET_PLACEMENT", "1")
    yield state
    sys.modules.pop("hotset._vllm_placement", None)


def call(vllm, sums, old, slots=SLOTS):
    return vllm.policies["default"].rebalance_experts(Tensor(sums), slots, 1, 1, RANKS, None if old is None else Tensor(old))


def test_vllms_policy_is_replaced_and_says_what_it_does_once_a_rearrangement(vllm, caplog):
    caplog.set_level(logging.INFO)
    plugin.register()
    plugin.register()  # vLLM may call it several times
    assert vllm.policies["default"].__mro__[1] is vllm.own
    found = call(vllm, made_steps(2).sum(0), engine_map())
    assert found.array.dtype == numpy.int64
    expected = _rebalance.by_sums(_rebalance.Settings(), made_steps(2).sum(0), engine_map(), SLOTS, RANKS, 1, 1)
    assert (found.array == expected.placed).all()
    assert [r.getMessage() for r in caplog.records] == ["hotset: " + expected.line]
    vllm.group.rank_in_group = 1
    call(vllm, made_steps(2).sum(0), engine_map())
    assert len(caplog.records) == 1, "the first rank writes"


def test_vllms_own_policy_places_what_is_not_understood_with_one_line_a_reason(vllm, caplog):
    plugin.register()
    gaps = numpy.where(engine_map() == 5, -1, engine_map())
    for _ in range(3):
        assert call(vllm, made_steps(2).sum(0), gaps) == "own"
        assert call(vllm, made_steps(2).sum(0), None) == "own"
    lines = [r.getMessage() for r in caplog.records]
    assert lines == [
        "hotset: the engine's own policy places the experts: the engine's map: -1, as in elastic expert parallelism",
        "hotset: the engine's own policy places the experts: no map of the engine",
    ]


def test_an_untested_vllm_keeps_its_policy_with_one_line(vllm, caplog):
    vllm.module.__version__ = "0.99.1"
    plugin.register()
    plugin.register()
    assert vllm.policies["default"] is vllm.own
    (line,) = [r.getMessage() for r in caplog.records]
    assert line.startswith("hotset: vLLM's own policy places the experts: vLLM 0.99.1, accepted: 0.32.0")


def test_wrong_variables_end_vllm_at_its_start(vllm, monkeypatch):
    monkeypatch.setenv("HOTSET_PLACEMENT_MOVE_COST", "-1")
    with pytest.raises(hotset.InvalidArgument, match="HOTSET_PLACEMENT_MOVE_COST is '-1'"):
        plugin.register()
    assert vllm.policies["default"] is vllm.own


def test_a_vllm_without_policies_is_refused(vllm, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm.distributed.eplb", None)
    with pytest.raises(hotset.InvalidArgument, match="HOTSET_PLACEMENT: this vLLM has no policies of placement"):
        plugin.register()


def test_without_the_variable_vllms_policy_stays(vllm, monkeypatch):
    monkeypatch.delenv("HOTSET_PLACEMENT")
    plugin.register()
    assert vllm.policies["default"] is vllm.own


class Registry:
    """Stands for SGLang's: keeps hooks, and calls them around its function."""

    AROUND = "around"

    def __init__(self):
        self.hooks = []

    def register(self, target, hook, kind):
        assert target == "sglang.srt.eplb.eplb_algorithms.rebalance_experts" and kind == "around"
        self.hooks.append(hook)

    def call(self, steps, algorithm="deepseek", slots=SLOTS):
        (hook,) = self.hooks
        return hook(
            lambda **named: "own",
            tokens_per_expert=Tensor(steps),
            num_physical_experts=slots,
            num_local_physical_experts=slots // RANKS,
            num_groups=None,
            num_nodes=1,
            algorithm=types.SimpleNamespace(name=algorithm),
        )


@pytest.fixture
def sglang(monkeypatch):
    """SGLang's hooks and its present map, in a process without registration."""
    registry = Registry()
    registry.present = None
    registry.rank = None
    distributed = types.SimpleNamespace(is_initialized=lambda: registry.rank is not None, get_rank=lambda: registry.rank)
    module(monkeypatch, "torch", from_numpy=Tensor, distributed=distributed)
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins", "sglang.srt.eplb"):
        module(monkeypatch, name)
    module(monkeypatch, "sglang.srt.plugins.hook_registry", HookRegistry=registry, HookType=registry)
    module(monkeypatch, "sglang.srt.eplb.expert_location", get_global_expert_location_metadata=lambda: registry.present)
    monkeypatch.setattr(hotset.sglang, "_placing", False)
    registry.version = "0.5.23"
    monkeypatch.setattr(hotset.sglang.importlib.metadata, "version", lambda name: registry.version)
    monkeypatch.setenv("HOTSET_PLACEMENT", "1")
    return registry


def test_sglang_takes_no_profile(sglang, monkeypatch, caplog):
    monkeypatch.setenv("HOTSET_PLACEMENT_PROFILE", "steps.safetensors")
    hotset.sglang.register()
    assert "HOTSET_PLACEMENT_PROFILE is set, accepted: unset" in caplog.text and not sglang.hooks


def test_sglang_places_by_its_steps_from_its_present_map(sglang, caplog):
    caplog.set_level(logging.INFO)
    hotset.sglang.register()
    hotset.sglang.register()
    steps = made_steps(2)
    placed, slots, counts = (tensor.array for tensor in sglang.call(steps))
    assert (placed == placement.place(steps, ranks=RANKS, redundant=8)).all(), "without a map"
    for row, of_experts, replicas in zip(placed, slots, counts):
        for e in range(EXPERTS):
            assert [slot for slot in of_experts[e] if slot >= 0] == numpy.flatnonzero(row == e).tolist()
        assert replicas.tolist() == numpy.bincount(row).tolist() and slots.shape[2] == counts.max()
    sglang.present = types.SimpleNamespace(physical_to_logical_map_cpu=Tensor(placed))
    later = sglang.call(made_steps(3))[0].array
    moved = placement.moved(placed, later, ranks=RANKS)
    fresh = placement.place(made_steps(3), ranks=RANKS, redundant=8)
    assert 2 * moved < placement.moved(placed, fresh, ranks=RANKS) and (placed != later).sum() == moved
    lines = [r.getMessage() for r in caplog.records]
    assert len(lines) == 2 and lines[0].startswith("hotset: balancedness 0.") and lines[1].startswith(f"hotset: {moved} experts move, ")
    sglang.rank = 1
    sglang.call(made_steps(4))
    assert len(caplog.records) == 2, "the first rank writes"


def test_sglangs_own_algorithm_places_what_is_not_understood_with_one_line_a_reason(sglang, caplog):
    hotset.sglang.register()
    gaps = numpy.where(engine_map() == 5, -1, engine_map())
    sglang.present = types.SimpleNamespace(physical_to_logical_map_cpu=Tensor(gaps))
    for _ in range(2):
        assert sglang.call(made_steps(2)) == "own"
        assert sglang.call(made_steps(2), "elasticity_aware") == "own"
        assert sglang.call(made_steps(2) + 0.5) == "own"
    sglang.present = types.SimpleNamespace(physical_to_logical_map_cpu=Tensor(engine_map()))
    assert sglang.call(made_steps(2), slots=44) == "own"
    lines = [r.getMessage().partition("places the experts: ")[2] for r in caplog.records]
    assert lines == [
        "the engine's map: -1, as in elastic expert parallelism",
        "the algorithm elasticity_aware, which leaves failed ranks out",
        "loads: float64 [60, 3, 32]",
        "the engine's map: [3, 40] up to 31, with 3 layers, 44 slots, 32 experts",
    ]


def test_sglang_keeps_its_algorithm_with_one_line_at_its_start(sglang, monkeypatch, caplog):
    for name, value, words in (
        ("HOTSET_PLACEMENT", "place.json", "HOTSET_PLACEMENT is 'place.json', accepted: 1; --init-expert-location takes a file"),
        ("HOTSET_PLACEMENT_MOVE_COST", "2", "HOTSET_PLACEMENT_MOVE_COST is '2', accepted: 0 to 1"),
        ("version", "0.9", "SGLang 0.9, accepted: 0.5.23"),
    ):
        caplog.clear()
        with monkeypatch.context() as one:
            one.setattr(hotset.sglang, "_placing", False)
            if name == "version":
                one.setattr(sglang, "version", value)
            else:
                one.setenv(name, value)
            hotset.sglang.register()
            hotset.sglang.register()
        (line,) = [r.getMessage() for r in caplog.records]
        assert line.startswith("hotset: SGLang's own algorithm places the experts: ") and words in line
    monkeypatch.setattr(hotset.sglang, "_placing", False)
    monkeypatch.delenv("HOTSET_PLACEMENT")
    hotset.sglang.register()
    assert sglang.hooks == []
