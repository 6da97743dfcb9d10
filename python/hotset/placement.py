# SPDX-License-Identifier: Apache-2.0
"""Places experts on the ranks of expert parallelism, by their loads in single steps.

    placed = hotset.placement.place(loads, ranks=8, redundant=16)       # int32 [layers, slots]
    later = hotset.placement.place(newer, ranks=8, redundant=16, start=placed, move_cost=0.0015)

A server's steps are sampled while it runs, and kept for later:

    sample = hotset.placement.StepSample(layers=48, experts=128)
    sample.add(counts_of_step)                                           # integers [layers, experts]
    sample.save("profile.safetensors")
"""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import numpy
from numpy.typing import NDArray

from hotset import _safetensors
from hotset._arguments import int32, shape_of
from hotset._errors import InvalidArgument
from hotset._library import PlaceOptions, check, library, refuse
from hotset._safetensors import Path

__all__ = ["StepSample", "balancedness", "load_steps", "moved", "place"]

_PROFILE = "hotset.placement-profile/1"
_MOST_TOKENS = (1 << 24) - 1  # of an expert in a step of a profile


def _counts(loads: Any) -> NDArray[numpy.uint32]:
    given = numpy.asarray(loads)
    if given.ndim != 3:
        refuse(f"loads: shape {shape_of(given)}, accepted: [steps, layers, experts]")
    if given.dtype.kind not in "iu" and not (given == numpy.round(given)).all():
        refuse("loads: fractions, accepted: whole tokens")
    if given.size and (given.min() < 0 or given.max() > 0xFFFFFFFF):
        refuse(f"loads: {given.min()} to {given.max()}, accepted: 0 to 4294967295")
    return given.astype(numpy.uint32)


def place(
    loads: Any,
    *,
    ranks: int,
    redundant: int = 0,
    nodes: int = 1,
    groups: int = 1,
    start: Optional[Any] = None,
    move_cost: float = 0.0,
    starts: int = 1,
    threads: Optional[int] = None,
) -> NDArray[numpy.int32]:
    """Returns the expert of each slot: int32 [layers, experts + redundant]. Rank r holds an equal part, from r times
    that part on.

    loads: integers [steps, layers, experts], the tokens of each expert in each step.
    redundant: slots beyond one for each expert, in all ranks together.
    nodes, groups: groups of a router that sends a token to few groups stay in one node.
    start: [layers, slots] to begin with. Experts that stay on their rank stay in their slot.
    move_cost: price of an expert that moves, as a share of a rank's mean load. Needs a start.
    starts: number of searches. threads: layers at once; default: the processors.
    Every machine returns the same result for the same loads. Releases the interpreter lock. Raises InvalidArgument.
    """
    counts = _counts(loads)
    _, layers, experts = counts.shape
    slots = experts + int32("redundant", redundant)
    begin: Optional[NDArray[numpy.int32]] = None
    if start is not None:
        begin = numpy.ascontiguousarray(start, numpy.int32)
        if begin.shape != (layers, slots):
            refuse(f"start: shape {shape_of(begin)}, accepted: [{layers}, {slots}]")
    if not 0 <= move_cost <= 1:
        refuse(f"move_cost = {move_cost}, accepted: 0 to 1")
    if threads is not None and threads < 1:
        refuse(f"threads = {threads}, accepted: 1 or more")
    out = numpy.empty((layers, max(slots, 0)), numpy.int32)

    def place_layer(layer: int) -> None:
        own = numpy.ascontiguousarray(counts[:, layer])
        options = PlaceOptions(
            struct_size=ctypes.sizeof(PlaceOptions),
            experts=experts,
            ranks=int32("ranks", ranks),
            redundant=redundant,
            nodes=int32("nodes", nodes),
            groups=int32("groups", groups),
            move_cost=round(move_cost * 1e6),
            starts=int32("starts", starts),
            start=None if begin is None else begin[layer].ctypes.data,
        )
        check(library.hotset_place(ctypes.byref(options), own.ctypes.data, len(own), out[layer].ctypes.data, out.shape[1]))

    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        list(pool.map(place_layer, range(layers)))
    return out


def _ranks(placed: Any, ranks: int) -> NDArray[Any]:
    given = numpy.asarray(placed)
    if given.ndim != 2 or ranks < 1 or given.shape[1] % ranks:
        raise InvalidArgument(f"a placement {shape_of(given)} on {ranks} ranks, accepted: [layers, slots], which the ranks divide", 10)
    return given.reshape(len(given), ranks, -1)


