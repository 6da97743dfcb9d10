# SPDX-License-Identifier: Apache-2.0
"""What other engines give, as traces and profiles.

A *trace* says which experts each token was routed to, in order; a *profile* says how often each expert was used and nothing of the order. Counts are a
profile: no cache can be simulated on them, but one can be started warm (`warm_keys`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import numpy

from hotset._errors import InvalidArgument
from hotset._program import run
from hotset._trace import Path, Trace


def _array(given: Any) -> numpy.ndarray:
    """An array of NumPy, or a tensor on the CPU."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.float() if str(given.dtype) in ("torch.bfloat16", "torch.float16") else given
    return numpy.asarray(given)


def from_routed_experts(requests: Any, experts: int, *, name: str = "", model: str = "", source: str = "routed experts") -> Trace:
    """`routed_experts` of vLLM (enable_return_routed_experts) and SGLang (return_routed_experts): integers [tokens, layers, top_k] of one request, or a sequence of
    them. Each request is a sequence, and its tokens are steps of their own, in order: which tokens an engine computed together, these arrays do not say.
    Raises InvalidArgument."""
    given = [requests] if hasattr(requests, "shape") else list(requests)
    arrays = [_array(one) for one in given]
    if not arrays:
        raise InvalidArgument("no requests, accepted: 1 or more")
    for n, one in enumerate(arrays):
        if one.ndim != 3 or one.dtype.kind not in "iu" or one.shape[1:] != arrays[0].shape[1:]:
            raise InvalidArgument(
                f"request {n}: {one.dtype} of shape {list(one.shape)}, accepted: integers [tokens, layers, top_k], alike in all requests"
            )
    signed = [_signed(one, experts) for one in arrays]
    sequences = numpy.repeat(numpy.arange(len(arrays)), [len(one) for one in arrays])
    return Trace.from_arrays(numpy.concatenate(signed), experts, sequences=sequences, name=name, model=model, source=source)


def _signed(ids: numpy.ndarray, experts: int) -> numpy.ndarray:
    """With -1 for what an unsigned type fills up with."""
    out = ids.astype(numpy.int64)
    if ids.dtype.kind == "u":
        top = int(numpy.iinfo(ids.dtype).max)
        if top >= experts:
            out[out == top] = -1
    return out


def from_router_logits(
    layers: Sequence[Any], top_k: int, *, renormalise: bool = True, sequences: Any = None, steps: Any = None, name: str = "", model: str = ""
) -> Trace:
    """`router_logits` of transformers (output_router_logits=True): for each MoE layer [tokens, experts]. The experts of a token are the top_k highest, ties by the lower
    number; weights are the softmax over all, or over the chosen (`renormalise`). Families that choose by another rule (DeepSeek's groups and bias) are recorded by
    hotset.transformers.record. Raises InvalidArgument."""
    arrays = [_array(one).astype(numpy.float32) for one in layers]
    if not arrays or any(a.ndim != 2 or a.shape != arrays[0].shape for a in arrays):
        raise InvalidArgument(f"logits of shapes {[list(a.shape) for a in arrays]}, accepted: [tokens, experts] for each layer, all alike")
    logits = numpy.stack(arrays, 1)
    experts = logits.shape[2]
    if not 1 <= top_k <= experts:
        raise InvalidArgument(f"top_k = {top_k}, accepted: 1..{experts}")
    if not numpy.isfinite(logits).all():
        raise InvalidArgument("logits that are not finite, accepted: finite ones")
    ids = numpy.argsort(-logits, axis=-1, kind="stable")[:, :, :top_k]
    chosen = numpy.take_along_axis(logits, ids, -1).astype(numpy.float64)
    highest = logits.max(-1, keepdims=True)
    weights = numpy.exp(chosen - highest)
    weights /= weights.sum(-1, keepdims=True) if renormalise else numpy.exp(logits - highest, dtype=numpy.float64).sum(-1, keepdims=True)
    return Trace.from_arrays(
        ids, experts, weights=weights, logits=logits, steps=steps, sequences=sequences, name=name, model=model, source="router logits"
    )


_ID_NAMES = ("routed_experts", "experts", "topk_ids", "ids")


