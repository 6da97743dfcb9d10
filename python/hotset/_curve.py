# SPDX-License-Identifier: Apache-2.0
"""Misses at every number of slots, and the division of bytes by them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref
from typing import Any, Optional

import numpy
from numpy.typing import NDArray

from hotset._arguments import int32, scope_of, shape_of, uint64, view_of
from hotset._library import CurveOptions, Held, MemoryConsumer, check, library, refuse


class Curve(Held):
    """Counts the misses of LRU at every number of slots, exactly, from the visits that it is shown.

    scope: "shared", one curve for all layers (layer 0), or "per_layer".
    Raises InvalidConfig, InvalidArgument.
    """

    def __init__(self, layers: int, experts: int, top_k: int, max_tokens: int = 1, scope: str = "shared") -> None:
        options = CurveOptions(
            layers=int32("layers", layers),
            experts=int32("experts", experts),
            top_k=int32("top_k", top_k),
            max_tokens=int32("max_tokens", max_tokens),
            scope=scope_of(scope),
        )
        self._make("curve", options)
        self._top_k = options.top_k
        self._last_layer = -1
        self._step = 0

    def observe(self, layer: int, experts: Any, step: Optional[int] = None) -> None:
        """Adds a visit: int32 [tokens, top_k]. If no step is given, one begins when the layer does not rise."""
        layer = int32("layer", layer)
        if step is None:
            step = self._step + 1 if layer <= self._last_layer else self._step
        step = uint64("step", step)
        view, kept = view_of(layer, step, 0, experts, self._top_k)
        check(library.hotset_curve_observe(self._handle, byref(view)))
        self._last_layer, self._step = layer, step

    def misses(self, slots: int, layer: int = 0) -> float:
        """Misses of a step on average, first uses included."""
        out = ctypes.c_double()
        check(library.hotset_curve_misses(self._handle, int32("layer", layer), uint64("slots", slots), byref(out)))
        return out.value

    def most_slots(self, layer: int = 0) -> int:
        """Number of slots from which on more slots change nothing."""
        out = ctypes.c_size_t()
        check(library.hotset_curve_most_slots(self._handle, int32("layer", layer), byref(out)))
        return out.value

    def table(self, layer: int = 0) -> NDArray[Any]:
        """misses(0), misses(1), ... misses(most_slots()), for a Consumer."""
        return numpy.array([self.misses(slots, layer) for slots in range(self.most_slots(layer) + 1)])


class Consumer:
    """A part of the engine that wants memory, for hotset.divide: a layer's experts, KV blocks, adapters.

    misses: [n] misses of a step with 0, 1, ... units, never rising, such as Curve.table().
    unit_bytes: of a slot, block or page. min_units: below it the engine does not run.
    max_units: 0 for as many as help.
    Raises InvalidArgument.
    """

    def __init__(self, misses: Any, unit_bytes: int, seconds_per_miss: float, min_units: int = 0, max_units: int = 0) -> None:
        table = numpy.asarray(misses, float)
        if table.ndim != 1:
            refuse(f"misses: shape {shape_of(table)}, accepted: [units + 1]")
        self._unit_bytes = uint64("unit_bytes", unit_bytes)
        self._seconds_per_miss = float(seconds_per_miss)
        self._min_units = uint64("min_units", min_units)
        self._max_units = uint64("max_units", max_units)
        self._misses = numpy.ascontiguousarray(table)

    def _struct(self) -> MemoryConsumer:
        table = self._misses
        return MemoryConsumer(
            table.ctypes.data,
            table.size,
            self._unit_bytes,
            self._seconds_per_miss,
            self._min_units,
            self._max_units,
        )


def divide(consumers: Sequence[Consumer], total_bytes: int) -> tuple[list[int], float]:
    """Divides bytes so that the next byte saves the same time for every consumer.

    Returns the units of each consumer, and the total seconds of all misses. Raises ExceedsMemory, InvalidArgument.
    """
    given = list(consumers)
    for one in given:
        if not isinstance(one, Consumer):
            raise TypeError(f"consumers: {type(one).__name__}, accepted: Consumer")
    structs = (MemoryConsumer * len(given))(*(one._struct() for one in given))
    units = (ctypes.c_uint64 * len(given))()
    seconds = ctypes.c_double()
    check(library.hotset_divide(structs, len(given), uint64("total_bytes", total_bytes), units, byref(seconds)))
    return list(units), seconds.value
