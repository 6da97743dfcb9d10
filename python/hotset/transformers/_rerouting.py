# SPDX-License-Identifier: Apache-2.0
"""A layer's choice of experts, made by a routing policy of hotset in place of the router."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

import numpy
import torch

from hotset.transformers._layers import float32, int32, ranked
from hotset.transformers._routers import Router

if TYPE_CHECKING:
    from hotset.transformers._paging import Paging


class Rerouting:
    """`ahead`: the next layer's router, for which slots are freed; None: they are not."""

    def __init__(self, number: int, router: Router, ahead: Optional[Router], of: Paging) -> None:
        self._number = number
        self._router = router
        self._ahead = ahead
        self._of = of

    def __call__(
        self, logits: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, given: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Ids, weights, and ids for the module. A token whose experts stay keeps its rows."""
        found = self._found(logits, ranked(ids, weights)[0])
        replaced = (found.unsqueeze(-1) != ids.unsqueeze(-2)).all(-1)
        self._of.count_rerouted(int(replaced.sum()))
        changed = replaced.any(-1, keepdim=True)
        # The module computes a place without expert too: with the token's best expert and weight 0.
        best = found.gather(-1, (found >= 0).int().argmax(-1, keepdim=True))
        places = torch.where(found < 0, best, found).to(given.dtype)
        own = self._router.weights(logits, found, ids, weights).to(weights.dtype)
        return (
            torch.where(changed, found, ids),
            torch.where(changed, own, weights),
            torch.where(changed, places, given),
        )

    def _found(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        scores = float32(self._router.ranks(logits, self._router.function))
        chosen, most = int32(ids), self._of.longest
        parts = [
            self._of.pager.route(
                self._number, chosen[first : first + most], logits=scores[first : first + most]
            )
            for first in range(0, max(1, len(chosen)), most)
        ]
        return torch.from_numpy(numpy.concatenate(parts)).to(ids.device, ids.dtype)

    def look_ahead(self, inputs: torch.Tensor) -> None:
        """Frees slots for the next layer by its router's scores of this router's inputs."""
        if self._ahead is None:
            return
        inputs = inputs[-self._of.longest :]
        likely = self._ahead.likely(self._ahead.logits(inputs), self._router.function)
        self._of.pager.expect(self._number, self._of.step, float32(likely.unsqueeze(1)))