def from_numpy(path: Path, experts: int, *, name: str = "", model: str = "") -> Trace:
    """A .npy file of routed experts [tokens, layers, top_k], or a .npz file: one such array under a known name with `weights`, `sequences` and `steps` beside it, or one
    array for each request. Raises InvalidArgument, OSError."""
    try:
        held = numpy.load(path, allow_pickle=False)
        arrays = {"ids": held} if isinstance(held, numpy.ndarray) else {n: held[n] for n in held.files}
    except (ValueError, KeyError, EOFError) as bad:
        raise InvalidArgument(f"{path}: {bad}, accepted: a .npy or .npz file without Python objects") from bad
    named = [n for n in _ID_NAMES if n in arrays]
    if len(named) > 1:
        raise InvalidArgument(f"{path}: arrays {', '.join(named)}, accepted: one of them")
    source = os.path.basename(os.fspath(path))
    if named:
        beside = {n: arrays[n] for n in ("weights", "sequences", "steps") if n in arrays}
        ids = arrays[named[0]]
        if ids.ndim != 3 or ids.dtype.kind not in "iu":
            raise InvalidArgument(f"{path}: {named[0]} is {ids.dtype} of shape {list(ids.shape)}, accepted: integers [tokens, layers, top_k]")
        return Trace.from_arrays(_signed(ids, experts), experts, **beside, name=name, model=model, source=source)
    requests = [arrays[n] for n in sorted(arrays) if arrays[n].ndim == 3]
    if not requests:
        raise InvalidArgument(f"{path}: holds {', '.join(sorted(arrays)) or 'nothing'}, accepted: integers [tokens, layers, top_k]")
    return from_routed_experts(requests, experts, name=name, model=model, source=source)


def counts_of(given: Union[Path, Mapping[str, Any], Any]) -> numpy.ndarray:
    """How often each expert was used, float64 [layers, experts]: an array; a .npy, .npz, .json or .pt file of one, also under "logical_count" (SGLang's
    expert-distribution and EPLB statistics), where counts of several steps [steps, layers, experts] are added up; or llama.cpp's imatrix (.gguf), which `hotset counts`
    reads. A profile, not a trace. Raises InvalidArgument, Error."""
    held = _read_counts(given) if isinstance(given, (str, os.PathLike)) else given
    if isinstance(held, Mapping):
        if "logical_count" not in held:
            raise InvalidArgument(f"counts: {', '.join(map(str, held)) or 'nothing'}, accepted: an array, or one under logical_count")
        held = held["logical_count"]
    try:
        counts = _array(held).astype(numpy.float64)
    except (TypeError, ValueError) as bad:
        raise InvalidArgument(f"counts: {bad}, accepted: numbers [layers, experts]") from bad
    if counts.ndim == 3:
        counts = counts.sum(0)
    if counts.ndim != 2 or not counts.size or not numpy.isfinite(counts).all() or counts.min() < 0:
        raise InvalidArgument(f"counts: shape {list(counts.shape)}, accepted: numbers of 0 or more, [layers, experts] or [steps, layers, experts]")
    return counts


def _read_counts(path: Path) -> Any:
    ending = os.path.splitext(os.fspath(path))[1]
    try:
        if ending == ".json":
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        if ending == ".gguf":
            return json.loads(run("counts", os.fspath(path), "--json"))
        if ending in (".pt", ".pth"):
            import torch

            return torch.load(path, map_location="cpu", weights_only=True)
        held = numpy.load(path, allow_pickle=False)
        return held if isinstance(held, numpy.ndarray) else {n: held[n] for n in held.files}
    except (ValueError, EOFError, KeyError) as bad:
        raise InvalidArgument(f"{path}: {bad}, accepted: .npy, .npz, .json, .pt or .gguf") from bad


def warm_keys(counts: Any, slots: int, *, layers: Optional[Sequence[int]] = None) -> numpy.ndarray:
    """The `slots` most used experts as Pager.warm takes them, int32 [slots, 2] of layer and expert, the most used last; ties by the lower layer and number."""
    held = counts_of(counts)
    chosen = numpy.argsort(-held.reshape(-1), kind="stable")[: max(0, slots)][::-1]
    keys = numpy.stack(numpy.divmod(chosen, held.shape[1]), 1).astype(numpy.int32)
    if layers is not None:
        keys[:, 0] = numpy.asarray(layers, numpy.int32)[keys[:, 0]]
    return keys
