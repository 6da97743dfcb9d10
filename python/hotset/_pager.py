# SPDX-License-Identifier: Apache-2.0
"""The pager: who stays, visit by visit."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional, Union

import numpy

from hotset import _hotset
from hotset._errors import InvalidArgument, VisitOpen

_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_MOST = 2**64 - 1


def bytes_of(size: Union[int, str]) -> int:
    """Bytes of a number, or of a text such as "1.5GiB" or "4096". Raises InvalidArgument."""
    value = _whole_bytes(size)
    if value is None or not 0 <= value <= _MOST:
        raise InvalidArgument(f"size: {size!r}, accepted: a number of bytes below 2^64, or one with {', '.join(_UNITS)}")
    return value


def _whole_bytes(size: Any) -> Optional[int]:
    if isinstance(size, numbers.Integral):
        return int(size)
    if not isinstance(size, str):
        return None
    number = size.rstrip("BkMGTKi")
    unit = _UNITS.get(size[len(number) :], 0)
    try:
        if size.isdecimal():
            return int(size)
        return int(float(number) * unit) if unit else None
    except (ValueError, OverflowError):  # no number, NaN or infinite, or a text of too many digits
        return None


def _rows(name: str, given: Any, columns: int) -> list[int]:
    """Numbers for all layers, or one for each, of one precision after another."""
    if given is None:
        return []
    flat = [bytes_of(given)] if isinstance(given, (numbers.Integral, str)) else [bytes_of(b) for b in _each(name, given)]
    if columns and len(flat) % columns:
        raise InvalidArgument(f"{name}: {len(flat)} numbers, accepted: a multiple of {columns}")
    return flat


def _each(name: str, given: Any) -> list[Any]:
    try:
        return list(given)
    except TypeError:
        raise InvalidArgument(f"{name}: {given!r}, accepted: a number, or several") from None


class Pager(_hotset.Pager):
    """Decides which experts stay in which slots. It moves no bytes: the program makes the copies that a visit names.

    layers, experts, top_k: of the model. max_tokens: of one visit.
    slots: of each layer, or of all with scope "shared"; or budget, bytes or "6GiB", with expert_bytes. Of several precisions
    `slots` is a list, and lower_bytes the bytes of the lower ones, highest first.
    expert_bytes: one for all layers, or one for each.
    eviction, admission, miss: by name with parameters, as on the command line: "lfu:history=resident", "protect_hot+lru".
    departed(layer, expert, slot, precision, last_reader): called for each expert that loses its slot, in the call that takes the slot; it
    must not call the pager. What it raises comes out of that call, whose work is done all the same.

    One thread at a time; no call releases the interpreter, since none is longer than a fraction of a copy.
    Raises InvalidConfig, InvalidArgument.
    """

    def __init__(
        self,
        layers: int,
        experts: int,
        top_k: int,
        *,
        max_tokens: int = 1,
        slots: Union[int, Sequence[int], None] = None,
        budget: Union[int, str, None] = None,
        expert_bytes: Union[int, str, Sequence[int], None] = None,
        lower_bytes: Union[int, Sequence[int], None] = None,
        scope: str = "per_layer",
        split: str = "by_token",
        guard: str = "named",
        eviction: str = "lru",
        admission: str = "always",
        miss: str = "fetch",
        departed: Optional[Callable[[int, int, int, int, int], None]] = None,
    ) -> None:
        full = _rows("expert_bytes", expert_bytes, 0)
        lower = _rows("lower_bytes", lower_bytes, len(full))
        several = [] if slots is None or isinstance(slots, numbers.Integral) else _each("slots", slots)
        super().__init__(
            layers,
            experts,
            top_k,
            max_tokens,
            int(slots) if isinstance(slots, numbers.Integral) else 0,
            0 if budget is None else bytes_of(budget),
            _hotset.Numbers(full, lower, several),
            scope,
            split,
            guard,
            eviction,
            admission,
            miss,
            departed,
        )

    @property
    def slots(self) -> int:
        """Of all pools: what a bank has rows for."""
        count = 0
        try:
            while True:
                self.precision(count)
                count += 1
        except InvalidArgument:
            return count

    def visits(
        self,
        layer: int,
        experts: Any,
        *,
        weights: Any = None,
        step: Optional[int] = None,
        kind: str = "decode",
        sequences: Any = None,
        logits: Any = None,
    ) -> Iterator[_hotset.Visit]:
        """One visit, or the groups of one that does not fit. Commit (or abort) each before the next.

        A loop that is left early, by `break` or an exception, undoes the plan that is open and gives the groups up that are left: all
        copies of that plan count as begun.
        """
        visit = self.plan(
            layer,
            experts,
            weights=weights,
            step=step,
            kind=kind,
            sequences=sequences,
            logits=logits,
        )
        whole = False
        try:
            while True:
                more = visit.more
                yield visit
                if self.is_open:
                    raise VisitOpen("the visit was neither committed nor aborted")
                if not more:
                    whole = True
                    return
                visit = self.plan_next()
        finally:
            if not whole:
                if self.is_open:
                    self.abort(numpy.ones(visit.fill_count, numpy.uint8))
                self.abandon()

    def serve(
        self,
        layer: int,
        experts: Any,
        copy: Optional[Callable[[numpy.ndarray], None]],
        use: Optional[Callable[[_hotset.Visit], None]],
        **of_visit: Any,
    ) -> None:
        """A whole visit: for each group copy(fills), then, once it is committed, use(visit). What either raises ends the visit and
        comes out; a copy that fails leaves no row that names its slot."""
        for visit in self.visits(layer, experts, **of_visit):
            if copy is not None and visit.fill_count:
                copy(visit.fills)
            visit.commit()
            if use is not None:
                use(visit)

    def warm(self, keys: Any, copy: Callable[[numpy.ndarray], None]) -> None:
        """Fills free slots with keys, int32 [n, 2] of layer and expert, the last one wanted most."""
        left = numpy.ascontiguousarray(keys, numpy.int32)
        while len(left):
            visit, consumed = self.plan_warm(left)
            try:
                if visit.fill_count:
                    copy(visit.fills)
            except BaseException:
                visit.abort(numpy.ones(visit.fill_count, numpy.uint8))
                raise
            begun = list(zip(visit.fills["slot"].tolist(), visit.fills["generation"].tolist()))
            visit.commit()
            for slot, generation in begun:
                self.arrived(slot, generation)
            if consumed == 0:
                return
            left = left[consumed:]
