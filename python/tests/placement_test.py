# SPDX-License-Identifier: Apache-2.0
"""hotset.placement: the library's placement of experts on ranks, by layer and thread."""

import itertools
import os
import subprocess
import threading

import numpy
import pytest

import hotset
from hotset import placement


def made_loads(seed, steps=60, layers=3, experts=64, topics=3):
    """Each step favours the experts of one topic."""
    random = numpy.random.default_rng(seed)
    of_expert = random.integers(topics, size=(layers, experts))
    favoured = random.integers(topics, size=(steps, 1, 1))
    return random.poisson(numpy.where(of_expert == favoured, 20, 4)).astype(numpy.int64)


def packed(loads, ranks, slots):
    """What engines do: by the sums of the steps."""
    return placement.place(loads.sum(0, keepdims=True), ranks=ranks, redundant=slots - loads.shape[2])


def test_a_placement_holds_every_expert_and_no_rank_holds_one_twice():
    placed = placement.place(made_loads(1), ranks=8, redundant=16)
    assert placed.shape == (3, 80) and placed.dtype == numpy.int32
    for layer in placed:
        assert set(layer.tolist()) == set(range(64))
        for rank in layer.reshape(8, -1):
            assert len(set(rank.tolist())) == 10


def test_steps_place_better_than_their_sums():
    loads = made_loads(2)
    by_sums = placement.balancedness(loads, packed(loads, 8, 80), ranks=8)
    assert placement.balancedness(loads, placement.place(loads, ranks=8, redundant=16), ranks=8) > by_sums + 0.02


def test_balancedness_is_the_mean_over_the_fullest():
    loads = [[[6, 2, 4]], [[0, 0, 8]]]
    assert placement.balancedness(loads, [[0, 1, 0, 2]], ranks=2) == pytest.approx(10 / 15)
    assert placement.balancedness(numpy.zeros((2, 1, 2), int), [[0, 1]], ranks=2) == 1


def test_a_dearer_move_moves_fewer_experts():
    start = placement.place(made_loads(3), ranks=8, redundant=16)
    counts = []
    for cost in (0, 0.001, 0.01, 1):
        placed = placement.place(made_loads(4), ranks=8, redundant=16, start=start, move_cost=cost)
        counts.append(placement.moved(start, placed, ranks=8))
        assert (placed != start).sum() == counts[-1], "experts that stay keep their slot"
    assert counts == sorted(counts, reverse=True) and counts[0] > 0 and counts[-1] == 0


def test_the_number_of_threads_changes_nothing():
    loads = made_loads(5, layers=6)
    one = placement.place(loads, ranks=8, redundant=16, starts=2, threads=1)
    assert (one == placement.place(loads, ranks=8, redundant=16, starts=2, threads=5)).all()


