# SPDX-License-Identifier: Apache-2.0
"""SGLang's own loader of placements and its function of rebalancing with hotset's hook. Only these files of SGLang run:
substitutes stand for its runtime context and its models, so neither a device nor its other packages are needed."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy
import pytest

pytest.importorskip("torch", reason="torch is not installed")
if importlib.util.find_spec("sglang") is None:
    pytest.skip("SGLang is not installed", allow_module_level=True)

import steps_of_engines  # noqa: E402

import hotset  # noqa: E402
from hotset import placement  # noqa: E402

LAYERS, DENSE, EXPERTS, RANKS, SLOTS = 3, 2, 64, 8, 80

ENGINE = """
import importlib, importlib.metadata, importlib.util, json, logging, os, sys, types
import numpy, torch

logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
logging.getLogger("sglang.hotset").setLevel(logging.INFO)
place = importlib.util.find_spec("sglang").submodule_search_locations[0]
Space = types.SimpleNamespace
plan = json.loads(sys.argv[1])


def substitute(name, folder=None, **held):
    module = types.ModuleType(name)
    module.__dict__.update(held, __path__=[folder] if folder else [])
    sys.modules[name] = module
    return module


moe = Space(ep_join_mode=None, ep_num_redundant_experts=16, moe_a2a_backend="deepep", eplb_algorithm=plan.get("algorithm", "auto"),
            ep_dispatch_algorithm="static", init_expert_location=plan.get("file"))
parallel = Space(ep_size=8, nnodes=plan.get("nodes", 1), elastic_ep_initial_size=None, tp_size=8, ep_join_rank_offset=0)
resources = Space(expert_location_metadata=None)
unset = Space(get=lambda: None)
substitute("sglang", place)
substitute("sglang.srt", os.path.join(place, "srt"))
substitute("sglang.srt.environ", envs=Space(SGLANG_PLUGINS=unset, SGLANG_PLATFORM=unset))
substitute("sglang.srt.runtime_context", get_device=lambda: Space(device="cpu"), get_exec=lambda: Space(moe=moe),
           get_parallel=lambda: parallel, get_resources=lambda: resources)
substitute("sglang.srt.elastic_ep")
substitute("sglang.srt.elastic_ep.elastic_ep", elastic_expanded_world_enabled=lambda: False, ElasticEPStateManager=None)
import sglang.srt.eplb.expert_location as location


class Model:
    @staticmethod
    def get_model_config_for_expert_location(config):
        return location.ModelConfigForExpertLocation(num_layers=plan["layers"], num_logical_experts=64, num_groups=plan.get("groups"))


substitute("sglang.srt.model_loader", get_model_architecture=lambda config: (Model, None))
from sglang.srt.plugins import HookRegistry, load_plugins

if importlib.metadata.entry_points(group="sglang.srt.plugins", name="hotset"):
    load_plugins()
    load_plugins()
else:
    import hotset.sglang
    hotset.sglang.register()
    HookRegistry.apply_hooks()
config = Space(hf_config=None)
"""

LOAD = """
for rank in (0, 7):
    found = location.compute_initial_expert_location_metadata(config, rank)
    rows = found.physical_to_logical_map
    # The slot that a rank sends each expert's tokens to.
    sends = found.logical_to_rank_dispatch_physical_map
    assert (torch.gather(rows, 1, sends.long()) == torch.arange(64)).all()
    assert (found.num_layers, found.num_physical_experts, found.num_local_physical_experts) == (plan["layers"], 80, 10)
print(json.dumps(rows.tolist()))
"""

REBALANCE = """
moe.ep_dispatch_algorithm = "dynamic"
maps = []
for steps in numpy.load(plan["steps"])["windows"]:
    found = location.ExpertLocationMetadata.init_by_eplb(config, torch.from_numpy(steps))
    rows = found.physical_to_logical_map
    for layer in range(plan["layers"]):
        for e in range(64):
            slots = [slot for slot in found.logical_to_all_physical_map[layer, e].tolist() if slot >= 0]
            assert sorted(slots) == torch.nonzero(rows[layer] == e)[:, 0].tolist()
            assert found.logical_to_all_physical_map_num_valid[layer, e] == len(slots)
    maps.append(rows.tolist())
    location.set_global_expert_location_metadata(found, allow_overwrite=True)
    if plan.get("absent"):
        found.physical_to_logical_map_cpu = torch.where(found.physical_to_logical_map_cpu == 5, -1, rows)
print(json.dumps(maps))
"""


def engine(tmp_path, script, plan, succeeds=True, **variables):
    """Returns what the script prints, and the lines of the log."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOTSET_PLACEMENT")}
    environment.update(variables, OMP_NUM_THREADS="1")
    command = [sys.executable, "-c", ENGINE + script, json.dumps(plan)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode == 0) == succeeds, done.stderr[-4000:]
    if not succeeds:
        return None, done.stderr.splitlines()
    return json.loads(done.stdout), [line.partition("hotset: hotset: ")[2] for line in done.stderr.splitlines() if "hotset: " in line]


