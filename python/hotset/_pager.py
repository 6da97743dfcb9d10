# SPDX-License-Identifier: Apache-2.0
"""The pager: decides for each visit which experts stay."""

from __future__ import annotations

import ctypes
import numbers
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref
from typing import Any, Optional, Union

import numpy
from numpy.typing import NDArray

from hotset._arguments import (
    FLOAT32,
    INT32,
    address_of,
    array_of,
    choice,
    int32,
    int64,
    kind_of,
    request,
    rows_of,
    scope_of,
    shape_of,
    shown,
    text,
    uint32,
    uint64,
    view_of,
)
from hotset._errors import InvalidArgument, PolicyFailed, VisitOpen
from hotset._library import (
    DOES_NOT_FIT,
    NO_VICTIM,
    POLICY_FAILED,
    REMOVED,
    Decisions,
    Handle,
    Held,
    Key,
    PagerOptions,
    Stats,
    fail,
    library,
    refuse,
)
from hotset._policy import EvictionPolicy, called, is_own, raise_first, taken
from hotset._visit import Visit

_BYTES_OF_DECISIONS = ctypes.sizeof(Decisions)

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


def bytes_of(size: Any) -> int:
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


def _sizes_into(options: PagerOptions, slots: Any, expert_bytes: Any, lower_bytes: Any) -> list[Any]:
    """Sets slots and bytes. Returns the arrays that the options refer to."""
    full = _rows("expert_bytes", expert_bytes, 0)
    lower = _rows("lower_bytes", lower_bytes, len(full))
    several = []
    if isinstance(slots, numbers.Integral):
        options.slots = int64("slots", slots)
    elif slots is not None:
        several = [int64("slots", each) for each in _each("slots", slots)]
    if lower:
        options.lower_precisions = len(lower) // max(1, len(full))
        if len(several) != 1 + options.lower_precisions:
            refuse(f"slots: of {len(several)} precisions, accepted: {1 + options.lower_precisions}")
    arrays = []
    for name, of, values in (
        ("expert_bytes", ctypes.c_uint64, full),
        ("lower_bytes", ctypes.c_uint64, lower),
        ("slots_of_precision", ctypes.c_int64, several),
    ):
        if values:
            arrays.append((of * len(values))(*values))
            setattr(options, name, ctypes.addressof(arrays[-1]))
    options.expert_bytes_count = len(full)
    return arrays


def _listener(removed: Callable[[int, int, int, int, int], None], raised: list[BaseException]) -> Any:
    """Keeps the first exception in `raised`: none may pass through the library."""

    def call(_: Any, of: Any) -> None:
        try:
            one = of[0]
            removed(one.key.layer, one.key.expert, one.slot, one.precision, one.last_reader)
        except BaseException as bad:  # also KeyboardInterrupt
            if not raised:
                raised.append(bad)

    return REMOVED(call)


