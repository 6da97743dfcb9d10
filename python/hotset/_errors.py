# SPDX-License-Identifier: Apache-2.0
"""What calls of hotset raise: a class for each thing that a program may want to catch."""

from __future__ import annotations


class Error(Exception):
    """A call that was refused. It has changed nothing unless it says so."""

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
    """An earlier visit was not ended: its plan is open, or it has groups left."""


class NoPlan(Error):
    """No plan is open, or no group of the visit is left."""


class Busy(Error):
    """A slot is pinned, or its copy is on its way."""


class ExceedsMemory(Error):
    """A quota that the slots cannot give, or a recorder that is full."""


class FillFailed(Error):
    """A copy did not arrive; its slot is free and no row names it."""


class InvalidArgument(Error, ValueError):
    """A value, an array or a key that is none."""


class InvalidConfig(Error, ValueError):
    """Options that cannot work."""


class WrongThread(Error):
    """Another call with the object is running: in another thread, or the one whose callback this is."""


class Forked(Error):
    """The object was made in the process that forked this one."""


class CannotWrite(Error, OSError):
    """A file; it is not there, or as it was before."""


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
}


def of_code(code: int) -> type[Error]:
    """The class of a code of hotset.h."""
    return _CLASSES.get(code, Error)
