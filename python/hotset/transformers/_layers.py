# SPDX-License-Identifier: Apache-2.0
"""The layers of experts of a model of `transformers`."""

from __future__ import annotations

import inspect
import threading
from typing import Any, NoReturn

import numpy
import torch

from hotset._errors import Error, InvalidArgument


class Uncopied:
    """Part of a paged or recorded model: refuses deepcopy and pickle."""

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise Error(
            "a paged or recorded model cannot be copied or pickled, accepted: detach() first"
        )


class Layer:
    """The experts of one layer: their module, and its weights by name, [experts, ...] each."""

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self.name = name
        self.module = module
        self.experts = _experts_of(module)
        self.weights = _stacked(module)
        self.takes_all = _takes_all(module)

    def bytes(self) -> int:
        """Bytes of one expert."""
        return sum(p[0].numel() * p.element_size() for p in self.weights.values())

    def shape(self) -> tuple[Any, ...]:
        return tuple((n, tuple(p.shape[1:]), p.dtype, p.device) for n, p in self.weights.items())


def _experts_of(module: torch.nn.Module) -> int:
    """Experts that have weights, or 0. LongCat routes to experts without weights too."""
    found = getattr(module, "num_routed_experts", getattr(module, "num_experts", 0))
    return found if isinstance(found, int) else 0


def _stacked(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The module's own weights, a row for each expert; LongCat has rows that it never reads."""
    experts = _experts_of(module)
    rows = (experts, getattr(module, "total_experts", experts))
    own = module.named_parameters(recurse=False)
    return {n: p for n, p in own if p.ndim > 1 and p.shape[0] in rows}


def _inputs_of(module: torch.nn.Module) -> list[str]:
    return list(inspect.signature(type(module).forward).parameters)[1:]


def _holds_experts(module: torch.nn.Module) -> bool:
    if hasattr(module, "_is_expert_parallel"):  # use_experts_implementation
        return hasattr(module, "num_experts")
    if _experts_of(module) == 0 or not any(p.ndim > 2 for p in _stacked(module).values()):
        return False
    return len(_inputs_of(module)) == 3 or _takes_all(module)


def _takes_all(module: torch.nn.Module) -> bool:
    """Whether each expert gets every token. Its output for zeros is then zero: no biases."""
    return type(module).__name__ == "Llama4TextExperts"


def _why_not(model: torch.nn.Module) -> str:
    """Describes the first module of experts that hotset does not know, or is empty."""
    for name, module in model.named_modules():
        if "Experts" not in type(module).__name__ or not list(module.parameters()):
            continue
        inputs = _inputs_of(module)
        if len(inputs) != 3:
            return f": {name} ({type(module).__name__}) is called with ({', '.join(inputs)})"
        return f": {name} ({type(module).__name__}) has no weights of its own"
    return ""


def layers_of(model: torch.nn.Module) -> list[Layer]:
    """The layers in execution order. Raises InvalidArgument."""
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"model: {type(model).__name__}, accepted: a model of transformers")
    found = [Layer(n, m) for n, m in model.named_modules() if _holds_experts(m)]
    if not found:
        raise InvalidArgument(
            f"{type(model).__name__} has no experts that hotset knows{_why_not(model)}, accepted: a "
            "Mixture-of-Experts model of transformers 5 or later, one module a layer with the "
            "stacked weights of its experts, called with (hidden states, chosen experts, weights)"
        )
    for layer in found:
        if getattr(layer.module, "_is_expert_parallel", False):
            raise InvalidArgument(
                f"{layer.name}: experts that are spread over processes, accepted: all in one"
            )
        if layer.experts != found[0].experts:
            raise InvalidArgument(
                f"{layer.name}: {layer.experts} experts, accepted: {found[0].experts}, "
                f"as {found[0].name}"
            )
    return found


def top_k_of(model: torch.nn.Module) -> int:
    config = model.config.get_text_config()  # type: ignore[union-attr,operator]
    for key in (
        "num_experts_per_tok",
        "num_experts_per_token",
        "moe_top_k",
        "moe_topk",
        "top_k_experts",
        "moe_k",
        "num_selected_experts",
    ):
        value = getattr(config, key, None)
        if isinstance(value, int) and value > 0:
            return value
    raise InvalidArgument(
        f"{type(config).__name__} does not say how many experts a token takes, "
        "accepted: num_experts_per_tok"
    )


class Choice(Uncopied):
    """Tells hidden states, chosen experts and weights of a call of a layer's module.

    Llama 4's module is not given the choice: every expert gets every token, times its score, which
    is 0 unless it is chosen. Its router beside it is listened to until `remove`.
    """

    def __init__(self, layer: Layer, model: torch.nn.Module, top_k: int) -> None:
        """Raises InvalidArgument."""
        self._layer = layer
        self._top_k = top_k
        self._kept = threading.local()
        self._hook = None
        if layer.takes_all:
            router = getattr(path_to(layer, model)[-1], "router", None)
            if not isinstance(router, torch.nn.Module):
                raise InvalidArgument(
                    f"{layer.name}: takes all tokens and has no router beside it, accepted: "
                    "experts called with (hidden states, chosen experts, weights)"
                )
            self._hook = router.register_forward_hook(self._keep)

    @torch.compiler.disable  # type: ignore[misc]
    def _keep(self, _: torch.nn.Module, __: Any, found: Any) -> None:
        self._kept.scores = found[0].detach()

    def of(
        self, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """-1 replaces ids without an expert. Raises Error."""
        values = [*arguments, *named.values()]
        if self._layer.takes_all:
            scores = getattr(self._kept, "scores", None)
            if scores is None or len(values) != 1 or values[0].shape[0] != scores.numel():
                raise Error(f"{self._layer.name}: called without its router")
            weights, ids = scores.topk(self._top_k, -1)
            values = [*values, ids, weights]
        if len(values) != 3 or values[1].ndim != 2 or values[1].is_floating_point():
            raise Error(
                "the experts were called with other arguments than "
                "(hidden states, chosen experts, their weights)"
            )
        states, ids, weights = values
        absent = (ids < 0) | (ids >= self._layer.experts)
        return states, ids.detach().masked_fill(absent, -1), weights

    def remove(self) -> None:
        if self._hook is not None:
            self._hook.remove()


def ranked(ids: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Ids and float32 weights in rank order, and the order. Some families choose without sorting.
    """
    given = weights.detach().float().masked_fill(ids < 0, 0)
    given, order = given.sort(dim=-1, descending=True, stable=True)
    return ids.gather(-1, order), given, order


def int32(ids: torch.Tensor) -> numpy.ndarray:
    return ids.cpu().to(torch.int32).contiguous().numpy()


def float32(values: torch.Tensor) -> numpy.ndarray:
    return values.detach().cpu().float().contiguous().numpy()


def path_to(layer: Layer, model: torch.nn.Module) -> list[torch.nn.Module]:
    """The model and its modules that contain the layer's experts, outermost first."""
    names = layer.name.split(".")
    return [model.get_submodule(".".join(names[:n])) for n in range(len(names))]
