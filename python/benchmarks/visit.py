# SPDX-License-Identifier: Apache-2.0
"""Time of a visit of one token through Python: plan and commit, top-8 of 128 experts, all resident.
Fastest of short interleaved rounds, because other programs can only add time.

    python python/benchmarks/visit.py

`c_pager_benchmark --benchmark_filter=hit` measures the same visit from C.
"""

from __future__ import annotations

import time

import numpy

import hotset

VISITS = 1000
ROUNDS = 100


def nanoseconds(call, visits=VISITS):
    begin = time.perf_counter_ns()
    call(visits)
    return (time.perf_counter_ns() - begin) / visits


def main() -> None:
    pager = hotset.Pager(layers=48, experts=128, top_k=8, slots=16, eviction="lru")
    ids = [numpy.arange(layer % 4, layer % 4 + 8, dtype=numpy.int32) for layer in range(48)]
    for _ in range(3):
        for layer in range(48):
            pager.plan(layer, ids[layer]).commit()

    def nothing(visits):
        layer = 0
        for _ in range(visits):
            layer = (layer + 1) % 48
            ids[layer]

    def plain(visits):
        layer = 0
        for _ in range(visits):
            layer = (layer + 1) % 48
            pager.plan(layer, ids[layer])
            pager.commit()

    def slots(visits):
        layer = 0
        for _ in range(visits):
            layer = (layer + 1) % 48
            visit = pager.plan(layer, ids[layer])
            visit.slots
            pager.commit()

    def loop(visits):
        layer = 0
        for _ in range(visits):
            layer = (layer + 1) % 48
            for visit in pager.visits(layer, ids[layer]):
                visit.commit()

    kinds = {"an empty loop": nothing, "plan, commit": plain, "plan, slots, commit": slots, "for visit in visits": loop}
    rounds = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, call in kinds.items():
            rounds[name].append(nanoseconds(call))
    for name, times in rounds.items():
        print(f"{name:22} {min(times):8.0f} ns")


if __name__ == "__main__":
    main()
