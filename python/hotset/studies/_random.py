# SPDX-License-Identifier: Apache-2.0
"""Random numbers that are equal on every machine, including those of the library's
hotset::splitmix64."""

from __future__ import annotations

from typing import Any

import numpy

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


class SplitMix64:
    """Steele, Lea and Flood's splitmix64."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        self._state = z = (self._state + _STEP) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        """Returns a uniform integer in [0, bound), without bias."""
        mask = (1 << bound.bit_length()) - 1
        draw = self.next() & mask
        while draw >= bound:
            draw = self.next() & mask
        return draw

    def uniform(self, count: int) -> numpy.ndarray:
        """Returns float64 [count] in [0, 1), multiples of 2^-53. All are drawn at once, because the
        state is a counter."""
        steps = numpy.arange(1, count + 1, dtype=numpy.uint64)
        z = numpy.uint64(self._state) + steps * numpy.uint64(_STEP)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z ^= z >> numpy.uint64(31)
        self._state = (self._state + count * _STEP) & _MASK
        return (z >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53

    def shuffle(self, values: Any) -> None:
        """Fisher-Yates shuffle, from the end."""
        for n in range(len(values), 1, -1):
            other = self.below(n)
            values[n - 1], values[other] = values[other], values[n - 1]
