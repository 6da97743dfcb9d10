# SPDX-License-Identifier: Apache-2.0
"""Eviction policies of one's own, behind the library's callbacks."""

from __future__ import annotations

import ctypes
import struct
import weakref
from typing import Any, NoReturn, Optional

import numpy
from numpy.typing import NDArray

from hotset import _library
from hotset._arguments import INT32, fill, shown
from hotset._errors import InvalidConfig
from hotset._library import POLICY_FAILED, error_of

_BYPASS = numpy.dtype(
    {
        "names": ["expert", "weight"],
        "formats": ["i4", "f8"],
        "offsets": [_library.Bypass.expert.offset, _library.Bypass.weight.offset],
        "itemsize": ctypes.sizeof(_library.Bypass),
    }
)
_CODES = {ctypes.c_size_t: "N", ctypes.c_int32: "i", ctypes.c_uint64: "Q", ctypes.c_void_p: "P"}


class _Window:
    """An array of the library's memory. The same memory is shown again and again, so its array is made once."""

    __slots__ = ("_address", "_array", "_of", "_owner")

    def __init__(self, of: numpy.dtype[Any], owner: Any) -> None:
        self._of = of
        self._owner = owner
        self._address = -1
        self._array: NDArray[Any] = numpy.empty(0, of)

    def __call__(self, address: int, count: int) -> NDArray[Any]:
        if address != self._address or count > len(self._array):
            if count == 0:
                return self._array[:0]
            self._array = shown(address, count, self._of, self._owner)
            self._address = address
        return self._array[:count]


class _Shown:
    """What a callback receives: a struct of the library, read when the callback begins. Its arrays are read-only
    views, valid during the call: copy what the policy keeps."""

    __slots__ = ("_address", "_memory", "_read", "_size", "_values", "_windows")
    _of: Any
    _arrays: dict[str, Any] = {}

    def __init__(self, owner: Any) -> None:
        codes = "".join(_CODES[kind] for _, kind in self._of._fields_)
        self._read = struct.Struct("@" + codes).unpack_from
        self._size = ctypes.sizeof(self._of)
        self._windows = {name: _Window(numpy.dtype(of), owner) for name, of in self._arrays.items()}
        self._address = -1
        self._memory: Any = None
        self._values: tuple[int, ...] = ()

    def _load(self, address: int) -> None:
        if address != self._address:
            byte: Any = ctypes.c_char
            self._memory = (byte * self._size).from_address(address)
            self._address = address
        self._values = self._read(self._memory)


def _place(of: Any, name: str) -> int:
    return [field[0] for field in of._fields_].index(name)


def _number(of: Any, name: str, what: str) -> Any:
    at = _place(of, name)
    return property(lambda self: self._values[at], doc=what)


def _array(of: Any, name: str, count: str, what: str) -> Any:
    at, many = _place(of, name), _place(of, count)
    return property(lambda self: self._windows[name](self._values[at], self._values[many]), doc=what)


class PolicyLayout:
    """The slots that a policy chooses from.

    layers, experts, top_k: of the model. slots: in all pools. pool_slots: int32 [pools] of each pool; one pool if all
    layers share their slots. keys: int32 [slots, 2], layer and expert in each slot, -1: none. It is a view that
    changes before each callback.
    """

    def __init__(self, given: Any, owner: Any) -> None:
        self.layers = int(given.layers)
        self.experts = int(given.experts)
        self.top_k = int(given.top_k)
        self.slots = int(given.slots)
        self.pools = int(given.pools)
        self.pool_slots: NDArray[Any] = shown(given.pool_slots, self.pools, INT32, None).copy()
        self.keys: NDArray[Any] = shown(given.keys, 2 * self.slots, INT32, owner).reshape(self.slots, 2)


