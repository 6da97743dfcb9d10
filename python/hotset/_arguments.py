# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments, and arrays that share memory with the library. Nothing is converted or copied."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from ctypes import addressof
from typing import Any, Optional

import numpy
from numpy.typing import NDArray

from hotset._library import Fill, Key, Request, View, refuse

INT32 = numpy.dtype(numpy.int32)
UINT32 = numpy.dtype(numpy.uint32)
FLOAT32 = numpy.dtype(numpy.float32)
_BYTES_OF_VIEW = ctypes.sizeof(View)
_Byte: Any = ctypes.c_char
_CPU = 1  # of DLPack


def _whole(name: str, given: Any, least: int, most: int) -> int:
    try:
        value = operator.index(given)
    except TypeError:
        raise TypeError(f"{name}: {type(given).__name__}, accepted: int") from None
    if not least <= value <= most:
        refuse(f"{name} = {value}, accepted: {least}..{most}")
    return value


def int32(name: str, given: Any) -> int:
    """An int of 32 bits. Raises InvalidArgument, TypeError; so do the next functions."""
    if given.__class__ is int and -(2**31) <= given < 2**31:
        return given
    return _whole(name, given, -(2**31), 2**31 - 1)


def int64(name: str, given: Any) -> int:
    """An int of 64 bits."""
    return _whole(name, given, -(2**63), 2**63 - 1)


def uint32(name: str, given: Any) -> int:
    """An int of 32 bits, 0 or more."""
    return _whole(name, given, 0, 2**32 - 1)


def uint64(name: str, given: Any) -> int:
    """An int of 64 bits, 0 or more."""
    if given.__class__ is int and 0 <= given < 2**64:
        return given
    return _whole(name, given, 0, 2**64 - 1)


def text(name: str, given: Any) -> bytes:
    """A text for C, which ends at the first NUL."""
    if not isinstance(given, str):
        raise TypeError(f"{name}: {type(given).__name__}, accepted: str")
    if "\0" in given:
        refuse(f"{name}: a text with a NUL in it, accepted: one without")
    return given.encode("utf-8", "surrogateescape")


def choice(name: str, given: Any, words: Sequence[str]) -> int:
    """The number of a word."""
    if given not in words:
        refuse(f"{name}: {given!r}, accepted: {', '.join(words)}")
    return words.index(given)


def kind_of(given: Any) -> int:
    """The number of a kind of visit."""
    return choice("kind", given, ("decode", "prefill", "verify"))


def scope_of(given: Any) -> int:
    """The number of a scope."""
    return choice("scope", given, ("per_layer", "shared"))


def shape_of(array: NDArray[Any]) -> str:
    """The shape for a message."""
    return str(list(array.shape))


def array_of(given: Any, name: str) -> NDArray[Any]:
    """Any array in this machine's memory, as NumPy sees it."""
    if isinstance(given, numpy.ndarray):
        return given
    if hasattr(given, "__dlpack__"):
        device = int(given.__dlpack_device__()[0])
        if device != _CPU:
            refuse(f"{name}: on DLPack device {device}, accepted: the CPU's memory")
        return numpy.from_dlpack(given)
    try:
        return numpy.asarray(memoryview(given))
    except TypeError:
        refuse(f"{name}: {type(given).__name__}, accepted: an array: NumPy, DLPack or a buffer")


def address_of(array: NDArray[Any], name: str, aligned: int) -> int:
    """Where the elements are. Refuses an array that is a view of bytes at an odd address."""
    try:
        address = addressof(_Byte.from_buffer(array))  # half the time of array.ctypes
    except (TypeError, ValueError):  # not to be written, or empty, or with gaps
        address = array.ctypes.data
    if address % aligned and array.size:
        refuse(f"{name}: not aligned to {aligned} bytes, accepted: an array that is (numpy.ascontiguousarray)")
    return address


