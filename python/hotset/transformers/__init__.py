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
experts, their weights), and Llama 4's: in 71 of the 76 families of transformers 5.24. The others
are refused.
`record(model, scores=True)` writes router scores too. `page(model, miss=..., routing=...)` is for
studies: it changes what the model computes.
"""

from hotset.transformers._paging import Paging, page, paging_of
from hotset.transformers._recording import Recording, record

__all__ = ["Paging", "Recording", "page", "paging_of", "record"]