class Pager(Held):
    """Decides which experts stay in which slots.

    It moves no bytes: the program makes the copies that a visit lists.

    layers, experts, top_k: of the model. max_tokens: of one visit.
    slots: per layer, or in total with scope "shared"; or budget: bytes or "6GiB", with
    expert_bytes. With several precisions `slots` is a list, and lower_bytes gives the bytes of the
    lower ones, highest first.
    expert_bytes: one for all layers, or one per layer.
    eviction, admission, miss, routing, pre_eviction: names with parameters, as on the command line:
    "lfu:history=resident", "protect_hot+lru"; eviction may also be an EvictionPolicy of your own.
    Its exceptions are raised by the call that called it. Only `route` applies routing; with pre_eviction
    `expect` frees slots for the next layer.
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
        eviction: Union[str, EvictionPolicy] = "lru",
        admission: str = "always",
        miss: str = "fetch",
        routing: str = "router_order",
        pre_eviction: str = "none",
        removed: Optional[Callable[[int, int, int, int, int], None]] = None,
    ) -> None:
        options = PagerOptions(
            layers=int32("layers", layers),
            experts=int32("experts", experts),
            top_k=int32("top_k", top_k),
            max_tokens=int32("max_tokens", max_tokens),
            budget_bytes=0 if budget is None else bytes_of(budget),
            scope=scope_of(scope),
            split=choice("split", split, ("by_token", "by_expert", "refuse", "leave_rest")),
            guard=choice("guard", guard, ("none", "named", "predicted")),
            eviction=None if is_own(eviction) else text("eviction", eviction),
            admission=text("admission", admission),
            miss=text("miss", miss),
            routing=text("routing", routing),
            pre_eviction=text("pre_eviction", pre_eviction),
        )
        # The options refer to these arrays until the pager is made.
        arrays = _sizes_into(options, slots, expert_bytes, lower_bytes)
        self._raised: list[BaseException] = []
        if removed is not None:
            self._removed = options.removed = _listener(removed, self._raised)
        made = Handle()
        if isinstance(eviction, EvictionPolicy):
            taken(eviction, self)
            self._policy = called(eviction, self._raised, made)
            options.policy = ctypes.addressof(self._policy)
        self._created(options, made)
        del arrays
        self._experts = options.experts
        self._top_k = options.top_k
        self._kept: list[Any] = []
        self._last_layer = -1
        self._step = 0
        self._plans = 0
        self._open = False

    def _created(self, options: PagerOptions, made: Handle) -> None:
        """An exception of the policy's reset is the cause of a pager that was not made."""
        try:
            self._make("pager", options, made)
        except PolicyFailed:
            if self._raised:
                raise_first(self._raised, POLICY_FAILED)
            raise

    def _checked(self, code: int) -> None:
        """Raises the exception of a listener or a policy first: it is the cause."""
        if self._raised:
            raise_first(self._raised, code)
        if code:
            fail(code)

    def _planned(self, code: int, decided: Decisions) -> Visit:
        """A plan that found no slots has overwritten the previous plan's arrays."""
        if code in (0, NO_VICTIM, DOES_NOT_FIT, POLICY_FAILED):
            self._plans += 1
        if code == 0:
            self._open = True
        self._checked(code)
        return Visit(self, decided, self._plans)

    def _ended(self, code: int) -> None:
        """An exception of a listener or a policy does not undo the commit or abort that called it."""
        if code in (0, POLICY_FAILED):
            self._open = False
        self._checked(code)

    def route(self, layer: int, experts: Any, *, logits: Any = None) -> NDArray[Any]:
        """What the routing policy chooses for a visit, int32 [tokens, top_k], -1: none. Plan it in place of the
        router's experts, which then are `chosen`, with gate weights of the router's unchanged scores.

        Raises InvalidVisit, VisitTooLarge, VisitOpen, InvalidArgument.
        """
        view, kept = view_of(int32("layer", layer), self._step, 0, experts, self._top_k, logits=logits, width=self._experts)
        out = numpy.empty((view.tokens, self._top_k), INT32)
        self._checked(library.hotset_route(self._handle, byref(view), out.ctypes.data))
        del kept
        return out

    def plan(
        self,
        layer: int,
        experts: Any,
        *,
        weights: Any = None,
        step: Optional[int] = None,
        kind: str = "decode",
        sequences: Any = None,
        logits: Any = None,
        chosen: Any = None,
    ) -> Visit:
        """Plans a visit: experts, int32 [tokens, top_k] in rank order, -1: none. Then commit or abort.

        weights: float32 [tokens, top_k]; logits: float32 [tokens, experts], for policies that need them.
        chosen: the router's own experts, if these are those of `route`.
        sequences: uint32 [tokens]. step: increasing; if it is not given, one begins when the layer does not rise.
        kind: decode, prefill or verify.
        Raises InvalidVisit, VisitTooLarge, DoesNotFit, NoVictim, VisitOpen, InvalidArgument.
        """
        layer = int32("layer", layer)
        if step is None:
            step = self._step + 1 if layer <= self._last_layer else self._step
        step = uint64("step", step)
        code = 0 if kind == "decode" else kind_of(kind)
        view, kept = view_of(layer, step, code, experts, self._top_k, weights, sequences, logits, self._experts, chosen)
        decided = Decisions(_BYTES_OF_DECISIONS)
        code = library.hotset_plan(self._handle, byref(view), byref(decided))
        if code == 0:
            self._last_layer = layer
            self._step = step
            self._kept = kept  # a visit in groups reads its arrays until the last group
        return self._planned(code, decided)

    def plan_next(self) -> Visit:
        """Plans the next group of the visit. Raises VisitOpen, NoPlan, NoVictim."""
        decided = Decisions(_BYTES_OF_DECISIONS)
        return self._planned(library.hotset_plan_next(self._handle, byref(decided)), decided)

    def commit(self) -> None:
        """Publishes the copies of the open plan. Raises NoPlan."""
        self._ended(library.hotset_commit(self._handle))

    def abort(self, begun: Any = None) -> None:
        """Undoes the open plan. begun: a mark for each fill that may have begun; None: none has. Raises NoPlan,
        InvalidArgument."""
        if begun is None:
            return self._ended(library.hotset_abort(self._handle, None, 0))
        given = numpy.asarray(begun)
        if given.size and given.dtype.kind not in "biu":
            refuse("begun: no whole numbers, accepted: a mark for each fill, or None")
        marks = numpy.ascontiguousarray(given, bool)
        self._ended(library.hotset_abort(self._handle, marks.ctypes.data, marks.size))

    def abandon(self) -> None:
        """Skips the remaining groups of the visit. Raises VisitOpen."""
        self._checked(library.hotset_abandon(self._handle))

    def row(self, layer: int) -> NDArray[Any]:
        """Slot of each expert of the layer, int32 [experts]; -1: not there. It changes when visits are committed."""
        data, count = ctypes.c_void_p(), ctypes.c_size_t()
        self._checked(library.hotset_row(self._handle, int32("layer", layer), byref(data), byref(count)))
        return shown(data.value or 0, count.value, INT32, self._handle)

    def _number(self, of: Any, call: Any, *arguments: Any) -> int:
        out = of()
        self._checked(call(self._handle, *arguments, byref(out)))
        return int(out.value)

    def row_version(self, layer: int) -> int:
        """Increases when the row changes."""
        return self._number(ctypes.c_uint64, library.hotset_row_version, int32("layer", layer))

    def locate(self, layer: int, expert: int) -> int:
        """The expert's slot, or -1. An outstanding copy counts as present."""
        key = Key(int32("layer", layer), int32("expert", expert))
        return self._number(ctypes.c_int32, library.hotset_locate, key)

    def precision(self, slot: int) -> int:
        """Precision that the slot is for; 0 is the highest."""
        return self._number(ctypes.c_int32, library.hotset_precision, int32("slot", slot))

    def pin(self, slot: int) -> int:
        """Prevents eviction of a slot while enqueued work reads it. Pass the result to unpin once."""
        return self._number(ctypes.c_uint64, library.hotset_pin, int32("slot", slot))

    def unpin(self, pin: int, reader: int = 0) -> None:
        """Ends a pin. reader: the engine's number for the work after which the slot is no longer read; 0: none."""
        self._checked(library.hotset_unpin(self._handle, uint64("pin", pin), uint64("reader", reader)))

    def prefetch(self, layer: int, step: int, requests: Any, most: int) -> tuple[Visit, int]:
        """Plans at most `most` copies of requests, hotset.request, best first. Submit the fills, then commit. Report
        each copy with arrived, cancelled or failed. Returns the visit and how many requests were handled, at most as
        many as a visit has experts: call again with the rest."""
        layer, step, most = int32("layer", layer), uint64("step", step), uint64("most", most)
        given = array_of(requests, "requests")
        if given.dtype != request or given.ndim != 1 or not (given.size <= 1 or given.flags.c_contiguous):
            refuse("requests: no row of hotset.request without gaps, accepted: what Prefetcher.propose gives")
        address = address_of(given, "requests", 8)
        decided, consumed = Decisions(_BYTES_OF_DECISIONS), ctypes.c_size_t()
        code = library.hotset_prefetch(
            self._handle, layer, step, address, given.size, most, byref(decided), byref(consumed)
        )
        return self._planned(code, decided), consumed.value

    def expect(self, layer: int, step: int, probabilities: Any) -> None:
        """Tells the eviction policy how likely the router is to choose each expert: float32 [tokens, depth, experts]
        for the `depth` layers after `layer` (-1: before the first layer)."""
        layer, step = int32("layer", layer), uint64("step", step)
        given = array_of(probabilities, "probabilities")
        shape = given.shape
        if given.dtype != FLOAT32 or len(shape) != 3 or shape[2] != self._experts or not given.flags.c_contiguous:
            refuse(
                f"probabilities: {given.dtype} of shape {shape_of(given)},"
                f" accepted: float32 [tokens, depth, {self._experts}] without gaps"
            )
        address, depth = address_of(given, "probabilities", 4), min(shape[1], 2**31 - 1)
        self._checked(library.hotset_expect(self._handle, layer, step, address, shape[0], depth))

    def arrived(self, slot: int, generation: int) -> None:
        """Reports that a speculative copy is complete. Ignored if the slot was used again since."""
        self._reported(library.hotset_arrived, slot, generation)

    def cancelled(self, slot: int, generation: int) -> None:
        """Reports that a speculative copy is not made. Ignored if the slot was used again since."""
        self._reported(library.hotset_cancelled, slot, generation)

    def failed(self, slot: int, generation: int) -> None:
        """Reports any copy as failed: the slot becomes free and no row names it."""
        self._reported(library.hotset_failed, slot, generation)

    def _reported(self, call: Any, slot: int, generation: int) -> None:
        self._checked(call(self._handle, int32("slot", slot), uint32("generation", generation)))

    def invalidate(self, layer: int, expert: int = -1) -> None:
        """Forgets an expert, or its whole layer. Call it before its bytes change or are freed.

        Raises Busy, VisitOpen.
        """
        key = Key(int32("layer", layer), int32("expert", expert))
        self._checked(library.hotset_invalidate(self._handle, key))

    def set_quota(self, layer: int, slots: int) -> None:
        """Sets how many slots the layer's pool may use. Raises Busy, ExceedsMemory, VisitOpen, InvalidArgument."""
        self._checked(library.hotset_set_quota(self._handle, int32("layer", layer), int32("slots", slots)))

    def quota(self, layer: int) -> int:
        """Slots that the layer's pool may use."""
        return self._number(ctypes.c_int32, library.hotset_quota, int32("layer", layer))

    def residents(self) -> NDArray[Any]:
        """The resident keys, int32 [n, 2] of layer and expert, the next victim first."""
        count = self._number(ctypes.c_size_t, library.hotset_residents, None, 0)
        out = numpy.empty((count, 2), INT32)
        self._number(ctypes.c_size_t, library.hotset_residents, out.ctypes.data, count)
        return out

    def plan_warm(self, keys: Any) -> tuple[Visit, int]:
        """Plans copies of keys, int32 [n, 2], into free slots, most wanted last. Returns the visit and how many keys
        were handled: while that is not 0, call again with the rest."""
        _, address, count, stride = rows_of(keys, INT32, 2, "keys")
        if stride > 2:
            refuse("keys: rows that lie apart, accepted: rows without gaps")
        decided, consumed = Decisions(_BYTES_OF_DECISIONS), ctypes.c_size_t()
        code = library.hotset_plan_warm(self._handle, address, count, byref(decided), byref(consumed))
        return self._planned(code, decided), consumed.value

    def stats(self) -> dict[str, int]:
        """Counts since the pager was made."""
        out = Stats(ctypes.sizeof(Stats))
        self._checked(library.hotset_get_stats(self._handle, byref(out)))
        return {field[0]: getattr(out, field[0]) for field in Stats._fields_[1:]}

    def decision_hash(self) -> int:
        """Hash of every fill and eviction so far: equal for two pagers that decided alike."""
        return self._number(ctypes.c_uint64, library.hotset_decision_hash)

    @property
    def step(self) -> int:
        """Step of the last visit."""
        return self._step

    @property
    def is_open(self) -> bool:
        """Whether a plan was neither committed nor aborted."""
        return self._open

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

    def visits(self, layer: int, experts: Any, **of_visit: Any) -> Iterator[Visit]:
        """Yields one visit, or the groups of a visit that does not fit. Commit (or abort) each
        before the next. of_visit: as of plan().

        Leaving the loop early, by `break` or an exception, aborts the open plan and drops the
        remaining groups; all copies of that plan count as begun.
        """
        visit = self.plan(layer, experts, **of_visit)
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
        copy: Optional[Callable[[NDArray[Any]], None]],
        use: Optional[Callable[[Visit], None]],
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

    def warm(self, keys: Any, copy: Callable[[NDArray[Any]], None]) -> None:
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
