# SPDX-License-Identifier: Apache-2.0
"""LeCaR (Vietri et al., HotStorage 2018): evicts by LRU or by LFU, at random, and learns which of them errs less.

The names of evicted experts are kept, as many as the pool has slots, with the rule that chose them. If one of them
is used again, its rule loses weight, more if it left lately.
A visit of several experts: its victims are chosen with the weights before the visit, because a pager chooses victims
before it reports which experts missed. The published form moves the weights first; with visits of one expert this is
the only difference.
"""

from __future__ import annotations

import math
from typing import Any

import hotset

_MASK = 2**64 - 1


class Pool:
    """The residents of a pool, the least recently used first, with the uses of each."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.uses: dict[int, int] = {}
        self.names: dict[tuple[int, int], tuple[bool, int]] = {}
        """Evicted key: by LRU, and when; the oldest first."""
        self.lru_weight = 0.5
        self.clock = 0
        self.random = 1

    def forgive(self, key: tuple[int, int], rate: float = 0.45) -> None:
        """A copy of a key: if its name is kept, the rule that evicted it loses weight."""
        found = self.names.pop(key, None)
        if found is None:
            return
        by_lru, when = found
        regret = 0.005 ** ((self.clock - when) / self.slots)
        weights = [self.lru_weight, 1 - self.lru_weight]
        weights[not by_lru] *= math.exp(-rate * regret)
        self.lru_weight = weights[0] / sum(weights)

    def keep(self, key: tuple[int, int], by_lru: bool) -> None:
        self.names[key] = (by_lru, self.clock)
        if len(self.names) > self.slots:
            del self.names[next(iter(self.names))]


def draws(seed: int, count: int) -> list[float]:
    """Numbers from 0 to 1; the same for the same seed, because a repeated choice must be the same."""
    out = []
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) & _MASK  # splitmix64
        mixed = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
        out.append((mixed ^ mixed >> 31) / 2**64)
    return out


class LeCaR(hotset.EvictionPolicy):
    def reset(self, layout: Any) -> None:
        self.pools = [Pool(slots) for slots in layout.pool_slots.tolist()]

    def select_victims(self, choice: Any) -> list[int]:
        pool = self.pools[choice.pool]
        may = set(choice.candidates.tolist())
        left = [slot for slot in pool.uses if slot in may]
        self.by_lru: dict[int, bool] = {}
        for draw in draws(pool.random, choice.count):
            by_lru = draw < pool.lru_weight
            slot = left[0] if by_lru else min(left, key=pool.uses.__getitem__)
            left.remove(slot)
            self.by_lru[slot] = by_lru
        return list(self.by_lru)

    def on_visit(self, event: Any) -> None:
        pool = self.pools[event.pool]
        pool.clock += len(event.slots)
        for expert in event.fills["expert"].tolist():
            pool.forgive((event.layer, expert))
        for fill in event.fills:
            if fill["victim_expert"] >= 0:
                slot = int(fill["slot"])
                pool.keep((int(fill["victim_layer"]), int(fill["victim_expert"])), self.by_lru.get(slot, True))
                del pool.uses[slot]
                pool.random += 1
        for slot in event.slots.tolist():
            pool.uses[slot] = pool.uses.pop(slot, 0) + 1

    def on_prefetch(self, slot: int, pool: int, layer: int, expert: int, step: int) -> None:
        self.pools[pool].forgive((layer, expert))
        self.pools[pool].uses[slot] = 0

    def on_evict(self, slot: int, pool: int, layer: int, expert: int) -> None:
        del self.pools[pool].uses[slot]
