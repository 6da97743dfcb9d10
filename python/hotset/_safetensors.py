# SPDX-License-Identifier: Apache-2.0
"""Arrays in safetensors files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Union

import numpy

from hotset._errors import InvalidArgument
from hotset._files import Output

Path = Union[str, "os.PathLike[str]"]

_TYPES = {"U8": "u1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8", "F16": "<f2", "F32": "<f4"}
_NAMES = {numpy.dtype(t): n for n, t in _TYPES.items()}


def load(path: Path, accepted: str) -> tuple[dict[str, numpy.ndarray], dict[str, str]]:
    """Returns the arrays, mapped from the file, and the metadata. accepted: the file's kind, for messages. Raises
    InvalidArgument, OSError."""
    with open(path, "rb") as file:
        head = file.read(8)
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > size - 8:
            raise InvalidArgument(f"{path}: no safetensors header, accepted: {accepted}")
        try:
            header: dict[str, Any] = json.loads(file.read(length))
            facts = header.pop("__metadata__", {})
            return {name: _mapped(path, about, 8 + length, size) for name, about in header.items()}, dict(facts)
        except (ValueError, KeyError, TypeError, AttributeError) as bad:
            raise InvalidArgument(f"{path}: a damaged header ({bad}), accepted: {accepted}") from bad


def save(path: Path, metadata: Mapping[str, str], arrays: Mapping[str, numpy.ndarray]) -> None:
    """Writes the file completely or not at all; on failure an existing file is unchanged. Raises CannotWrite."""
    parts: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    dense = {name: numpy.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in dense.items():
        begin, end = end, end + array.nbytes
        parts[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % 64)
    head = len(text).to_bytes(8, "little") + text
    Output(path).write([head, *(array.reshape(-1).view(numpy.uint8).data for array in dense.values())])


def _mapped(path: Path, about: Mapping[str, Any], at: int, size: int) -> numpy.ndarray:
    begin, end = about["data_offsets"]
    shape = tuple(about["shape"])
    dtype = numpy.dtype(_TYPES[about["dtype"]])
    if begin < 0 or at + end > size or end - begin != dtype.itemsize * int(numpy.prod(shape, dtype=object)):
        raise ValueError(f"an array beyond the file's {size} bytes, or of another size than its shape")
    if begin == end:
        return numpy.zeros(shape, dtype)
    return numpy.memmap(path, dtype, "r", at + begin, shape)
