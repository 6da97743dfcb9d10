# SPDX-License-Identifier: Apache-2.0
"""A plug-in of vLLM that records the routing of a running server as traces, pages its experts, and places them on ranks.

Installed beside vLLM it is loaded automatically (entry point vllm.general_plugins). It does nothing
without these variables:

    HOTSET_VLLM_RECORD    folder for traces, `<process>-<number>.trace`: one after every
                          HOTSET_VLLM_REQUESTS requests, and one at the end
    HOTSET_VLLM_REQUESTS  requests per file (256)
    HOTSET_VLLM_EXPERTS   experts per layer; default: from the model's configuration, else the
                          highest id seen

Recording also needs a server started with --enable-return-routed-experts. A request becomes a
sequence and each of its tokens a step: vLLM does not report which requests were computed together.
A request is delayed only by a copy of its experts: a thread writes the files. A write error is
reported once, and the server continues.

It wraps `vllm.outputs.CompletionOutput`, which every finished request makes once; in processes that
make none it does nothing.

    HOTSET_VLLM_BUDGET    bytes of each device for experts ("6GiB"): the others stay in host memory,
                          and are copied in when they are routed
    HOTSET_VLLM_EVICTION  eviction policy, a name with parameters (similar_steps)

Paging needs --enforce-eager and, on a device, --moe-backend triton. If a model cannot be paged, the
server ends before it loads a weight, with a line that gives the reason.

    HOTSET_PLACEMENT            1, or a file of `hotset place`: places experts on the ranks (--enable-eplb) in place of
                                vLLM's own policy; the first rearrangement goes to the file's placement
    HOTSET_PLACEMENT_PROFILE    steps that were recorded (`hotset place --profile`): vLLM has sums only
    HOTSET_PLACEMENT_MOVE_COST  price of an expert that moves, as a share of a rank's load (0.0015)

All ranks need the same files. What is not understood is left to vLLM's own policy, with one line (docs/scale.md).
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from typing import Any, Optional

import numpy

from hotset import _rebalance
from hotset._errors import Error, InvalidArgument
from hotset.importers import from_routed_experts

_log = logging.getLogger("vllm.hotset")


class RequestRecorder:
    """Collects the routed experts of finished requests and writes them as traces. Threads: any may
    add."""

    def __init__(self, folder: str, *, requests: int = 256, experts: Optional[int] = None) -> None:
        """Creates the folder. experts: per layer; None: the highest id seen. Raises
        InvalidArgument, OSError."""
        if requests < 1:
            raise InvalidArgument(f"requests = {requests}, accepted: 1 or more")
        os.makedirs(folder, exist_ok=True)
        self.experts = experts
        self.written: list[str] = []
        self._folder = folder
        self._requests = requests
        self._lock = threading.Lock()
        self._waiting: list[numpy.ndarray] = []
        self._full: queue.Queue[Optional[list[numpy.ndarray]]] = queue.Queue()
        self._failed = False
        self._closed = False
        self._writer = threading.Thread(target=self._write_all, name="hotset-recorder", daemon=True)
        self._writer.start()

    def add(self, routed_experts: Any) -> None:
        """Adds integers [tokens, layers, top_k] of one request; copies them. A request without
        tokens is ignored."""
        held = numpy.array(routed_experts)
        if held.size == 0:
            return
        with self._lock:
            if self._closed or self._failed:
                return
            self._waiting.append(held)
            if len(self._waiting) >= self._requests:
                self._full.put(self._waiting)
                self._waiting = []

    def close(self) -> None:
        """Writes the remaining requests and waits until they are written. Later requests are
        ignored."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._waiting:
                self._full.put(self._waiting)
            self._full.put(None)
        self._writer.join()

    def _write_all(self) -> None:
        while (requests := self._full.get()) is not None:
            try:
                self._write(requests)
            except Exception as bad:  # else requests would be kept for the server's life
                _log.error("hotset: nothing more is recorded: %s", bad)
                self._failed = True
                return

    def _write(self, requests: list[numpy.ndarray]) -> None:
        experts = self.experts or 1 + max(int(one.max()) for one in requests)
        path = os.path.join(self._folder, f"{os.getpid()}-{len(self.written):05}.trace")
        from_routed_experts(requests, experts, source="vLLM").save(path)
        self.written.append(path)


class _Plugin:
    """State of the plug-in in one process."""

    def __init__(self, folder: str, requests: int, experts: Optional[int]) -> None:
        self.folder = folder
        self.requests = requests
        self.experts = experts
        self.recorder: Optional[RequestRecorder] = None
        self.finished = 0
        self.failed = False

    def configured(self, config: Any) -> None:
        model = getattr(config, "model_config", None)
        if self.experts is None and model is not None and hasattr(model, "get_num_experts"):
            self.experts = int(model.get_num_experts()) or None

    def made(self, output: Any) -> None:
        if output.finish_reason is None or self.failed:
            return
        self.finished += 1
        if output.routed_experts is None:
            return
        try:
            if self.recorder is None:
                self.recorder = RequestRecorder(self.folder, requests=self.requests, experts=self.experts)
            self.recorder.add(output.routed_experts)
        except (Error, OSError) as bad:
            _log.error("hotset: nothing is recorded: %s", bad)
            self.failed = True

    def close(self) -> None:
        if self.recorder is not None:
            self.recorder.close()
        elif self.finished and not self.failed:
            _log.warning(
                "hotset: %d requests ended and none had routed experts, accepted: a server that was started with --enable-return-routed-experts", self.finished
            )


_plugin: Optional[_Plugin] = None
_places = False


def _count(name: str, least: int) -> Optional[int]:
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        raise InvalidArgument(f"{name} is '{text}', accepted: a whole number, {least} or more")
    return int(text)


def _after(owner: type, name: str, heard: Any) -> None:
    """Calls heard(self) after each owner.name."""
    original = getattr(owner, name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(self, *args, **kwargs)
        heard(self)
        return out

    setattr(owner, name, call)


def register() -> None:
    """Entry point for vLLM, called in each of its processes, possibly several times. Raises
    InvalidArgument for an invalid variable."""
    global _plugin, _places
    placing = None if _places else _rebalance.settings()
    if placing is not None:
        try:
            from hotset import _vllm_placement
        except ImportError as bad:
            raise InvalidArgument(f"HOTSET_PLACEMENT: this vLLM has no policies of placement ({bad}), accepted: vLLM 0.32") from bad
        _vllm_placement.register(placing)
        _places = True
    budget = os.environ.get("HOTSET_VLLM_BUDGET")
    if budget:
        try:
            from hotset import _vllm_paging
        except ImportError as bad:
            raise InvalidArgument(f"HOTSET_VLLM_BUDGET: this vLLM has other layers of experts ({bad}), accepted: vLLM 0.32") from bad
        if _vllm_paging.paging is None:
            from vllm.config import VllmConfig

            _vllm_paging.register(budget, os.environ.get("HOTSET_VLLM_EVICTION") or "similar_steps")
            _after(VllmConfig, "__post_init__", _vllm_paging.warn_if_dense)
    folder = os.environ.get("HOTSET_VLLM_RECORD")
    if not folder or _plugin is not None:
        return
    from vllm.config import VllmConfig
    from vllm.outputs import CompletionOutput

    _plugin = _Plugin(folder, _count("HOTSET_VLLM_REQUESTS", 1) or 256, _count("HOTSET_VLLM_EXPERTS", 1))
    _after(VllmConfig, "__post_init__", _plugin.configured)
    _after(CompletionOutput, "__init__", _plugin.made)
    atexit.register(_plugin.close)
