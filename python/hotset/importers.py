# SPDX-License-Identifier: Apache-2.0
"""Converts the routing output of other engines to traces and profiles.

A *trace* contains the experts of each token, in order. A *profile* contains only the number of uses
of each expert, without order. Counts are a profile: they cannot be used to simulate a cache, but to
warm one (`warm_keys`).
"""

from __future__ import annotations

import json
import os
import re
import warnings as _warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import numpy

from hotset._errors import InvalidArgument
from hotset._files import Output
from hotset._program import run
from hotset._trace import Path, Trace


def _array(given: Any) -> numpy.ndarray:
    """Converts a NumPy array or a CPU tensor."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.float() if str(given.dtype) in ("torch.bfloat16", "torch.float16") else given
    return numpy.asarray(given)


def from_routed_experts(
    requests: Any, experts: int, *, name: str = "", model: str = "", source: str = "routed experts"
) -> Trace:
    """Converts `routed_experts` of vLLM (enable_return_routed_experts) and SGLang
    (return_routed_experts): integers [tokens, layers, top_k] of one request, or a sequence of them.
    Each request becomes a sequence, and each of its tokens a step, in order: these arrays do not
    show which tokens an engine computed together.

    A router names each expert at most once per token. Rows with an expert twice are filler (zeros
    of a dense layer or of a lost prompt, padding): they become rows without experts, and layers
    without a routed row are left out (metadata "layers" has the numbers of the others). Whole
    numbers stored as floats are read as ids, and zeros and ones over all experts as a map of the
    routed ones. Each of these gives a warning. Raises InvalidArgument.
    """
    given = [requests] if hasattr(requests, "shape") else list(requests)
    arrays = [_array(one) for one in given]
    if not arrays:
        raise InvalidArgument("no requests, accepted: 1 or more")
    signed = [_ids(one, experts, f"request {n}") for n, one in enumerate(arrays)]
    for n, one in enumerate(signed):
        if one.shape[1:] != signed[0].shape[1:]:
            raise InvalidArgument(
                f"request {n}: shape {list(one.shape)}, accepted: [tokens, {signed[0].shape[1]}, "
                f"{signed[0].shape[2]}], alike in all requests"
            )
    sequences = numpy.repeat(numpy.arange(len(signed)), [len(one) for one in signed])
    return _trace_of(
        numpy.concatenate(signed),
        experts,
        sequences=sequences,
        name=name,
        model=model,
        source=source,
    )


def _warn(text: str) -> None:
    _warnings.warn(f"hotset: {text}", stacklevel=4)


def _ids(given: numpy.ndarray, experts: int, where: str) -> numpy.ndarray:
    """int64 [tokens, layers, top_k], -1 for absent. Raises InvalidArgument."""
    kind = given.dtype.kind
    whole = kind == "f" and bool((given == numpy.floor(given)).all()) and given.min(initial=0) >= -1
    if given.ndim != 3 or not (kind in "iub" or whole):
        raise InvalidArgument(
            f"{where}: {given.dtype} of shape {list(given.shape)}, "
            "accepted: integers [tokens, layers, top_k] (of router logits, from_router_logits)"
        )
    if whole:
        _warn(f"{where}: whole numbers stored as {given.dtype}, read as ids")
        given = numpy.minimum(given, 2**32)  # above all ids, within int64
    out = given.astype(numpy.int64)
    if given.shape[2] == experts > 2 and out.max(initial=0) == 1 and out.min(initial=0) == 0:
        _warn(f"{where}: zeros and ones, read as a map of the routed experts")
        return _ids_of_map(out == 1)
    if kind == "u":
        top = int(numpy.iinfo(given.dtype).max)  # filler value of engines
        if top >= experts:
            out[given == top] = -1
    return out


def _ids_of_map(routed: numpy.ndarray) -> numpy.ndarray:
    """Ids in ascending order; rows with fewer than the fullest one end in -1."""
    order = numpy.argsort(~routed, axis=-1, kind="stable")[:, :, : int(routed.sum(-1).max())]
    return numpy.where(numpy.take_along_axis(routed, order, -1), order, -1)


def _trace_of(ids: numpy.ndarray, experts: int, *, weights: Any = None, **others: Any) -> Trace:
    """Makes a trace without rows and layers that no router made. Raises InvalidArgument."""
    ordered = numpy.sort(ids, -1)
    filled = ((ordered[:, :, 1:] == ordered[:, :, :-1]) & (ordered[:, :, 1:] >= 0)).any(-1)
    ids = numpy.where(filled[:, :, None], -1, ids)
    routed = (ids >= 0).any((0, 2))
    twice = f"{int(filled.sum())} of {filled.size} rows name an expert twice, which no router does"
    if ids.size and not routed.any():
        raise InvalidArgument(
            f"{twice if filled.any() else 'no expert is routed'}, "
            "accepted: rows of a token's experts in a layer, each expert once"
        )
    said = [f"{twice}: taken as not routed"] if filled.any() else []
    kept, dense = numpy.flatnonzero(routed), numpy.flatnonzero(~routed)
    if ids.size and len(dense):
        said.append(f"layers {', '.join(map(str, dense))} without a routed row: left out as dense")
        ids = ids[:, kept]
    if weights is not None:
        weights = numpy.asarray(weights)
        if weights.shape == filled.shape + ids.shape[2:]:
            weights = numpy.where(filled[:, :, None], 0, weights)[:, kept]
    if said:
        _warn("; ".join(said))
    trace = Trace.from_arrays(ids, experts, weights=weights, **others)
    if len(dense):
        trace.metadata["layers"] = ",".join(map(str, kept))
    return trace


def from_router_logits(
    layers: Sequence[Any],
    top_k: int,
    *,
    renormalise: bool = True,
    sequences: Any = None,
    steps: Any = None,
    name: str = "",
    model: str = "",
) -> Trace:
    """Converts `router_logits` of transformers (output_router_logits=True): for each MoE layer
    [tokens, experts]. A token's experts are the top_k highest, ties by the lower number; a logit of
    -infinity is never chosen. Weights are the softmax over all experts, or over the chosen ones
    (`renormalise`). For families with another rule (DeepSeek's groups and bias) use
    hotset.transformers.record.
    Raises InvalidArgument.
    """
    arrays = [_array(one).astype(numpy.float32) for one in layers]
    if not arrays or any(a.ndim != 2 or a.shape != arrays[0].shape for a in arrays):
        raise InvalidArgument(
            f"logits of shapes {[list(a.shape) for a in arrays]}, "
            "accepted: [tokens, experts] for each layer, all alike"
        )
    logits = numpy.stack(arrays, 1)
    experts = logits.shape[2]
    if not 1 <= top_k <= experts:
        raise InvalidArgument(f"top_k = {top_k}, accepted: 1..{experts}")
    if numpy.isnan(logits).any() or numpy.isposinf(logits).any():
        raise InvalidArgument("logits: NaN or infinity, accepted: numbers or -infinity")
    if top_k == experts and (logits == numpy.floor(logits)).all():
        raise InvalidArgument(
            f"logits: whole numbers, {experts} for a token of top_k = {top_k}, accepted: logits of "
            "all experts (of ids, from_routed_experts makes a trace)"
        )
    ids = numpy.argsort(-logits, axis=-1, kind="stable")[:, :, :top_k]
    chosen = numpy.take_along_axis(logits, ids, -1)
    ids = numpy.where(numpy.isneginf(chosen), -1, ids)
    highest = numpy.maximum(logits.max(-1, keepdims=True), numpy.finfo(numpy.float32).min)
    weights = numpy.exp(chosen - highest, dtype=numpy.float64)
    over = chosen if renormalise else logits
    sums = numpy.exp(over - highest, dtype=numpy.float64).sum(-1, keepdims=True)
    weights /= numpy.where(sums > 0, sums, 1)
    return Trace.from_arrays(
        ids,
        experts,
        weights=weights,
        logits=logits,
        steps=steps,
        sequences=sequences,
        name=name,
        model=model,
        source="router logits",
    )


# numpy raises these for a damaged file.
_DAMAGED = (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
_ID_NAMES = ("routed_experts", "experts", "topk_ids", "ids")


def from_numpy(path: Path, experts: int, *, name: str = "", model: str = "") -> Trace:
    """Reads a .npy file of routed experts [tokens, layers, top_k], or a .npz file: one such array
    under a known name with `weights`, `sequences` and `steps`, or one array for each request, in
    the order of the numbers at the end of their names. Rows are read as by from_routed_experts.
    Raises InvalidArgument, OSError.
    """
    try:
        held = numpy.load(path, allow_pickle=False)
        arrays = (
            {"ids": held} if isinstance(held, numpy.ndarray) else {n: held[n] for n in held.files}
        )
    except _DAMAGED as bad:
        raise InvalidArgument(
            f"{path}: {bad}, accepted: a .npy or .npz file without Python objects"
        ) from bad
    named = [n for n in _ID_NAMES if n in arrays]
    if len(named) > 1:
        raise InvalidArgument(f"{path}: arrays {', '.join(named)}, accepted: one of them")
    source = os.path.basename(os.fspath(path))
    if named:
        beside = {n: arrays[n] for n in ("weights", "sequences", "steps") if n in arrays}
        ids = _ids(arrays[named[0]], experts, f"{path}: {named[0]}")
        return _trace_of(ids, experts, **beside, name=name, model=model, source=source)
    requests = [arrays[n] for n in sorted(arrays, key=_numbered) if arrays[n].ndim == 3]
    if not requests:
        raise InvalidArgument(
            f"{path}: holds {', '.join(sorted(arrays)) or 'nothing'}, "
            "accepted: integers [tokens, layers, top_k]"
        )
    return from_routed_experts(requests, experts, name=name, model=model, source=source)


def _numbered(name: str) -> tuple[str, int, str]:
    """Orders "req2" before "req10"."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :].lstrip("0")
    return stem, len(digits), digits


def counts_of(given: Union[Path, Mapping[str, Any], Any]) -> numpy.ndarray:
    """Returns the number of uses of each expert, float64 [layers, experts], from an array; a .npy,
    .npz, .json or .pt file with one, also under "logical_count" (SGLang's expert-distribution and
    EPLB statistics); or llama.cpp's imatrix (.gguf), which `hotset counts` reads. Counts of several
    steps [steps, layers, experts] are summed. The result is a profile, not a trace. Raises
    InvalidArgument, Error."""
    held = _read_counts(given) if isinstance(given, (str, os.PathLike)) else given
    if isinstance(held, Mapping):
        if "logical_count" not in held:
            raise InvalidArgument(
                f"counts: {', '.join(map(str, held)) or 'nothing'}, "
                "accepted: an array, or one under logical_count"
            )
        held = held["logical_count"]
    try:
        counts = _array(held).astype(numpy.float64)
    except (TypeError, ValueError) as bad:
        raise InvalidArgument(f"counts: {bad}, accepted: numbers [layers, experts]") from bad
    if counts.ndim == 3:
        counts = counts.sum(0)
    if counts.ndim != 2 or not counts.size or not numpy.isfinite(counts).all() or counts.min() < 0:
        raise InvalidArgument(
            f"counts: shape {list(counts.shape)}, "
            "accepted: numbers of 0 or more, [layers, experts] or [steps, layers, experts]"
        )
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
            return _load_torch(path)
        held = numpy.load(path, allow_pickle=False)
        return held if isinstance(held, numpy.ndarray) else {n: held[n] for n in held.files}
    except _DAMAGED as bad:
        raise InvalidArgument(f"{path}: {bad}, accepted: .npy, .npz, .json, .pt or .gguf") from bad


def _load_torch(path: Path) -> Any:
    try:
        import torch
    except ImportError as bad:
        raise InvalidArgument(f"{path}: needs PyTorch, accepted: pip install torch") from bad
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as bad:  # torch raises several types for a file that it cannot read
        why = str(bad).partition("\n")[0]
        raise InvalidArgument(f"{path}: {why}, accepted: a file of torch.save") from bad


def from_torch(path: Path, experts: int = 0, *, name: str = "") -> Union[Trace, numpy.ndarray]:
    """Reads a .pt file: routed experts [tokens, layers, top_k] of one request, also under a known
    name, of several (a list, or a dict by request), or [tokens, top_k] by layer become a trace; so
    does the dump of SGLang's expert-distribution recorder in the mode per_token, a step for each
    pass. Its other modes become counts, as by counts_of. experts: of a layer of routed experts; 0:
    the highest id + 1. Raises InvalidArgument, OSError."""
    held = _load_torch(path)
    if isinstance(held, Mapping) and "records" in held:
        return _of_records(path, held, name)
    if isinstance(held, Mapping) and "logical_count" in held:
        return counts_of(held)
    if isinstance(held, Mapping):
        held = next((held[n] for n in _ID_NAMES if n in held), held)
    ids = _requests_of(path, held)
    if experts == 0:
        experts = max((int(one.max(initial=0)) for one in ids), default=0) + 1
        _warn(f"{path}: experts per layer: {experts}, the highest id + 1")
    return from_routed_experts(ids, experts, name=name, source=os.path.basename(path))


def _requests_of(path: Path, held: Any) -> list[numpy.ndarray]:
    """Arrays of requests; a dict of rows by layer ("model.layers.3.mlp", 3) is of one."""
    try:
        if isinstance(held, (list, tuple)) and len({_array(one).ndim for one in held} - {3}) == 0:
            return [_array(one) for one in held]
        if not isinstance(held, Mapping):
            return [_array(held)]
        arrays = {str(key): _array(one) for key, one in held.items()}
        if all(one.ndim == 3 for one in arrays.values()):
            return [arrays[key] for key in sorted(arrays, key=_numbered)]
        layers = {int("".join(re.findall("[0-9]+", key))): one for key, one in arrays.items()}
        tokens, ranks = next(iter(layers.values())).shape
        ids = numpy.full((tokens, max(layers) + 1, ranks), -1, next(iter(layers.values())).dtype)
        for layer, one in layers.items():
            ids[:, layer] = one
        return [ids]
    except (TypeError, ValueError) as bad:
        keys = f" {', '.join(map(str, held))}" if isinstance(held, Mapping) else f": {bad}"
        raise InvalidArgument(
            f"{path}: holds{keys}, accepted: one of logical_count, records, "
            f"{', '.join(_ID_NAMES)}; integers [tokens, layers, top_k] of each request, or "
            "[tokens, top_k] of each layer"
        ) from bad


def _of_records(path: Path, held: Mapping[str, Any], name: str) -> Union[Trace, numpy.ndarray]:
    """Maps the places of experts to their numbers: several places may hold copies of one expert."""
    try:
        logical = _array(held["last_physical_to_logical_map"]).astype(numpy.int64)
        passes = sorted(held["records"], key=lambda one: int(one["forward_pass_id"]))
        if not passes:
            raise ValueError("no records: nothing ran while it recorded")
        experts = int(logical.max()) + 1
        layers = numpy.arange(len(logical))[:, None]
        if "topk_ids_of_layer" not in passes[0]:
            places = sum(_array(one["global_physical_count"]) for one in passes)
            counts = numpy.zeros((len(logical), experts))
            numpy.add.at(counts, (layers, logical), places)
            return counts
        given = [_array(one["topk_ids_of_layer"]) for one in passes]
        at = numpy.concatenate(given, 1)  # [layers, tokens, top_k]
        at = at[:, :, (at >= 0).any((0, 1))]
        ids = numpy.where(at < 0, -1, logical[layers[:, :, None], at]).transpose(1, 0, 2)
    except (KeyError, TypeError, ValueError, IndexError) as bad:
        raise InvalidArgument(
            f"{path}: {bad!r}, accepted: records of SGLang's expert-distribution recorder"
        ) from bad
    sizes = [one.shape[1] for one in given]
    return _trace_of(
        ids,
        experts,
        steps=numpy.repeat(numpy.arange(len(sizes)), sizes),
        kinds=numpy.repeat([int(bool(one.get("extend_seq_lens"))) for one in passes], sizes),
        name=name,
        source="SGLang expert-distribution recorder",
    )


def convert(path: Path, out: Path, experts: int = 0) -> str:
    """Writes what hotset reads from a file that only Python reads: a trace or counts (JSON) from a
    .pt file, as from_torch reads it; from Parquet a CSV if all columns are numbers, else JSON lines,
    one for each row. Returns a description of what was written. Raises InvalidArgument,
    CannotWrite, OSError."""
    target = Output(out)
    with open(path, "rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    if is_parquet:
        try:
            import pyarrow.csv
            import pyarrow.parquet
        except ImportError as bad:
            raise InvalidArgument(f"{path}: needs pyarrow, accepted: pip install pyarrow") from bad
        try:
            parts = pyarrow.parquet.ParquetFile(path)
            numbers = all(
                pyarrow.types.is_integer(one.type) or pyarrow.types.is_floating(one.type)
                for one in parts.schema_arrow
            )
            if numbers:
                table = pyarrow.BufferOutputStream()
                pyarrow.csv.write_csv(parts.read(), table)
                target.write([table.getvalue().to_pybytes()])
            else:
                rows = (row for part in parts.iter_batches() for row in part.to_pylist())
                target.write((json.dumps(row, default=str) + "\n").encode() for row in rows)
        except pyarrow.ArrowException as bad:
            raise InvalidArgument(f"{path}: {bad}, accepted: a whole Parquet file") from bad
        return f"{parts.metadata.num_rows} rows as {'a CSV' if numbers else 'JSON lines'}"
    held = from_torch(path, experts, name=os.path.basename(path).partition(".")[0])
    if isinstance(held, Trace):
        held.save(out)
        return f"{held.tokens} tokens, {held.layers} layers, {held.experts} experts, top-{held.top_k}"
    target.write([json.dumps({"logical_count": held.astype(numpy.int64).tolist()}).encode() + b"\n"])
    return f"counts of {held.shape[0]} layers x {held.shape[1]} experts"


def warm_keys(counts: Any, slots: int, *, layers: Optional[Sequence[int]] = None) -> numpy.ndarray:
    """Returns the `slots` most used experts as keys for Pager.warm, int32 [slots, 2] of layer and
    expert, most used last; ties by the lower layer and number."""
    held = counts_of(counts)
    chosen = numpy.argsort(-held.reshape(-1), kind="stable")[: max(0, slots)][::-1]
    keys = numpy.stack(numpy.divmod(chosen, held.shape[1]), 1).astype(numpy.int32)
    if layers is not None:
        keys[:, 0] = numpy.asarray(layers, numpy.int32)[keys[:, 0]]
    return keys
