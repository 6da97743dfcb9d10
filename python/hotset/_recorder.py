# SPDX-License-Identifier: Apache-2.0
"""A recorder of an engine's routing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Optional

from hotset import _hotset


class Recorder(_hotset.Recorder):
    """Records the routed experts of up to `capacity` tokens, and writes them as a trace.

    `hotset` and every reader of safetensors can open the trace.

        with recorder.step(tokens=1):
            for layer, ids in ...:
                recorder.record(layer, ids)     # int32 [tokens, top_k] in rank order; -1: none
        recorder.write("run.trace")
    """

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