def moved(before: Any, after: Any, *, ranks: int) -> int:
    """Number of experts, in all layers, that a rank holds after and not before. Raises InvalidArgument."""
    total = 0
    for old, new in zip(_ranks(before, ranks), _ranks(after, ranks)):
        total += sum(len(set(b.tolist()) - set(a.tolist())) for a, b in zip(old, new))
    return total


def balancedness(loads: Any, placed: Any, *, ranks: int) -> float:
    """Mean load of a rank divided by the fullest rank's, summed over steps and layers; 1: balanced. Replicas share the
    tokens evenly. loads: [steps, layers, experts]. Raises InvalidArgument."""
    counts = _counts(loads)
    mean = fullest = 0.0
    for layer, row in enumerate(_ranks(placed, ranks)):
        slots = row.ravel()
        replicas = numpy.bincount(slots, minlength=counts.shape[2])
        of_ranks = (counts[:, layer][:, slots] / replicas[slots]).reshape(len(counts), ranks, -1).sum(2)
        mean += of_ranks.mean(1).sum()
        fullest += of_ranks.max(1).sum()
    return mean / fullest if fullest else 1.0


def _below(step: int, bound: int) -> int:
    """A number below `bound` that follows from the number of the step (splitmix64): every machine draws the same."""
    mask = (1 << 64) - 1
    value = (step + 1) * 0x9E3779B97F4A7C15 & mask
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & mask
    value = (value ^ value >> 27) * 0x94D049BB133111EB & mask
    return (value ^ value >> 31) * bound >> 64


class StepSample:
    """Counts of some steps, all steps alike, beside the sums of all: a day of a server in the memory of `steps` steps.

    The number of a step alone decides whether it is kept. Ranks that count the same steps keep the same ones.
    """

    def __init__(self, layers: int, experts: int, steps: int = 100) -> None:
        """steps: most steps to keep. Raises InvalidArgument."""
        for name, value in (("layers", layers), ("experts", experts), ("steps", steps)):
            if int32(name, value) < 1:
                refuse(f"{name} = {value}, accepted: 1 or more")
        self.seen = 0
        """Number of steps that were added."""
        self.sums: NDArray[numpy.uint64] = numpy.zeros((layers, experts), numpy.uint64)
        """Tokens of all steps: uint64 [layers, experts]."""
        self._kept = numpy.zeros((steps, layers, experts), numpy.uint32)
        self._numbers: list[int] = []

    def add(self, step_counts: Any) -> None:
        """Adds one step: integers [layers, experts], the tokens of each expert. A step without tokens counts, too.
        Raises InvalidArgument."""
        given = numpy.asarray(step_counts)
        if given.shape != self.sums.shape:
            refuse(f"step_counts: shape {shape_of(given)}, accepted: {shape_of(self.sums)}")
        counts = _counts(given[None])[0]
        if counts.max() > _MOST_TOKENS:
            refuse(f"step_counts: {counts.max()}, accepted: 0 to {_MOST_TOKENS}")
        number = self.seen
        self.seen += 1
        self.sums += counts
        # The n-th step is kept with probability steps / n, in place of any that was kept before (Vitter's algorithm R).
        if number < len(self._kept):
            place = number
            self._numbers.append(number)
        else:
            place = _below(number, self.seen)
            if place >= len(self._kept):
                return
            self._numbers[place] = number
        self._kept[place] = counts

    @property
    def numbers(self) -> list[int]:
        """Numbers of the kept steps, the first step that was added is 0; ascending."""
        return sorted(self._numbers)

    @property
    def steps(self) -> NDArray[numpy.uint32]:
        """Counts of the kept steps, in order: uint32 [steps, layers, experts], a copy."""
        return self._kept[numpy.argsort(self._numbers)]

    def save(self, path: Path) -> None:
        """Writes a profile, as `hotset place --profile` does. Raises InvalidArgument without a step, CannotWrite."""
        if self.seen == 0:
            refuse("no step was added, accepted: one or more")
        _safetensors.save(path, {"format": _PROFILE}, {"steps": self.steps})


def load_steps(path: Path) -> NDArray[numpy.uint32]:
    """Reads the profile that `hotset place --profile` or StepSample wrote: uint32 [steps, layers, experts]. Raises
    InvalidArgument, OSError."""
    accepted = "a profile of hotset place --profile"
    arrays, facts = _safetensors.load(path, accepted)
    steps = arrays.get("steps")
    if facts.get("format") != _PROFILE or steps is None or steps.ndim != 3 or steps.dtype != numpy.uint32 or 0 in steps.shape:
        refuse(f"{path}: no profile, accepted: {accepted}")
    if steps.max() > _MOST_TOKENS:
        refuse(f"{path}: an expert with {steps.max()} tokens in a step, accepted: at most {_MOST_TOKENS}")
    return numpy.array(steps)
