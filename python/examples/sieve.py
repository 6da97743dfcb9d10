# SPDX-License-Identifier: Apache-2.0
"""SIEVE (Zhang et al., NSDI 2024): a queue, a mark for each resident that was used again, and a hand.

The hand moves from the oldest resident to the newest. It clears marks and evicts the first resident without one.
A visit of several experts: its uses mark, in order; its victims are taken before its copies join the queue; the hand
passes over slots that may not be evicted and leaves their marks.
"""

from __future__ import annotations

from typing import Any

import hotset


class Queue:
    """The residents of a pool, the oldest first."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.marked: set[int] = set()
        self.hand = 0

    def from_hand(self) -> list[int]:
        """The residents in the order in which the hand meets them."""
        return self.slots[self.hand :] + self.slots[: self.hand]

    def pass_to(self, slot: int) -> None:
        """Moves the hand to a victim and clears the marks on the way."""
        if slot in self.marked:  # no resident was without a mark: a whole round
            self.marked.clear()
        for other in self.from_hand():
            if other == slot:
                return
            self.marked.discard(other)

    def remove(self, slot: int) -> None:
        at = self.slots.index(slot)
        del self.slots[at]
        self.marked.discard(slot)
        self.hand -= at < self.hand
        if self.hand == len(self.slots):
            self.hand = 0

    def evict(self, slot: int) -> None:
        self.pass_to(slot)
        self.hand = self.slots.index(slot)
        self.remove(slot)


class Sieve(hotset.EvictionPolicy):
    def reset(self, layout: Any) -> None:
        self.queues = [Queue() for _ in range(layout.pools)]

    def on_visit(self, event: Any) -> None:
        queue = self.queues[event.pool]
        filled = event.fills["slot"].tolist()
        for slot, victim in zip(filled, event.fills["victim_expert"].tolist()):
            if victim >= 0:
                queue.evict(slot)
        queue.marked.update(set(event.slots.tolist()).difference(filled))
        queue.slots += filled

    def on_prefetch(self, slot: int, pool: int, layer: int, expert: int, step: int) -> None:
        self.queues[pool].slots.append(slot)

    def on_evict(self, slot: int, pool: int, layer: int, expert: int) -> None:
        self.queues[pool].remove(slot)

    def select_victims(self, choice: Any) -> list[int]:
        queue = self.queues[choice.pool]
        may = set(choice.candidates.tolist())
        met = [slot for slot in queue.from_hand() if slot in may]
        return sorted(met, key=queue.marked.__contains__)[: choice.count]
