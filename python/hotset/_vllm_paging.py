# SPDX-License-Identifier: Apache-2.0
"""vLLM's layer of routed experts, with its weights in host memory and slots in their place.

A kernel gets the slots as its weights and their numbers as its ids. It needs no map of experts, so
kernels of the processor and quantized ones are paged as well. If a pass has more experts than a
layer has slots, its pairs of a token and an expert are computed group by group, and summed in
float32.

Each layer has its own slots, at most one for each expert: kernels have limits for the number of
experts (Triton's: fewer than 1024).
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import is_dataclass
from typing import Any, Optional, Union

import numpy
import torch
from vllm.config import CompilationMode, CUDAGraphMode, get_current_vllm_config
from vllm.model_executor.custom_op import PluggableLayer
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.platforms import current_platform

from hotset._errors import Error, InvalidArgument
from hotset._pager import Pager, bytes_of

_log = logging.getLogger("vllm.hotset")

# Accepted kernels, by the class that loads their weights. They read only those rows of the layer's
# parameters that ids name, and keep no copies. Two have not run, Triton's and the unquantized one
# for AMX (X86): by their source, they do the same.
_KERNELS = {
    "UnquantizedFusedMoEMethod": (
        "CPUUnquantizedExperts",
        "X86CPUUnquantizedExperts",
        "TritonExperts",
    ),
    "CompressedTensorsW8A8Int8MoEMethod": ("CPUExpertsInt8",),
    "CompressedTensorsWNA16MoEMethod": ("CPUExpertsInt4",),
    "Fp8MoEMethod": ("CPUExpertsFp8",),
}


def _refuse(layer: PagedRoutedExperts) -> None:
    """Refuses unsupported models and options before a weight is loaded. Raises InvalidArgument."""
    config = get_current_vllm_config()
    parallel = layer.moe_config.moe_parallel_config
    compilation = config.compilation_config
    method = type(layer.quant_method).__name__
    kernel = getattr(getattr(layer.quant_method, "experts_cls", None), "__name__", "no class")
    wrong = None
    if method not in _KERNELS:
        wrong = f"weights of {method}, accepted: those of {', '.join(_KERNELS)}"
    elif kernel not in _KERNELS[method]:
        # On a device, --moe-backend chooses the kernel.
        accepted = ", ".join(_KERNELS[method]).replace("TritonExperts", "--moe-backend triton")
        wrong = f"kernels of {kernel}, accepted: {accepted}"
    elif importlib.util.find_spec("zentorch") is not None:
        wrong = "zentorch is installed, whose kernels keep weights, accepted: vLLM's own kernels"
    elif parallel.use_ep or parallel.enable_eplb:
        wrong = "expert parallelism, accepted: tensor parallelism alone"
    elif parallel.dp_size > 1:
        # Kernels exchange ids between ranks, and each rank has other slots.
        wrong = "data parallelism, accepted: tensor parallelism alone"
    elif layer.moe_config.is_lora_enabled:
        wrong = "adapters, accepted: a model without --enable-lora"
    elif config.parallel_config.enable_dbo:
        wrong = "two batches at once (--enable-dbo), accepted: one"
    elif compilation.cudagraph_mode != CUDAGraphMode.NONE:
        graphs = f"CUDA graphs ({compilation.cudagraph_mode})"
        wrong = f"{graphs}, which no decision of the host can enter, accepted: --enforce-eager"
    elif current_platform.is_cpu() and compilation.mode != CompilationMode.NONE:
        # On devices an operator of vLLM hides the layer from the compiler.
        mode = CompilationMode(compilation.mode).name
        wrong = f"a compiled model ({mode}), accepted: --enforce-eager"
    if wrong is not None:
        raise InvalidArgument(f"{layer.layer_name}: {wrong}")


def _in_host_memory(weight: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns the weight in host memory. It is page-locked if a device copies from it: otherwise
    the host would wait for each copy."""
    weight = weight.to("cpu")
    return weight if device.type == "cpu" or weight.is_pinned() else weight.pin_memory()