class VisitEvent(_Shown):
    """A visit that took place: one layer of one step, or a group of its tokens if it did not fit."""

    __slots__ = ("_width",)
    _width: int
    _of = _library.VisitEvent
    _arrays = {"experts": "i4", "slots": "i4", "weights": "f8", "fills": fill, "bypassed": _BYPASS, "counted": "u1"}

    layer = _number(_of, "layer", "The layer.")
    pool = _number(_of, "pool", "The pool of its slots.")
    step = _number(_of, "step", "The step.")
    kind = _number(_of, "kind", "0 decode, 1 prefill, 2 verify.")
    experts = _array(_of, "experts", "count", "int32 [n]: distinct experts with a slot, in the order of last use.")
    slots = _array(_of, "slots", "count", "int32 [n]: their slots.")
    fills = _array(
        _of, "fills", "fill_count", "hotset.fill: the experts that were copied, in the same order, with the victims they overwrote."
    )
    bypassed = _array(_of, "bypassed", "bypassed_count", "Experts used without a slot, with `weight`.")

    @property
    def weights(self) -> Optional[NDArray[Any]]:
        """float64 [n]: sum of each expert's gate weights, or None without needs_weights."""
        address = self._values[_WEIGHTS]
        return self._windows["weights"](address, self._values[_COUNT]) if address else None

    @property
    def counted(self) -> Optional[NDArray[Any]]:
        """uint8 [experts of a layer]: 1 if an earlier group of the same visit used the expert; None: it is the first."""
        address = self._values[_COUNTED]
        return self._windows["counted"](address, self._width) if address else None

    def __repr__(self) -> str:
        return f"<visit of layer {self.layer} by experts {self.experts.tolist()}, step {self.step}>"


_WEIGHTS, _COUNT, _COUNTED = (_place(_library.VisitEvent, name) for name in ("weights", "count", "counted"))


class Choice(_Shown):
    """Victims to choose."""

    __slots__ = ()
    _of = _library.Choice
    _arrays = {"candidates": "i4"}

    layer = _number(_of, "layer", "The running layer; -1: before the first layer of a step.")
    pool = _number(_of, "pool", "The pool of the candidates.")
    step = _number(_of, "step", "The step.")
    kind = _number(_of, "kind", "0 decode, 1 prefill, 2 verify.")
    speculative = _number(_of, "speculative", "1: for a prefetch.")
    candidates = _array(_of, "candidates", "candidate_count", "int32 [n]: slots that may be evicted, ascending.")
    count = _number(_of, "count", "Victims to name: 1..n.")

    def __repr__(self) -> str:
        return f"<{self.count} of the slots {self.candidates.tolist()}, layer {self.layer}, step {self.step}>"


class EvictionPolicy:
    """Base of an eviction policy of one's own, for Pager(eviction=...) and simulate(eviction=[...]).

    A policy defines on_visit and select_victims. If there are prefetches or quotas it also defines on_prefetch and
    on_evict. hotset.testing.check(policy) tests it. An object serves one pager at a time.
    """

    needs_weights = False
    """Whether visits carry gate weights; visits without them are refused then."""
    _user: Any = None

    def reset(self, layout: PolicyLayout) -> None:
        """Forgets everything: a pager starts with all slots free."""

    def on_visit(self, event: VisitEvent) -> None:
        """A visit took place. Its fills overwrote their victims; on_evict does not report these."""
        raise NotImplementedError(f"{type(self).__name__} has no on_visit")

    def on_prefetch(self, slot: int, pool: int, layer: int, expert: int, step: int) -> None:
        """A copy for a visit of `step`, or for a warm start, has a slot."""

    def on_evict(self, slot: int, pool: int, layer: int, expert: int) -> None:
        """Outside of a visit, the slot lost its expert: to a prefetch, a quota, a failed copy."""

    def select_victims(self, choice: Choice) -> Any:
        """Returns choice.count of choice.candidates, the first to evict first: integers, as an array or a list.

        It must not change an answer: a repeated call names the same victims, and a call for fewer names the first
        of them. on_visit reports which were taken.
        """
        raise NotImplementedError(f"{type(self).__name__} has no select_victims")


