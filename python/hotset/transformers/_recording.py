# SPDX-License-Identifier: Apache-2.0
"""Records the routing of a model of `transformers`."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Optional

import numpy
import torch

from hotset._errors import Error, InvalidArgument
from hotset._recorder import Recorder
from hotset.transformers._layers import Choice, Uncopied, layers_of, path_to, ranked, top_k_of
from hotset.transformers._scores import Scores


class Recording(Uncopied):
    """Records the routing of a model's forward passes. `detach` (or the end of a `with`) ends it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        capacity: int,
        weights: bool,
        name: Optional[str],
        scores: bool,
        next_layers: Optional[int],
        hidden: bool,
    ) -> None:
        layers = layers_of(model)
        self._top_k = top_k_of(model)
        self._weights = weights
        self._rows = 0  # rows of the running call
        self._kept = torch.empty(0, dtype=torch.int64)  # rows that are recorded
        self._lock = threading.Lock()
        # The outermost call: its module and thread.
        self._running: Optional[tuple[torch.nn.Module, int]] = None
        self.recorder = Recorder(
            len(layers),
            layers[0].experts,
            self._top_k,
            capacity,
            weights,
            name or type(model).__name__,
            type(model).__name__,
        )
        self._scores = None
        if scores:
            if next_layers is None:
                next_layers = min(1, len(layers) - 1)
            self._scores = Scores(layers, model, next_layers, hidden)
        self._choices = [Choice(layer, model, self._top_k) for layer in layers]
        self._hooks = []
        for module in path_to(layers[0], model):
            # Models of transformers have a `base_model_prefix`; other modules take no tokens.
            if module is model or hasattr(module, "base_model_prefix"):
                self._hooks.append(module.register_forward_pre_hook(self._begin, with_kwargs=True))
                self._hooks.append(module.register_forward_hook(self._end, always_call=True))
        for number, layer in enumerate(layers):
            self._hooks.append(
                layer.module.register_forward_pre_hook(
                    partial(self._experts, number), with_kwargs=True
                )
            )

    @torch.compiler.disable  # type: ignore[misc]
    def _begin(
        self, module: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Begins a step, unless a model around `module` makes the call."""
        call = module, threading.get_ident()
        with self._lock:
            if self._running == call:
                self._close()  # an interrupt ended the last call: torch runs no hooks after one
            if self._running is not None and self._running[1] != call[1]:
                raise Error(
                    "another thread runs the model, "
                    "accepted: one thread at a time while it is recorded"
                )
            if self._running is None:
                self._begin_step(arguments, named)
                self._running = call

    def _begin_step(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids = arguments[0] if arguments else named.get("input_ids")
        if ids is None:
            ids = named.get("inputs_embeds")
        if ids is None:
            raise Error(
                "the model was called without input_ids or inputs_embeds: "
                "there are no tokens to record"
            )
        batch, length = int(ids.shape[0]), int(ids.shape[1])
        self._rows = batch * length
        mask = named.get("attention_mask")
        kept = torch.ones(self._rows, dtype=torch.bool)
        if isinstance(mask, torch.Tensor) and mask.ndim == 2:
            kept = mask[:, -length:].reshape(-1).bool().cpu()
        self._kept = kept.nonzero().reshape(-1)
        sequences = (self._kept // length).to(torch.int64).numpy().astype(numpy.uint32)
        if len(self._kept):
            self.recorder.begin_step(
                len(self._kept), "prefill" if length > 1 else "decode", None, sequences
            )
            if self._scores is not None:
                self._scores.begin(len(self._kept))

    @torch.compiler.disable  # type: ignore[misc]
    def _end(self, module: torch.nn.Module, *_: Any) -> None:
        with self._lock:
            if self._running == (module, threading.get_ident()):
                self._close()

    def _close(self) -> None:
        self._running = None
        if len(self._kept):
            self.recorder.end_step()
            if self._scores is not None:
                self._scores.end()

    @torch.compiler.disable  # type: ignore[misc]
    def _experts(
        self, number: int, _: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        if (
            self._running is None
            or self._running[1] != threading.get_ident()
            or not len(self._kept)
        ):
            return
        _states, ids, weights = self._choices[number].of(arguments, named)
        if len(ids) != self._rows:
            raise Error(
                f"experts of {len(ids)} tokens in a call of {self._rows}, "
                "accepted: models that route every token of a call"
            )
        ids, weights, _ = ranked(ids, weights)
        if self._scores is not None:
            self._scores.record(number, self._kept, ids, weights)
        rows = ids.cpu()[self._kept].to(torch.int32).contiguous().numpy()
        given = weights.cpu()[self._kept].contiguous().numpy() if self._weights else None
        self.recorder.record(number, rows, given)

    @property
    def tokens(self) -> int:
        """Tokens recorded since the last write."""
        return self.recorder.tokens()[0]

    def write(self, path: str) -> None:
        """Writes the recorded tokens as a trace and starts a new one. Raises CannotWrite, also if
        there are none. The file is written twice with scores: if the disk is full, it has none."""
        self.recorder.write(path)
        if self._scores is not None:
            self._scores.complete(path)

    def detach(self) -> None:
        """Restores the model; `write` still works."""
        for hook in self._hooks:
            hook.remove()
        for choice in self._choices:
            choice.remove()
        self._hooks, self._choices = [], []
        if self._scores is not None:
            self._scores.remove()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: Any) -> None:
        self.detach()


def record(
    model: torch.nn.Module,
    *,
    capacity: int = 65536,
    weights: bool = True,
    name: Optional[str] = None,
    scores: bool = False,
    next_layers: Optional[int] = None,
    hidden: bool = False,
) -> Recording:
    """Records the experts of up to `capacity` tokens, for calls of the model or of a base model in
    it. A forward pass is a step, a row of the batch a sequence; padding (attention_mask 0) is left
    out. Ids are in rank order by gate weight. Only one thread at a time may run the model.

    scores: router logits and probabilities too, and what the routers of the `next_layers` (1)
    following layers say to the same hidden state. hidden: that state, for `train-gate`. Studies of
    prefetching and of routing need them (docs/trace-format.md).

    Raises InvalidArgument. A forward pass raises ExceedsMemory if its tokens do not fit.
    """
    if not scores and (next_layers is not None or hidden):
        raise InvalidArgument("next_layers and hidden belong to scores, accepted: scores=True")
    return Recording(model, capacity, weights, name, scores, next_layers, hidden)
