# SPDX-License-Identifier: Apache-2.0
"""A plug-in of SGLang that places experts on the ranks of expert parallelism, by the steps that SGLang records.

Installed beside SGLang it is loaded automatically (entry point sglang.srt.plugins). It does nothing without this
variable:

    HOTSET_PLACEMENT            1: places in place of SGLang's own algorithm (--enable-eplb), from the present placement on
    HOTSET_PLACEMENT_MOVE_COST  price of an expert that moves, as a share of a rank's load (0.0015)

The first placement needs no plug-in: `hotset place --format sglang` writes a file for --init-expert-location. What is
not understood is left to SGLang's own algorithm, with one line (docs/scale.md).
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
from collections.abc import Callable
from typing import Any

import numpy
from numpy.typing import NDArray

from hotset._errors import InvalidArgument
from hotset._rebalance import Log, Settings, by_steps, settings

_log = logging.getLogger("sglang.hotset")
_TARGET = "sglang.srt.eplb.eplb_algorithms.rebalance_experts"
# Releases that python/tests/engines has run with.
TESTED = ("0.5.23",)
_placing = False


def _slots_of(rows: NDArray[Any], experts: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the slots of each expert, [layers, experts, most replicas] filled with -1, and their numbers."""
    counts = numpy.stack([numpy.bincount(row, minlength=experts) for row in rows])
    slots = numpy.full((len(rows), experts, int(counts.max())), -1)
    for layer, row in enumerate(rows):
        order = numpy.argsort(row, kind="stable")
        first = numpy.cumsum(counts[layer]) - counts[layer]
        slots[layer, row[order], numpy.arange(len(row)) - first[row[order]]] = order
    return slots, counts


def _is_first_rank() -> bool:
    from torch import distributed

    return not distributed.is_initialized() or distributed.get_rank() == 0


class _Placing:
    """Stands around SGLang's function."""

    def __init__(self, given: Settings) -> None:
        self._given = given
        self._log = Log(_log, _is_first_rank)

    def rebalance_experts(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return self._placed(*arguments, **named)
        except InvalidArgument as bad:
            self._log.fell_back(bad)
        return original(*arguments, **named)

    def _placed(
        self, tokens_per_expert: Any, num_physical_experts: int, num_local_physical_experts: int, num_groups: Any, num_nodes: int, algorithm: Any
    ) -> Any:
        import torch
        from sglang.srt.eplb.expert_location import get_global_expert_location_metadata

        if algorithm.name.startswith("elasticity_aware"):
            raise InvalidArgument(f"the algorithm {algorithm.name}, which leaves failed ranks out")
        steps = tokens_per_expert.cpu().numpy()
        present = get_global_expert_location_metadata()
        old = None if present is None else present.physical_to_logical_map_cpu.numpy()
        ranks = num_physical_experts // num_local_physical_experts
        found = by_steps(steps, old, num_physical_experts, ranks, num_nodes, num_groups or 1, self._given.move_cost)
        slots, counts = _slots_of(found.placed, steps.shape[2])
        self._log.rearranged(found.line)
        return tuple(torch.from_numpy(array) for array in (found.placed, slots, counts))


def register() -> None:
    """Entry point for SGLang, called in each of its processes. An invalid variable gets one line: SGLang would log an
    exception as pages, and serve as well."""
    global _placing
    wanted = os.environ.get("HOTSET_PLACEMENT")
    if not wanted or _placing:
        return
    _placing = True
    try:
        if wanted != "1":
            raise InvalidArgument(f"HOTSET_PLACEMENT is '{wanted}', accepted: 1; --init-expert-location takes a file of hotset place --format sglang")
        if os.environ.get("HOTSET_PLACEMENT_PROFILE"):
            raise InvalidArgument("HOTSET_PLACEMENT_PROFILE is set, accepted: unset, because SGLang gives its steps")
        given = settings()
        assert given is not None
        version = importlib.metadata.version("sglang")
        if version not in TESTED:
            raise InvalidArgument(f"SGLang {version}, accepted: {', '.join(TESTED)}")
    except (InvalidArgument, ImportError) as bad:
        _log.error("hotset: SGLang's own algorithm places the experts: %s", bad)
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(_TARGET, _Placing(given).rebalance_experts, HookType.AROUND)
