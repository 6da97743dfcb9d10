# SPDX-License-Identifier: Apache-2.0
"""Pages the experts of Mixture-of-Experts models in llama-cpp-python: pip install 'hotset[llama]'.

    with hotset.llama_cpp.paged(budget="50%"):
        llm = llama_cpp.Llama("m.gguf", n_ctx=4096)
    llm.create_chat_completion(...)                # the same text
    hotset.llama_cpp.paging_of(llm).stats()

    python -m hotset.llama_cpp.server --model m.gguf --hotset-budget auto       # OpenAI's API

`page(llm, budget="50%")` pages an existing object: it loads the model again.

A budget is the memory of all slots: "6GiB", "50%" of all experts, or "auto", which takes what the
machine and the cgroup leave beside the other weights, the caches and the buffers.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotset.llama_cpp._paging import Paging, page, paged, paging_of

__all__ = ["Paging", "page", "paged", "paging_of"]


def __getattr__(name: str) -> Any:
    """Imports llama_cpp at the first use, so that the server can report that it is missing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hotset.llama_cpp import _paging

    return getattr(_paging, name)
