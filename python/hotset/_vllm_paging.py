# SPDX-License-Identifier: Apache-2.0
"""vLLM's layer of routed experts, with its weights in host memory and a bank of slots in their
place.

All layers share the bank. A vLLM kernel gets the same arguments as under expert parallelism: the
present weights, and a map from each expert to its place among them, -1 for absent ones. So kernels
are unchanged. A pass with more experts than slots becomes one call for each group of experts; the
results are summed, like those of ranks.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any, Optional, Union

import numpy
import torch
from vllm.config import CUDAGraphMode, get_current_vllm_config
from vllm.model_executor.custom_op import PluggableLayer
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

from hotset._errors import Error, InvalidArgument
from hotset._pager import Pager, bytes_of

_WEIGHTS = ("w13_weight", "w2_weight", "w13_bias", "w2_bias")


def _refuse(layer: PagedRoutedExperts) -> None:
    """Refuses unsupported models and options before a weight is loaded. Raises InvalidArgument."""
    config = get_current_vllm_config()
    parallel = layer.moe_config.moe_parallel_config
    wrong = None
    if not isinstance(layer.quant_method, UnquantizedFusedMoEMethod):
        wrong = f"weights of {type(layer.quant_method).__name__}, accepted: weights that are not quantized"
    elif layer.quant_method.unquantized_backend is not UnquantizedMoeBackend.TRITON:
        # Other kernels take a range of experts instead of a map, or route themselves.
        wrong = f"kernels of {layer.quant_method.unquantized_backend.value}, accepted: --moe-backend triton"
    elif parallel.use_ep or parallel.enable_eplb:
        wrong = "expert parallelism, accepted: tensor parallelism alone"
    elif layer.moe_config.is_lora_enabled:
        wrong = "adapters, accepted: a model without --enable-lora"
    elif config.parallel_config.enable_dbo:
        wrong = "two batches at once (--enable-dbo), accepted: one"
    elif config.compilation_config.cudagraph_mode != CUDAGraphMode.NONE:
        wrong = f"CUDA graphs ({config.compilation_config.cudagraph_mode}), which no decision of the host can enter, accepted: --enforce-eager"
    if wrong is not None:
        raise InvalidArgument(f"{layer.layer_name}: {wrong}")


class Paging:
    """The paged layers of a process. vLLM makes all of them before it runs one. The bank is made
    when the first one runs, in vLLM's own trial pass, so that its KV cache gets the remaining
    memory."""

    def __init__(self, budget: Union[int, str], eviction: str) -> None:
        """budget: size of the bank, bytes or "6GiB". Raises InvalidArgument."""
        self.budget = bytes_of(budget)
        self.eviction = eviction
        self.layers: list[PagedRoutedExperts] = []
        self.pager: Optional[Pager] = None
        self.bank: dict[str, torch.Tensor] = {}
        self.step = 0
        self._last = -1

    def join(self, layer: PagedRoutedExperts) -> int:
        """Registers a layer and returns its number. Raises InvalidArgument."""
        _refuse(layer)
        if self.pager is not None:
            raise InvalidArgument(f"{layer.layer_name}: a model that is made while another one runs, accepted: one model a process")
        if self.layers and layer.shapes() != self.layers[0].shapes():
            raise InvalidArgument(f"{layer.layer_name}: experts of another shape than {self.layers[0].layer_name}'s, accepted: alike in all layers")
        config = get_current_vllm_config().scheduler_config
        self._tokens = int(config.max_num_batched_tokens)
        self._sequences = int(config.max_num_seqs)
        self.layers.append(layer)
        return len(self.layers) - 1

    def visits(self, number: int, ids: torch.Tensor, weights: torch.Tensor) -> Generator[tuple[torch.Tensor, bool], None, None]:
        """Yields for each group of experts that fits in the bank a map, int32 [experts], and
        whether more groups follow. The stream orders copies and kernels. Raises the pager's errors.
        """
        if self.pager is None:
            self._build(ids)
        assert self.pager is not None
        where = next(iter(self.bank.values())).device
        if ids.device != where:
            raise Error(
                f"{self.layers[number].layer_name}: ids on {ids.device}, slots on {where}, "
                "accepted: one device a process"
            )
        self.step += number <= self._last
        self._last = number
        routed = ids.to("cpu", torch.int32).contiguous().numpy()
        given = weights.to("cpu", torch.float32).contiguous().numpy()
        kind = "prefill" if len(routed) > self._sequences else "decode"
        for visit in self.pager.visits(number, routed, weights=given, step=self.step, kind=kind):
            for expert, slot in zip(visit.fills["expert"].tolist(), visit.fills["slot"].tolist()):
                for name, bank in self.bank.items():
                    bank[slot].copy_(self.layers[number].host[name][expert], non_blocking=True)
            places = numpy.full(self.layers[number].local_num_experts, -1, numpy.int32)
            places[visit.experts] = visit.slots
            more = visit.more
            visit.commit()
            yield torch.from_numpy(places).to(ids.device), more

    def _build(self, ids: torch.Tensor) -> None:
        first = self.layers[0]
        weights = first.weights()
        one = sum(p[0].numel() * p.element_size() for p in weights.values())
        self.pager = Pager(
            len(self.layers),
            first.local_num_experts,
            ids.shape[1],
            max_tokens=self._tokens,
            budget=self.budget,
            expert_bytes=one,
            scope="shared",
            split="by_expert",
            eviction=self.eviction,
        )
        # vLLM's trial pass runs in inference mode. A tensor made there cannot be written outside
        # it.
        with torch.inference_mode(False):
            self.bank = {
                n: torch.empty((self.pager.slots, *p.shape[1:]), dtype=p.dtype, device=ids.device)
                for n, p in weights.items()
            }
        for layer in self.layers:
            layer.take(self.bank)

    def stats(self) -> dict[str, int]:
        """Counters of the pager, and `bytes`: size of the bank. Empty before the first pass."""
        if self.pager is None:
            return {}
        return {**self.pager.stats(), "bytes": sum(b.numel() * b.element_size() for b in self.bank.values())}


paging: Optional[Paging] = None  # joined by the layers of this process


class PagedRoutedExperts(RoutedExperts):
    """vLLM makes one wherever its code requests a RoutedExperts."""

    _places: Optional[torch.Tensor] = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        with torch.device("cpu"):
            super().__init__(*arguments, **named)
        assert paging is not None
        self.paging = paging
        self.host: dict[str, torch.Tensor] = {}
        self._number = paging.join(self)
        self.register_state_dict_post_hook(PagedRoutedExperts._add_host_weights)
        self.register_load_state_dict_pre_hook(PagedRoutedExperts._refuse_to_load)

    def weights(self) -> dict[str, torch.nn.Parameter]:
        """Weights [experts, ...]; those of the bank once it exists."""
        return {n: p for n, p in self.named_parameters(recurse=False) if n in _WEIGHTS}

    def shapes(self) -> tuple[Any, ...]:
        return tuple((n, tuple(p.shape), p.dtype) for n, p in self.weights().items())

    def take(self, bank: dict[str, torch.Tensor]) -> None:
        """Keeps the weights in host memory as `host`. The parameters, which kernels may have kept,
        get the bank's data."""
        for name, weight in self.weights().items():
            self.host[name] = weight.data
            weight.data = bank[name]

    def _add_host_weights(self, state: dict[str, Any], prefix: str, _: Any) -> None:
        """Puts the host's weights, not the bank's, into a checkpoint."""
        state.update((prefix + name, weight) for name, weight in self.host.items())

    def _refuse_to_load(self, *_: Any) -> None:
        if self.host:
            raise Error(f"{self.layer_name}: weights cannot be loaded again while they are paged")

    def _apply(self, *arguments: Any, **named: Any) -> Any:
        # Refused: the parameters would become copies of the bank, and copies are never filled.
        if self.host:
            raise Error(
                f"{self.layer_name}: a paged layer cannot change its device or type, "
                "accepted: that before its first pass"
            )
        return super()._apply(*arguments, **named)

    def weight_loader(self, *arguments: Any, **named: Any) -> Any:
        self._refuse_to_load()
        return super().weight_loader(*arguments, **named)

    weight_loader.supports_moe_loading = True  # type: ignore[attr-defined]

    @property
    def expert_map(self) -> Optional[torch.Tensor]:
        return super().expert_map if self._places is None else self._places

    def forward_modular(
        self,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any = None,
        shared_experts_input: Optional[torch.Tensor] = None,
    ) -> Any:
        total: Optional[torch.Tensor] = None
        try:
            with closing(self.paging.visits(self._number, topk_ids, topk_weights)) as groups:
                for self._places, more in groups:
                    part = super().forward_modular(x, topk_weights, topk_ids, shared_experts, shared_experts_input)
                    if total is None and not more:
                        return part
                    if not isinstance(part, torch.Tensor):
                        raise Error(f"{self.layer_name}: {type(part).__name__} cannot be summed over groups of experts, accepted: more slots")
                    shared_experts = None  # computed once, with the first group
                    total = part.float() if total is None else total + part
        finally:
            self._places = None
        assert total is not None
        return total.to(part.dtype)


def register(budget: Union[int, str], eviction: str) -> Paging:
    """Makes the process page the models that it makes from now on. Raises InvalidArgument."""
    global paging
    if paging is None:
        paging = Paging(budget, eviction)
        PluggableLayer.register_oot(PagedRoutedExperts, name="RoutedExperts")
    return paging
