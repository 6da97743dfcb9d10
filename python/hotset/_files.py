# SPDX-License-Identifier: Apache-2.0
"""Files that appear completely or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from typing import Any, Optional

from hotset._errors import CannotWrite

_CANNOT_WRITE = 104


class Output:
    """The target of a path: a file is replaced in one step; a pipe or a device is written directly.
    None means standard output. A link is followed and kept. A replaced file keeps its mode and
    owner.

    Raises CannotWrite if the path cannot be written to.
    """

    def __init__(self, path: Any) -> None:
        self._facts: Optional[os.stat_result] = None
        self._target = ""
        self._descriptor = 1
        if path is None:
            self.name = "standard output"
            return
        self.name = os.fspath(path)
        self._target = os.path.realpath(self.name)
        self._facts = self._looked_up()
        if self._facts is None:
            folder = os.path.dirname(self._target)
            if not os.path.isdir(folder):
                raise self._refused(
                    "cannot be created: No such file or directory; accepted: a path in a folder"
                    " that exists"
                )
            if not os.access(folder, os.W_OK | os.X_OK):
                raise self._refused("cannot be created: Permission denied")
        elif stat.S_ISDIR(self._facts.st_mode):
            raise self._refused("is a folder; accepted: a file")
        elif _is_standard_output(self._facts):
            return
        elif not os.access(self.name, os.W_OK):
            raise self._refused("cannot be written: Permission denied")
        self._descriptor = -1

    def _looked_up(self) -> Optional[os.stat_result]:
        try:
            return os.stat(self.name)
        except FileNotFoundError:
            return None
        except OSError as bad:
            raise self._refused(f"cannot be created: {bad.strerror}") from bad

    def _refused(self, why: str) -> CannotWrite:
        return CannotWrite(f"{self.name}: {why}", _CANNOT_WRITE)

    @property
    def is_standard_output(self) -> bool:
        return self._descriptor == 1

    @property
    def is_terminal(self) -> bool:
        if self._descriptor == 1:
            return os.isatty(1)
        if self._facts is None or not stat.S_ISCHR(self._facts.st_mode):
            return False
        opened = os.open(self.name, os.O_WRONLY | os.O_NOCTTY)
        try:
            return os.isatty(opened)
        finally:
            os.close(opened)

    def write(self, parts: Iterable[Any]) -> None:
        """Writes all data. Raises CannotWrite, BrokenPipeError."""
        try:
            if self._descriptor >= 0:
                _write_all(self._descriptor, parts)
            elif self._facts is not None and not stat.S_ISREG(self._facts.st_mode):
                with open(self.name, "wb", buffering=0) as file:
                    _write_all(file.fileno(), parts)
            else:
                self._replace(parts)
        except BrokenPipeError:
            raise
        except OSError as bad:
            raise self._refused(f"cannot be written: {bad.strerror or bad}") from bad

    def _replace(self, parts: Iterable[Any]) -> None:
        part = os.path.join(os.path.dirname(self._target), f".hotset-{secrets.token_hex(8)}")
        mode = 0o666 if self._facts is None else 0o600
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(handle, "wb") as file:
                for one in parts:
                    file.write(one)
            if self._facts is not None:
                try:
                    os.chown(part, self._facts.st_uid, self._facts.st_gid)
                except PermissionError as bad:
                    raise self._refused("its owner cannot be kept; accepted: a path of a new file") from bad
                os.chmod(part, stat.S_IMODE(self._facts.st_mode))
            os.replace(part, self._target)
        except BaseException:
            os.unlink(part)
            raise


def _is_standard_output(facts: os.stat_result) -> bool:
    try:
        return os.path.samestat(facts, os.fstat(1))
    except OSError:  # closed
        return False


def _write_all(descriptor: int, parts: Iterable[Any]) -> None:
    for one in parts:
        left = memoryview(one)
        while left:
            left = left[os.write(descriptor, left) :]
