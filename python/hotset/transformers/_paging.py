# SPDX-License-Identifier: Apache-2.0
"""Pages the experts of a model of `transformers`."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Optional, Union

import numpy
import torch

from hotset._errors import DoesNotFit, Error, InvalidArgument, VisitTooLarge
from hotset._pager import Pager
from hotset.transformers._layers import Layer, Uncopied, chosen, layers_of, top_k_of

_LONGEST_PROMPT = 8192


class _Slots:
    """Replaces a weight [experts, ...]: an expert's index gives the row of its slot."""

    def __init__(self, bank: torch.Tensor, paged: _PagedLayer) -> None:
        self.bank = bank
        self.paged = paged

    def __getitem__(self, expert: Any) -> torch.Tensor:
        return self.bank[self.paged.slot_of(int(expert))]

    @property
    def dtype(self) -> torch.dtype:
        return self.bank.dtype

    @property
    def device(self) -> torch.device:
        return self.bank.device


class _WithoutGradient(torch.autograd.Function):
    """Runs a layer. Its backward pass raises, because the slots may then hold other experts."""

    @staticmethod
    def forward(_: Any, run: Callable[[], torch.Tensor], *_inputs: torch.Tensor) -> torch.Tensor:
        return run()

    @staticmethod
    def backward(_: Any, *_gradients: torch.Tensor) -> NoReturn:
        raise Error(
            "no gradient passes the experts of a paged model, accepted: detach() before training"
        )


