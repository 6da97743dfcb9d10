# SPDX-License-Identifier: Apache-2.0
"""Router scores of recorded tokens."""

from __future__ import annotations

import numpy
import torch

from hotset._errors import InvalidArgument
from hotset._trace import Trace
from hotset.transformers._layers import Layer
from hotset.transformers._routers import routers_of


class Scores:
    """Arrays of a trace beside its ids: a row for each token."""

    def __init__(
        self, layers: list[Layer], model: torch.nn.Module, next_layers: int, hidden: bool
    ) -> None:
        """Raises InvalidArgument."""
        if not 0 <= next_layers < len(layers):
            raise InvalidArgument(
                f"next layers {next_layers} of {len(layers)} layers, accepted: 0..{len(layers) - 1}"
            )
        self._routers = routers_of(layers, model)
        self._expert_bytes = numpy.array([layer.bytes() for layer in layers], "<u8")
        count, experts = len(layers), layers[0].experts
        self._shapes: dict[str, tuple[tuple[int, ...], str]] = {
            "logits": ((count, experts), "<f4"),
            "probabilities": ((count, experts), "<f2"),
        }
        if next_layers:
            self._shapes["predictions"] = (count, next_layers, experts), "<f2"
        if hidden:
            self._shapes["hidden"] = (count, self._routers[0].width), "<f2"
        self._ahead = next_layers
        self._step: dict[str, numpy.ndarray] = {}
        self._steps: list[dict[str, numpy.ndarray]] = []

    def begin(self, tokens: int) -> None:
        self._step = {
            name: numpy.zeros((tokens, *shape), dtype)
            for name, (shape, dtype) in self._shapes.items()
        }

    def record(self, layer: int, kept: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
        """Ids and weights of all rows in rank order; `kept` are the rows to record."""
        own = self._routers[layer]
        inputs = own.take()
        logits = own.logits(inputs)
        own.learn(logits, ids, weights)

        def rows(values: torch.Tensor) -> numpy.ndarray:
            out: numpy.ndarray = values.cpu()[kept].numpy()
            return out

        self._step["logits"][:, layer] = rows(logits)
        self._step["probabilities"][:, layer] = rows(own.shares(logits))
        if "hidden" in self._step:
            self._step["hidden"][:, layer] = rows(inputs)
        for ahead, router in enumerate(self._routers[layer + 1 : layer + 1 + self._ahead]):
            likely = router.likely(router.logits(inputs), own.function)
            self._step["predictions"][:, layer, ahead] = rows(likely)

    def end(self) -> None:
        self._steps.append(self._step)

    def complete(self, path: str) -> None:
        """Adds the arrays to a trace of the same tokens and starts empty. Raises CannotWrite."""
        steps, self._steps = self._steps, []
        trace = Trace.load(path)
        for name in self._shapes:
            trace.arrays[name] = numpy.concatenate([step[name] for step in steps])
        trace.arrays["expert_bytes"] = self._expert_bytes
        sigmoid = self._routers[0].function == "sigmoid"
        trace.metadata["logits"] = "router logits, before softmax or sigmoid"
        trace.metadata["probabilities"] = (
            "sigmoid of the logits, divided by the sum" if sigmoid else "softmax of the logits"
        )
        if self._ahead:
            trace.metadata["predictions"] = (
                "scores of the next layers' routers on this layer's router input"
            )
        trace.save(path)

    def remove(self) -> None:
        for router in self._routers:
            router.remove()
