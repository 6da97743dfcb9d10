# SPDX-License-Identifier: Apache-2.0
"""Mixture-of-Experts models of the `transformers` library (5 or later): their routing recorded, their experts paged.

    recording = hotset.transformers.record(model)
    model.generate(...)
    recording.write("run.trace")

    paged = hotset.transformers.page(model, budget="2GiB", eviction="similar_steps")
    model.generate(...)                     # the same tokens
    paged.stats()
    paged.detach()                          # the model as it was

Both go by the modules that hold a layer's experts as stacked weights and are called with (hidden states, chosen experts, their weights): what
`transformers` decorates with `use_experts_implementation`, whatever the family: Mixtral, Qwen, OLMoE, DeepSeek, GPT-OSS and others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Optional, Union

import numpy
import torch

from hotset._errors import DoesNotFit, Error, InvalidArgument, VisitTooLarge
from hotset._pager import Pager
from hotset._recorder import Recorder

_OF_MODULE = "_hotset_paging"
_LONGEST_PROMPT = 8192


class _Layer:
    """The experts of one layer: their module, and its weights by name, [experts, ...] each."""

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self.name = name
        self.module = module
        self.experts = int(module.num_experts)  # type: ignore[arg-type]
        self.weights = {
            n: p for n, p in module.named_parameters(recurse=False) if p.ndim > 1 and p.shape[0] == self.experts
        }

    def bytes(self) -> int:
        """Of one expert."""
        return sum(p[0].numel() * p.element_size() for p in self.weights.values())

    def shape(self) -> tuple[Any, ...]:
        return tuple((n, tuple(p.shape[1:]), p.dtype, p.device) for n, p in self.weights.items())


def _layers_of(model: torch.nn.Module) -> list[_Layer]:
    """In the order in which they run. Raises InvalidArgument."""
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"model: {type(model).__name__}, accepted: a model of transformers")
    found = [_Layer(n, m) for n, m in model.named_modules() if hasattr(m, "_is_expert_parallel") and hasattr(m, "num_experts")]
    if not found:
        raise InvalidArgument(
            f"{type(model).__name__} has no experts that hotset knows, accepted: a Mixture-of-Experts model of transformers 5 or later, "
            "whose experts are stacked weights of one module a layer"
        )
    for layer in found:
        if layer.module._is_expert_parallel:
            raise InvalidArgument(f"{layer.name}: experts that are spread over several processes, accepted: all in one")
        if layer.experts != found[0].experts:
            raise InvalidArgument(f"{layer.name}: {layer.experts} experts, accepted: {found[0].experts}, as {found[0].name}")
    return found


def _top_k_of(model: torch.nn.Module) -> int:
    config = model.config.get_text_config()  # type: ignore[union-attr,operator]
    for key in ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k_experts", "moe_k", "num_selected_experts"):
        value = getattr(config, key, None)
        if isinstance(value, int) and value > 0:
            return value
    raise InvalidArgument(f"{type(config).__name__} does not say how many experts a token takes, accepted: num_experts_per_tok")


def _chosen(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, chosen experts and weights of a call of an experts' module."""
    values = [*arguments, *named.values()]
    if len(values) != 3 or values[1].ndim != 2 or values[1].is_floating_point():
        raise Error("the experts were called with other arguments than (hidden states, chosen experts, their weights)")
    return values[0], values[1], values[2]


