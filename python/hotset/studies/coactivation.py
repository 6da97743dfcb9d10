# SPDX-License-Identifier: Apache-2.0
"""Tables of experts that are used together: learnt from traces, merged, evaluated on unseen tokens,
and compared by training size.

A table equals the library's `co_activation` predictor after the same tokens, with the same counts
and scores.
Source: WiSP 4, 5.4, Appendix C and G.1 (Figure 4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

import numpy

from hotset._errors import InvalidArgument, InvalidConfig
from hotset._trace import Trace

SCHEMA = "hotset.coactivation/1"
_MAGIC = b"hscoact1"
_HEADER = len(_MAGIC) + 12
_MOST_BYTES = 1 << 34
_MOST_COUNT = 2**32 - 1
_CHUNK = 4096  # tokens that are scored at once


class Quality(NamedTuple):
    """Share of the K experts that the next layer routes among the K with the highest scores. An
    expert without a score is not named, and its place counts as wrong: an empty table has precision
    0."""

    tokens: int
    places: int
    """K for each token and each layer but the first that routes any."""
    hits: int
    popular_hits: int
    """Hits of the layer's K most used experts, by the counts of the table."""

    @property
    def precision(self) -> float:
        return self.hits / self.places if self.places else 0.0

    @property
    def popular_precision(self) -> float:
        return self.popular_hits / self.places if self.places else 0.0


def routed(trace: Trace) -> numpy.ndarray:
    """int64 [tokens, layers, top_k]; absent experts are the number of experts."""
    ids = trace.ids.astype(numpy.int64)
    ids[ids == 65535] = trace.experts
    return ids


def shape_text(layers: int, experts: int, reach: int) -> str:
    return f"{layers} layers x {experts} experts, reach {reach}"


class Table:
    """Counts of one user or several. For each token: number of uses of expert i in layer s
    (`fired`, uint32 [layers, experts]), and of its uses together with expert j of layer s + d, d =
    1..reach (`together`, uint32 [layers, reach, experts, experts])."""

    def __init__(self, layers: int, experts: int, reach: int = 4, decay: float = 0.8) -> None:
        if reach < 1:
            raise InvalidConfig(f"co_activation reach = {reach}, accepted: 1 or more")
        if not 0 < decay <= 1:
            raise InvalidConfig(f"co_activation decay = {decay}, accepted: more than 0, at most 1")
        if not _fits(layers, experts, reach):
            raise InvalidConfig(
                f"a co_activation table of {shape_text(layers, experts, reach)}, accepted: at most"
                f" {_MOST_BYTES} bytes"
            )
        self.layers, self.experts, self.reach = layers, experts, reach
        self._weights = numpy.array(numpy.cumprod([1.0] + [decay] * (reach - 1)), numpy.float32)
        self.fired = numpy.zeros((layers, experts), numpy.uint32)
        self.together = numpy.zeros((layers, reach, experts, experts), numpy.uint32)

    def learn(self, ids: numpy.ndarray) -> None:
        """Learns tokens in the form of `routed`."""
        wide = self.experts + 1  # one more, for absent experts
        for layer in range(self.layers):
            now = ids[:, layer]
            counts = numpy.bincount(now.reshape(-1), minlength=wide)
            self.fired[layer] = _sum(self.fired[layer], counts[:-1])
            for back in range(1, min(layer, self.reach) + 1):
                pairs = ids[:, layer - back, :, None] * wide + now[:, None, :]
                counts = numpy.bincount(pairs.reshape(-1), minlength=wide * wide).reshape(
                    wide, wide
                )
                held = self.together[layer - back, back - 1]
                held[:] = _sum(held, counts[:-1, :-1])

    def merge(self, other: Table) -> None:
        """Adds the counts of another user. Raises InvalidConfig for another shape or reach."""
        if (other.layers, other.experts, other.reach) != (self.layers, self.experts, self.reach):
            raise InvalidConfig(f"a table of {other.shape_text}, accepted: {self.shape_text}")
        self.fired = _sum(self.fired, other.fired)
        self.together = _sum(self.together, other.together)

    @property
    def shape_text(self) -> str:
        return shape_text(self.layers, self.experts, self.reach)

    @property
    def uses(self) -> int:
        """Number of counted tokens times K."""
        return int(self.fired.sum(dtype=numpy.uint64))

    def save(self) -> bytes:
        """The shape and the counts, in numbers of four bytes, little-endian."""
        head = _MAGIC + struct.pack("<3I", self.layers, self.experts, self.reach)
        return head + self.fired.astype("<u4").tobytes() + self.together.astype("<u4").tobytes()

    @staticmethod
    def shape_of(data: bytes) -> tuple[int, int, int]:
        """Layers, experts and reach of saved counts. Raises InvalidArgument for other data."""
        if len(data) < _HEADER or data[: len(_MAGIC)] != _MAGIC:
            raise InvalidArgument("no co_activation table, accepted: a saved one")
        layers, experts, reach = struct.unpack_from("<3I", data, len(_MAGIC))
        text = shape_text(layers, experts, reach)
        if not (1 <= layers <= 65536 and 1 <= reach <= 65536 and _fits(layers, experts, reach)):
            raise InvalidArgument(f"a table of {text}, accepted: at most {_MOST_BYTES} bytes")
        wanted = _HEADER + 4 * (layers * experts + layers * reach * experts * experts)
        if len(data) != wanted:
            raise InvalidArgument(f"{len(data)} bytes, accepted: {wanted} for {text}")
        return layers, experts, reach

    def load(self, data: bytes) -> None:
        """Replaces the counts by saved ones. Raises InvalidArgument, or InvalidConfig for another
        shape or reach."""
        found = Table.shape_of(data)
        if found != (self.layers, self.experts, self.reach):
            raise InvalidConfig(f"a table of {shape_text(*found)}, accepted: {self.shape_text}")
        counts = numpy.frombuffer(data, "<u4", offset=_HEADER).astype(numpy.uint32)
        self.fired = counts[: self.fired.size].reshape(self.fired.shape)
        self.together = counts[self.fired.size :].reshape(self.together.shape)

    def scores(self, ids: numpy.ndarray, layer: int) -> numpy.ndarray:
        """Returns float32 [tokens, experts]: the forecast for layer + 1 from the routing of the
        layers up to it. Sums have the library's order."""
        out = numpy.zeros((len(ids), self.experts), numpy.float32)
        total = numpy.zeros(len(ids), numpy.float32)
        for back in range(1, min(layer + 1, self.reach) + 1):
            source = layer + 1 - back
            weight = self._weights[back - 1]
            fired = self.fired[source].astype(numpy.float32)
            seen = fired > 0
            each = numpy.zeros((self.experts + 1, self.experts), numpy.float32)
            counts = self.together[source, back - 1, seen].astype(numpy.float32)
            each[:-1][seen] = (weight / fired[seen])[:, None] * counts
            for rank in range(ids.shape[2]):
                experts = ids[:, source, rank]
                out += each[experts]
                total += numpy.where(experts < self.experts, weight, numpy.float32(0))
        return out / numpy.where(total > 0, total, numpy.float32(1))[:, None]