def is_own(eviction: Any) -> bool:
    """Whether it is a policy of one's own, not a name. Raises TypeError for a class."""
    if isinstance(eviction, type):
        raise TypeError(f"eviction: the class {eviction.__name__}, accepted: an object, {eviction.__name__}()")
    return isinstance(eviction, EvictionPolicy)


def taken(policy: EvictionPolicy, pager: Any) -> None:
    """Gives the policy to a pager. Raises InvalidConfig if a living one has it."""
    user = policy._user and policy._user()
    if user is not None and hasattr(user, "_handle"):
        raise InvalidConfig(f"the {type(policy).__name__} decides for another pager, accepted: an object for each pager")
    policy._user = weakref.ref(pager)


def called(policy: EvictionPolicy, raised: list[BaseException], owner: Any) -> Any:
    """The struct of the library whose functions call the policy.

    raised: gets the first exception of a callback; none may pass through the library. owner: holds the memory that
    arrays show. The functions are closures, without a reference to the pager, so that no cycle keeps the pager.
    """
    event, choice = VisitEvent(owner), Choice(owner)
    name = type(policy).__name__
    memory: dict[int, Any] = {}

    def failed(bad: BaseException) -> int:
        if not raised:
            raised.append(bad)
        return -1

    def reset(_: Any, given: int) -> int:
        try:
            layout = PolicyLayout(_library.PolicyLayout.from_address(given), owner)
            event._width = layout.experts
            policy.reset(layout)
            return 0
        except BaseException as bad:  # also KeyboardInterrupt
            return failed(bad)

    def on_visit(_: Any, given: int) -> int:
        try:
            event._load(given)
            policy.on_visit(event)
            return 0
        except BaseException as bad:
            return failed(bad)

    def on_prefetch(_: Any, key: Any, slot: int, pool: int, step: int) -> int:
        try:
            policy.on_prefetch(slot, pool, key.layer, key.expert, step)
            return 0
        except BaseException as bad:
            return failed(bad)

    def on_evict(_: Any, key: Any, slot: int, pool: int) -> int:
        try:
            policy.on_evict(slot, pool, key.layer, key.expert)
            return 0
        except BaseException as bad:
            return failed(bad)

    def room(address: int, count: int) -> NDArray[Any]:
        array = memory.get(address)
        if array is None or len(array) < count:
            byte: Any = ctypes.c_int32
            array = memory[address] = numpy.ctypeslib.as_array((byte * count).from_address(address))
        return array[:count]

    def select_victims(_: Any, given: int, out: int) -> int:
        try:
            choice._load(given)
            victims = numpy.asarray(policy.select_victims(choice))
            if len(victims) == choice.count:
                room(out, len(victims))[:] = victims if victims.dtype == INT32 else _slots(victims, name)
            return len(victims)
        except BaseException as bad:
            return failed(bad)

    return _library.Policy(
        ctypes.sizeof(_library.Policy),
        name.encode(),
        None,
        int(bool(policy.needs_weights)),
        _library.RESET(reset),
        _library.ON_VISIT(on_visit),
        _library.ON_PREFETCH(on_prefetch),
        _library.ON_EVICT(on_evict),
        _library.SELECT_VICTIMS(select_victims),
    )


def _slots(victims: NDArray[Any], name: str) -> NDArray[Any]:
    """Other whole numbers as int32; a number beyond becomes one that no slot has."""
    if victims.dtype.kind not in "iu":
        raise TypeError(f"{name}.select_victims: {victims.dtype}, accepted: whole numbers, the slots")
    return victims.astype(numpy.int64).clip(-1, 2**31 - 1).astype(INT32)


def raise_first(raised: list[BaseException], code: int) -> NoReturn:
    """Raises the exception of a callback. The library's error, which says where, becomes its cause unless it has one."""
    bad = raised.pop()
    if code == POLICY_FAILED and bad.__cause__ is None and bad.__context__ is None:
        raise bad from error_of(code)
    raise bad
