# SPDX-License-Identifier: Apache-2.0
"""Records and pages the experts of Mixture-of-Experts models of `transformers` 5 or later.

    recording = hotset.transformers.record(model)
    model.generate(...)
    recording.write("run.trace")

    paged = hotset.transformers.page(model, budget="2GiB", eviction="similar_steps")
    model.generate(...)                     # the same tokens
    paged.stats()
    paged.detach()                          # restores the model

Both find the modules that hold a layer's experts as stacked weights and take (hidden states, chosen
experts, their weights). `transformers` decorates them with `use_experts_implementation`: Mixtral,
Qwen, OLMoE, DeepSeek, GPT-OSS and others.
"""

from hotset.transformers._paging import Paging, page, paging_of
from hotset.transformers._recording import Recording, record

__all__ = ["Paging", "Recording", "page", "paging_of", "record"]
