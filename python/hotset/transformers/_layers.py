# SPDX-License-Identifier: Apache-2.0
"""The layers of experts of a model of `transformers`."""

from __future__ import annotations

from typing import Any, NoReturn

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
        self.experts = int(module.num_experts)  # type: ignore[arg-type]
        self.weights = {
            n: p
            for n, p in module.named_parameters(recurse=False)
            if p.ndim > 1 and p.shape[0] == self.experts
        }

    def bytes(self) -> int:
        """Bytes of one expert."""
        return sum(p[0].numel() * p.element_size() for p in self.weights.values())

    def shape(self) -> tuple[Any, ...]:
        return tuple((n, tuple(p.shape[1:]), p.dtype, p.device) for n, p in self.weights.items())


def layers_of(model: torch.nn.Module) -> list[Layer]:
    """The layers in execution order. Raises InvalidArgument."""
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"model: {type(model).__name__}, accepted: a model of transformers")
    found = [
        Layer(n, m)
        for n, m in model.named_modules()
        if hasattr(m, "_is_expert_parallel") and hasattr(m, "num_experts")
    ]
    if not found:
        raise InvalidArgument(
            f"{type(model).__name__} has no experts that hotset knows, accepted: a "
            "Mixture-of-Experts model of transformers 5 or later, whose experts are stacked weights "
            "of one module a layer"
        )
    for layer in found:
        if layer.module._is_expert_parallel:
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


def chosen(
    arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, chosen experts and weights of a call of an experts' module."""
    values = [*arguments, *named.values()]
    if len(values) != 3 or values[1].ndim != 2 or values[1].is_floating_point():
        raise Error(
            "the experts were called with other arguments than "
            "(hidden states, chosen experts, their weights)"
        )
    return values[0], values[1], values[2]


def path_to(layer: Layer, model: torch.nn.Module) -> list[torch.nn.Module]:
    """The model and its modules that contain the layer's experts, outermost first."""
    names = layer.name.split(".")
    return [model.get_submodule(".".join(names[:n])) for n in range(len(names))]