def _tensors(holder: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that an object and its dataclasses hold."""
    for name, value in vars(holder).items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif is_dataclass(value):
            yield from _tensors(value)


# Slots [tokens, top_k] and None if all experts of a pass are in the group. Otherwise slots [pairs],
# with the token and the rank of each pair.
_Group = tuple[torch.Tensor, Optional[tuple[torch.Tensor, torch.Tensor]]]


def _group(slots: numpy.ndarray, ids: torch.Tensor) -> _Group:
    """slots: [tokens, top_k], negative if the expert is not in this group."""
    present = slots >= 0
    if present.all():
        return torch.from_numpy(slots).to(ids.device, ids.dtype), None
    tokens, ranks = numpy.nonzero(present)
    order = numpy.argsort(slots[present], kind="stable")  # so that each call reads few experts
    tokens, ranks = tokens[order], ranks[order]
    chosen = torch.from_numpy(slots[tokens, ranks]).to(ids.device, ids.dtype)
    return chosen, (torch.from_numpy(tokens).to(ids.device), torch.from_numpy(ranks).to(ids.device))


class Paging:
    """The paged layers of a process. vLLM makes all of them before it runs one. The slots are made
    when the first one runs: on a device in vLLM's own trial pass, so that its KV cache gets the
    remaining memory."""

    def __init__(self, budget: Union[int, str], eviction: str) -> None:
        """budget: size of all slots, bytes or "6GiB". Raises InvalidArgument, InvalidConfig."""
        self.budget = bytes_of(budget)
        Pager(1, 2, 1, slots=1, eviction=eviction)  # a wrong name ends the server before it loads weights
        self.eviction = eviction
        self.layers: list[PagedRoutedExperts] = []
        self.pager: Optional[Pager] = None
        self.slots = 0  # of each layer
        self.step = 0
        self._last = -1

    def join(self, layer: PagedRoutedExperts) -> int:
        """Registers a layer and returns its number. Raises InvalidArgument."""
        _refuse(layer)
        if self.pager is not None:
            raise InvalidArgument(
                f"{layer.layer_name}: a model that is made while another one runs, "
                "accepted: one model a process"
            )
        if self.layers and layer.shapes() != self.layers[0].shapes():
            raise InvalidArgument(
                f"{layer.layer_name}: experts of another shape than {self.layers[0].layer_name}'s, "
                "accepted: alike in all layers"
            )
        config = get_current_vllm_config().scheduler_config
        self._tokens = int(config.max_num_batched_tokens)
        self._sequences = int(config.max_num_seqs)
        self.layers.append(layer)
        return len(self.layers) - 1

    def groups(
        self, number: int, ids: torch.Tensor, weights: torch.Tensor
    ) -> Generator[_Group, None, None]:
        """Yields each group of experts that fits in the slots of a layer. The stream orders copies
        and kernels. Raises the pager's errors."""
        if self.pager is None:
            self._build(ids)
        assert self.pager is not None
        layer = self.layers[number]
        where = next(iter(layer.bank.values())).device
        if ids.device != where:
            raise Error(
                f"{layer.layer_name}: ids on {ids.device}, slots on {where}, "
                "accepted: one device a process"
            )
        self.step += number <= self._last
        self._last = number
        routed = ids.to("cpu", torch.int32).contiguous().numpy()
        given = weights.to("cpu", torch.float32).contiguous().numpy()
        kind = "prefill" if len(routed) > self._sequences else "decode"
        own = number * self.slots  # the layer's first slot
        for visit in self.pager.visits(number, routed, weights=given, step=self.step, kind=kind):
            for expert, slot in zip(visit.fills["expert"].tolist(), visit.fills["slot"].tolist()):
                layer.fill(expert, slot - own)
            places = numpy.full(layer.experts + 1, -1, numpy.int64)  # the last one: of the id -1
            places[visit.experts] = visit.slots - own
            visit.commit()
            yield _group(places[routed], ids)

    def _build(self, ids: torch.Tensor) -> None:
        """Makes the slots. Raises InvalidArgument, Error."""
        for layer in self.layers:
            layer.check()
        weights = self.layers[0].weights().values()
        one = sum(p[0].numel() * p.element_size() for p in weights)
        row = one * len(self.layers)  # a slot in each layer
        top_k = ids.shape[1]
        if self.budget < row * top_k:
            raise InvalidArgument(
                f"HOTSET_VLLM_BUDGET: {self.budget} bytes, accepted: {row * top_k} or more, "
                f"{top_k} experts in each of {len(self.layers)} layers"
            )
        self.slots = min(self.budget // row, self.layers[0].experts)
        self.pager = Pager(
            len(self.layers),
            self.layers[0].experts,
            top_k,
            max_tokens=self._tokens,
            slots=self.slots,
            expert_bytes=one,
            split="by_expert",
            eviction=self.eviction,
        )
        for layer in self.layers:
            layer.take(self.slots, ids.device)
        held = f"{self.slots} of {self.layers[0].experts} experts"
        _log.info("hotset: %s in slots of each of %d layers", held, len(self.layers))

    def stats(self) -> dict[str, int]:
        """Counters of the pager, and `bytes`: size of all slots. Empty before the first pass."""
        if self.pager is None:
            return {}
        banks = [bank for layer in self.layers for bank in layer.bank.values()]
        return {**self.pager.stats(), "bytes": sum(b.numel() * b.element_size() for b in banks)}


paging: Optional[Paging] = None  # joined by the layers of this process


class PagedRoutedExperts(RoutedExperts):
    """vLLM makes one wherever its code requests a RoutedExperts."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        with torch.device("cpu"):
            super().__init__(*arguments, **named)
        assert paging is not None
        self.paging = paging
        self.experts = self.local_num_experts
        self.host: dict[str, torch.Tensor] = {}
        self.bank: dict[str, torch.Tensor] = {}
        self._number = paging.join(self)
        self.register_state_dict_post_hook(PagedRoutedExperts._add_host_weights)
        self.register_load_state_dict_pre_hook(PagedRoutedExperts._refuse_to_load)

    def weights(self) -> dict[str, torch.nn.Parameter]:
        """Weights, biases and scales [experts, ...]; those in slots once these exist. Other
        parameters are the router's."""
        parameters = self.named_parameters(recurse=False)
        return {n: p for n, p in parameters if n.startswith(("w13_", "w2_"))}

    def shapes(self) -> tuple[Any, ...]:
        return tuple((n, tuple(p.shape), p.dtype) for n, p in self.weights().items())

    def check(self) -> None:
        """Raises Error if the kernel has weights that no slot could hold."""
        weights = self.weights()
        for name, weight in weights.items():
            if weight.ndim == 0 or len(weight) != self.experts:
                raise Error(
                    f"{self.layer_name}: {name} is {list(weight.shape)}, "
                    f"accepted: a row for each of {self.experts} experts"
                )
        for name, tensor in _tensors(self.quant_method.moe_kernel.fused_experts):
            if all(tensor is not weight for weight in weights.values()):
                raise Error(
                    f"{self.layer_name}: the kernel keeps a tensor of its own ({name}), "
                    "accepted: parameters of the layer"
                )

    def take(self, slots: int, device: torch.device) -> None:
        """Keeps the weights in host memory as `host`. The parameters, which kernels may have kept,
        get the bank's data."""
        # vLLM's trial pass runs in inference mode. A tensor made there cannot be written outside
        # it.
        with torch.inference_mode(False):
            for name, weight in self.weights().items():
                self.host[name] = _in_host_memory(weight.data, device)
                shape = (slots, *weight.shape[1:])
                self.bank[name] = torch.empty(shape, dtype=weight.dtype, device=device)
                weight.data = self.bank[name]
        self.global_num_experts = self.local_num_experts = slots

    def fill(self, expert: int, slot: int) -> None:
        """Copies an expert into a slot."""
        for name, bank in self.bank.items():
            bank[slot].copy_(self.host[name][expert], non_blocking=True)

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

    def forward_modular(
        self,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any = None,
        shared_experts_input: Optional[torch.Tensor] = None,
    ) -> Any:
        compute = super().forward_modular
        total: Optional[torch.Tensor] = None
        with closing(self.paging.groups(self._number, topk_ids, topk_weights)) as groups:
            for slots, pairs in groups:
                if pairs is None:
                    return compute(x, topk_weights, slots, shared_experts, shared_experts_input)
                if total is None:
                    total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
                # Calls of at most the pass's rows: they need no more memory than the whole pass.
                for tokens, ranks, own in zip(*(t.split(len(x)) for t in (*pairs, slots))):
                    gates = topk_weights[tokens, ranks]
                    own, shared = own[:, None], (shared_experts, shared_experts_input)
                    part = compute(x[tokens], gates[:, None], own, *shared)
                    if not isinstance(part, torch.Tensor):
                        raise Error(
                            f"{self.layer_name}: {type(part).__name__} cannot be summed over "
                            "groups of experts, accepted: more slots"
                        )
                    shared_experts = None  # computed once, by the first call
                    total.index_add_(0, tokens, part.float())
        assert total is not None
        return total.to(x.dtype)


def _refuse_others() -> None:
    """Refuses models that have a layer of their own: it would stay on the device whole."""
    original = RoutedExperts.__init__

    def init(self: Any, layer_name: str, *arguments: Any, **named: Any) -> None:
        if not isinstance(self, PagedRoutedExperts):
            raise InvalidArgument(
                f"{layer_name}: experts of {type(self).__name__}, "
                "accepted: models with vLLM's RoutedExperts"
            )
        original(self, layer_name, *arguments, **named)

    RoutedExperts.__init__ = init


def warn_if_dense(config: Any) -> None:
    """Takes a VllmConfig."""
    model = config.model_config
    if model is not None and not model.get_num_experts():
        _log.warning("hotset: %s has no experts, HOTSET_VLLM_BUDGET pages nothing", model.model)


def register(budget: Union[int, str], eviction: str) -> None:
    """Makes the process page the models that it makes from now on; called once. Raises
    InvalidArgument."""
    global paging
    paging = Paging(budget, eviction)
    PluggableLayer.register_oot(PagedRoutedExperts, name="RoutedExperts")
    _refuse_others()
