# SPDX-License-Identifier: Apache-2.0
"""Traces as arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Optional, Union

import numpy

from hotset import _safetensors
from hotset._errors import Error, InvalidArgument
from hotset._safetensors import Path

_FORMAT = "hotset.trace/1"
_KINDS = ("decode", "prefill", "verify")
# Order in the file: wide elements first, so that all are aligned.
_ORDER = ("expert_bytes", "step", "sequence", "token_ids", "weights", "logits", "ids", "probabilities", "hidden", "predictions", "adapter", "kind")


class Trace:
    """Recorded routing of a model.

    `ids` is uint16 [tokens, layers, top_k], 65535 for absent experts; other arrays have one row per
    token.

    arrays: all arrays by name (docs/trace-format.md). Those of a file are mapped: unused data is
    not read.
    """

    def __init__(self, arrays: Mapping[str, numpy.ndarray], metadata: Mapping[str, str]) -> None:
        self.arrays = dict(arrays)
        self.metadata = dict(metadata)

    @staticmethod
    def load(path: Path) -> Trace:
        """Opens a native trace. `hotset.run("import", ...)` converts other formats. Raises
        InvalidArgument, OSError."""
        arrays, facts = _safetensors.load(path, "a native trace (hotset import makes one)")
        if facts.get("format") != _FORMAT or "ids" not in arrays or arrays["ids"].ndim != 3:
            raise InvalidArgument(f"{path}: no trace, accepted: one of the format {_FORMAT}")
        return Trace(arrays, facts)

    @staticmethod
    def from_arrays(
        ids: Any,
        experts: int,
        *,
        weights: Any = None,
        steps: Any = None,
        sequences: Any = None,
        kinds: Any = None,
        expert_bytes: Any = None,
        logits: Any = None,
        name: str = "",
        model: str = "",
        source: str = "hotset Python",
    ) -> Trace:
        """A trace of arrays. ids: integers [tokens, layers, top_k] in rank order; values below 0 are absent.
        steps: non-decreasing; default: one step per token. kinds: 0 decode, 1 prefill, 2 verify. Raises
        InvalidArgument."""
        given = numpy.asarray(ids)
        if given.ndim != 3 or given.dtype.kind not in "iu" or 0 in given.shape:
            raise InvalidArgument(f"ids: {given.dtype} of shape {list(given.shape)}, accepted: integers [tokens, layers, top_k]")
        tokens, layers, _ = given.shape
        if not 1 <= experts <= 65535:
            raise InvalidArgument(f"experts = {experts}, accepted: 1..65535")
        if given.size and int(given.max()) >= experts:
            raise InvalidArgument(f"ids: an expert {int(given.max())}, accepted: below {experts}, and below 0 for none")
        kept = numpy.where(given < 0, 65535, given).astype("<u2")
        arrays: dict[str, numpy.ndarray] = {"ids": kept}

        def add(what: str, values: Any, dtype: str, shape: tuple[int, ...]) -> None:
            made = numpy.ascontiguousarray(values, dtype)
            if made.shape != shape:
                raise InvalidArgument(f"{what}: shape {list(made.shape)}, accepted: {list(shape)}")
            arrays[what] = made

        add("step", numpy.arange(tokens) if steps is None else steps, "<u4", (tokens,))
        add("sequence", numpy.zeros(tokens) if sequences is None else sequences, "<u4", (tokens,))
        add("kind", numpy.zeros(tokens) if kinds is None else kinds, "u1", (tokens,))
        if weights is not None:
            add("weights", weights, "<f4", given.shape)
        if logits is not None:
            add("logits", logits, "<f4", (tokens, layers, experts))
        if expert_bytes is not None:
            add("expert_bytes", numpy.broadcast_to(expert_bytes, (layers,)), "<u8", (layers,))
        if (numpy.diff(arrays["step"].astype(numpy.int64)) < 0).any():
            raise InvalidArgument("steps: fall, accepted: never falling")
        if int(arrays["kind"].max(initial=0)) >= len(_KINDS):
            raise InvalidArgument(f"kinds: {int(arrays['kind'].max())}, accepted: 0..{len(_KINDS) - 1}")
        facts = {"experts": str(experts), "name": name, "model": model, "source": source}
        return Trace(arrays, facts)

    def save(self, path: Path) -> None:
        """Writes the trace completely or not at all; on failure an existing file is unchanged.
        Raises CannotWrite."""
        arrays = {n: self.arrays[n] for n in _ORDER if n in self.arrays}
        _safetensors.save(path, {**self.metadata, "format": _FORMAT}, arrays)

    @property
    def ids(self) -> numpy.ndarray:
        """uint16 [tokens, layers, top_k], 65535 for absent experts."""
        return self.arrays["ids"]

    @property
    def tokens(self) -> int:
        """Tokens of all steps."""
        return int(self.ids.shape[0])

    @property
    def layers(self) -> int:
        """MoE layers."""
        return int(self.ids.shape[1])

    @property
    def top_k(self) -> int:
        """Experts of a token in a layer."""
        return int(self.ids.shape[2])

    @property
    def experts(self) -> int:
        """Experts per layer."""
        return int(self.metadata["experts"])

    @property
    def steps(self) -> numpy.ndarray:
        """uint32 [tokens]: step of each token, never falling."""
        return self.arrays["step"]

    @property
    def sequences(self) -> numpy.ndarray:
        """uint32 [tokens]: sequence of each token."""
        return self.arrays["sequence"]

    @property
    def kinds(self) -> numpy.ndarray:
        """0 decode, 1 prefill, 2 verify."""
        return self.arrays["kind"]

    @property
    def weights(self) -> Optional[numpy.ndarray]:
        """float32 [tokens, layers, top_k], or None."""
        return self.arrays.get("weights")

    def experts_of(self, token: int, layer: int) -> numpy.ndarray:
        """int32 [top_k], -1 for absent experts: the argument of Pager.plan."""
        row: numpy.ndarray = self.ids[token, layer].astype(numpy.int32)
        row[row == 65535] = -1
        return row

    def __repr__(self) -> str:
        return f"<hotset.Trace {self.metadata.get('name', '')!r}: {self.tokens} tokens, {self.layers} layers, {self.experts} experts, top-{self.top_k}>"


def path_of(trace: Union[Trace, Path], folder: str) -> str:
    """Path of the trace's file: its own, or a file written into the folder."""
    if not isinstance(trace, Trace):
        return os.fspath(trace)
    out = os.path.join(folder, "given.trace")
    trace.save(out)
    return out


__all__ = ["Trace", "Error", "Path", "path_of"]
