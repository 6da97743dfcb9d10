# SPDX-License-Identifier: Apache-2.0
"""A recorder of an engine's routing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from ctypes import byref, c_size_t, c_uint64
from typing import Any, Optional

from hotset._arguments import UINT32, int32, kind_of, rows_of, text, uint64, view_of
from hotset._library import Held, RecorderOptions, check, library


class Recorder(Held):
    """Records the routed experts of up to `capacity` tokens, and writes them as a trace.

    `hotset` and every reader of safetensors can open the trace.

        with recorder.step(tokens=1):
            for layer, ids in ...:
                recorder.record(layer, ids)     # int32 [tokens, top_k] in rank order; -1: none
        recorder.write("run.trace")
    """

    def __init__(
        self,
        layers: int,
        experts: int,
        top_k: int,
        capacity: int,
        weights: bool = False,
        name: Optional[str] = None,
        model: Optional[str] = None,
    ) -> None:
        options = RecorderOptions(
            layers=int32("layers", layers),
            experts=int32("experts", experts),
            top_k=int32("top_k", top_k),
            capacity=uint64("capacity", capacity),
            weights=bool(weights),
            name=None if name is None else text("name", name),
            model=None if model is None else text("model", model),
        )
        self._make("recorder", options)
        self._top_k = options.top_k
        self._next = 0

    @contextlib.contextmanager
    def step(
        self,
        tokens: int,
        *,
        kind: str = "decode",
        step: Optional[int] = None,
        sequences: Any = None,
    ) -> Iterator[Recorder]:
        """A step. It is kept even if its body raises: a layer that was not recorded routes nothing.
        """
        self.begin_step(tokens, kind, step, sequences)
        try:
            yield self
        finally:
            self.end_step()

    def begin_step(self, tokens: int, kind: str = "decode", step: Optional[int] = None, sequences: Any = None) -> None:
        """Begins a step of this many tokens; sequences: uint32 [tokens].

        Raises ExceedsMemory if the recorder is full.
        """
        tokens = uint64("tokens", tokens)
        now = self._next if step is None else uint64("step", step)
        of = None if sequences is None else rows_of(sequences, UINT32, tokens, "sequences")
        check(library.hotset_recorder_begin_step(self._handle, now, kind_of(kind), tokens, of and of[1]))
        self._next = now + 1

    def record(self, layer: int, experts: Any, weights: Any = None, rows: Any = None) -> None:
        """Records a layer of the open step: int32 [tokens, top_k]. rows: uint32, ascending: the token of each row, if
        some tokens have none. Raises InvalidVisit, InvalidArgument."""
        view, kept = view_of(int32("layer", layer), 0, 0, experts, self._top_k, weights)
        if rows is None:
            return check(library.hotset_recorder_record(self._handle, byref(view)))
        of = rows_of(rows, UINT32, view.tokens, "rows")
        check(library.hotset_recorder_record_rows(self._handle, byref(view), of[1]))

    def end_step(self) -> None:
        """Ends the open step. Raises InvalidArgument."""
        check(library.hotset_recorder_end_step(self._handle))

    def tokens(self) -> tuple[int, int]:
        """Tokens held of closed steps, and tokens that did not fit."""
        held, lost = c_size_t(), c_uint64()
        check(library.hotset_recorder_tokens(self._handle, byref(held), byref(lost)))
        return held.value, lost.value

    def write(self, path: str) -> None:
        """Writes the closed steps and starts empty; an open step is dropped.

        Raises CannotWrite; then nothing changed.
        """
        check(library.hotset_recorder_write(self._handle, text("path", path)))
