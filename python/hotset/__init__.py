# SPDX-License-Identifier: Apache-2.0
"""Decides which experts of a Mixture-of-Experts model stay on the accelerator.

    import hotset

    pager = hotset.Pager(layers=48, experts=128, top_k=8, slots=768, scope="shared", eviction="similar_steps")
    for visit in pager.visits(layer, ids):          # ids: int32 [tokens, top_k] of the router
        for fill in visit.fills:
            copy(fill["layer"], fill["expert"], fill["slot"])
        visit.commit()
        compute(visit.tokens, pager.row(layer))     # slot of each expert of the layer, -1: not there
"""

from __future__ import annotations

from hotset._arguments import fill, request
from hotset._curve import Consumer, Curve, divide
from hotset._errors import (
    Busy,
    CannotWrite,
    DoesNotFit,
    Error,
    ExceedsMemory,
    FillFailed,
    Forked,
    InvalidArgument,
    InvalidConfig,
    InvalidVisit,
    NoPlan,
    NoVictim,
    PolicyFailed,
    VisitOpen,
    VisitTooLarge,
    WrongThread,
)
from hotset._library import version
from hotset._pager import Pager
from hotset._policy import EvictionPolicy
from hotset._prefetcher import Prefetcher
from hotset._program import Result, Rows, curve, plan, run, simulate
from hotset._recorder import Recorder
from hotset._trace import Trace
from hotset._visit import Visit

__version__ = version()
__all__ = [
    "Busy",
    "CannotWrite",
    "Consumer",
    "Curve",
    "DoesNotFit",
    "Error",
    "EvictionPolicy",
    "ExceedsMemory",
    "FillFailed",
    "Forked",
    "InvalidArgument",
    "InvalidConfig",
    "InvalidVisit",
    "NoPlan",
    "NoVictim",
    "Pager",
    "PolicyFailed",
    "Prefetcher",
    "Recorder",
    "Result",
    "Rows",
    "Trace",
    "Visit",
    "VisitOpen",
    "VisitTooLarge",
    "WrongThread",
    "curve",
    "divide",
    "fill",
    "plan",
    "request",
    "run",
    "simulate",
    "version",
]
