# SPDX-License-Identifier: Apache-2.0
"""A visit: the decisions of one plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from hotset._arguments import INT32, UINT32, fill, shown
from hotset._library import Decisions, refuse

if TYPE_CHECKING:
    from hotset._pager import Pager

_UINT8 = numpy.dtype(numpy.uint8)


class Visit:
    """Decisions of a plan: which experts, where they are, and the copies to make.

    Made by Pager.plan, plan_next, visits, prefetch and plan_warm. Its arrays are views of the
    pager's memory: reading them after the pager has planned again raises InvalidArgument.
    """

    __slots__ = ("_decided", "_pager", "_plan")

    def __init__(self, pager: Pager, decided: Decisions, plan: int) -> None:
        self._pager = pager
        self._decided = decided
        self._plan = plan

    def _array(self, address: int, count: int, of: numpy.dtype[Any]) -> NDArray[Any]:
        self._check_age()
        return shown(address, count, of, self._pager._handle)

    def _check_age(self) -> None:
        if self._pager._plans != self._plan:
            refuse("the visit is over: its pager has planned another one, accepted: the last one's")

    @property
    def experts(self) -> NDArray[Any]:
        """The distinct experts, int32, in order of first appearance."""
        return self._array(self._decided.experts, self._decided.count, INT32)

    @property
    def slots(self) -> NDArray[Any]:
        """The slot of each of `experts`, int32; -1: it stays on the host."""
        return self._array(self._decided.slots, self._decided.count, INT32)

    @property
    def services(self) -> NDArray[Any]:
        """The service of each of `experts`, uint8: 0 hit, 1 fill, 2 host."""
        return self._array(self._decided.services, self._decided.count, _UINT8)

    @property
    def fills(self) -> NDArray[Any]:
        """The copies to make, as hotset.fill, in the order of need."""
        return self._array(self._decided.fills, self._decided.fill_count, fill)

    @property
    def fill_count(self) -> int:
        """Number of copies."""
        return int(self._decided.fill_count)

    @property
    def tokens(self) -> NDArray[Any]:
        """The tokens of this group, uint32, ascending."""
        return self._array(self._decided.tokens, self._decided.token_count, UINT32)

    @property
    def routed(self) -> NDArray[Any]:
        """The ids to compute, int32: the view's own or replacements of the miss policy; -1: none."""
        return self._array(self._decided.routed, self._decided.routed_count, INT32)

    @property
    def late(self) -> NDArray[Any]:
        """Slots of hits, int32, whose prefetched copy was not reported yet. Wait for it before the bytes are read. If
        it cannot arrive: abort, report it with Pager.failed or cancelled, and plan again."""
        return self._array(self._decided.late, self._decided.late_count, INT32)

    @property
    def group(self) -> int:
        """Number of this group. A visit that does not fit comes in groups."""
        return int(self._decided.group)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return int(self._decided.groups)

    @property
    def more(self) -> bool:
        """Whether Pager.plan_next has another group."""
        return bool(self._decided.more)

    @property
    def expert_wise(self) -> bool:
        """Whether the group is a part of every token's sum."""
        return bool(self._decided.expert_wise)

    def commit(self) -> None:
        """Publishes the copies: they have been made or are ordered before the readers of the slots."""
        self._check_age()
        self._pager.commit()

    def abort(self, begun: Any = None) -> None:
        """Undoes the plan. begun: a mark for each fill that may have begun; None: none has."""
        self._check_age()
        self._pager.abort(begun)
