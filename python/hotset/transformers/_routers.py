# SPDX-License-Identifier: Apache-2.0
"""The routers of a model: their logits, and the scores that follow from them.

Scores are those of `hotset/core/router_scores.hpp`.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Optional

import torch
from torch.nn import functional

from hotset._errors import Error, InvalidArgument
from hotset.transformers._layers import Layer, Uncopied, path_to

_SELECTION_BIASES = ("e_score_correction_bias", "expert_bias")
_LOG_SCORES = {
    "softmax": partial(functional.log_softmax, dim=-1),
    "sigmoid": functional.logsigmoid,
}
# Gate weights of these routers show no function of the logits.
_FUNCTION_OF = {"PhimoeTopKRouter": "softmax"}
_OTHER_CHOICE = {"Kolibri1TopKRouter": "adds its bias to the logits before it chooses"}
# Mean error of a gate weight's logarithm. With bfloat16 weights of 60 families the right function has
# at most 0.004, the other one at least 0.07.
_TOLERANCE = 0.03
# Rounding exchanges experts whose ranks are nearly equal: a share of the choices may differ.
_AGREEING = 0.8
_JUDGED = 64  # choices


class Router(Uncopied):
    """A router whose logits are W x + b. It keeps its input x until `take`; `remove` ends that.

    Raises InvalidArgument for other routers.
    """

    def __init__(self, layer: Layer, model: torch.nn.Module) -> None:
        block = path_to(layer, model)[-1]
        children = dict(block.named_children())
        found = next((name for name in ("gate", "router") if name in children), "")
        if not found:
            raise _refused(layer.name, "has no router beside it (gate, router)")
        module = children[found]
        self.name = f"{layer.name.rpartition('.')[0]}.{found}"
        self.kind = type(module).__name__
        if self.kind in _OTHER_CHOICE:
            raise _refused(self._words(), _OTHER_CHOICE[self.kind])
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        product = next((n for n in held if n.rpartition(".")[2] == "weight"), "weight")
        where = product.rpartition("weight")[0]
        known = (product, where + "bias")
        others = [n for n in held if n not in known and n.rpartition(".")[2] not in _SELECTION_BIASES]
        weight = held.get(product)
        if others or weight is None or weight.ndim != 2 or weight.is_meta:
            raise _refused(self._words(), f"has {', '.join(others) or 'no weight in memory'}")
        self.holder = module.get_submodule(where.rstrip("."))
        self.rows, self.width = weight.shape
        if self.rows != layer.experts:
            raise _refused(self._words(), f"has {self.rows} outputs for {layer.experts} experts")
        self.bias_of_choice = _selection_bias(module, block)
        groups = getattr(module, "num_group", getattr(module, "n_group", None))
        self.groups = groups if isinstance(groups, int) else 1
        kept = getattr(module, "topk_group", None)
        self.top_groups = kept if isinstance(kept, int) else self.groups
        self.function = _FUNCTION_OF.get(self.kind, "")  # known after the first call
        self._choices = self._foreseen = 0
        self._sums = torch.empty(0, 2)  # of a token: its weights' log sum, and log weight per score
        self._kept = threading.local()
        self._hook = self.holder.register_forward_pre_hook(self._keep, with_kwargs=True)

    def _words(self) -> str:
        return f"{self.name} ({self.kind})"

    @torch.compiler.disable  # type: ignore[misc]
    def _keep(self, _: torch.nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._kept.input = [*given, *named.values()][0].detach().reshape(-1, self.width)

    def take(self) -> torch.Tensor:
        """The router's input of this thread's running call, float32 [tokens, width]."""
        taken = self._kept.__dict__.pop("input", None)
        if taken is None:
            raise Error(f"{self._words()}: the experts were called without it: it has no scores")
        return taken.float()

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """float32 [tokens, experts], with the router's bias and without that of the choice."""
        bias = self.holder._parameters.get("bias")
        weight: torch.Tensor = self.holder.weight  # type: ignore[assignment]
        whole = None if bias is None else bias.detach().float()
        return functional.linear(inputs, weight.detach().float(), whole)

    def learn(self, logits: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
        """Finds the function of the logits, softmax or sigmoid, that gives the gate weights: up to
        a factor of each token, or of all tokens with one expert each. Checks that the first choices
        follow from the scores. Raises Error."""
        if not self.function:
            self.function = self._found(logits, ids, weights)
        by_groups = self.function == "softmax" and self.top_groups < self.groups
        if by_groups or self._choices >= _JUDGED:
            return
        foreseen = self.likely(logits, self.function).topk(ids.shape[-1], -1).indices
        self._choices += int((ids >= 0).sum())
        self._foreseen += int((ids.unsqueeze(-1) == foreseen.unsqueeze(-2)).sum())
        if self._choices >= _JUDGED and self._foreseen < _AGREEING * self._choices:
            raise self._unknown("chooses by another rule than its scores plus its bias")

    def _found(self, logits: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> str:
        errors = {n: _error_of(of(logits), ids, weights) for n, of in _LOG_SCORES.items()}
        best = min(errors, key=lambda name: errors[name])
        if not errors[best] < _TOLERANCE:
            raise self._unknown(
                "has gate weights that are neither the softmax nor the sigmoid of its logits"
            )
        return best

    def _unknown(self, why: str) -> Error:
        return Error(
            f"{self._words()} {why}, accepted: record(model) without scores, "
            "page(model) without routing and substitute"
        )

    def weights(
        self, logits: torch.Tensor, found: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Gate weights of the experts `found`, as the model would weigh them if its router had
        chosen them in place of `ids`. If some are -1, the others have the sum of all. Raises Error.
        """
        if self.function == "softmax" and self.top_groups < self.groups:
            raise self._unknown("refuses groups by an unknown rule")
        scores = _LOG_SCORES[self.function](logits)
        own, routers = (
            scores.gather(-1, n.clamp_min(0)).masked_fill(n < 0, -torch.inf) for n in (found, ids)
        )
        given = weights.float().sum(-1, keepdim=True)
        whole = self._keeps_sum(given.log(), routers.logsumexp(-1, keepdim=True))
        keeps = (found < 0).any(-1, keepdim=True) | whole
        return (own - torch.where(keeps, own, routers).logsumexp(-1, keepdim=True)).exp() * given

    def _keeps_sum(self, given: torch.Tensor, scores: torch.Tensor) -> bool:
        """Whether the sum of a token's gate weights is a constant. Else a weight is a score times a
        constant. A layer's first visit may not tell; it has no residents, and changes nothing."""
        if len(self._sums) < _JUDGED:
            seen = torch.cat([given, given - scores], -1).cpu()
            self._sums = torch.cat([self._sums, seen[seen.isfinite().all(-1)]])[:_JUDGED]
        spread = self._sums.std(0, correction=0)
        if spread.min() > _TOLERANCE:
            raise self._unknown("has gate weights whose sum follows an unknown rule")
        return bool(spread[0] <= spread[1])

    def shares(self, logits: torch.Tensor) -> torch.Tensor:
        """Scores that sum to 1."""
        return _shares(logits, self.function)

    def ranks(self, logits: torch.Tensor, function: str) -> torch.Tensor:
        """What the router chooses the highest of: logits, or scores plus its bias; -inf: an expert
        of a refused group. `function`: of the logits."""
        refuses = function == "sigmoid" and self.top_groups < self.groups
        if self.bias_of_choice is None and not refuses:
            return logits
        ranks = logits.softmax(-1) if function == "softmax" else logits.sigmoid()
        if self.bias_of_choice is not None:
            ranks = ranks + self.bias_of_choice.detach().float().reshape(-1)
        return ranks.masked_fill(~self._groups_that_stay(ranks), -torch.inf) if refuses else ranks

    def likely(self, logits: torch.Tensor, function: str) -> torch.Tensor:
        """Shares in the order of the router's choice. `function`: of the logits."""
        ranks = self.ranks(logits, function)
        if ranks is logits:
            return _shares(logits, function)
        refused = ranks == -torch.inf
        lowest = ranks.new_zeros(())
        if self.bias_of_choice is not None:
            lowest = ranks.masked_fill(refused, torch.inf).amin(-1, keepdim=True)
        ranks = (ranks - lowest).masked_fill(refused, 0)
        total = ranks.sum(-1, keepdim=True)
        return torch.where(total > 0, ranks / total, 0)

    def _groups_that_stay(self, ranks: torch.Tensor) -> torch.Tensor:
        """bool [tokens, experts]. A group ranks by the sum of its two best experts."""
        size = self.rows // self.groups
        best = ranks.reshape(-1, self.groups, size).topk(min(2, size), -1).values.sum(-1)
        chosen = best.topk(self.top_groups, -1).indices
        stays = torch.zeros_like(best, dtype=torch.bool).scatter_(-1, chosen, True)
        return stays.repeat_interleave(size, -1)

    def remove(self) -> None:
        self._hook.remove()


def routers_of(
    layers: list[Layer], model: torch.nn.Module, weighs: bool = False
) -> list[Router]:
    """The router of each layer. `weighs`: other experts than its own are weighed by its scores.
    Raises InvalidArgument; nothing has changed then."""
    out: list[Router] = []
    try:
        for layer in layers:
            out.append(Router(layer, model))
            if (out[-1].kind, out[-1].width) != (out[0].kind, out[0].width):
                raise _refused(out[-1]._words(), f"is another router than {out[0]._words()}")
            if weighs and out[-1].kind in _FUNCTION_OF:
                raise _refused(out[-1]._words(), "has gate weights that are no function of its logits")
    except InvalidArgument:
        for router in out:
            router.remove()
        raise
    return out


def _shares(logits: torch.Tensor, function: str) -> torch.Tensor:
    if function == "softmax":
        return logits.softmax(-1)
    scores = logits.sigmoid()
    return scores / scores.sum(-1, keepdim=True)


def _refused(where: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"{where} {why}, accepted for scores: a router W x + b for each layer, alike in all layers"
    )


def _selection_bias(router: torch.nn.Module, block: torch.nn.Module) -> Optional[torch.Tensor]:
    """Added to the scores before the choice, and not in the gate weights."""
    for module in (*router.modules(), block):
        for name in _SELECTION_BIASES:
            found = getattr(module, name, None)
            if isinstance(found, torch.Tensor):
                return found
    return None


def _error_of(scores: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> float:
    """Mean distance of the gate weights' logarithms from these, up to a constant."""
    routed = (ids >= 0) & (weights > 0)
    apart = weights.clamp_min(1e-30).log() - scores.gather(-1, ids.clamp_min(0))
    over = -1 if ids.shape[-1] > 1 else 0
    count = routed.sum(over, keepdim=True).clamp_min(1)
    mean = apart.masked_fill(~routed, 0).sum(over, keepdim=True) / count
    return float((apart - mean).abs()[routed].mean())
