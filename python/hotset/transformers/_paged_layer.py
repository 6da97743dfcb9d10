# SPDX-License-Identifier: Apache-2.0
"""A layer whose experts are in slots."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Optional

import numpy
import torch

from hotset._errors import DoesNotFit, Error, VisitTooLarge
from hotset.transformers._banks import Bank
from hotset.transformers._layers import Choice, Layer, Uncopied, float32, int32
from hotset.transformers._rerouting import Rerouting
from hotset.transformers._routers import Router

if TYPE_CHECKING:
    from hotset.transformers._paging import Paging


class _Slots:
    """Replaces a weight [experts, ...]: an expert's index gives its slot's, or its own if it has no
    slot."""

    def __init__(self, name: str, bank: Bank, paged: PagedLayer) -> None:
        self.name = name
        self.bank = bank
        self.paged = paged

    def __getitem__(self, expert: Any) -> torch.Tensor:
        slot = self.paged.slot_of(int(expert))
        if slot < 0:
            return self.paged.weights[self.name][expert].to(self.device)
        return self.bank[slot]

    @property
    def dtype(self) -> torch.dtype:
        return self.bank.whole.dtype

    @property
    def device(self) -> torch.device:
        return self.bank.whole.device


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


class PagedLayer(Uncopied):
    """Replaces the `forward` of a module of experts. The module's own eager code runs, on slots
    instead of its weights.

    The module keeps its parameters: state_dict and save_pretrained see the whole model.
    """

    def __init__(
        self,
        number: int,
        layer: Layer,
        choice: Choice,
        banks: dict[str, Bank],
        of: Paging,
        router: Optional[Router] = None,
        reroute: Optional[Rerouting] = None,
    ) -> None:
        """`router`: for policies that need its scores."""
        self.number = number
        self.router = router
        self.reroute = reroute
        self.logits: Optional[torch.Tensor] = None  # of the running call's router
        self.chosen: Optional[numpy.ndarray] = None  # its ids, if `reroute` may have changed them
        self.choice = choice
        self.layer = layer
        self.name = layer.name
        self.module = layer.module
        self.experts = layer.experts
        self.of = of
        self.slots = {name: _Slots(name, bank, self) for name, bank in banks.items()}
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
        self.on_host: set[int] = set()  # experts of this call that the admission refused a slot
        self.module.forward = self  # type: ignore[method-assign,assignment]
        self.module._apply = self.convert  # type: ignore[method-assign]

    @torch.compiler.disable  # type: ignore[misc]
    def __call__(self, *arguments: Any, **named: Any) -> torch.Tensor:
        states, ids, weights = self.choice.of(arguments, named)
        with self.of.lock:
            self._read_weights()
            for slots in self.slots.values():
                if states.device != slots.device:
                    raise Error(
                        f"{self.name}: hidden states on {states.device}, slots on {slots.device}, "
                        f"accepted: page(..., device={str(states.device)!r})"
                    )

            if states.is_cuda:
                self.of.follow(torch.cuda.current_stream(states.device))

            def run() -> torch.Tensor:
                self.of.begin(self.number)
                if self.layer.takes_all:
                    return self._compute_each(states, ids, weights)
                call = ids, weights, [*arguments, *named.values()][1]
                out = self._compute(states, *self._routed(*call))
                self.logits = self.chosen = None
                return out

            # The parameters alone would make the output require a gradient.
            return _WithoutGradient.apply(
                run, states, weights, *self.module.parameters(recurse=False)
            )

    def _routed(
        self, ids: torch.Tensor, weights: torch.Tensor, given: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        if self.router is None:
            return ids, weights, given
        inputs = self.router.take()
        self.logits = self.router.logits(inputs)
        self.router.learn(self.logits, ids, weights)
        if self.reroute is None:
            return ids, weights, given
        self.chosen = int32(ids)
        call = self.reroute(self.logits, ids, weights, given)
        self.reroute.look_ahead(inputs)
        return call

    def _compute(
        self, states: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, given: torch.Tensor
    ) -> torch.Tensor:
        """Runs the module on its slots. `given` are its ids, `ids` those of experts."""
        self._serve(int32(ids), float32(weights))
        return self.stand_in().forward(states, given, weights)

    def _compute_each(
        self, states: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Runs the module for one chosen expert after another; the others' inputs are zeros, and so
        are their outputs."""
        self._serve(int32(ids), float32(weights))
        each = states.reshape(self.experts, len(ids), -1)
        out = torch.zeros_like(each)
        for expert in ids.unique().tolist():
            module = self.stand_in()
            module.__dict__.update({n: s[expert].unsqueeze(0) for n, s in self.slots.items()})
            out[expert] = module.forward(each[expert])
        return out.reshape(states.shape)

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

    def stand_in(self) -> torch.nn.Module:
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
        self.on_host = set()
        try:
            self._visit(routed, weights=weights, chosen=self.chosen)
        except (DoesNotFit, VisitTooLarge):
            # The module processes its experts in ascending order, and so do the visits, as many at
            # a time as fit.
            used = numpy.unique(routed)
            used = used[(used >= 0) & (used < self.experts)]
            self.left = iter(numpy.array_split(used, -(-len(used) // self.of.room)))
            self._next()

    def slot_of(self, expert: int) -> int:
        """-1 if the expert has no slot."""
        while self.row[expert] < 0 and expert not in self.on_host:
            self._next()
        return int(self.row[expert])

    def _next(self) -> None:
        experts = next(self.left, None)
        if experts is None:
            raise Error(f"{self.name}: the module has asked for an expert that was not routed")
        padded = numpy.full((-(-len(experts) // self.of.top_k), self.of.top_k), -1, numpy.int32)
        padded.reshape(-1)[: len(experts)] = experts
        self._visit(padded)

    def _visit(self, routed: numpy.ndarray, **beside: Optional[numpy.ndarray]) -> None:
        def note(visit: Any) -> None:
            self.on_host.update(visit.experts[visit.slots < 0].tolist())

        self.plan(routed, note, **beside)

    def plan(self, routed: numpy.ndarray, use: Callable[[Any], None], **beside: Any) -> None:
        self.of.pager.serve(
            self.number,
            routed,
            self._copy,
            use,
            step=self.of.step,
            kind="prefill" if len(routed) > 1 else "decode",
            **beside,
        )

    def _copy(self, fills: numpy.ndarray) -> None:
        with torch.no_grad():
            for expert, slot in zip(fills["expert"].tolist(), fills["slot"].tolist()):
                for name, slots in self.slots.items():
                    slots.bank.write(slot, self.weights[name][expert])

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
        self.choice.remove()


def _identity(weight: torch.Tensor) -> tuple[Any, ...]:
    """A value that changes with the weight, whether changed in place or replaced."""
    version = 0 if weight.is_inference() else weight._version
    return weight.data_ptr(), weight.shape, weight.stride(), weight.dtype, version
