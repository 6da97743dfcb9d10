# SPDX-License-Identifier: Apache-2.0
"""hotset.placement: the library's placement of experts on ranks, by layer and thread."""

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
    ],
)
def test_wrong_input_gets_one_line(change, words):
    arguments = {"loads": made_loads(8), "ranks": 8, "redundant": 16, **change}
    with pytest.raises(hotset.InvalidArgument) as refused:
        placement.place(arguments.pop("loads"), **arguments)
    assert words in str(refused.value) and "\n" not in str(refused.value)
