# SPDX-License-Identifier: Apache-2.0
"""Time that an eviction policy written in Python adds to a visit: plan and commit of one token, top-8 of 128 experts,
in pools of 16 slots. Fastest of short interleaved rounds, because other programs can only add time.

    python python/benchmarks/policy.py
"""

from __future__ import annotations

import time

import numpy

import hotset

VISITS = 480
ROUNDS = 60


class Least(hotset.EvictionPolicy):
    """No rule: the lowest candidates. What is timed is the way to Python and back."""

    def on_visit(self, event):
        event.slots

    def select_victims(self, choice):
        return choice.candidates[: choice.count]


class Lru(hotset.EvictionPolicy):
    def reset(self, layout):
        self.last = numpy.zeros(layout.slots, numpy.int64)
        self.order = numpy.arange(layout.slots)
        self.clock = 0

    def on_visit(self, event):
        slots = event.slots
        count = len(slots)
        self.last[slots] = self.order[:count] + self.clock
        self.clock += count

    def select_victims(self, choice):
        slots = choice.candidates
        return slots[self.last[slots].argsort()[: choice.count]]


def microseconds(pager, ids) -> float:
    begin = time.perf_counter_ns()
    for _ in range(VISITS // len(ids)):
        for layer, experts in enumerate(ids):
            pager.plan(layer, experts)
            pager.commit()
    return (time.perf_counter_ns() - begin) / VISITS / 1000


def main() -> None:
    random = numpy.random.default_rng(1)
    hits = [numpy.arange(8, dtype=numpy.int32) for _ in range(48)]
    misses = [random.permutation(128)[:8].astype(numpy.int32) for _ in range(48 * 5)]
    kinds = {
        "lru, native": lambda: "lru",
        "no rule, in Python": Least,
        "lru, in Python": Lru,
    }
    for what, visits in (("all hits", [hits]), ("misses", [misses[at : at + 48] for at in range(0, len(misses), 48)])):
        pagers = {name: hotset.Pager(48, 128, 8, slots=16, eviction=make()) for name, make in kinds.items()}
        rounds = {name: [] for name in kinds}
        for at in range(ROUNDS):
            for name, pager in pagers.items():
                rounds[name].append(microseconds(pager, visits[at % len(visits)]))
        base = min(rounds["lru, native"])
        for name, times in rounds.items():
            print(f"{what:9} {name:20} {min(times):6.2f} us a visit, {min(times) - base:+6.2f}")


if __name__ == "__main__":
    main()