class Recording:
    """Routing of a model, from its forward passes on. `detach` (or the end of a `with`) ends it."""

    def __init__(self, model: torch.nn.Module, capacity: int, weights: bool, name: Optional[str]) -> None:
        layers = _layers_of(model)
        self._top_k = _top_k_of(model)
        self._weights = weights
        self._kept: Optional[torch.Tensor] = None
        self._open = False
        self.recorder = Recorder(
            len(layers), layers[0].experts, self._top_k, capacity, weights, name or type(model).__name__, type(model).__name__
        )
        self._hooks = [
            model.register_forward_pre_hook(self._begin, with_kwargs=True),
            model.register_forward_hook(self._end, always_call=True),
        ]
        for number, layer in enumerate(layers):
            self._hooks.append(layer.module.register_forward_pre_hook(self._experts(number), with_kwargs=True))

    def _begin(self, _: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids = arguments[0] if arguments else named.get("input_ids")
        if ids is None:
            ids = named.get("inputs_embeds")
        if ids is None:
            raise Error("the model was called without input_ids or inputs_embeds: there are no tokens to record")
        batch, length = int(ids.shape[0]), int(ids.shape[1])
        mask = named.get("attention_mask")
        kept = torch.ones(batch * length, dtype=torch.bool)
        if isinstance(mask, torch.Tensor) and mask.ndim == 2:
            kept = mask[:, -length:].reshape(-1).bool().cpu()
        self._kept = kept.nonzero().reshape(-1)
        sequences = (self._kept // length).to(torch.int64).numpy().astype(numpy.uint32)
        if len(self._kept):
            self.recorder.begin_step(len(self._kept), "prefill" if length > 1 else "decode", None, sequences)
            self._open = True

    def _end(self, *_: Any) -> None:
        if self._open:
            self._open = False
            self.recorder.end_step()

    def _experts(self, number: int) -> Callable[..., None]:
        def record(_: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            if not self._open:
                return
            _states, ids, weights = _chosen(arguments, named)
            # Rank order: some families choose without sorting.
            weights, order = weights.detach().float().sort(dim=-1, descending=True, stable=True)
            ids = ids.gather(-1, order)
            assert self._kept is not None
            rows = ids.cpu()[self._kept].to(torch.int32).contiguous().numpy()
            given = weights.cpu()[self._kept].contiguous().numpy() if self._weights else None
            self.recorder.record(number, rows, given)

        return record

    @property
    def tokens(self) -> int:
        """Held so far."""
        return self.recorder.tokens()[0]

    def write(self, path: str) -> None:
        """Writes what was recorded as a trace, and begins anew. Raises CannotWrite."""
        self.recorder.write(path)

    def detach(self) -> None:
        """The model is as it was; what was recorded stays."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: Any) -> None:
        self.detach()


def record(
    model: torch.nn.Module, *, capacity: int = 65536, weights: bool = True, name: Optional[str] = None
) -> Recording:
    """Records which experts each token is routed to, `capacity` tokens of it. A forward pass is a step, a row of the batch a sequence;
    padding (attention_mask 0) is left out. Ids are in rank order by gate weight.

    Raises InvalidArgument; ExceedsMemory in the forward pass for which there is no room."""
    return Recording(model, capacity, weights, name)


class _Slots:
    """Stands where a weight [experts, ...] stood: an expert's number finds what lies in its slot."""

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


class _PagedLayer:
    """A layer whose experts are read from slots while it runs."""

    def __init__(self, number: int, layer: _Layer, banks: dict[str, torch.Tensor], of: Paging) -> None:
        self.number = number
        self.layer = layer
        self.banks = banks
        self.of = of
        self.row = of.pager.row(number)
        self.left: Iterator[numpy.ndarray] = iter(())  # experts of further visits of this call
        self.forward = layer.module.forward
        for name, weight in layer.weights.items():
            del layer.module._parameters[name]
            setattr(layer.module, name, _Slots(banks[name], self))
        layer.module.forward = self  # type: ignore[method-assign,assignment]

    def __call__(self, *arguments: Any, **named: Any) -> torch.Tensor:
        _, ids, weights = _chosen(arguments, named)
        routed = ids.detach().cpu().to(torch.int32).contiguous().numpy()
        given = weights.detach().cpu().float().contiguous().numpy()
        self.left = iter(())
        self.of.begin(self.number)
        try:
            self._visit(routed, given)
        except (DoesNotFit, VisitTooLarge):
            # The module takes its experts in ascending order: so do the visits, as many experts each as there is room for.
            used = numpy.unique(routed)
            used = used[(used >= 0) & (used < self.layer.experts)]
            self.left = iter(numpy.array_split(used, -(-len(used) // self.of.room)))
            self._next()
        with torch.no_grad():
            return self.forward(*arguments, **named)

    def slot_of(self, expert: int) -> int:
        while self.row[expert] < 0:
            self._next()
        return int(self.row[expert])

    def _next(self) -> None:
        experts = next(self.left, None)
        if experts is None:
            raise Error(f"{self.layer.name}: the module has asked for an expert that was not routed")
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
                for name, bank in self.banks.items():
                    bank[slot].copy_(self.layer.weights[name][expert], non_blocking=True)

    def detach(self) -> None:
        module = self.layer.module
        del module.forward
        for name, weight in self.layer.weights.items():
            delattr(module, name)
            module.register_parameter(name, weight)


class Paging:
    """A model whose experts live in slots. `detach` (or the end of a `with`) makes it what it was."""

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
        if hasattr(model, _OF_MODULE):
            raise InvalidArgument("the model is paged, accepted: one paging at a time (detach the other)")
        layers = _layers_of(model)
        for layer in layers:
            if not layer.weights:
                raise InvalidArgument(f"{layer.name}: no weights stacked for {layer.experts} experts")
            if layer.shape() != layers[0].shape():
                raise InvalidArgument(f"{layer.name}: experts of another shape or type than {layers[0].name}'s, accepted: alike in all layers")
        self.model = model
        self.step = 0
        self._last = -1
        self.top_k = _top_k_of(model)
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
        # One row of slots for all layers: a slot belongs to whom the pager gives it.
        self.banks = {n: torch.empty((count, *p.shape[1:]), dtype=p.dtype, device=where) for n, p in layers[0].weights.items()}
        # The eager form takes one expert after the other, which is what can be paged.
        self._before = model.get_experts_implementation()  # type: ignore[operator]
        model.set_experts_implementation("eager")  # type: ignore[operator]
        self._layers = [_PagedLayer(n, layer, self.banks, self) for n, layer in enumerate(layers)]
        setattr(model, _OF_MODULE, self)

    def begin(self, layer: int) -> None:
        """A layer runs: a step begins where it does not come after the last one."""
        if layer <= self._last:
            self.step += 1
        self._last = layer

    def stats(self) -> dict[str, int]:
        """Of the pager, and `bytes`: of the slots."""
        size = sum(b.numel() * b.element_size() for b in self.banks.values())
        return {**self.pager.stats(), "slots": len(next(iter(self.banks.values()))), "bytes": size}

    def detach(self) -> None:
        """The model is as it was before `page`."""
        if not hasattr(self.model, _OF_MODULE):
            return
        delattr(self.model, _OF_MODULE)
        for layer in self._layers:
            layer.detach()
        self.model.set_experts_implementation(self._before)  # type: ignore[operator]

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
    """Keeps as many experts in slots as `budget` bytes ("2GiB") hold, or `slots` of them (of each layer with scope "per_layer"), and copies others in when they are
    routed. The weights stay where they are, and are what is copied from; the slots are on `device`, by default beside them.

    Results are those of the model with experts_implementation="eager", bit for bit: the module's own code runs, on the same numbers in the same order.
    A prompt that routes more experts than there are slots takes them in several visits. For inference: no gradient passes the experts.
    Call the model from one thread at a time.

    Raises InvalidArgument, InvalidConfig."""
    return Paging(model, slots, budget, scope, eviction, admission, device)
