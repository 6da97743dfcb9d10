# SPDX-License-Identifier: Apache-2.0
"""Exceptions of hotset's calls: one class for each error that a program may want to catch."""

from __future__ import annotations


class Error(Exception):
    """A refused call. It has changed nothing unless the class says otherwise."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        """As hotset.h numbers it; 0 where the refusal is not the library's."""


class InvalidVisit(Error):
    """A layer out of range, or arrays that do not belong together."""


class VisitTooLarge(InvalidVisit):
    """More tokens than max_tokens."""


class DoesNotFit(Error):
    """The visit needs more slots than there are, and may not be split."""


class NoVictim(Error):
    """Not even one token fits beside the pinned slots."""


class VisitOpen(Error):
    """An earlier visit has not ended: its plan is open, or groups of it are left."""


class NoPlan(Error):
    """No plan is open, or no group of the visit is left."""


class Busy(Error):
    """A slot is pinned, or its copy is outstanding."""


class ExceedsMemory(Error):
    """A quota that exceeds the slots, or a full recorder."""


class FillFailed(Error):
    """A copy failed; its slot is free and no row names it."""


class InvalidArgument(Error, ValueError):
    """An invalid value, array or key."""


class InvalidConfig(Error, ValueError):
    """Invalid or contradictory options."""


class WrongThread(Error):
    """Another call with the object is running, in another thread or around this callback."""


class Forked(Error):
    """The object was made before this process was forked."""


class CannotWrite(Error, OSError):
    """A file that cannot be written; it is missing or unchanged."""


class PolicyFailed(Error):
    """A callback of an eviction policy failed, or named an invalid victim.

    A plan was not made; a commit, an abort or a report of a copy has taken place."""


_CLASSES: dict[int, type[Error]] = {
    1: InvalidVisit,
    2: VisitTooLarge,
    3: NoVictim,
    4: VisitOpen,
    5: VisitOpen,
    6: NoPlan,
    7: Busy,
    8: ExceedsMemory,
    9: FillFailed,
    10: InvalidArgument,
    11: DoesNotFit,
    100: InvalidConfig,
    102: WrongThread,
    103: Forked,
    104: CannotWrite,
    106: PolicyFailed,
}


def of_code(code: int) -> type[Error]:
    """The class for a code of hotset.h."""
    return _CLASSES.get(code, Error)
