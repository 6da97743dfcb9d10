# SPDX-License-Identifier: Apache-2.0
"""Tests of eviction policies of one's own."""

from __future__ import annotations

import ctypes
from typing import Any, Union

from hotset._library import error_of, library
from hotset._policy import EvictionPolicy, called


def check(policy: Union[EvictionPolicy, type[EvictionPolicy]]) -> None:
    """Tests a policy with random events, by the rules of the library's own suite.

    The events are visits with hits, copies and experts without a slot, split visits, empty and large ones,
    prefetches, evictions, resets; in pools of one layer, of all layers and of experts of one size. The rules: each
    victim is a candidate and is named once; as many are named as asked for; a repeated call, a second run and a call
    for fewer agree; no callback raises.

    policy: an object, or a class that is made without arguments. Raises AssertionError, whose message says after
    which event which rule was broken; its cause is the exception of the callback, if one was raised.
    """
    made: Any = policy() if isinstance(policy, type) else policy
    if not isinstance(made, EvictionPolicy):
        raise TypeError(f"policy: {type(made).__name__}, accepted: a hotset.EvictionPolicy")
    raised: list[BaseException] = []
    code = library.hotset_check_eviction(ctypes.byref(called(made, raised, None)))
    if raised and not isinstance(raised[0], Exception):
        raise raised[0]
    if code:
        cause = raised[0] if raised else None
        words = f"{error_of(code)}" + (f": {type(cause).__name__}: {cause}" if cause else "")
        raise AssertionError(words) from cause


__all__ = ["check"]