def rebalanced(tmp_path, windows, plan=(), **variables):
    numpy.savez(tmp_path / "steps.npz", windows=windows)
    maps, lines = engine(tmp_path, REBALANCE, {"steps": str(tmp_path / "steps.npz"), "layers": LAYERS, **dict(plan)}, **variables)
    return [numpy.array(one) for one in maps], lines


@pytest.fixture
def placed(tmp_path):
    """A file that hotset place wrote."""
    ids = numpy.random.default_rng(1).random((240, LAYERS, EXPERTS)) ** 3
    hotset.Trace.from_arrays(ids.argsort(-1)[..., :6], EXPERTS, steps=numpy.arange(240) // 8).save(tmp_path / "a.trace")
    path = tmp_path / "sglang.json"
    shape = ("--ranks", str(RANKS), "--redundant", str(SLOTS - EXPERTS), "--format", "sglang", "--dense-layers", str(DENSE))
    hotset.run("place", str(tmp_path / "a.trace"), *shape, "--out", str(path))
    return path


def test_the_file_of_hotset_place_is_loaded(tmp_path, placed):
    rows = json.loads(placed.read_text())["physical_to_logical_map"]
    found, _ = engine(tmp_path, LOAD, {"layers": DENSE + LAYERS, "file": str(placed), "nodes": 2})
    assert found == rows and rows[0] == (numpy.arange(SLOTS) % EXPERTS).tolist() and len(rows) == DENSE + LAYERS


def test_sglang_itself_refuses_a_corrupt_file_and_a_short_layer(tmp_path, placed):
    whole = placed.read_text()
    for text, words in ((whole[:-10], "JSONDecodeError"), (whole.replace("[0,", "[", 1), "ValueError: expected sequence of length")):
        placed.write_text(text)
        _, lines = engine(tmp_path, LOAD, {"layers": DENSE + LAYERS, "file": str(placed)}, succeeds=False)
        assert words in lines[-1]


@pytest.mark.parametrize("steps_of", steps_of_engines.SOURCES)
def test_unseen_steps_are_balanced_better_and_fewer_experts_move(tmp_path, steps_of):
    windows = numpy.stack([steps_of(seed, 80, LAYERS) for seed in (2, 4)])
    unseen = steps_of(6, 80, LAYERS)
    maps, lines = rebalanced(tmp_path, windows, HOTSET_PLACEMENT="1")
    own, nothing = rebalanced(tmp_path, windows)
    assert nothing == []
    (ours, ours_moved), (theirs, theirs_moved) = (
        (placement.balancedness(unseen, one[1], ranks=RANKS), placement.moved(*one, ranks=RANKS)) for one in (maps, own)
    )
    print(f"hotset {ours:.4f} with {ours_moved} experts moved, SGLang {theirs:.4f} with {theirs_moved}")
    assert ours > theirs and ours_moved <= 32 < theirs_moved
    assert len(lines) == 2 and lines[0].startswith("balancedness 0.") and lines[1].startswith(f"{ours_moved} experts move, balancedness 0.")


def test_groups_stay_in_a_node(tmp_path):
    windows = numpy.stack([steps_of_engines.made(seed, 80, LAYERS) for seed in (2, 4)])
    maps, lines = rebalanced(tmp_path, windows, {"nodes": 2, "groups": 8}, HOTSET_PLACEMENT="1")
    for rows in maps:
        for layer in rows:
            halves = [set((half // 8).tolist()) for half in layer.reshape(2, -1)]
            assert halves[0].isdisjoint(halves[1])
    assert len(lines) == 2


@pytest.mark.parametrize(
    "plan, words",
    [({"absent": True}, "the engine's map: -1"), ({"algorithm": "deepseek", "nodes": 8, "groups": 8}, "slots_per_rank = 10, accepted: 8 to 8")],
)
def test_calls_that_are_not_understood_are_left_to_sglang_with_one_line(tmp_path, plan, words):
    windows = numpy.stack([steps_of_engines.made(seed, 80, LAYERS) for seed in (2, 4, 6)])
    maps, lines = rebalanced(tmp_path, windows, plan, HOTSET_PLACEMENT="1")
    own, _ = rebalanced(tmp_path, windows, plan)
    assert (maps[1] == own[1]).all() and (maps[2] == own[2]).all()
    (line,) = [line for line in lines if words in line]
    assert line.startswith("the engine's own policy places the experts: ")


def test_a_file_in_the_variable_gets_one_line(tmp_path, placed):
    windows = steps_of_engines.made(2, 80, LAYERS)[None]
    maps, (line,) = rebalanced(tmp_path, windows, HOTSET_PLACEMENT=str(placed))
    assert line.startswith("SGLang's own algorithm places the experts: HOTSET_PLACEMENT is") and "--init-expert-location" in line
    assert (maps[0] == rebalanced(tmp_path, windows)[0][0]).all()
