# SPDX-License-Identifier: Apache-2.0
"""The pager: decides for each visit which experts stay."""

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
    """Returns the bytes of a number, or of a text such as "1.5GiB" or "4096". Raises
    InvalidArgument."""
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
    # Not a number, NaN or infinite, or a text with too many digits.
    except (ValueError, OverflowError):
        return None


def _rows(name: str, given: Any, columns: int) -> list[int]:
    """Numbers common to all layers, or one per layer, for one precision after another."""
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
    """Decides which experts stay in which slots.

    It moves no bytes: the program makes the copies that a visit lists.

    layers, experts, top_k: of the model. max_tokens: of one visit.
    slots: per layer, or in total with scope "shared"; or budget: bytes or "6GiB", with
    expert_bytes. With several precisions `slots` is a list, and lower_bytes gives the bytes of the
    lower ones, highest first.
    expert_bytes: one for all layers, or one per layer.
    eviction, admission, miss: names with parameters, as on the command line:
    "lfu:history=resident", "protect_hot+lru".
    removed(layer, expert, slot, precision, last_reader): called for each expert that loses its
    slot, within the call that takes the slot; it must not call the pager. Its exception is raised
    by that call, after the call's work is done.

    One thread at a time; no call releases the interpreter lock, because each takes only a fraction
    of a copy's time.
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
        removed: Optional[Callable[[int, int, int, int, int], None]] = None,
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
            removed,
        )

    @property
    def slots(self) -> int:
        """Slots of all pools: the number of rows that a bank needs."""
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
        """Yields one visit, or the groups of a visit that does not fit. Commit (or abort) each
        before the next.

        Leaving the loop early, by `break` or an exception, aborts the open plan and drops the
        remaining groups; all copies of that plan count as begun.
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
        """Serves a whole visit: for each group copy(fills), then, after the commit, use(visit). An
        exception of either ends the visit and is raised; after a failed copy no row names its slot.
        """
        for visit in self.visits(layer, experts, **of_visit):
            if copy is not None and visit.fill_count:
                copy(visit.fills)
            visit.commit()
            if use is not None:
                use(visit)

    def warm(self, keys: Any, copy: Callable[[numpy.ndarray], None]) -> None:
        """Fills free slots with keys, int32 [n, 2] of layer and expert, most wanted last."""
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
