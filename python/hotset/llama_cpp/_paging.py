# SPDX-License-Identifier: Apache-2.0
"""Models and contexts of llama_cpp whose experts are paged."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Optional

import llama_cpp
from llama_cpp import _internals

from hotset._errors import Error, FillFailed, InvalidArgument, InvalidConfig
from hotset.llama_cpp._library import SOURCES, Options, Stats, api, library


class _Settings:
    """Checked options of `paged`."""

    def __init__(
        self,
        budget: str,
        source: str,
        threads: int,
        eviction: str,
        prefetch: str,
        metrics: Optional[str],
        timeline: Optional[str],
    ) -> None:
        if source not in SOURCES:
            raise InvalidArgument(f"source = {source!r}, accepted: {', '.join(SOURCES)}")
        if not 1 <= threads <= 256:
            raise InvalidArgument(f"threads = {threads}, accepted: 1..256")
        self.budget = budget
        self.source = source
        self.threads = threads
        self.eviction = eviction
        self.prefetch = prefetch
        self.metrics = metrics
        self.timeline = timeline

    def options(self, path: str) -> Options:
        return Options(
            struct_size=ctypes.sizeof(Options),
            model_path=path.encode(),
            budget=self.budget.encode(),
            source=SOURCES.index(self.source),
            threads=self.threads,
            eviction=self.eviction.encode(),
            prefetch=self.prefetch.encode(),
            metrics=self.metrics.encode() if self.metrics else None,
            timeline=os.fsencode(self.timeline) if self.timeline else None,
        )


class Paging:
    """Paging of one context. Use it in the thread that uses the context."""

    def __init__(self, path: str, settings: _Settings) -> None:
        self._library = library()
        options = settings.options(path)
        self._handle: Optional[int] = self._library.hotset_llama_create(ctypes.byref(options))
        if self._handle is None:
            raise MemoryError("hotset_llama_create")
        self._path = path

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.detach()

    def __enter__(self) -> Paging:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def stats(self) -> dict[str, int]:
        """Counts since the context was made; `slot_bytes` is 0 if all experts have room. Raises
        Error after detach()."""
        out = Stats(struct_size=ctypes.sizeof(Stats))
        if self._library.hotset_llama_get_stats(self._open(), ctypes.byref(out)):
            raise Error(f"{self._path}: no context is attached")
        return {field[0]: int(getattr(out, field[0])) for field in Stats._fields_[1:]}

    def describe(self) -> str:
        """A sentence: which experts have slots, how many bytes, and how "auto" came to it."""
        return self._text("describe")

    def detach(self) -> None:
        """Frees the slots. The context continues with the model's own weights."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.hotset_llama_destroy(handle)

    def _open(self) -> int:
        if self._handle is None:
            raise Error(f"{self._path}: the paging was detached")
        return self._handle

    def _text(self, name: str) -> str:
        text = getattr(self._library, f"hotset_llama_{name}")(self._open())
        return "" if text is None else str(text.decode())

    def _refusal(self) -> str:
        return f"{self._path} is not paged: {self._text('error')}"

    def _prepare(self, params: Any) -> None:
        if self._library.hotset_llama_prepare(self._open(), ctypes.addressof(params)):
            raise InvalidConfig(self._refusal())

    def _attach(self, context: int) -> None:
        if self._library.hotset_llama_attach(self._open(), context):
            raise InvalidConfig(self._refusal())

    def _check(self) -> None:
        if self._handle is None:
            return
        if self._library.hotset_llama_check(self._handle):
            raise FillFailed(f"{self._path}: {self._text('error')}")
        if warning := self._text("warning"):
            _say(f"{self._path}: {warning}")


def _say(text: str) -> None:
    print(f"hotset: {text}", file=sys.stderr, flush=True)


def _copy(params: Any) -> Any:
    return type(params).from_buffer_copy(params)


def _experts_of(metadata: dict[str, str]) -> int:
    return int(metadata.get(f"{metadata.get('general.architecture')}.expert_count", 0))


class _PagedModel(_internals.LlamaModel):  # type: ignore[misc]
    """A model whose experts can be copied into slots: they are not repacked."""

    def __init__(self, *, path_model: str, params: Any, verbose: bool = True) -> None:
        self._exit_stack = ExitStack()
        self.sampler = None
        own = _copy(params)
        own.vocab_only = True
        super().__init__(path_model=path_model, params=own, verbose=False)
        self.has_experts = _experts_of(self.metadata()) > 0 and not params.vocab_only
        self.close()
        own = _copy(params)
        if self.has_experts:
            own.use_extra_bufts = False
        super().__init__(path_model=path_model, params=own, verbose=verbose)


