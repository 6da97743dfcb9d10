# SPDX-License-Identifier: Apache-2.0
"""libhotset, the C interface, as ctypes calls it. python/tests/library_test.py compares this file with hotset.h."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, NoReturn

from hotset._errors import Error, InvalidArgument, of_code

ABI_VERSION = 1
NO_VICTIM = 3
DOES_NOT_FIT = 11
POLICY_FAILED = 106


class Key(Structure):
    """hotset_key"""

    _fields_ = [("layer", c_int32), ("expert", c_int32)]


class Removal(Structure):
    """hotset_removal"""

    _fields_ = [("key", Key), ("slot", c_int32), ("precision", c_int32), ("last_reader", c_uint64)]


REMOVED = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Removal))


class PagerOptions(Structure):
    """hotset_pager_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layers", c_int32),
        ("experts", c_int32),
        ("top_k", c_int32),
        ("max_tokens", c_int32),
        ("expert_bytes", c_void_p),
        ("expert_bytes_count", c_size_t),
        ("scope", c_int32),
        ("split", c_int32),
        ("guard", c_int32),
        ("slots", c_int64),
        ("budget_bytes", c_uint64),
        ("eviction", c_char_p),
        ("admission", c_char_p),
        ("miss", c_char_p),
        ("removed", REMOVED),
        ("user", c_void_p),
        ("lower_bytes", c_void_p),
        ("lower_precisions", c_size_t),
        ("slots_of_precision", c_void_p),
        ("routing", c_char_p),
        ("pre_eviction", c_char_p),
        ("policy", c_void_p),
    ]


class PolicyLayout(Structure):
    """hotset_policy_layout"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layers", c_int32),
        ("experts", c_int32),
        ("top_k", c_int32),
        ("pools", c_int32),
        ("pool_slots", c_void_p),
        ("slots", c_size_t),
        ("keys", c_void_p),
    ]


class Bypass(Structure):
    """hotset_bypass"""

    _fields_ = [("expert", c_int32), ("weight", c_double)]


class VisitEvent(Structure):
    """hotset_visit_event"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layer", c_int32),
        ("pool", c_int32),
        ("step", c_uint64),
        ("kind", c_int32),
        ("begins", c_int32),
        ("experts", c_void_p),
        ("slots", c_void_p),
        ("weights", c_void_p),
        ("count", c_size_t),
        ("fills", c_void_p),
        ("fill_count", c_size_t),
        ("bypassed", c_void_p),
        ("bypassed_count", c_size_t),
        ("counted", c_void_p),
    ]


class Choice(Structure):
    """hotset_choice"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layer", c_int32),
        ("pool", c_int32),
        ("step", c_uint64),
        ("kind", c_int32),
        ("speculative", c_int32),
        ("candidates", c_void_p),
        ("candidate_count", c_size_t),
        ("count", c_size_t),
    ]


# Functions of a policy; void* and the structs arrive as numbers.
RESET = ON_VISIT = ctypes.PYFUNCTYPE(c_int32, c_void_p, c_void_p)
ON_PREFETCH = ctypes.PYFUNCTYPE(c_int32, c_void_p, Key, c_int32, c_int32, c_uint64)
ON_EVICT = ctypes.PYFUNCTYPE(c_int32, c_void_p, Key, c_int32, c_int32)
SELECT_VICTIMS = ctypes.PYFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)


class Policy(Structure):
    """hotset_eviction_policy"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("user", c_void_p),
        ("needs_weights", c_int32),
        ("reset", RESET),
        ("on_visit", ON_VISIT),
        ("on_prefetch", ON_PREFETCH),
        ("on_evict", ON_EVICT),
        ("select_victims", SELECT_VICTIMS),
    ]