def test_groups_stay_in_a_node():
    placed = placement.place(made_loads(6, experts=16), ranks=4, redundant=8, nodes=2, groups=4)
    for layer in placed:
        nodes = [set((half // 4).tolist()) for half in layer.reshape(2, -1)]
        assert nodes[0].isdisjoint(nodes[1])


def test_other_threads_run_meanwhile():
    loads = made_loads(7, steps=300, layers=1, experts=256, topics=9)
    ran = []
    worker = threading.Thread(target=lambda: ran.append(placement.place(loads, ranks=64, redundant=64, threads=1)))
    worker.start()
    turns = 0
    while worker.is_alive():
        worker.join(0.001)
        turns += 1
    assert ran and turns > 10


@pytest.mark.parametrize(
    "change, words",
    [
        ({"loads": [[1, 2]]}, "accepted: [steps, layers, experts]"),
        ({"loads": [[[0.5, 1.0]]]}, "accepted: whole tokens"),
        ({"loads": [[[-1, 1]]]}, "accepted: 0 to 4294967295"),
        ({"ranks": 7}, "a sum that the ranks divide, such as redundant = 20"),
        ({"ranks": 0}, "ranks = 0"),
        ({"redundant": -64}, "redundant = -64"),
        ({"nodes": 3, "groups": 3}, "nodes = 3"),
        ({"start": [[0, 1]]}, "accepted: [3, 80]"),
        ({"start": numpy.zeros((3, 80), int)}, "no slot holds expert 1"),
        ({"move_cost": 0.1}, "without a start"),
        ({"move_cost": -1.0}, "accepted: 0 to 1"),
        ({"starts": -1}, "starts = -1"),
        ({"nodes": -1}, "nodes = -1"),
        ({"groups": -1}, "groups = -1"),
        ({"threads": 0}, "threads = 0"),
    ],
)
def test_wrong_input_gets_one_line(change, words):
    arguments = {"loads": made_loads(8), "ranks": 8, "redundant": 16, **change}
    with pytest.raises(hotset.InvalidArgument) as refused:
        placement.place(arguments.pop("loads"), **arguments)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_sample_keeps_each_step_in_as_many_draws(monkeypatch):
    # All draws of 5 steps into 2 places, each as likely: every step is kept in 2 of 5.
    kept = numpy.zeros(5, int)
    draws = 0
    for drawn in itertools.product(range(3), range(4), range(5)):
        monkeypatch.setattr(placement, "_below", lambda step, bound, drawn=drawn: {step + 1: drawn[step - 2]}[bound])
        sample = placement.StepSample(1, 1, steps=2)
        for step in range(5):
            sample.add([[step]])
        assert sample.steps.ravel().tolist() == sample.numbers and sample.seen == 5
        kept[sample.numbers] += 1
        draws += 1
    assert (kept * 5 == draws * 2).all()


def test_draws_follow_from_the_step_and_cover_their_range():
    # splitmix64's first numbers for the seed 0, as published.
    numbers = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert [placement._below(step, 1 << 64) for step in range(4)] == numbers
    for bound in (1, 3, 101):
        assert {placement._below(step, bound) for step in range(3000)} == set(range(bound))


def test_a_sample_keeps_steps_whole_and_sums_all():
    loads = made_loads(11, steps=500)
    sample = placement.StepSample(3, 64)
    for number, step in enumerate(loads):
        sample.add(step)
        assert len(sample.steps) == min(number + 1, 100)
    assert (sample.steps == loads[sample.numbers]).all() and len(set(sample.numbers)) == 100
    assert (sample.sums == loads.sum(0)).all() and sample.sums.dtype == numpy.uint64
    again = placement.StepSample(3, 64)
    for step in loads.tolist():
        again.add(step)
    assert again.numbers == sample.numbers
    sample.steps[:] = 0
    assert sample.steps.any(), "a copy"
    counts = numpy.ones((3, 64), int)
    few = placement.StepSample(3, 64)
    few.add(counts)
    counts[:] = 7
    few.add(numpy.zeros((3, 64), int))
    assert few.seen == 2 and few.steps.sum() == 3 * 64, "a step without tokens is a step"


def test_a_sample_is_saved_as_a_profile(tmp_path):
    sample = placement.StepSample(3, 64, steps=20)
    with pytest.raises(hotset.InvalidArgument, match="no step was added"):
        sample.save(tmp_path / "none")
    for step in made_loads(12):
        sample.add(step)
    path = tmp_path / "profile.safetensors"
    sample.save(path)
    assert (placement.load_steps(path) == sample.steps).all()
    head = path.read_bytes()
    assert head[8:].lstrip().startswith(b'{"__metadata__":{"format":"hotset.placement-profile/1"},"steps":{"dtype":"U32","shape":[20,3,64]')
    with pytest.raises(hotset.CannotWrite):
        sample.save(tmp_path / "absent" / "profile.safetensors")


def test_other_files_are_no_profile(tmp_path):
    path = tmp_path / "profile"
    trace = tmp_path / "a.trace"
    hotset.Trace.from_arrays([[[0]]], 2).save(trace)
    sample = placement.StepSample(1, 1)
    sample.add([[1]])
    sample.save(path)
    whole = path.read_bytes()
    for wrong, words in (
        (b"short", "no safetensors header"),
        (whole[:-1], "a damaged header"),
        (trace.read_bytes(), "no profile"),
        (whole.replace(b"profile/1", b"profile/2"), "no profile"),
        (whole.replace(b'"U32"', b'"I32"'), "no profile"),
        (whole[:-4] + b"\xff\xff\xff\xff", "4294967295 tokens in a step, accepted: at most 16777215"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(hotset.InvalidArgument) as refused:
            placement.load_steps(path)
        assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.skipif("HOTSET_PROGRAM" not in os.environ, reason="HOTSET_PROGRAM is not set")
def test_the_programs_profile_is_read(tmp_path):
    ids = numpy.random.default_rng(1).random((50, 3, 16)).argsort(-1)[..., :2]
    trace, profile = tmp_path / "a.trace", tmp_path / "profile"
    hotset.Trace.from_arrays(ids, 16, steps=numpy.arange(50) // 5).save(trace)
    subprocess.run([os.environ["HOTSET_PROGRAM"], "place", trace, "--ranks", "4", "--redundant", "4", "--profile", profile], check=True, capture_output=True)
    expected = (ids[..., None] == numpy.arange(16)).sum(2).reshape(10, 5, 3, 16).sum(1)
    assert (placement.load_steps(profile) == expected).all()


@pytest.mark.parametrize(
    "counts, words",
    [
        ([[1, 2]], "shape [1, 2], accepted: [1, 3]"),
        ([[[1, 2, 3]], [[1, 2, 3]]], "shape [2, 1, 3], accepted: [1, 3]"),
        ([[0.5, 1, 1]], "accepted: whole tokens"),
        ([[-1, 1, 1]], "accepted: 0 to"),
        ([[1 << 24, 1, 1]], "step_counts: 16777216, accepted: 0 to 16777215"),
    ],
)
def test_a_refused_step_changes_no_sample(counts, words):
    sample = placement.StepSample(1, 3)
    with pytest.raises(hotset.InvalidArgument) as refused:
        sample.add(counts)
    assert words in str(refused.value) and sample.seen == 0 and len(sample.steps) == 0 and not sample.sums.any()
    for wrong in ((0, 3), (1, 0), (1, 3, 0)):
        with pytest.raises(hotset.InvalidArgument, match="= 0, accepted: 1 or more"):
            placement.StepSample(*wrong)
