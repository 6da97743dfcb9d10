# SPDX-License-Identifier: Apache-2.0
"""Writes GGUF files, version 3: metadata, then tensors at their alignment. Standard library and NumPy."""

from __future__ import annotations

import os
import struct
from typing import BinaryIO, Callable, Union

import numpy

# Type number, elements of a block, bytes of a block.
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18)}
_U16, _U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 2, 4, 5, 6, 7, 8, 9

Data = Union[bytes, Callable[[BinaryIO], None]]
Fact = Union[str, bool, int, float, list[bytes], list[int], list[float]]


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _array(values: list) -> bytes:
    if all(isinstance(value, bytes) for value in values):
        texts = b"".join(struct.pack("<Q", len(value)) + value for value in values)
        return struct.pack("<IQ", _STRING, len(values)) + texts
    kind, code = (_F32, "f") if isinstance(values[0], float) else (_I32, "i")
    return struct.pack(f"<IQ{len(values)}{code}", kind, len(values), *values)


class GgufWriter:
    """Collects, then writes each file whole, or not at all."""

    def __init__(self, alignment: int = 32) -> None:
        self._alignment = alignment
        self._facts = [_text("general.alignment") + struct.pack("<II", _U32, alignment)]
        self._tensors: list[tuple[str, tuple[int, ...], str, Data]] = []

    def fact(self, key: str, value: Fact) -> None:
        """Metadata: a string, a truth value, an unsigned integer, a float, or a list of bytes
        (strings), integers or floats."""
        if isinstance(value, list):
            self._facts.append(_text(key) + struct.pack("<I", _ARRAY) + _array(value))
        elif isinstance(value, bool):
            self._facts.append(_text(key) + struct.pack("<I?", _BOOL, value))
        elif isinstance(value, str):
            self._facts.append(_text(key) + struct.pack("<I", _STRING) + _text(value))
        elif isinstance(value, int):
            self._facts.append(_text(key) + struct.pack("<II", _U32, value))
        else:
            self._facts.append(_text(key) + struct.pack("<If", _F32, value))

    def tensor(self, name: str, shape: tuple[int, ...], kind: str, data: Data) -> None:
        """shape: slowest first, as NumPy has it; data: the bytes, or what writes them."""
        self._tensors.append((name, shape, kind, data))

    def array(self, name: str, values: numpy.ndarray, kind: str) -> None:
        """A tensor of numbers, stored as `kind`."""
        if kind == "Q4_0":
            self.tensor(name, values.shape, kind, quantised_4_0(values))
        else:
            dtype = {"F32": "<f4", "F16": "<f2"}[kind]
            self.tensor(name, values.shape, kind, numpy.ascontiguousarray(values, dtype).tobytes())

    def write(self, path: str) -> None:
        part = path + ".part"
        with open(part, "wb") as file:
            self._write(file)
        os.replace(part, path)

    def write_parts(self, prefix: str, parts: int) -> None:
        """Writes PREFIX-00001-of-0000N.gguf and so on, like llama.cpp's gguf-split."""
        for part in range(parts):
            writer = GgufWriter(self._alignment)
            if part == 0:
                writer._facts = list(self._facts)
            for key, kind, form, value in (
                ("no", _U16, "H", part),
                ("count", _U16, "H", parts),
                ("tensors.count", _I32, "i", len(self._tensors)),
            ):
                writer._facts.append(_text(f"split.{key}") + struct.pack(f"<I{form}", kind, value))
            first, last = (len(self._tensors) * n // parts for n in (part, part + 1))
            writer._tensors = self._tensors[first:last]
            writer.write(f"{prefix}-{part + 1:05d}-of-{parts:05d}.gguf")

    def _write(self, file: BinaryIO) -> None:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(self._tensors), len(self._facts)))
        for fact in self._facts:
            file.write(fact)
        offset = 0
        for name, shape, kind, _ in self._tensors:
            extents = shape[::-1]
            file.write(_text(name) + struct.pack("<I", len(extents)) + struct.pack(f"<{len(extents)}Q", *extents))
            file.write(struct.pack("<IQ", TYPES[kind][0], offset))
            offset += -(-bytes_of(shape, kind) // self._alignment) * self._alignment
        self._pad(file)
        for name, shape, kind, data in self._tensors:
            begin = file.tell()
            if callable(data):
                data(file)
            else:
                file.write(data)
            if file.tell() - begin != bytes_of(shape, kind):
                raise ValueError(f"{name}: {file.tell() - begin} bytes, accepted: {bytes_of(shape, kind)}")
            self._pad(file)

    def _pad(self, file: BinaryIO) -> None:
        file.write(b"\0" * (-file.tell() % self._alignment))


def bytes_of(shape: tuple[int, ...], kind: str) -> int:
    _, block, size = TYPES[kind]
    if shape[-1] % block:
        raise ValueError(f"rows of {shape[-1]} numbers as {kind}, accepted: multiples of {block}")
    count = 1
    for extent in shape:
        count *= extent
    return count // block * size


def quantised_4_0(values: numpy.ndarray) -> bytes:
    """Blocks of 32: a half-precision scale, and 16 bytes of two 4-bit numbers, the first half of the block in the low ones."""
    blocks = numpy.ascontiguousarray(values, numpy.float32).reshape(-1, 32)
    extreme = numpy.take_along_axis(blocks, numpy.abs(blocks).argmax(1)[:, None], 1)[:, 0]
    scale = extreme / -8
    inverse = numpy.divide(1, scale, out=numpy.zeros_like(scale), where=scale != 0)
    levels = numpy.clip(numpy.floor(blocks * inverse[:, None] + 8.5), 0, 15).astype(numpy.uint8)
    out = numpy.empty((len(blocks), 18), numpy.uint8)
    out[:, :2] = scale.astype("<f2").view(numpy.uint8).reshape(-1, 2)
    out[:, 2:] = levels[:, :16] | (levels[:, 16:] << 4)
    return out.tobytes()
