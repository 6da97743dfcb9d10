# SPDX-License-Identifier: Apache-2.0
"""Requests of experts that are likely to be used."""

from __future__ import annotations

from ctypes import byref, c_size_t
from typing import Any

import numpy
from numpy.typing import NDArray

from hotset._arguments import int32, request, text, uint64, view_of
from hotset._library import Held, PrefetcherOptions, check, library


class Prefetcher(Held):
    """Proposes experts to copy ahead, by a predictor and a prefetch policy of the library.

    prefetch, predictor: by name with parameters, as on the command line. Call propose once for
    each visit, in order, and give what it returns to Pager.prefetch.
    Raises InvalidConfig.
    """

    def __init__(
        self,
        layers: int,
        experts: int,
        top_k: int,
        max_tokens: int = 1,
        prefetch: str = "next_layer_top_k",
        predictor: str = "similar-steps",
    ) -> None:
        options = PrefetcherOptions(
            layers=int32("layers", layers),
            experts=int32("experts", experts),
            top_k=int32("top_k", top_k),
            max_tokens=int32("max_tokens", max_tokens),
            prefetch=text("prefetch", prefetch),
            predictor=text("predictor", predictor),
        )
        self._make("prefetcher", options)
        self._experts = options.experts
        self._top_k = options.top_k
        most = c_size_t()
        check(library.hotset_prefetcher_most(self._handle, byref(most)))
        self._most = most.value

    def propose(
        self,
        layer: int,
        experts: Any,
        step: int,
        weights: Any = None,
        logits: Any = None,
        sequences: Any = None,
    ) -> NDArray[Any]:
        """Requests, hotset.request, for later visits, best first. Raises InvalidVisit, VisitTooLarge."""
        layer, step = int32("layer", layer), uint64("step", step)
        view, kept = view_of(layer, step, 0, experts, self._top_k, weights, sequences, logits, self._experts)
        out, count = numpy.empty(self._most, request), c_size_t()
        check(library.hotset_propose(self._handle, byref(view), out.ctypes.data, self._most, byref(count)))
        return out[: count.value].copy()