class _PagedContext(_internals.LlamaContext):  # type: ignore[misc]
    """A context that is paged, unless its model has no experts or it computes embeddings."""

    def __init__(
        self, settings: _Settings, *, model: Any, params: Any, verbose: bool = True
    ) -> None:
        self._exit_stack = ExitStack()
        self.paging: Optional[Paging] = None
        own = _copy(params)
        paging = self._make(settings, model, own)
        if paging is not None:
            paging._prepare(own)
        super().__init__(model=model, params=own, verbose=verbose)
        if paging is None:
            return
        try:
            paging._attach(self.ctx)
        except Error:
            paging.detach()
            self.close()
            raise
        self.paging = paging
        # Called before the context is freed, and so before its model.
        self._exit_stack.callback(paging.detach)
        _say(f"{model.path_model}: {paging.describe()}")

    @staticmethod
    def _make(settings: _Settings, model: Any, params: Any) -> Optional[Paging]:
        if not model.has_experts:
            why = "the model has no experts"
        elif params.embeddings:
            why = "the context computes embeddings"
        else:
            return Paging(model.path_model, settings)
        _say(f"{model.path_model} runs without paging: {why}")
        return None

    def decode(self, batch: Any) -> None:
        try:
            super().decode(batch)
        finally:
            self._check()

    def encode(self, batch: Any) -> None:
        try:
            super().encode(batch)
        finally:
            self._check()

    def _check(self) -> None:
        if self.paging is not None:
            api.llama_synchronize(self.ctx)
            self.paging._check()


@contextlib.contextmanager
def paged(
    *,
    budget: str = "auto",
    source: str = "auto",
    threads: int = 2,
    eviction: str = "similar_steps",
    prefetch: str = "next_layer_top_k",
    metrics: Optional[str] = None,
    timeline: Optional[str] = None,
) -> Iterator[None]:
    """Pages each `llama_cpp.Llama` that is made inside, in any thread; a line on stderr describes
    it. Models without experts, and Llama(embedding=True), run as outside, and a line says so.

    budget: memory of all slots of a Llama: "6GiB", "50%" of all experts, or "auto"
    source: of copies: "mapped" (llama.cpp's mapping of the file), "read", "direct", "uring", "auto"
    threads: that read
    metrics: address that shows metrics to Prometheus, such as "127.0.0.1:9100"; port 0: any free
        one. Each Llama needs an address of its own
    timeline: file for a timeline, as Chrome trace events for Perfetto

    Raises InvalidArgument, InvalidConfig (another llama.cpp; from Llama(): experts that cannot be
    paged), Error (no library). Calls of a Llama raise FillFailed if a copy fails."""
    library()
    context = functools.partial(
        _PagedContext, _Settings(budget, source, threads, eviction, prefetch, metrics, timeline)
    )
    outer = _internals.LlamaModel, _internals.LlamaContext
    _internals.LlamaModel, _internals.LlamaContext = _PagedModel, context
    try:
        yield
    finally:
        _internals.LlamaModel, _internals.LlamaContext = outer


def paging_of(llm: Any) -> Optional[Paging]:
    """The paging of a `llama_cpp.Llama`, or None."""
    return getattr(llm._ctx, "paging", None)


def page(llm: Any, **options: Any) -> Paging:
    """Pages an existing `llama_cpp.Llama`; options: as of `paged`.

    Loads the model again, with the object's own parameters: llama.cpp accepts a callback only when
    it makes a context, and may have repacked the experts. The context's cache is empty afterwards.
    After an exception the object runs as before, with an empty cache."""
    if paging_of(llm) is not None:
        raise InvalidConfig(f"{llm.model_path} is paged already, accepted: one paging of a Llama")
    with contextlib.ExitStack() as scope:
        scope.enter_context(paged(**options))
        state = _state_of(llm)
        llm.close()
        try:
            _make_again(llm, state)
        except BaseException:
            scope.close()
            _make_again(llm, state)
            raise
    paging = paging_of(llm)
    if paging is None:
        raise InvalidArgument(
            f"{llm.model_path} is not paged, accepted: a Mixture-of-Experts model, in a Llama that "
            "was not made with embedding=True"
        )
    return paging


def _state_of(llm: Any) -> dict[str, Any]:
    """Arguments of Llama(), as pickle has them, and what pickle leaves out."""
    state: dict[str, Any] = llm.__getstate__()
    if type(llm.tokenizer_) is not llama_cpp.LlamaTokenizer:
        state["tokenizer"] = llm.tokenizer_
    return state


def _make_again(llm: Any, state: dict[str, Any]) -> None:
    cache = llm.cache
    llm.__init__(**state)
    llm.set_cache(cache)
