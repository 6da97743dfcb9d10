# SPDX-License-Identifier: Apache-2.0
"""A layer whose absent experts a miss policy drops, replaces, or takes in fewer bits."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy
import torch

from hotset.transformers._layers import float32, int32, ranked
from hotset.transformers._paged_layer import PagedLayer


class ApproximateLayer(PagedLayer):
    """Computes each visit's tokens with the experts and precisions that the pager decides."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._placed: dict[int, int] = {}  # slots of the running visit's experts

    def slot_of(self, expert: int) -> int:
        return self._placed[expert]

    def _compute(
        self, states: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, given: torch.Tensor
    ) -> torch.Tensor:
        ids, shown, order = ranked(ids, weights)
        weights = weights.detach().gather(-1, order)
        logits = None  # their softmax is the router's share of each expert
        if self.router is not None and self.logits is not None:
            logits = float32(self.router.shares(self.logits).log())
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
                chosen=None if self.chosen is None else self.chosen[part],
            )
            out += [parts.pop(token) for token in range(len(call[0]))]
        return torch.stack(out)

    def _compute_visit(
        self, call: tuple[torch.Tensor, ...], parts: dict[int, torch.Tensor], visit: Any
    ) -> None:
        """Runs the module on the tokens of a visit."""
        tokens = visit.tokens.tolist()
        states, given, ids, weights = (values[tokens] for values in call)
        routed = torch.from_numpy(visit.routed.reshape(len(call[2]), -1).astype(numpy.int64))
        routed = routed[tokens].to(ids.device)
        # Also places that the routing policy left empty: an expert is given there, with weight 0.
        dropped = (routed < 0) & (given >= 0) & (given < self.experts)
        # The module computes a dropped place too: with its token's best expert and weight 0.
        best = routed.gather(-1, (routed >= 0).int().argmax(-1, keepdim=True))
        places = torch.where(dropped, best, torch.where(routed < 0, given, routed))
        self._placed = dict(zip(visit.experts.tolist(), visit.slots.tolist()))
        computed = self.stand_in().forward(
            states, places.to(given.dtype), _renormalised(weights, dropped)
        )
        self.of.count(visit, routed, dropped & (ids >= 0), (routed >= 0) & (routed != ids))
        parts.update(zip(tokens, computed))


def _renormalised(weights: torch.Tensor, dropped: torch.Tensor) -> torch.Tensor:
    """Gives the weights of dropped places to the token's others, in proportion."""
    kept = weights.float().masked_fill(dropped, 0)
    left = kept.sum(-1, keepdim=True)
    scaled = kept * (weights.float().sum(-1, keepdim=True) / left.clamp_min(1e-30))
    touched = dropped.any(-1, keepdim=True)
    return torch.where(touched, scaled.to(weights.dtype), weights)
