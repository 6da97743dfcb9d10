# SPDX-License-Identifier: Apache-2.0
"""A layer whose absent experts a miss policy drops, replaces, or takes in fewer bits."""

from __future__ import annotations

from functools import partial
from typing import Any, Optional

import numpy
import torch

from hotset.transformers._layers import ranked
from hotset.transformers._paged_layer import PagedLayer, float32, int32
from hotset.transformers._routers import Router


class ApproximateLayer(PagedLayer):
    """Computes each visit's tokens with the experts and precisions that the pager decides."""

    def __init__(self, *arguments: Any, router: Optional[Router] = None) -> None:
        """`router`: for a policy that needs scores."""
        super().__init__(*arguments)
        self._router = router
        self._placed: dict[int, int] = {}  # slots of the running visit's experts

    def slot_of(self, expert: int) -> int:
        return self._placed[expert]

    def _compute(
        self, states: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, given: torch.Tensor
    ) -> torch.Tensor:
        self.of.begin(self.number)
        ids, shown, order = ranked(ids, weights)
        weights = weights.detach().gather(-1, order)
        logits = None if self._router is None else self._scores(ids, shown)
        parts: dict[int, torch.Tensor] = {}
        out: list[torch.Tensor] = []
        for first in range(0, len(ids), self.of.longest):
            part = slice(first, first + self.of.longest)
            call = states[part], given.gather(-1, order)[part], ids[part], weights[part]
            self.plan(
                int32(ids[part]),
                partial(self._compute_visit, call, parts),
                weights=float32(shown[part]),
                logits=None if logits is None else logits[part],
            )
            out += [parts.pop(token) for token in range(len(call[0]))]
        return torch.stack(out)

    def _scores(self, ids: torch.Tensor, weights: torch.Tensor) -> numpy.ndarray:
        """Numbers whose softmax is the router's share of each expert."""
        assert self._router is not None
        logits = self._router.logits(self._router.take())
        self._router.learn(logits, ids, weights)
        return float32(self._router.shares(logits).log())

    def _compute_visit(
        self, call: tuple[torch.Tensor, ...], parts: dict[int, torch.Tensor], visit: Any
    ) -> None:
        """Runs the module on the tokens of a visit."""
        tokens = visit.tokens.tolist()
        states, given, ids, weights = (values[tokens] for values in call)
        routed = torch.from_numpy(visit.routed.reshape(len(call[2]), -1).astype(numpy.int64))
        routed = routed[tokens].to(ids.device)
        dropped = (routed < 0) & (ids >= 0)
        # The module computes a dropped place too: with its token's best expert and weight 0.
        best = routed.gather(-1, (routed >= 0).int().argmax(-1, keepdim=True))
        places = torch.where(dropped, best, torch.where(routed < 0, given, routed))
        self._placed = dict(zip(visit.experts.tolist(), visit.slots.tolist()))
        computed = self.stand_in().forward(
            states, places.to(given.dtype), _renormalised(weights, dropped)
        )
        self.of.count(visit, routed, dropped, (routed >= 0) & (routed != ids))
        parts.update(zip(tokens, computed))


def _renormalised(weights: torch.Tensor, dropped: torch.Tensor) -> torch.Tensor:
    """Gives the weights of dropped places to the token's others, in proportion."""
    kept = weights.float().masked_fill(dropped, 0)
    left = kept.sum(-1, keepdim=True)
    scaled = kept * (weights.float().sum(-1, keepdim=True) / left.clamp_min(1e-30))
    touched = dropped.any(-1, keepdim=True)
    return torch.where(touched, scaled.to(weights.dtype), weights)
