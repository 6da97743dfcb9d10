# SPDX-License-Identifier: Apache-2.0
"""Pages the experts of a model of `transformers`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy
import torch

from hotset._errors import Error, InvalidArgument
from hotset._pager import Pager, bytes_of
from hotset.transformers._approximate_layer import ApproximateLayer
from hotset.transformers._banks import Bank, lower_bits, lower_bytes
from hotset.transformers._layers import Choice, Layer, Uncopied, layers_of, top_k_of
from hotset.transformers._paged_layer import PagedLayer
from hotset.transformers._rerouting import Rerouting
from hotset.transformers._routers import Router, routers_of

_LONGEST_PROMPT = 8192


def _check_policies(miss: str, lower: list[int], slots: Any) -> None:
    """Raises InvalidArgument."""
    name = miss.partition(":")[0]
    if name == "compute_on_host":
        raise InvalidArgument(
            "miss: compute_on_host, accepted: policies whose experts run where the slots are "
            "(an admission policy leaves experts where they are: admission='least_valuable')"
        )
    lowers = name in ("fetch_lowest", "fetch_priority", "drop_cascade")
    if lower and not lowers:
        raise InvalidArgument(
            f"miss policy {name} knows one precision, and there are {1 + len(lower)}; "
            "accepted: one, or miss=fetch_lowest, fetch_priority or drop_cascade"
        )
    if lower and slots is not None and (
        not isinstance(slots, Sequence) or len(slots) != 1 + len(lower)
    ):
        raise InvalidArgument(
            f"slots: {slots!r}, accepted: {1 + len(lower)} numbers, one for each precision, or a budget"
        )


def _check_pageable(layer: Layer) -> None:
    """Raises InvalidArgument."""
    forward = layer.module.__dict__.get("forward")
    wrong = None
    if isinstance(forward, PagedLayer):
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


def _pageable(model: torch.nn.Module) -> list[Layer]:
    """The layers. Raises InvalidArgument."""
    layers = layers_of(model)
    for layer in layers:
        _check_pageable(layer)
        if layer.shape() != layers[0].shape():
            raise InvalidArgument(
                f"{layer.name}: experts of another shape or type than {layers[0].name}'s, "
                "accepted: alike in all layers"
            )
    return layers


class Paging(Uncopied):
    """A model with its experts in slots. `detach` (or the end of a `with`) ends the paging.

    exact: whether results equal those of the model, bit for bit. False with a miss policy other
    than "fetch", and with a routing policy.

    The model stays paged even if no handle is held; `paging_of` finds it again.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        slots: Union[int, Sequence[int], None],
        budget: Union[int, str, None],
        scope: str,
        eviction: str,
        admission: str,
        miss: str,
        routing: str,
        pre_eviction: str,
        precision: Optional[str],
        device: Any,
    ) -> None:
        layers = _pageable(model)
        weights: dict[str, torch.Tensor] = dict(layers[0].weights)
        lower = lower_bits(precision, weights)
        _check_policies(miss, lower, slots)
        fetches, routes = miss == "fetch", routing != "router_order"
        if pre_eviction != "none" and not routes:
            raise InvalidArgument(
                f"pre_eviction: {pre_eviction}, accepted: with routing=budget_top_k"
            )
        self.exact = fetches and not routes
        self._changing = [] if fetches else [f"miss={miss}"]
        self._changing += [f"routing={routing}"] if routes else []
        if layers[0].takes_all and not self.exact:
            raise InvalidArgument(
                f"{self._changing[0]}: {layers[0].name} is not given the choice of experts, "
                "accepted: miss=fetch, routing=router_order"
            )
        bytes_each = [layers[0].bytes(), *lower_bytes(weights, lower)]
        if lower and slots is None and budget is not None:
            share = bytes_of(budget) // len(bytes_each) // (1 if scope == "shared" else len(layers))
            slots, budget = [share // each for each in bytes_each], None
        self.lock = threading.Lock()  # held while a layer runs: another thread would take its slots
        self.stream: Any = None  # of the last call on a GPU
        self.step = 0
        self._last = -1
        self.top_k = top_k_of(model)
        self.longest = _LONGEST_PROMPT  # tokens of a visit
        self.pager = Pager(
            len(layers),
            layers[0].experts,
            self.top_k,
            max_tokens=self.longest,
            slots=slots,
            budget=budget,
            expert_bytes=bytes_each[0],
            lower_bytes=bytes_each[1:] or None,
            scope=scope,
            split="refuse" if fetches else "by_token",
            eviction=eviction,
            admission=admission,
            miss=miss,
            routing=routing,
            pre_eviction=pre_eviction,
        )
        count = self.pager.slots
        self.room = min(layers[0].experts, count if scope == "shared" else count // len(layers))
        self.precisions = numpy.array([self.pager.precision(n) for n in range(count)])
        where = next(iter(weights.values())).device if device is None else device
        # One bank for all layers: the pager gives a slot to any of them. A tensor made in inference
        # mode cannot be written outside it.
        with torch.inference_mode(False):
            banks = {n: Bank(p[0], self.precisions, lower, where) for n, p in weights.items()}
        self._size = {"slots": count, "bytes": sum(bytes_each[p] for p in self.precisions)}
        self._changes = {"dropped": 0, "substituted": 0, "lowered": 0, "rerouted": 0}
        scored = routes or miss.startswith("substitute")
        self._routers = routers_of(layers, model, weighs=routes) if scored else []
        choices = [Choice(layer, model, self.top_k) for layer in layers]
        kind = PagedLayer if fetches else ApproximateLayer
        self._layers = [
            kind(n, layer, choice, banks, self, *self._front(n, routes, pre_eviction != "none"))
            for n, (layer, choice) in enumerate(zip(layers, choices))
        ]

    def _front(
        self, number: int, routes: bool, looks_ahead: bool
    ) -> tuple[Optional[Router], Optional[Rerouting]]:
        if not self._routers:
            return None, None
        own, *later = self._routers[number:]
        if not routes:
            return own, None
        return own, Rerouting(number, own, later[0] if later and looks_ahead else None, self)

    def follow(self, stream: Any) -> None:
        """Makes a stream wait for the stream of the last call, whose kernels may still read the
        slots. Called with the lock held."""
        if self.stream is not None and stream != self.stream:
            stream.wait_stream(self.stream)
        self.stream = stream

    def begin(self, layer: int) -> None:
        """Called when a layer runs: begins a new step unless the layer follows the last one."""
        if layer <= self._last:
            self.step += 1
        self._last = layer

    def count(
        self, visit: Any, routed: torch.Tensor, dropped: torch.Tensor, replaced: torch.Tensor
    ) -> None:
        """Counts the places of a visit that a miss policy has changed."""
        low = visit.experts[(visit.slots >= 0) & (self.precisions[visit.slots] > 0)]
        lowered = torch.isin(routed, torch.from_numpy(low.astype(numpy.int64)).to(routed.device))
        self._changes["dropped"] += int(dropped.sum())
        self._changes["substituted"] += int(replaced.sum())
        self._changes["lowered"] += int(lowered.sum())

    def count_rerouted(self, places: int) -> None:
        """Counts places whose expert is none of the router's."""
        self._changes["rerouted"] += places

    def stats(self) -> dict[str, int]:
        """Counters of the pager; `slots` and their `bytes`; `exact`; and if it is False, the routed
        places that were dropped, substituted, computed in a lower precision, or rerouted."""
        with self.lock:
            out = {**self.pager.stats(), **self._size, "exact": self.exact}
            return out if self.exact else {**out, **self._changes}

    def __repr__(self) -> str:
        kind = "exact" if self.exact else f"NOT exact: {', '.join(self._changing)}"
        return f"<hotset.transformers.Paging of {self._size['slots']} slots, {kind}>"

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
        for router in self._routers:
            router.remove()
        self._layers, self._routers = [], []

    def __enter__(self) -> Paging:
        return self

    def __exit__(self, *_: Any) -> None:
        self.detach()


def page(
    model: torch.nn.Module,
    *,
    budget: Union[int, str, None] = None,
    slots: Union[int, Sequence[int], None] = None,
    scope: str = "shared",
    eviction: str = "similar_steps",
    admission: str = "always",
    miss: str = "fetch",
    routing: str = "router_order",
    pre_eviction: str = "none",
    precision: Optional[str] = None,
    device: Any = None,
) -> Paging:
    """Keeps experts in slots, within `budget` bytes ("2GiB") or `slots` (per layer with scope
    "per_layer"), and copies others in when they are routed. The weights stay in the model, and
    copies are made from them; the slots are on `device`, by default on that of the weights.
    `model.to` moves the model without its experts.

    Results equal those of the model with experts_implementation="eager", bit for bit: the module's
    own code runs, on the same numbers in the same order. A prompt that routes more experts than
    there are slots is served in several visits.

    NOT exact, for studies (`Paging.exact` is False): any `miss` but "fetch", any `routing` but
    "router_order".
    miss: "drop:keep=1" and "drop_cascade" leave out absent experts of low rank, and the token's
    other weights grow in proportion. "substitute:tolerance=0.05" takes a resident expert with
    nearly the same score. "fetch_lowest", "fetch_priority" and "drop_cascade" copy experts in fewer
    bits: precision="16:8" keeps slots for experts as they are and in 8 bits (8, 4 or 2; a scale for
    each 32 numbers); `slots` is then a list, one number for each precision, and `budget` is divided
    evenly.
    routing: "cache_aware:lambda=0.3" raises what residents are chosen by: logits, or scores plus
    bias within the groups that the router takes. "budget_top_k" (ActiveEvict) leaves out absent
    experts for which pre_eviction="active_evict" has freed no slot. Gate weights follow from the
    router's own scores, scaled as the model does.

    Weights may change (load_state_dict), but not in place through `weight.data`, because torch
    counts no version for that. After a change of their type the next call raises. A backward pass
    through the experts raises. Threads may call the model concurrently; only one runs a layer of
    experts at a time.

    Raises InvalidArgument, InvalidConfig; nothing has changed then.
    """
    return Paging(
        model,
        slots,
        budget,
        scope,
        eviction,
        admission,
        miss,
        routing,
        pre_eviction,
        precision,
        device,
    )


def paging_of(model: torch.nn.Module) -> Optional[Paging]:
    """The paging of a model, or None."""
    for module in model.modules():
        forward = module.__dict__.get("forward")
        if isinstance(forward, PagedLayer):
            return forward.of
    return None
