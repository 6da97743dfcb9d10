# SPDX-License-Identifier: Apache-2.0
"""Records and pages the experts of Mixture-of-Experts models of `transformers` 5 or later.

    recording = hotset.transformers.record(model)
    model.generate(...)
    recording.write("run.trace")

    paged = hotset.transformers.page(model, budget="2GiB", eviction="similar_steps")
    model.generate(...)                     # the same tokens
    paged.stats()
    paged.detach()                          # restores the model

Both find the modules that hold a layer's experts as stacked weights and take (hidden states, chosen
experts, their weights). `transformers` decorates them with `use_experts_implementation`: Mixtral,
Qwen, OLMoE, DeepSeek, GPT-OSS and others.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn, Optional, Union

import numpy
import torch

from hotset._errors import DoesNotFit, Error, InvalidArgument, VisitTooLarge
from hotset._pager import Pager
from hotset._recorder import Recorder

_LONGEST_PROMPT = 8192


class _Uncopied:
    """Part of a paged or recorded model: refuses deepcopy and pickle."""

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise Error(
            "a paged or recorded model cannot be copied or pickled, accepted: detach() first"
        )


class _Layer:
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


def _layers_of(model: torch.nn.Module) -> list[_Layer]:
    """The layers in execution order. Raises InvalidArgument."""
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"model: {type(model).__name__}, accepted: a model of transformers")
    found = [
        _Layer(n, m)
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


def _top_k_of(model: torch.nn.Module) -> int:
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


def _chosen(
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


def _path_to(layer: _Layer, model: torch.nn.Module) -> list[torch.nn.Module]:
    """The model and its modules that contain the layer's experts, outermost first."""
    names = layer.name.split(".")
    return [model.get_submodule(".".join(names[:n])) for n in range(len(names))]


class Recording(_Uncopied):
    """Records the routing of a model's forward passes. `detach` (or the end of a `with`) ends it.
    """

    def __init__(
        self, model: torch.nn.Module, capacity: int, weights: bool, name: Optional[str]
    ) -> None:
        layers = _layers_of(model)
        self._top_k = _top_k_of(model)
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
        self._hooks = []
        for module in _path_to(layers[0], model):
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

    def _end(self, module: torch.nn.Module, *_: Any) -> None:
        with self._lock:
            if self._running == (module, threading.get_ident()):
                self._close()

    def _close(self) -> None:
        self._running = None
        if len(self._kept):
            self.recorder.end_step()

    def _experts(
        self, number: int, _: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        if (
            self._running is None
            or self._running[1] != threading.get_ident()
            or not len(self._kept)
        ):
            return
        _states, ids, weights = _chosen(arguments, named)
        if len(ids) != self._rows:
            raise Error(
                f"experts of {len(ids)} tokens in a call of {self._rows}, "
                "accepted: models that route every token of a call"
            )
        # Rank order: some families choose without sorting.
        weights, order = weights.detach().float().sort(dim=-1, descending=True, stable=True)
        ids = ids.gather(-1, order)
        rows = ids.cpu()[self._kept].to(torch.int32).contiguous().numpy()
        given = weights.cpu()[self._kept].contiguous().numpy() if self._weights else None
        self.recorder.record(number, rows, given)

    @property
    def tokens(self) -> int:
        """Tokens recorded since the last write."""
        return self.recorder.tokens()[0]

    def write(self, path: str) -> None:
        """Writes the recorded tokens as a trace and starts a new one. Raises CannotWrite, also if
        there are none."""
        self.recorder.write(path)

    def detach(self) -> None:
        """Restores the model; `write` still works."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

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
) -> Recording:
    """Records the experts of up to `capacity` tokens, for calls of the model or of a base model in
    it. A forward pass is a step, a row of the batch a sequence; padding (attention_mask 0) is left
    out. Ids are in rank order by gate weight. Only one thread at a time may run the model.

    Raises InvalidArgument. A forward pass raises ExceedsMemory if its tokens do not fit.
    """
    return Recording(model, capacity, weights, name)


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


class _PagedLayer(_Uncopied):
    """Replaces the `forward` of a module of experts. The module's own eager code runs, on slots
    instead of its weights.

    The module keeps its parameters: state_dict and save_pretrained see the whole model.
    """

    def __init__(
        self, number: int, layer: _Layer, banks: dict[str, torch.Tensor], of: Paging
    ) -> None:
        self.number = number
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
        # once.
        self.config = copy.copy(layer.module.config)
        self.config._experts_implementation_internal = "eager"  # type: ignore[union-attr]
        self.row = of.pager.row(number)
        self.left: Iterator[numpy.ndarray] = iter(())  # experts of further visits of this call
        self.module.forward = self  # type: ignore[method-assign,assignment]
        self.module._apply = self.convert  # type: ignore[method-assign]

    @torch.compiler.disable  # type: ignore[misc]
    def __call__(self, *arguments: Any, **named: Any) -> torch.Tensor:
        states, ids, weights = _chosen(arguments, named)
        with self.of.lock:
            self._read_weights()
            for slots in self.slots.values():
                if states.device != slots.device:
                    raise Error(
                        f"{self.name}: hidden states on {states.device}, slots on {slots.device}, "
                        f"accepted: page(..., device={str(states.device)!r})"
                    )
            routed = ids.detach().cpu().to(torch.int32).contiguous().numpy()
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
        out.__dict__.update(self.module.__dict__, config=self.config)
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


def _check_pageable(layer: _Layer) -> None:
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


class Paging(_Uncopied):
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
        layers = _layers_of(model)
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