class View(Structure):
    """hotset_view"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layer", c_int32),
        ("kind", c_int32),
        ("step", c_uint64),
        ("tokens", c_size_t),
        ("experts", c_void_p),
        ("experts_stride", c_size_t),
        ("weights", c_void_p),
        ("weights_stride", c_size_t),
        ("sequences", c_void_p),
        ("logits", c_void_p),
        ("chosen", c_void_p),
    ]


class Fill(Structure):
    """hotset_fill"""

    _fields_ = [
        ("key", Key),
        ("slot", c_int32),
        ("generation", c_uint32),
        ("victim", Key),
        ("precision", c_uint8),
        ("speculative", c_uint8),
        ("after", c_uint64),
    ]


class Decisions(Structure):
    """hotset_visit"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("experts", c_void_p),
        ("slots", c_void_p),
        ("services", c_void_p),
        ("count", c_size_t),
        ("fills", c_void_p),
        ("fill_count", c_size_t),
        ("tokens", c_void_p),
        ("token_count", c_size_t),
        ("group", c_uint32),
        ("groups", c_uint32),
        ("more", c_int32),
        ("expert_wise", c_int32),
        ("routed", c_void_p),
        ("routed_count", c_size_t),
        ("late", c_void_p),
        ("late_count", c_size_t),
    ]


class Request(Structure):
    """hotset_request"""

    _fields_ = [("key", Key), ("for_step", c_uint64), ("probability", c_float)]


class PrefetcherOptions(Structure):
    """hotset_prefetcher_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layers", c_int32),
        ("experts", c_int32),
        ("top_k", c_int32),
        ("max_tokens", c_int32),
        ("prefetch", c_char_p),
        ("predictor", c_char_p),
    ]


class Stats(Structure):
    """hotset_stats"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("visits", c_uint64),
        ("steps", c_uint64),
        ("accesses", c_uint64),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("compulsory_misses", c_uint64),
        ("collision_misses", c_uint64),
        ("fills", c_uint64),
        ("bypasses", c_uint64),
        ("evictions", c_uint64),
        ("split_visits", c_uint64),
        ("groups", c_uint64),
        ("failed_fills", c_uint64),
        ("ignored_ids", c_uint64),
        ("bytes_filled", c_uint64),
        ("speculative_fills", c_uint64),
        ("prefetch_hits", c_uint64),
        ("wasted_prefetches", c_uint64),
    ]


class CurveOptions(Structure):
    """hotset_curve_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layers", c_int32),
        ("experts", c_int32),
        ("top_k", c_int32),
        ("max_tokens", c_int32),
        ("scope", c_int32),
    ]


class MemoryConsumer(Structure):
    """hotset_consumer"""

    _fields_ = [
        ("misses", c_void_p),
        ("misses_count", c_size_t),
        ("unit_bytes", c_uint64),
        ("seconds_per_miss", c_double),
        ("min_units", c_uint64),
        ("max_units", c_uint64),
    ]


class PlaceOptions(Structure):
    """hotset_place_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("experts", c_int32),
        ("ranks", c_int32),
        ("redundant", c_int32),
        ("nodes", c_int32),
        ("groups", c_int32),
        ("move_cost", c_uint32),
        ("starts", c_int32),
        ("start", c_void_p),
    ]


