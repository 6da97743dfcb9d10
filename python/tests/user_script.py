# SPDX-License-Identifier: Apache-2.0
"""A typed program of a user: `mypy --strict` finds nothing in it (cmake/python-package.sh)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
from numpy.typing import NDArray

import hotset
from hotset import sweep


def routed(step: int) -> NDArray[numpy.int32]:
    return numpy.array([[step % 16, (step + 1) % 16]], numpy.int32)


def removed(layer: int, expert: int, slot: int, precision: int, reader: int) -> None:
    print(layer, expert, slot, precision, reader)


def main() -> None:
    pager = hotset.Pager(1, 16, 2, slots=4, removed=removed)
    ahead = hotset.Prefetcher(1, 16, 2)
    curve = hotset.Curve(1, 16, 2)
    recorder = hotset.Recorder(1, 16, 2, capacity=100)
    for step in range(100):
        ids = routed(step)
        with recorder.step(tokens=1):
            recorder.record(0, ids)
        curve.observe(0, ids)
        asked: NDArray[Any] = ahead.propose(0, ids, step)
        for visit in pager.visits(0, ids, step=step):
            slots: NDArray[Any] = visit.slots
            visit.commit()
        print(len(asked), slots)
    units, seconds = hotset.divide([hotset.Consumer(curve.table(), unit_bytes=1, seconds_per_miss=1.0)], 4)
    print(units[0], seconds, pager.stats()["hits"], hotset.fill, hotset.version())


def swept() -> None:
    cells = sweep.cells("a.trace", eviction=["lru", "belady"], slots=["25%"])
    with ThreadPoolExecutor() as workers:
        sweep.run([cell for cell in cells if cell.options["eviction"] == "lru"], workers, "done", progress=True)
    merged = sweep.merge(cells, "done", out="merged.json")
    print(merged[0] if isinstance(merged, list) else merged.runs)


if __name__ == "__main__":
    main()
    swept()
