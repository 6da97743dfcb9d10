#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Misses of the policies of python/examples and of libCacheSim's, one access at a time.

    pip install libcachesim==0.3.5 numpy
    PYTHONPATH=BUILD/python HOTSET_PROGRAM=BUILD/hotset python benchmarks/peers/policies.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import libcachesim

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "examples"))
import hotset  # noqa: E402
from lecar import LeCaR  # noqa: E402
from s3_fifo import S3Fifo  # noqa: E402
from sieve import Sieve  # noqa: E402

SLOTS = [16, 32, 64]
THEIRS = {"lru": "LRU", "Sieve": "Sieve", "S3Fifo": "S3FIFO", "LeCaR": "LeCaR", "belady": "Belady"}
TRACE = "--layers 4 --experts 32 --top-k 2 --tokens 1500 --zipf 0.8 --stickiness 0.3 --seed 5".split()


def their_share(policy: str, slots: int, path: str) -> float:
    unsized = libcachesim.ReaderInitParam(ignore_obj_size=True)
    reader = libcachesim.TraceReader(path, libcachesim.TraceType.ORACLE_GENERAL_TRACE, unsized)
    return getattr(libcachesim, policy)(slots).process_trace(reader)[0]


with tempfile.TemporaryDirectory() as folder:
    trace, oracle = f"{folder}/trace", f"{folder}/oracle"
    hotset.run("synth", trace, *TRACE)
    hotset.run("export", trace, oracle, "--to", "oracle-general")
    evictions = ["lru", Sieve(), S3Fifo(), LeCaR(), "belady"]
    ours = hotset.simulate(trace, eviction=evictions, slots=SLOTS, replay="per-access", scope="shared")
    print("slots  policy  hotset  libCacheSim")
    for run in ours.runs:
        theirs = their_share(THEIRS[run["eviction"]], run["slots"], oracle)
        print(f"{run['slots']:5}  {run['eviction']:6}  {run['misses']:6}  {round(theirs * run['accesses']):6}")
