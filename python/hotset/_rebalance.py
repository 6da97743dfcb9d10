# SPDX-License-Identifier: Apache-2.0
"""Places a model's experts again while an engine serves it. Each rank of an engine decides alone, so all results follow
from the engine's integers by integers only: ranks with the same files and the same library get the same bits."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import numpy
from numpy.typing import NDArray

from hotset import placement
from hotset._errors import InvalidArgument

# Steps to place by. More take longer and hardly place better.
_MOST_STEPS = 200
_UNIT = 64  # of loads with deviations, in a token
_ROOT_BITS = 10  # fraction bits of square roots

Array = NDArray[Any]


@dataclass(frozen=True)
class PlacementFile:
    """A file of `hotset place --format vllm`."""

    path: str
    experts: int
    ranks: int
    rows: NDArray[numpy.int64]
    """[layers, slots]: expert of each slot."""

    @staticmethod
    def load(path: str) -> PlacementFile:
        """Raises InvalidArgument."""
        try:
            with open(path, encoding="utf-8") as file:
                held = json.load(file)
            if held["schema"] != "hotset.placement/1":
                raise ValueError(f"schema {held['schema']!r}")
            layers = held["physical_to_logical_map"]
            if len({len(row) for row in layers}) != 1:
                raise ValueError("no layer, or layers with different numbers of slots")
            rows = numpy.array(layers)
            experts, ranks = int(held["experts"]), int(held["ranks"])
            if rows.ndim != 2 or rows.dtype.kind != "i" or ranks < 1 or rows.shape[1] % ranks:
                raise ValueError(f"rows {list(rows.shape)} of {rows.dtype} on {ranks} ranks")
            for layer, row in enumerate(rows):
                if set(row.tolist()) != set(range(experts)):
                    raise ValueError(f"layer {layer} does not hold the experts 0 to {experts - 1}")
        except OSError as bad:
            raise InvalidArgument(f"{path}: {bad.strerror or bad}, accepted: a file of hotset place") from bad
        except KeyError as bad:
            raise InvalidArgument(f"{path}: no {bad}, accepted: a file of hotset place --format vllm") from bad
        except (ValueError, TypeError) as bad:
            raise InvalidArgument(f"{path}: {bad}, accepted: a file of hotset place --format vllm") from bad
        return PlacementFile(path, experts, ranks, rows.astype(numpy.int64))


@dataclass(frozen=True)
class Settings:
    """The variables of HOTSET_PLACEMENT."""

    file: Optional[PlacementFile] = None
    profile: Optional[NDArray[numpy.int64]] = None
    """[steps, layers, experts] that were recorded earlier."""
    move_cost: float = 0.0015


def settings() -> Optional[Settings]:
    """Reads HOTSET_PLACEMENT, HOTSET_PLACEMENT_PROFILE and HOTSET_PLACEMENT_MOVE_COST; None if the first is unset.
    Raises InvalidArgument."""
    wanted = os.environ.get("HOTSET_PLACEMENT")
    if not wanted:
        return None
    try:
        file = None if wanted == "1" else PlacementFile.load(wanted)
    except InvalidArgument as bad:
        raise InvalidArgument(f"HOTSET_PLACEMENT is '{wanted}': {bad}, or 1") from bad
    cost = os.environ.get("HOTSET_PLACEMENT_MOVE_COST") or str(Settings.move_cost)
    try:
        move_cost = float(cost)
    except ValueError:
        move_cost = math.nan
    if not 0 <= move_cost <= 1:
        raise InvalidArgument(f"HOTSET_PLACEMENT_MOVE_COST is '{cost}', accepted: 0 to 1, a share of a rank's load")
    profile = os.environ.get("HOTSET_PLACEMENT_PROFILE")
    steps = None
    if profile:
        try:
            steps = placement.load_steps(profile).astype(numpy.int64)
        except (InvalidArgument, OSError) as bad:
            raise InvalidArgument(f"HOTSET_PLACEMENT_PROFILE: {bad}") from bad
    if file is not None and steps is not None and steps.shape[1:] != (len(file.rows), file.experts):
        shape = f"{steps.shape[1]} layers x {steps.shape[2]} experts"
        raise InvalidArgument(f"HOTSET_PLACEMENT_PROFILE: {profile}: {shape}, accepted: {len(file.rows)} x {file.experts}, as {file.path}")
    return Settings(file, steps, move_cost)


def with_deviations(sums: Array, profile: NDArray[numpy.int64]) -> Array:
    """Steps [steps, layers, experts] whose means are proportional to `sums` [layers, experts]. They deviate from the
    means as the profile's steps do from theirs, in units of the square root of the mean: deviations of counts grow so.

    An engine's sums do not tell how many steps they are of: the steps get the size of the profile's.
    """
    steps = len(profile)
    recorded = profile.sum(0)
    means, roots = numpy.zeros_like(recorded), numpy.zeros_like(recorded)
    for layer, (now, then) in enumerate(zip(sums.tolist(), recorded.tolist())):
        total = sum(now)
        size = sum(then) or total  # of all steps
        if total == 0:
            continue
        means[layer] = [_UNIT * n * size // (total * steps) for n in now]
        # Root of the two means' quotient. Rare experts, below .05 tokens a step, would get giant ones.
        roots[layer] = [math.isqrt((20 * n * size << 2 * _ROOT_BITS) // (total * max(20 * t, steps))) for n, t in zip(now, then)]
    deviations = (_UNIT * profile - _UNIT * recorded // steps) * roots >> _ROOT_BITS
    counts: Array = numpy.clip(means + deviations, 0, 0xFFFFFFFF)
    return counts


def _in_32_bits(loads: Array) -> Array:
    """Loads, all halved until the largest fits."""
    halved: Array = loads >> max(0, int(loads.max(initial=0)).bit_length() - 32)
    return halved


def engine_start(experts: int, slots: int) -> Array:
    """The row that engines begin with: the experts in order, then again from the first on."""
    return numpy.arange(slots) % experts


def _whole(given: Any, what: str, ndim: int) -> NDArray[numpy.int64]:
    array = numpy.asarray(given)
    if array.ndim != ndim or array.dtype.kind not in "iu" or 0 in array.shape:
        raise InvalidArgument(f"{what}: {array.dtype} {list(array.shape)}")
    if array.min() < 0:
        raise InvalidArgument(f"{what}: {array.min()}, as in elastic expert parallelism")
    return array.astype(numpy.int64)


def _keeps_groups(rows: Array, experts: int, nodes: int, groups: int) -> bool:
    """Whether all experts of a group are in one node. False if groups or nodes are uneven: place() refuses these."""
    if experts % groups or numpy.shape(rows)[1] % nodes:
        return False
    of_slots = numpy.asarray(rows).reshape(len(rows), nodes, -1) // (experts // groups)
    held = (of_slots[..., None] == numpy.arange(groups)).any(2)  # [layers, nodes, groups]
    return bool((held.sum(1) == 1).all())


@dataclass(frozen=True)
class Rearrangement:
    """The result for an engine, and its description for the log."""

    placed: NDArray[numpy.int64]
    line: str


def by_steps(
    steps: Any, old: Optional[Any], slots: int, ranks: int, nodes: int, groups: int, move_cost: float, scored: Optional[Any] = None
) -> Rearrangement:
    """Places by integers [steps, layers, experts], from `old` [layers, slots] on. groups: of the router; 1 if it has
    none. scored: loads for the description, default: the steps. Raises InvalidArgument."""
    loads = _whole(steps, "loads", 3)
    loads = loads[loads.any((1, 2))]
    loads = loads[[n * len(loads) // _MOST_STEPS for n in range(_MOST_STEPS)]] if len(loads) > _MOST_STEPS else loads
    _, layers, experts = loads.shape
    if ranks < 1 or slots % ranks or slots < experts:
        raise InvalidArgument(f"{slots} slots on {ranks} ranks")
    start = None if old is None else _checked(old, layers, slots, experts)
    threads = max(1, (os.cpu_count() or 1) * nodes // ranks)  # other ranks of the node place, too
    # Like the engines' own policies, which then balance all ranks alike.
    if groups < 2 or nodes < 2 or groups % nodes:
        nodes = groups = 1
    if start is not None and len(loads) == 0:
        return Rearrangement(start, "")
    begin = start
    # The search never moves an expert to another node.
    if start is not None and groups > 1 and not _keeps_groups(start, experts, nodes, groups):
        begin = None
    found = placement.place(
        _in_32_bits(loads),
        ranks=ranks,
        redundant=slots - experts,
        nodes=nodes,
        groups=groups,
        start=begin,
        move_cost=0.0 if begin is None else move_cost,
        threads=threads,
    ).astype(numpy.int64)
    return described(start, found, loads if scored is None else scored, ranks)


def _checked(old: Any, layers: int, slots: int, experts: int) -> NDArray[numpy.int64]:
    rows = _whole(old, "the engine's map", 2)
    if rows.shape != (layers, slots) or rows.max() >= experts:
        raise InvalidArgument(f"the engine's map: {list(rows.shape)} up to {rows.max()}, with {layers} layers, {slots} slots, {experts} experts")
    return rows


def described(old: Optional[Array], placed: NDArray[numpy.int64], loads: Array, ranks: int) -> Rearrangement:
    """loads: [steps, layers, experts]."""
    small = _in_32_bits(loads)
    after = placement.balancedness(small, placed, ranks=ranks)
    if old is None:
        return Rearrangement(placed, f"balancedness {after:.4f}")
    before = placement.balancedness(small, old, ranks=ranks)
    return Rearrangement(placed, f"{placement.moved(old, placed, ranks=ranks)} experts move, balancedness {before:.4f} -> {after:.4f}")


def by_sums(given: Settings, sums: Any, old: Any, slots: int, ranks: int, nodes: int, groups: int) -> Rearrangement:
    """Places by integers [layers, experts], the tokens of all steps. From the engine's start it goes to the file's
    placement, if there is one. Raises InvalidArgument."""
    totals = _whole(sums, "loads", 2)
    layers, experts = totals.shape
    file, profile = given.file, given.profile
    if file is not None and (file.rows.shape != (layers, slots) or (file.experts, file.ranks) != (experts, ranks)):
        theirs = f"{len(file.rows)} layers, {file.experts} experts in {file.rows.shape[1]} slots on {file.ranks} ranks"
        raise InvalidArgument(f"{file.path}: {theirs}; the model: {layers}, {experts} in {slots} on {ranks}")
    if profile is not None and profile.shape[1:] != (layers, experts):
        raise InvalidArgument(f"the profile: {profile.shape[1]} layers x {profile.shape[2]} experts; the model: {layers} x {experts}")
    before = _checked(old, layers, slots, experts)
    # vLLM also asks without loads, to reserve memory: nothing moves.
    if not totals.any():
        return Rearrangement(before, "")
    if file is not None and (before == engine_start(experts, slots)).all() and (file.rows != before).any():
        found = described(before, file.rows, totals[None], ranks)
        return Rearrangement(found.placed, f"{found.line}, to {file.path}")
    steps = totals[None] if profile is None else with_deviations(totals, profile)
    return by_steps(steps, before, slots, ranks, nodes, groups, given.move_cost, scored=totals[None])


class Log:
    """Writes lines of one rank, and each reason once."""

    def __init__(self, log: logging.Logger, is_first_rank: Callable[[], bool]) -> None:
        self._log = log
        self._is_first_rank = is_first_rank
        self._said: set[str] = set()

    def rearranged(self, line: str) -> None:
        if line and self._is_first_rank():
            self._log.info("hotset: %s", line)

    def fell_back(self, reason: object) -> None:
        text = str(reason)
        if text in self._said:
            return
        self._said.add(text)
        if self._is_first_rank():
            self._log.warning("hotset: the engine's own policy places the experts: %s", text)
