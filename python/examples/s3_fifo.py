# SPDX-License-Identifier: Apache-2.0
"""S3-FIFO (Yang et al., SOSP 2023): a small queue for newcomers, a main queue, and the names of those that left.

A newcomer that leaves the small queue joins the main one if it was used twice more; else it is evicted and its name
is kept. A copy whose name is kept joins the main queue at once. The main queue gives used residents further rounds.
As in libCacheSim, newcomers join the main queue while the cache fills and the small queue is full.
A visit of several experts: its victims leave before its copies join, so the queues' sizes are those before the visit.
"""

from __future__ import annotations

from typing import Any, Optional

import hotset


class Queues:
    """The residents of a pool: the uses of each slot since it joined, the oldest first."""

    def __init__(self, slots: int) -> None:
        self.small_slots = slots // 10
        self.main_slots = slots - self.small_slots
        self.small: dict[int, int] = {}
        self.main: dict[int, int] = {}
        self.has_evicted = False

    def copy(self) -> Queues:
        out = Queues(0)
        out.__dict__.update(self.__dict__, small=dict(self.small), main=dict(self.main))
        return out

    def evict(self, may: set[int]) -> tuple[int, bool]:
        """Evicts one of the slots that may be evicted. Returns it, and whether it was a newcomer."""
        self.has_evicted = True
        while True:
            newcomer, resident = _oldest(self.small, may), _oldest(self.main, may)
            if newcomer is None or (resident is not None and len(self.main) > self.main_slots):
                if (slot := self._from_main(may)) is not None:
                    return slot, False
            elif (slot := self._from_small(may)) is not None:
                return slot, True

    def _from_small(self, may: set[int]) -> Optional[int]:
        while (slot := _oldest(self.small, may)) is not None:
            if self.small.pop(slot) < 2:
                return slot
            self.main[slot] = 0
        return None

    def _from_main(self, may: set[int]) -> Optional[int]:
        while (slot := _oldest(self.main, may)) is not None:
            uses = self.main.pop(slot)
            if uses == 0:
                return slot
            self.main[slot] = min(uses, 3) - 1
        return None

    def use(self, slot: int) -> None:
        queue = self.small if slot in self.small else self.main
        queue[slot] += 1

    def join(self, slot: int, is_known: bool) -> None:
        fills_up = not self.has_evicted and len(self.small) >= self.small_slots
        queue = self.main if is_known or fills_up or self.small_slots == 0 else self.small
        queue[slot] = 0

    def remove(self, slot: int) -> None:
        self.small.pop(slot, None)
        self.main.pop(slot, None)


def _oldest(queue: dict[int, int], may: set[int]) -> Optional[int]:
    return next((slot for slot in queue if slot in may), None)


class S3Fifo(hotset.EvictionPolicy):
    def reset(self, layout: Any) -> None:
        self.pools = [Queues(slots) for slots in layout.pool_slots.tolist()]
        self.names: list[dict[tuple[int, int], None]] = [{} for _ in self.pools]
        self.most_names = [int(0.9 * slots) for slots in layout.pool_slots.tolist()]
        self.chosen: list[tuple[int, bool]] = []

    def select_victims(self, choice: Any) -> list[int]:
        self.after = self.pools[choice.pool].copy()
        may = set(choice.candidates.tolist())
        self.chosen = []
        for _ in range(choice.count):
            self.chosen.append(self.after.evict(may))
            may.remove(self.chosen[-1][0])
        return [slot for slot, _ in self.chosen]

    def on_visit(self, event: Any) -> None:
        names = self.names[event.pool]
        fills = event.fills
        filled = fills["slot"].tolist()
        copied = [(event.layer, expert) for expert in fills["expert"].tolist()]
        known = [key in names for key in copied]
        for key in copied:
            names.pop(key, None)
        self._evicted(event.pool, [slot for slot, of in zip(filled, fills["victim_expert"].tolist()) if of >= 0], fills)
        queues = self.pools[event.pool]
        for slot in event.slots.tolist():
            if slot not in filled:
                queues.use(slot)
        for slot, is_known in zip(filled, known):
            queues.join(slot, is_known)

    def _evicted(self, pool: int, victims: list[int], fills: Any) -> None:
        if not victims:
            return
        if victims == [slot for slot, _ in self.chosen]:
            self.pools[pool] = self.after
        else:  # chosen by another call
            for slot in victims:
                self.pools[pool].remove(slot)
        newcomers = {slot for slot, was_small in self.chosen if was_small}
        names = self.names[pool]
        for fill in fills:
            if fill["victim_expert"] >= 0 and fill["slot"] in newcomers and self.most_names[pool]:
                names.pop(key := (int(fill["victim_layer"]), int(fill["victim_expert"])), None)
                names[key] = None
                if len(names) > self.most_names[pool]:
                    del names[next(iter(names))]

    def on_prefetch(self, slot: int, pool: int, layer: int, expert: int, step: int) -> None:
        self.pools[pool].join(slot, (layer, expert) in self.names[pool])
        self.names[pool].pop((layer, expert), None)

    def on_evict(self, slot: int, pool: int, layer: int, expert: int) -> None:
        self.pools[pool].remove(slot)