def rows_of(given: Any, of: numpy.dtype[Any], width: int, name: str) -> tuple[NDArray[Any], int, int, int]:
    """Rows without gaps within them: [width], one row; or [count, width].

    Returns the array, its address, the count, and the numbers from row to row, 0 if rows have no gaps between them.
    """
    array = given if given.__class__ is numpy.ndarray else array_of(given, name)
    if array.dtype != of:
        refuse(f"{name}: {array.dtype}, accepted: {of} (nothing is converted in silence)")
    shape = array.shape
    if not 1 <= len(shape) <= 2 or shape[-1] != width:
        refuse(f"{name}: shape {shape_of(array)}, accepted: [tokens, {width}]")
    each = of.itemsize
    address = address_of(array, name, each)
    count = 1 if len(shape) == 1 else shape[0]
    if array.flags.c_contiguous:
        return array, address, count, 0
    if width > 1 and array.strides[-1] != each:
        refuse(f"{name}: numbers of a row that lie apart, accepted: rows without gaps (numpy.ascontiguousarray)")
    stride, rest = divmod(array.strides[0], each)
    if rest or stride < width:
        refuse(f"{name}: rows {array.strides[0]} bytes apart, accepted: rows that follow one another and do not overlap")
    return array, address, count, stride


def view_of(
    layer: int,
    step: int,
    kind: int,
    experts: Any,
    top_k: int,
    weights: Any = None,
    sequences: Any = None,
    logits: Any = None,
    width: int = 0,
    chosen: Any = None,
) -> tuple[View, list[Any]]:
    """A view and the arrays that must outlive it. width: numbers in a row of logits."""
    ids, address, tokens, stride = rows_of(experts, INT32, top_k, "experts")
    view = View(_BYTES_OF_VIEW, layer, kind, step, tokens, address, stride)
    kept = [ids]
    if weights is not None:
        view.weights, view.weights_stride = _rows_beside(tokens, weights, FLOAT32, top_k, "weights", kept)
    if logits is not None:
        view.logits = _dense_beside(tokens, logits, FLOAT32, width, "logits", kept)
    if chosen is not None:
        view.chosen = _dense_beside(tokens, chosen, INT32, top_k, "chosen", kept)
    if sequences is not None:
        of, view.sequences, _, _ = rows_of(sequences, UINT32, tokens, "sequences")
        kept.append(of)
    return view, kept


def _rows_beside(
    tokens: int, given: Any, of: numpy.dtype[Any], width: int, name: str, kept: list[Any]
) -> tuple[int, int]:
    array, address, count, stride = rows_of(given, of, width, name)
    if count != tokens:
        refuse(f"{name}: of {count} tokens, accepted: {tokens}, as experts")
    kept.append(array)
    return address, stride


def _dense_beside(tokens: int, given: Any, of: numpy.dtype[Any], width: int, name: str, kept: list[Any]) -> int:
    address, stride = _rows_beside(tokens, given, of, width, name, kept)
    if stride not in (0, width):
        refuse(f"{name}: rows that lie apart, accepted: rows without gaps")
    return address


def shown(address: int, count: int, of: numpy.dtype[Any], owner: Any) -> NDArray[Any]:
    """A read-only array of the owner's memory, which it keeps alive."""
    if count == 0:
        return numpy.ndarray(0, of, b"")
    memory = (_Byte * (count * of.itemsize)).from_address(address)
    memory.owner = owner
    return numpy.ndarray(count, of, memoryview(memory).toreadonly())


def _struct(members: list[tuple[str, str, int]], of: Any) -> numpy.dtype[Any]:
    names, formats, offsets = zip(*members)
    return numpy.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": ctypes.sizeof(of)})


def _key(prefix: str, at: int) -> list[tuple[str, str, int]]:
    return [(prefix + name, "i4", at + getattr(Key, name).offset) for name in ("layer", "expert")]


fill = _struct(
    [
        *_key("", Fill.key.offset),
        ("slot", "i4", Fill.slot.offset),
        ("generation", "u4", Fill.generation.offset),
        *_key("victim_", Fill.victim.offset),
        ("precision", "u1", Fill.precision.offset),
        ("speculative", "?", Fill.speculative.offset),
        ("after", "u8", Fill.after.offset),
    ],
    Fill,
)
request = _struct(
    [
        *_key("", Request.key.offset),
        ("for_step", "u8", Request.for_step.offset),
        ("probability", "f4", Request.probability.offset),
    ],
    Request,
)