def _fits(layers: int, experts: int, reach: int) -> bool:
    return 1 <= experts <= 65536 and layers * reach * experts * experts <= _MOST_BYTES // 4


def _sum(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    """Sum of counts, clamped to 32 bits."""
    return numpy.minimum(a.astype(numpy.uint64) + b.astype(numpy.uint64), _MOST_COUNT).astype(
        numpy.uint32
    )


def _best(scores: numpy.ndarray, count: int) -> numpy.ndarray:
    """[..., count]: the positions of the largest scores above 0, ties to the lower one; -1 if there
    are no more."""
    order = numpy.argsort(-scores, axis=-1, kind="stable")[..., :count]
    return numpy.where(numpy.take_along_axis(scores, order, -1) > 0, order, -1)


def _named(guess: numpy.ndarray, now: numpy.ndarray) -> int:
    """Number of correct guesses, over all tokens."""
    return int((guess[:, :, None] == now[:, None, :]).any(-1).sum())


def judge(table: Table, ids: numpy.ndarray) -> Quality:
    """Evaluates the table's forecasts of each next layer. It does not learn."""
    top_k = ids.shape[2]
    popular = _best(table.fired.astype(numpy.float64), top_k)
    places = hits = popular_hits = 0
    for first in range(0, len(ids), _CHUNK):
        tokens = ids[first : first + _CHUNK]
        for layer in range(table.layers - 1):
            now = tokens[:, layer + 1]
            places += top_k * int((now < table.experts).any(-1).sum())
            hits += _named(_best(table.scores(tokens, layer), top_k), now)
            popular_hits += _named(popular[layer + 1][None, :], now)
    return Quality(len(ids), places, hits, popular_hits)


def support_of(table: Table, coverage: float) -> tuple[int, float]:
    """Residency that covers this share of the uses: experts in the layer that needs most, and the
    mean of the used layers."""
    uses = -numpy.sort(-table.fired.astype(numpy.float64), axis=1)
    before = numpy.cumsum(uses, axis=1) - uses
    sizes = ((uses > 0) & (before < coverage * uses.sum(1, keepdims=True))).sum(1)
    used = sizes[sizes > 0]
    return int(sizes.max()), float(used.mean()) if used.size else 0.0


class User(NamedTuple):
    """Tokens of one user, in order, in the form of `routed`."""

    name: str
    ids: numpy.ndarray
    experts: int

    @property
    def shape_text(self) -> str:
        return f"{self.ids.shape[1]} layers x {self.experts} experts, top-{self.ids.shape[2]}"


def user_of(trace: Trace, name: Optional[str] = None) -> User:
    """Treats all tokens of a trace as one user's."""
    return User(
        trace.metadata.get("name", "") if name is None else name, routed(trace), trace.experts
    )


def users_by_sequence(trace: Trace, name: Optional[str] = None) -> list[User]:
    """Treats each sequence as a user, in order of their beginnings; named "<trace>/<sequence>"."""
    whole = user_of(trace, name)
    numbers, firsts = numpy.unique(trace.sequences, return_index=True)
    return [
        User(f"{whole.name}/{number}", whole.ids[trace.sequences == number], trace.experts)
        for number in numbers[numpy.argsort(firsts)]
    ]


def compare(
    users: Sequence[User],
    sizes: Sequence[int],
    *,
    reach: int = 4,
    decay: float = 0.8,
    coverage: float = 0.95,
) -> dict[str, Any]:
    """Compares personal tables with the population's, by number of training tokens per user. For
    each size n, tables are trained on the first n tokens of this user, of every user, and of every
    other user. All are evaluated on the tokens after the largest size.

    Returns {"schema", "study", "layers", "experts", "top_k", "reach", "decay", "coverage",
    "left_out", "users": [{"name", "tested_tokens", "sizes": [{"tokens", "personal", "population",
    "others"}]}], "all": [{"tokens", "personal", "population", "others", "wins"}]}. Each table:
    {"precision", "popular_precision", "cap"}. "all" has the means over users; "wins" counts users
    whose personal table is at least as precise as the population's. Raises InvalidConfig for users
    of different shapes, or if fewer than two are long enough.
    """
    _check(users, sizes, coverage)
    long, left_out = _long_enough(users, sizes[-1])
    _, layers, top_k = long[0].ids.shape
    experts = long[0].experts
    own = [Table(layers, experts, reach, decay) for _ in long]
    rows: list[dict[str, Any]] = [
        {"name": u.name, "tested_tokens": len(u.ids) - sizes[-1], "sizes": []} for u in long
    ]
    summary = []
    trained = 0
    for size in sizes:
        for table, user in zip(own, long):
            table.learn(user.ids[trained:size])
        trained = size
        cells = list(_cells(own, long, sizes[-1], coverage))
        for row, cell in zip(rows, cells):
            row["sizes"].append(
                {"tokens": size, **{kind: score for kind, (score, _) in cell.items()}}
            )
        summary.append({"tokens": size, **_means(cells)})
    return {
        "schema": SCHEMA,
        "study": "personal-vs-population",
        "layers": layers,
        "experts": experts,
        "top_k": top_k,
        "reach": reach,
        "decay": decay,
        "coverage": coverage,
        "left_out": left_out,
        "users": rows,
        "all": summary,
    }


def _check(users: Sequence[User], sizes: Sequence[int], coverage: float) -> None:
    if not users:
        raise InvalidConfig("no user, accepted: 2 or more")
    if not sizes:
        raise InvalidConfig("no size, accepted: tokens of training, such as 64,256")
    for before, size in zip((0, *sizes), sizes):
        if size <= before:
            raise InvalidConfig(
                f"size {size}, accepted: 1 or more, each larger than the one before"
            )
    if not 0 < coverage <= 1:
        raise InvalidConfig(f"coverage = {coverage}, accepted: more than 0, at most 1")


def _long_enough(users: Sequence[User], largest: int) -> tuple[list[User], list[str]]:
    first = users[0]
    for user in users:
        if user.shape_text != first.shape_text:
            raise InvalidConfig(
                f"{user.name}: {user.shape_text}; accepted: {first.shape_text}, as {first.name}"
            )
    long = [u for u in users if len(u.ids) > largest]
    if len(long) < 2:
        raise InvalidConfig(
            f"{len(long)} of {len(users)} users have more than {largest} tokens; accepted: 2 or"
            " more users, or smaller sizes"
        )
    return long, [u.name for u in users if len(u.ids) <= largest]


Cell = dict[str, tuple[dict[str, Any], Quality]]


def _cells(
    own: Sequence[Table], users: Sequence[User], held_out: int, coverage: float
) -> Iterator[Cell]:
    """Scores of the three tables for each user."""
    everybody = _merged(own, None)
    for at, user in enumerate(users):
        tables = {"personal": own[at], "population": everybody, "others": _merged(own, at)}
        cell = {}
        for kind, table in tables.items():
            quality = judge(table, user.ids[held_out:])
            score = {
                "precision": quality.precision,
                "popular_precision": quality.popular_precision,
                "cap": support_of(table, coverage)[0],
            }
            cell[kind] = (score, quality)
        yield cell


def _merged(tables: Sequence[Table], without: Optional[int]) -> Table:
    first = tables[0]
    out = Table(first.layers, first.experts, first.reach)
    out._weights = first._weights
    for at, table in enumerate(tables):
        if at != without:
            out.merge(table)
    return out


def _means(cells: Sequence[Cell]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for kind in ("personal", "population", "others"):
        out[kind] = {name: 0.0 for name in ("precision", "popular_precision", "cap")}
        for cell in cells:
            for name in out[kind]:
                out[kind][name] += cell[kind][0][name] / len(cells)
    out["wins"] = sum(cell["personal"][1].hits >= cell["population"][1].hits for cell in cells)
    return out