class RecorderOptions(Structure):
    """hotset_recorder_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("layers", c_int32),
        ("experts", c_int32),
        ("top_k", c_int32),
        ("capacity", c_size_t),
        ("weights", c_int32),
        ("name", c_char_p),
        ("model", c_char_p),
    ]


TYPES = {
    "p": c_void_p,
    "t": c_char_p,
    "i": c_int32,
    "u": c_uint32,
    "q": c_uint64,
    "z": c_size_t,
    "k": Key,
}
# Types of the parameters. All functions return a status, except those listed below.
FUNCTIONS = {
    "hotset_pager_create": "pp",
    "hotset_route": "ppp",
    "hotset_plan": "ppp",
    "hotset_plan_next": "pp",
    "hotset_commit": "p",
    "hotset_abort": "ppz",
    "hotset_abandon": "p",
    "hotset_row": "pipp",
    "hotset_row_version": "pip",
    "hotset_locate": "pkp",
    "hotset_precision": "pip",
    "hotset_pin": "pip",
    "hotset_unpin": "pqq",
    "hotset_check_eviction": "p",
    "hotset_prefetch": "piqpzzpp",
    "hotset_expect": "piqpzi",
    "hotset_arrived": "piu",
    "hotset_cancelled": "piu",
    "hotset_failed": "piu",
    "hotset_prefetcher_create": "pp",
    "hotset_prefetcher_most": "pp",
    "hotset_propose": "pppzp",
    "hotset_invalidate": "pk",
    "hotset_set_quota": "pii",
    "hotset_quota": "pip",
    "hotset_residents": "ppzp",
    "hotset_plan_warm": "ppzpp",
    "hotset_get_stats": "pp",
    "hotset_decision_hash": "pp",
    "hotset_curve_create": "pp",
    "hotset_curve_observe": "pp",
    "hotset_curve_misses": "pizp",
    "hotset_curve_most_slots": "pip",
    "hotset_divide": "pzqpp",
    "hotset_place": "ppzpz",
    "hotset_recorder_create": "pp",
    "hotset_recorder_begin_step": "pqizp",
    "hotset_recorder_record": "pp",
    "hotset_recorder_record_rows": "ppp",
    "hotset_recorder_end_step": "p",
    "hotset_recorder_tokens": "ppp",
    "hotset_recorder_write": "pt",
    "hotset_pager_destroy": "p",
    "hotset_prefetcher_destroy": "p",
    "hotset_curve_destroy": "p",
    "hotset_recorder_destroy": "p",
    "hotset_abi_version": "",
    "hotset_version": "",
    "hotset_last_error": "",
}
RESULTS: dict[str, Any] = {
    "hotset_pager_destroy": None,
    "hotset_prefetcher_destroy": None,
    "hotset_curve_destroy": None,
    "hotset_recorder_destroy": None,
    "hotset_abi_version": c_uint32,
    "hotset_version": c_char_p,
    "hotset_last_error": c_char_p,
}


def _load() -> Any:
    """$HOTSET_LIBRARY, or the package's own. Calls keep the interpreter lock: a loop that released it in each layer
    could wait a switch interval, 5 ms, to get it back from another thread."""
    own = os.path.join(os.path.dirname(__file__), "lib", "libhotset.so")
    path = os.environ.get("HOTSET_LIBRARY") or own
    try:
        held = ctypes.PyDLL(path)
    except OSError as bad:
        raise ImportError(f"{bad}, accepted: a package that carries libhotset, or $HOTSET_LIBRARY") from bad
    for name, parameters in FUNCTIONS.items():
        function = getattr(held, name)
        function.argtypes = [TYPES[each] for each in parameters]
        function.restype = RESULTS.get(name, c_int32)
    # It takes long and calls nothing back: other threads run meanwhile.
    released = ctypes.CDLL(path).hotset_place
    released.argtypes, released.restype = held.hotset_place.argtypes, c_int32
    setattr(held, "hotset_place", released)
    found = held.hotset_abi_version()
    if found != ABI_VERSION:
        raise ImportError(f"{path}: interface {found}, accepted: {ABI_VERSION}")
    return held


library = _load()


def version() -> str:
    """Version of the library, "0.1.0"."""
    words: bytes = library.hotset_version()
    return words.decode()


def error_of(code: int) -> Error:
    """The exception of a status, with the library's message."""
    return of_code(code)(library.hotset_last_error().decode(errors="replace"), code)


def fail(code: int) -> NoReturn:
    """Raises the exception of a status."""
    raise error_of(code)


def check(code: int) -> None:
    """Raises if the status is an error."""
    if code:
        fail(code)


def refuse(words: str) -> NoReturn:
    """Raises InvalidArgument as the library does."""
    raise InvalidArgument(words, 10)


class Handle(c_void_p):
    """Owns an object of the library. Arrays that show its memory hold the handle."""

    destroy: Any = None

    def __del__(self) -> None:
        if self.value:
            self.destroy(self)


class Held:
    """Base of classes that hold an object of the library."""

    def _make(self, kind: str, options: Any, made: Any = None) -> None:
        """made: a handle that exists before the library's object, for callbacks that its creation calls."""
        options.struct_size = ctypes.sizeof(options)
        made = made or Handle()
        made.destroy = getattr(library, f"hotset_{kind}_destroy")
        check(getattr(library, f"hotset_{kind}_create")(ctypes.byref(options), ctypes.byref(made)))
        self._handle = made

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled")
