# SPDX-License-Identifier: Apache-2.0
"""vLLM's own state of expert placement, its transfers over gloo and its maps, in four processes on the loopback, with
hotset's policy. vLLM for the processor, so no device is needed."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

import steps_of_engines  # noqa: E402

from hotset import placement  # noqa: E402

RANKS, LAYERS, EXPERTS, REDUNDANT = 4, 3, 64, 16

# Each of four processes has its slots' weights, which say whose they are: layer * 1000 + expert.
WORKERS = """
import json, os, sys
import numpy, torch, torch.multiprocessing as multiprocessing
import vllm.config, vllm.distributed.eplb.eplb_state as eplb, vllm.distributed.parallel_state as state
from vllm.config.parallel import EPLBConfig
from vllm.logger import configure_logging

RANKS, EXPERTS, REDUNDANT = 4, 64, 16
SLOTS = EXPERTS + REDUNDANT
LOCAL = SLOTS // RANKS


class Event:  # without a device there are none
    def __init__(self, enable_timing=False):
        pass

    def record(self):
        pass

    synchronize = record

    def elapsed_time(self, other):
        return 0.0


class Model:
    num_expert_groups, num_shared_experts, moe_layers = 1, 0, []
    num_logical_experts = num_routed_experts = EXPERTS
    num_physical_experts, num_local_physical_experts, num_redundant_experts = SLOTS, LOCAL, REDUNDANT

    def __init__(self, rank, layers):
        self.num_moe_layers = layers
        row = eplb.EplbState.build_initial_global_physical_to_logical_map(EXPERTS, REDUNDANT)[rank * LOCAL : (rank + 1) * LOCAL]
        self.expert_weights = [[torch.tensor([[layer * 1000.0 + e] * 8 for e in row])] for layer in range(layers)]

    def set_eplb_state(self, *held):
        pass


class ModelConfig:
    model = "made"

    def compute_hash(self):
        return "made"


def on_slots(counts, row):
    # Whole tokens: replicas share them as evenly as that allows.
    out = numpy.zeros(len(row), int)
    for e in range(EXPERTS):
        slots = numpy.flatnonzero(row == e)
        out[slots] = counts[e] // len(slots) + (numpy.arange(len(slots)) < counts[e] % len(slots))
    return out