class _PagedLayer(Uncopied):
    """Replaces the `forward` of a module of experts. The module's own eager code runs, on slots
    instead of its weights.

    The module keeps its parameters: state_dict and save_pretrained see the whole model.
    """

    def __init__(
        self, number: int, layer: Layer, banks: dict[str, torch.Tensor], of: Paging
    ) -> None:
        self.number = number
        self.layer = layer
        self.name = layer.name
        self.module = layer.module
        self.experts = layer.experts
        self.of = of
        self.slots = {name: _Slots(bank, self) for name, bank in banks.items()}
        # Aliases keep the storage alive: the allocator cannot reuse the address of a replaced
        # weight, so _identity notices a replacement.
        self.weights = {name: weight.detach() for name, weight in layer.weights.items()}
        self.seen = [_identity(weight) for weight in self.weights.values()]
        # "eager" processes one expert after another; other implementations index all weights at
        # once. A module without a configuration has one implementation.
        self.config = copy.copy(getattr(layer.module, "config", None))
        if self.config is not None:
            self.config._experts_implementation_internal = "eager"
        self.row = of.pager.row(number)
        self.left: Iterator[numpy.ndarray] = iter(())  # experts of further visits of this call
        self.module.forward = self  # type: ignore[method-assign,assignment]
        self.module._apply = self.convert  # type: ignore[method-assign]

    @torch.compiler.disable  # type: ignore[misc]
    def __call__(self, *arguments: Any, **named: Any) -> torch.Tensor:
        states, ids, weights = chosen(self.layer, arguments, named)
        with self.of.lock:
            self._read_weights()
            for slots in self.slots.values():
                if states.device != slots.device:
                    raise Error(
                        f"{self.name}: hidden states on {states.device}, slots on {slots.device}, "
                        f"accepted: page(..., device={str(states.device)!r})"
                    )
            routed = ids.cpu().to(torch.int32).contiguous().numpy()
            given = weights.detach().cpu().float().contiguous().numpy()

            def run() -> torch.Tensor:
                self._serve(routed, given)
                return self._stand_in().forward(*arguments, **named)

            # The parameters alone would make the output require a gradient.
            return _WithoutGradient.apply(
                run, states, weights, *self.module.parameters(recurse=False)
            )

    def _read_weights(self) -> None:
        """Removes the layer's experts from their slots if its weights have changed."""
        weights = {name: self._weight(name) for name in self.slots}
        seen = [_identity(weight) for weight in weights.values()]
        if seen != self.seen:
            self.of.pager.invalidate(self.number)
            self.weights, self.seen = weights, seen

    def _weight(self, name: str) -> torch.Tensor:
        """Raises Error if the weight of the module does not fit the bank."""
        weight, old = self.module._parameters.get(name), self.weights[name]
        found = "no parameter of the module"
        if weight is not None:
            if (weight.shape, weight.dtype) == (old.shape, old.dtype) and not weight.is_meta:
                return weight.detach()
            found = f"{weight.dtype} {list(weight.shape)} on {weight.device}"
        raise Error(
            f"{self.name}.{name}: now {found}, paged as {old.dtype} {list(old.shape)}, "
            "accepted: detach() before such a change, page() after it"
        )

    def _stand_in(self) -> torch.nn.Module:
        """The module with slots in place of its weights, for one call."""
        out: torch.nn.Module = object.__new__(type(self.module))
        out.__dict__.update(self.module.__dict__)
        if self.config is not None:
            out.__dict__["config"] = self.config
        others = {n: p for n, p in self.module._parameters.items() if n not in self.slots}
        out.__dict__["_parameters"] = others
        out.__dict__.update(self.slots)
        del out.__dict__["forward"], out.__dict__["_apply"]
        return out

    def _serve(self, routed: numpy.ndarray, weights: numpy.ndarray) -> None:
        self.left = iter(())
        self.of.begin(self.number)
        try:
            self._visit(routed, weights)
        except (DoesNotFit, VisitTooLarge):
            # The module processes its experts in ascending order, and so do the visits, as many at
            # a time as fit.
            used = numpy.unique(routed)
            used = used[(used >= 0) & (used < self.experts)]
            self.left = iter(numpy.array_split(used, -(-len(used) // self.of.room)))
            self._next()

    def slot_of(self, expert: int) -> int:
        while self.row[expert] < 0:
            self._next()
        return int(self.row[expert])

    def _next(self) -> None:
        experts = next(self.left, None)
        if experts is None:
            raise Error(f"{self.name}: the module has asked for an expert that was not routed")
        padded = numpy.full((-(-len(experts) // self.of.top_k), self.of.top_k), -1, numpy.int32)
        padded.reshape(-1)[: len(experts)] = experts
        self._visit(padded, None)

    def _visit(self, routed: numpy.ndarray, weights: Optional[numpy.ndarray]) -> None:
        self.of.pager.serve(
            self.number,
            routed,
            self._copy,
            None,
            weights=weights,
            step=self.of.step,
            kind="prefill" if len(routed) > 1 else "decode",
        )

    def _copy(self, fills: numpy.ndarray) -> None:
        with torch.no_grad():
            for expert, slot in zip(fills["expert"].tolist(), fills["slot"].tolist()):
                for name, slots in self.slots.items():
                    slots.bank[slot].copy_(self.weights[name][expert], non_blocking=True)

    def convert(
        self, change: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
    ) -> torch.nn.Module:
        """Replaces the module's `_apply`, which `to`, `half` and `cuda` call. Weights stay on their
        device; their type changes."""
        whole = self.module._parameters
        staying = {}
        for name in self.slots:
            weight = whole.get(name)
            if weight is None:
                continue
            probe = change(torch.empty(0, dtype=weight.dtype, device=weight.device))
            if probe.device != weight.device:
                staying[name] = probe.dtype
        self.module._parameters = {n: p for n, p in whole.items() if n not in staying}
        try:
            type(self.module)._apply(self.module, change, recurse)
        finally:
            whole.update(self.module._parameters)
            self.module._parameters = whole
        for name, dtype in staying.items():
            whole[name].data = whole[name].data.to(dtype)  # type: ignore[union-attr]
        return self.module

    def detach(self) -> None:
        del self.module.forward, self.module._apply


def _identity(weight: torch.Tensor) -> tuple[Any, ...]:
    """A value that changes with the weight, whether changed in place or replaced."""
    version = 0 if weight.is_inference() else weight._version
    return weight.data_ptr(), weight.shape, weight.stride(), weight.dtype, version


def _check_pageable(layer: Layer) -> None:
    """Raises InvalidArgument."""
    forward = layer.module.__dict__.get("forward")
    wrong = None
    if isinstance(forward, _PagedLayer):
        wrong = (
            "the model is paged, accepted: one paging at a time "
            "(paging_of(model).detach() ends the other)"
        )
    elif hasattr(layer.module, "_hf_hook"):
        wrong = (
            "accelerate moves its weights, accepted: a model loaded without device_map or offload "
            "(page() leaves experts where they are and copies those that are routed)"
        )
    elif forward is not None:
        wrong = "its forward was replaced, accepted: the forward of its class"
    elif not layer.weights:
        wrong = f"no weights stacked for {layer.experts} experts"
    for name, weight in layer.weights.items():
        if weight.is_meta:
            wrong = wrong or f"{name} is on the meta device, accepted: weights in memory"
        elif type(weight) is not torch.nn.Parameter:
            wrong = wrong or (
                f"{name} is a {type(weight).__name__}, "
                "accepted: parameters of plain torch (not quantized, not sharded)"
            )
    if wrong is not None:
        raise InvalidArgument(f"{layer.name}: {wrong}")


class Paging(Uncopied):
    """A model with its experts in slots. `detach` (or the end of a `with`) ends the paging.

    The model stays paged even if no handle is held; `paging_of` finds it again.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        slots: Optional[int],
        budget: Union[int, str, None],
        scope: str,
        eviction: str,
        admission: str,
        device: Any,
    ) -> None:
        layers = layers_of(model)
        for layer in layers:
            _check_pageable(layer)
            if layer.shape() != layers[0].shape():
                raise InvalidArgument(
                    f"{layer.name}: experts of another shape or type than {layers[0].name}'s, "
                    "accepted: alike in all layers"
                )
        self.lock = threading.Lock()  # held while a layer runs: another thread would take its slots
        self.step = 0
        self._last = -1
        self.top_k = top_k_of(model)
        self.pager = Pager(
            len(layers),
            layers[0].experts,
            self.top_k,
            max_tokens=_LONGEST_PROMPT,
            slots=slots,
            budget=budget,
            expert_bytes=layers[0].bytes(),
            scope=scope,
            split="refuse",
            eviction=eviction,
            admission=admission,
        )
        count = self.pager.slots
        self.room = min(layers[0].experts, count if scope == "shared" else count // len(layers))
        where = next(iter(layers[0].weights.values())).device if device is None else device
        # One bank for all layers: the pager gives a slot to any of them. A tensor made in inference
        # mode cannot be written outside it.
        with torch.inference_mode(False):
            banks = {
                n: torch.empty((count, *p.shape[1:]), dtype=p.dtype, device=where)
                for n, p in layers[0].weights.items()
            }
        self._size = {"slots": count, "bytes": count * layers[0].bytes()}
        self._layers = [_PagedLayer(n, layer, banks, self) for n, layer in enumerate(layers)]

    def begin(self, layer: int) -> None:
        """Called when a layer runs: begins a new step unless the layer follows the last one."""
        if layer <= self._last:
            self.step += 1
        self._last = layer

    def stats(self) -> dict[str, int]:
        """Counters of the pager; `slots` and their `bytes`."""
        with self.lock:
            return {**self.pager.stats(), **self._size}

    def detach(self) -> None:
        """Restores the model and frees the slots. A second call does nothing. Raises Error if
        another library has wrapped a module of experts since."""
        for layer in self._layers:
            if layer.module.__dict__.get("forward") is not layer:
                raise Error(
                    f"{layer.name}: its forward was replaced after page(), "
                    "accepted: detach() after that is undone"
                )
        for layer in self._layers:
            layer.detach()
        self._layers = []

    def __enter__(self) -> Paging:
        return self

    def __exit__(self, *_: Any) -> None:
        self.detach()


def page(
    model: torch.nn.Module,
    *,
    budget: Union[int, str, None] = None,
    slots: Optional[int] = None,
    scope: str = "shared",
    eviction: str = "similar_steps",
    admission: str = "always",
    device: Any = None,
) -> Paging:
    """Keeps experts in slots, within `budget` bytes ("2GiB") or `slots` (per layer with scope
    "per_layer"), and copies others in when they are routed. The weights stay in the model, and
    copies are made from them; the slots are on `device`, by default on that of the weights.
    `model.to` moves the model without its experts.

    Results equal those of the model with experts_implementation="eager", bit for bit: the module's
    own code runs, on the same numbers in the same order. A prompt that routes more experts than
    there are slots is served in several visits.

    Weights may change (load_state_dict), but not in place through `weight.data`, because torch
    counts no version for that. After a change of their type the next call raises. A backward pass
    through the experts raises. Threads may call the model concurrently; only one runs a layer of
    experts at a time.

    Raises InvalidArgument, InvalidConfig; nothing has changed then.
    """
    return Paging(model, slots, budget, scope, eviction, admission, device)


def paging_of(model: torch.nn.Module) -> Optional[Paging]:
    """The paging of a model, or None."""
    for module in model.modules():
        forward = module.__dict__.get("forward")
        if isinstance(forward, _PagedLayer):
            return forward.of
    return None
