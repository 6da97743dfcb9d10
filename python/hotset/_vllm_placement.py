# SPDX-License-Identifier: Apache-2.0
"""vLLM's policy of expert placement ("default"), replaced."""

from __future__ import annotations

import logging
from typing import Any, Optional

import torch
import vllm
from vllm.distributed.eplb import policy as engine
from vllm.distributed.parallel_state import get_ep_group

from hotset._errors import InvalidArgument
from hotset._rebalance import Log, Settings, by_sums

# Releases that python/tests/engines has run with.
TESTED = ("0.32.0", "0.33.0")


def register(given: Settings) -> None:
    """Replaces the policy; called once."""
    log = logging.getLogger("vllm.hotset")
    version = str(vllm.__version__).partition("+")[0]
    if version not in TESTED:
        log.warning("hotset: vLLM's own policy places the experts: vLLM %s, accepted: %s", version, ", ".join(TESTED))
        return
    own = engine.EPLB_POLICIES["default"]
    lines = Log(log, lambda: get_ep_group().rank_in_group == 0)

    class HotsetPolicy(own):  # type: ignore[valid-type,misc]
        """Places by hotset; by the class that it replaces if it does not understand the call."""

        @classmethod
        def rebalance_experts(
            cls,
            weight: torch.Tensor,
            num_replicas: int,
            num_groups: int,
            num_nodes: int,
            num_ranks: int,
            old_global_expert_indices: Optional[torch.Tensor] = None,
        ) -> Any:
            try:
                if old_global_expert_indices is None:
                    raise InvalidArgument("no map of the engine")
                old = old_global_expert_indices.cpu().numpy()
                found = by_sums(given, weight.cpu().numpy(), old, num_replicas, num_ranks, num_nodes, num_groups)
            except InvalidArgument as bad:
                lines.fell_back(bad)
                return own.rebalance_experts(weight, num_replicas, num_groups, num_nodes, num_ranks, old_global_expert_indices)
            lines.rearranged(found.line)
            return torch.from_numpy(found.placed)

    engine.EPLB_POLICIES["default"] = HotsetPolicy