def work(rank, port, plan, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    torch.Event = Event
    eplb.PIN_MEMORY = False
    import hotset.vllm
    hotset.vllm.register()
    steps = numpy.load(plan["steps"])
    config = vllm.config.VllmConfig(device_config=vllm.config.DeviceConfig(device="cpu"))
    configure_logging(config.logging_config)
    with vllm.config.set_current_vllm_config(config):
        state.init_distributed_environment(RANKS, rank, "env://", rank, "gloo")
        for name in ("ep", "eplb"):
            setattr(state, f"_{name.upper()}", state.init_model_parallel_group([list(range(RANKS))], rank, "gloo", group_name=name))
        state._NODE_COUNT = 1
        parallel = config.parallel_config
        window, layers = len(steps["windows"][0]), steps["windows"].shape[2]
        parallel.eplb_config = EPLBConfig(use_async=False, communicator="torch_nccl", window_size=window, step_interval=10**6)
        held, model = eplb.EplbState(parallel, torch.device("cpu")), Model(rank, layers)
        held.add_model(model, ModelConfig())
        (own,) = held.model_states.values()
        maps = [own.physical_to_logical_map.tolist()]
        held.rearrange(is_profile=True)  # as vLLM does before it serves, to reserve memory
        assert own.physical_to_logical_map.tolist() == maps[0]
        for number, loads in enumerate(steps["windows"]):
            if plan.get("absent"):
                own.physical_to_logical_map[:, plan["absent"]] = -1
            rows = numpy.array(maps[-1])
            for s, step in enumerate(loads):
                full = numpy.stack([on_slots(step[layer], rows[layer]) for layer in range(layers)])
                own.expert_load_window[s] = torch.from_numpy(full // RANKS + (rank < full % RANKS)).int()
            held.rearrange()
            new = own.physical_to_logical_map.numpy()
            maps.append(new.tolist())
            for layer in range(layers):
                weights = model.expert_weights[layer][0][:, 0].numpy()
                assert (weights == layer * 1000 + new[layer, rank * LOCAL : (rank + 1) * LOCAL]).all(), (number, layer)
                for e in range(EXPERTS):
                    slots = [slot for slot in own.logical_to_physical_map[layer, e].tolist() if slot >= 0]
                    assert sorted(slots) == numpy.flatnonzero(new[layer] == e).tolist()
                    assert own.logical_replica_count[layer, e] == len(slots)
        out.put((rank, held.policy.__name__, maps))


if __name__ == "__main__":
    plan = json.loads(sys.argv[2])
    forks = multiprocessing.get_context("fork")
    out = forks.Queue()
    workers = [forks.Process(target=work, args=(rank, sys.argv[1], plan, out)) for rank in range(RANKS)]
    for one in workers:
        one.start()
    found = sorted(out.get(timeout=240) for _ in workers)
    for one in workers:
        one.join()
    assert all(one[1:] == found[0][1:] for one in found), "each rank decides alone"
    print(json.dumps(found[0][1:]))
"""


def rearranged(tmp_path, windows, absent=None, **variables):
    """Returns the policy's name, the maps before and after each window, and the lines of hotset's log."""
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    numpy.savez(tmp_path / "steps.npz", windows=windows)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOTSET_PLACEMENT")}
    environment.update(GLOO_SOCKET_IFNAME="lo", VLLM_HOST_IP="127.0.0.1", VLLM_NO_USAGE_STATS="1", OMP_NUM_THREADS="1", **variables)
    plan = {"steps": str(tmp_path / "steps.npz"), "absent": absent}
    done = subprocess.run([sys.executable, script, port, json.dumps(plan)], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line.partition("hotset: ")[2] for line in (done.stdout + done.stderr).splitlines() if "hotset: " in line]
    name, maps = json.loads(done.stdout.splitlines()[-1])
    return name, [numpy.array(one) for one in maps], lines


def profile(tmp_path, steps):
    sample = placement.StepSample(*steps.shape[1:])
    for step in steps:
        sample.add(step)
    sample.save(tmp_path / "profile.safetensors")
    return str(tmp_path / "profile.safetensors")


def write_placement(tmp_path, rows, layers=LAYERS):
    path = tmp_path / "place.json"
    held = {"schema": "hotset.placement/1", "experts": EXPERTS, "ranks": RANKS, "nodes": 1, "groups": 1, "dense_layers": 0}
    path.write_text(json.dumps({**held, "physical_to_logical_map": rows[:layers].tolist()}))
    return str(path)


@pytest.mark.parametrize("steps_of", steps_of_engines.SOURCES)
def test_unseen_steps_are_balanced_and_few_experts_move(tmp_path, steps_of):
    recorded, window, unseen = (steps_of(seed, steps, LAYERS) for seed, steps in ((1, 150), (2, 80), (4, 80)))
    name, maps, lines = rearranged(tmp_path, window[None], HOTSET_PLACEMENT="1", HOTSET_PLACEMENT_PROFILE=profile(tmp_path, recorded))
    assert name == "HotsetPolicy"
    before, after = (placement.balancedness(unseen, one, ranks=RANKS) for one in maps)
    moved = placement.moved(*maps, ranks=RANKS)
    own_name, own, nothing = rearranged(tmp_path, window[None])
    assert own_name == "DefaultEplbPolicy" and nothing == []
    theirs = placement.balancedness(unseen, own[1], ranks=RANKS)
    print(f"start {before:.4f}, hotset {after:.4f} with {moved} experts moved, vLLM {theirs:.4f} with {placement.moved(*own, ranks=RANKS)}")
    assert after >= 0.95 and moved <= 32
    (line,) = lines
    assert line.startswith(f"{moved} experts move, balancedness 0.")


def test_the_first_rearrangement_goes_to_the_file_and_the_next_starts_there(tmp_path):
    steps = steps_of_engines.made(1, 150, LAYERS)
    rows = placement.place(steps, ranks=RANKS, redundant=REDUNDANT)
    windows = numpy.stack([steps_of_engines.made(seed, 80, LAYERS) for seed in (2, 3)])
    _, maps, lines = rearranged(tmp_path, windows, HOTSET_PLACEMENT=write_placement(tmp_path, rows))
    assert (maps[1] == rows).all() and placement.moved(*maps[1:], ranks=RANKS) <= 32
    assert len(lines) == 2 and lines[0].endswith(f"to {tmp_path}/place.json") and " experts move, " in lines[1]


def test_a_map_with_absent_slots_is_left_to_vllms_own_policy_with_one_line(tmp_path):
    window = steps_of_engines.made(2, 80, LAYERS)
    absent = list(range(EXPERTS, EXPERTS + REDUNDANT))
    _, maps, lines = rearranged(tmp_path, window[None], absent, HOTSET_PLACEMENT="1")
    assert lines == ["the engine's own policy places the experts: the engine's map: -1, as in elastic expert parallelism"]
    assert maps[1].min() == 0


def test_a_file_of_another_model_is_left_to_vllms_own_policy_with_one_line(tmp_path):
    windows = numpy.stack([steps_of_engines.made(seed, 80, LAYERS) for seed in (2, 3)])
    rows = numpy.tile(numpy.arange(80) % 64, (LAYERS, 1))
    _, maps, lines = rearranged(tmp_path, windows, HOTSET_PLACEMENT=write_placement(tmp_path, rows, layers=2))
    (line,) = lines
    assert line.startswith("the engine's own policy places the experts: ") and "place.json: 2 layers" in line
    assert (maps[1] != rows).any()


START = """
import importlib.metadata
from vllm.plugins import load_general_plugins
if importlib.metadata.entry_points(group="vllm.general_plugins", name="hotset"):
    load_general_plugins()
else:
    import hotset.vllm
    hotset.vllm.register()
"""


@pytest.mark.parametrize("text, words", [("{", "Expecting property name"), (None, "layers with different numbers of slots")])
def test_a_corrupt_file_ends_vllm_at_its_start_with_one_line(tmp_path, text, words):
    path = pathlib.Path(write_placement(tmp_path, numpy.tile(numpy.arange(80) % 64, (LAYERS, 1))))
    path.write_text(text or path.read_text().replace("14, 15]]", "14]]"))  # a short layer
    environment = {**os.environ, "HOTSET_PLACEMENT": str(path), "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    last = done.stderr.splitlines()[-1]
    assert done.returncode != 0 and f"HOTSET_PLACEMENT is '{path}'" in last and words in last
