# SPDX-License-Identifier: Apache-2.0
"""Memory of the slots: experts as they are, and in fewer bits."""

from __future__ import annotations

from typing import Any, Optional

import numpy
import torch

from hotset._errors import InvalidArgument

_GROUP = 32  # neighbouring numbers that share a scale
_LOWER_BITS = (8, 4, 2)


class _Quantised:
    """Rows of `shape` in `bits` bits: whole numbers of -limit..limit and a scale for each group, the
    group's greatest number / limit. Rounded to nearest."""

    def __init__(self, rows: int, weight: torch.Tensor, bits: int, device: Any) -> None:
        self.weight = weight
        self.bits = bits
        self.limit = 2 ** (bits - 1) - 1
        groups = -(-weight.numel() // _GROUP)
        packed = (rows, groups, _GROUP * bits // 8)
        self.codes = torch.zeros(packed, dtype=torch.uint8, device=device)
        self.scales = torch.zeros((rows, groups, 1), dtype=weight.dtype, device=device)

    @staticmethod
    def bytes_of(weight: torch.Tensor, bits: int) -> int:
        return -(-weight.numel() // _GROUP) * (_GROUP * bits // 8 + weight.element_size())

    def write(self, row: int, weight: torch.Tensor) -> None:
        flat = weight.reshape(-1).float()
        flat = torch.nn.functional.pad(flat, (0, -len(flat) % _GROUP)).reshape(-1, _GROUP)
        scales = (flat.abs().amax(-1, keepdim=True) / self.limit).to(weight.dtype)
        whole = (flat / scales.float().clamp_min(1e-30)).round().clamp(-self.limit, self.limit)
        codes = (whole + self.limit).to(torch.uint8).reshape(len(flat), -1, 8 // self.bits)
        shifted = codes << self._shifts(codes.device)
        self.codes[row].copy_(shifted.sum(-1, dtype=torch.uint8))
        self.scales[row].copy_(scales)

    def read(self, row: int) -> torch.Tensor:
        parts = self.codes[row].unsqueeze(-1) >> self._shifts(self.codes.device)
        whole = (parts & (2**self.bits - 1)).reshape(-1, _GROUP).float() - self.limit
        values = (whole * self.scales[row].float()).reshape(-1)[: self.weight.numel()]
        return values.to(self.weight.dtype).reshape(self.weight.shape)

    def _shifts(self, device: Any) -> torch.Tensor:
        return torch.arange(0, 8, self.bits, dtype=torch.uint8, device=device)


class Bank:
    """One weight of the experts that are in slots. `weight` is one expert's."""

    def __init__(
        self, weight: torch.Tensor, precisions: numpy.ndarray, lower: list[int], device: Any
    ) -> None:
        """precisions: of each slot."""
        self.precisions = precisions
        self.rows = numpy.zeros(len(precisions), numpy.int64)
        for precision in range(1 + len(lower)):
            where = precisions == precision
            self.rows[where] = numpy.arange(int(where.sum()))
        full = int((precisions == 0).sum())
        self.whole = torch.empty((full, *weight.shape), dtype=weight.dtype, device=device)
        self.lower = [
            _Quantised(int((precisions == 1 + n).sum()), weight, bits, device)
            for n, bits in enumerate(lower)
        ]

    def write(self, slot: int, weight: torch.Tensor) -> None:
        row, precision = int(self.rows[slot]), int(self.precisions[slot])
        if precision:
            self.lower[precision - 1].write(row, weight)
        else:
            self.whole[row].copy_(weight, non_blocking=True)

    def __getitem__(self, slot: int) -> torch.Tensor:
        row, precision = int(self.rows[slot]), int(self.precisions[slot])
        return self.lower[precision - 1].read(row) if precision else self.whole[row]


def lower_bits(precision: Optional[str], weights: dict[str, torch.Tensor]) -> list[int]:
    """The bits after the first of "16:8:4", or none. Raises InvalidArgument."""
    if precision is None:
        return []
    own = {8 * weight.element_size() for weight in weights.values()}
    parts = precision.split(":") if isinstance(precision, str) else []
    bits = [int(part) if part.isdecimal() else 0 for part in parts]
    falling = all(a > b for a, b in zip(bits, bits[1:]))
    if len(bits) < 2 or own != {bits[0]} or not falling or set(bits[1:]) - set(_LOWER_BITS):
        widest = max(own)
        raise InvalidArgument(
            f"precision: {precision!r}, accepted: the weights' own bits and lower ones of 8, 4 and "
            f'2, highest first, such as "{widest}:8" or "{widest}:8:4"'
        )
    return bits[1:]


def lower_bytes(weights: dict[str, torch.Tensor], lower: list[int]) -> list[int]:
    """Bytes of an expert in each of the lower precisions."""
    return [sum(_Quantised.bytes_of(w[0], bits) for w in weights.values()) for bits in lower]
