# SPDX-License-Identifier: Apache-2.0
"""Measures how concentrated and how local the routing of a trace is: its working set, as in WiSP.

Source: WiSP, section 5.4 and appendices G.1 to G.3. Terms:
 pool       all experts of all layers; a share of it counts (layer, expert) pairs.
 step       a sequence's rows of one step of the trace. If they differ in kind it is prefill if any
            is, else verify if any is. The previous step is the sequence's own.
 burst      consecutive steps of one sequence and one kind. Consecutive prefill steps are one burst;
            others are cut into bursts of `burst` steps, and the last one may be shorter.
 agreement  of steps t and t + d of a sequence: the share of the decisions of t + d that t made,
            too. A decision is an expert of a token in a layer, regardless of rank. If both steps
            have equally many tokens, tokens are compared in order; else a decision is an expert of
            the step in a layer. Steps of different kinds are not compared.
Absent ids do not count; a share of nothing is left out.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy

from hotset._errors import InvalidArgument, InvalidConfig
from hotset._trace import Trace
from hotset.studies._random import SplitMix64

SCHEMA = "hotset.working-set/1"
_KINDS = ("decode", "prefill", "verify")
_DECODE, _PREFILL, _VERIFY = range(3)
_RANK = numpy.array([0, 2, 1])  # precedence of kinds within a step
_ONES = numpy.array([bin(i).count("1") for i in range(1 << 16)], numpy.uint8)
_CHUNK = 8192  # rows whose bits are processed at once


def measure(
    trace: Trace,
    *,
    burst: int = 32,
    distances: int = 32,
    seed: int = 1,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Agreement is measured at distances 1, 2, 4, ... up to `distances`, in order, and with the
    steps of each sequence in an order drawn from the seed. `told(done, total)` is called with the
    progress.

    Returns {"pool", "burst_steps", "seed", "bursts": {<kind>: {"count", "shorter", "mean", "least",
    "most"}}, "burst_overlap", "decode_burst_overlap": {"pairs", "jaccard", "held"}, "step_overlap":
    {"pairs", "share"}, "sequence_footprint": {"after": [{"bursts", "sequences", "share"}], "end":
    {"sequences", "mean", "least", "most"}}, "trace_footprint": {"after": [{"bursts", "share"}],
    "end": {"bursts", "share"}}, "agreement": [{"distance", "pairs", "share", "shuffled_pairs",
    "shuffled"}]}; shares are in 0..1, None if there is nothing. Raises InvalidConfig,
    InvalidArgument.
    """
    for what, value in (("burst", burst), ("distances", distances)):
        if value < 1:
            raise InvalidConfig(f"{what} = {value}, accepted: 1 or more")
    if trace.tokens == 0:
        raise InvalidArgument("the trace has no tokens, accepted: 1 or more")
    cut = _Cut(trace, burst)
    return {
        "pool": cut.pool,
        "burst_steps": burst,
        "seed": seed,
        "bursts": cut.sizes_of_bursts(burst),
        **cut.overlaps_of_bursts(),
        "step_overlap": cut.overlap_of_steps(),
        **cut.footprints(),
        "agreement": cut.agreements(distances, seed, told),
    }


def _mean(shares: numpy.ndarray) -> Any:
    """Mean with sums in order, so that the last digit is equal on every machine."""
    return float(numpy.cumsum(shares)[-1]) / len(shares) if len(shares) else None


def _spread(shares: numpy.ndarray) -> dict[str, Any]:
    some = len(shares) > 0
    return {
        "mean": _mean(shares),
        "least": float(shares.min()) if some else None,
        "most": float(shares.max()) if some else None,
    }


def _starts(*columns: numpy.ndarray) -> numpy.ndarray:
    """Indices of rows that differ from the previous one in any column."""
    new = numpy.zeros(len(columns[0]), bool)
    new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return numpy.flatnonzero(new)


def _lengths(starts: numpy.ndarray, total: int) -> numpy.ndarray:
    return numpy.diff(numpy.append(starts, total))


def _count(bits: numpy.ndarray) -> numpy.ndarray:
    """int64 [...]: number of ones in each row of uint16 words."""
    return _ONES[bits].sum(-1, dtype=numpy.int64)


def _bits_of(trace: Trace, rows: numpy.ndarray) -> numpy.ndarray:
    """uint16 [rows, words]: one bit for each expert of each layer that the row routes."""
    keys = trace.layers * trace.experts
    words = -(-keys // 16)
    first = (numpy.arange(trace.layers) * trace.experts)[None, :, None]
    out = numpy.empty((len(rows), words), numpy.uint16)
    for begin in range(0, len(rows), _CHUNK):
        ids = trace.ids[rows[begin : begin + _CHUNK]].astype(numpy.int64)
        keyed = numpy.where(ids == 65535, 16 * words, first + ids).reshape(len(ids), -1)
        one = numpy.zeros((len(ids), 16 * words + 1), bool)
        one[numpy.arange(len(ids))[:, None], keyed] = True
        out[begin : begin + len(ids)] = numpy.packbits(one[:, :-1], axis=1).view(numpy.uint16)
    return out


class _Cut:
    """A trace divided by sequences, steps and bursts."""

    def __init__(self, trace: Trace, burst: int) -> None:
        self.pool = trace.layers * trace.experts
        rows = numpy.argsort(trace.sequences, kind="stable")
        sequence, step = trace.sequences[rows], trace.steps[rows]
        self.rows_of_tokens = _bits_of(trace, rows)
        self.step_first = _starts(sequence, step)
        self.step_tokens = _lengths(self.step_first, len(rows))
        self.step_bits = numpy.bitwise_or.reduceat(self.rows_of_tokens, self.step_first)
        rank = numpy.maximum.reduceat(_RANK[trace.kinds[rows]], self.step_first)
        self.step_kind = _RANK[rank]
        self.step_sequence = sequence[self.step_first]

        stretch = _starts(self.step_sequence, self.step_kind)
        within = numpy.arange(len(self.step_first)) - numpy.repeat(
            stretch, _lengths(stretch, len(self.step_first))
        )
        cut = (within % burst == 0) & (self.step_kind != _PREFILL)
        cut[stretch] = True
        self.burst_first = numpy.flatnonzero(cut)
        self.burst_steps = _lengths(self.burst_first, len(self.step_first))
        self.burst_bits = numpy.bitwise_or.reduceat(self.step_bits, self.burst_first)
        self.burst_kind = self.step_kind[self.burst_first]
        self.burst_sequence = self.step_sequence[self.burst_first]
        self.burst_row = rows[self.step_first[self.burst_first]]

    def sizes_of_bursts(self, burst: int) -> dict[str, Any]:
        shares = _count(self.burst_bits) / self.pool
        short = (self.burst_kind != _PREFILL) & (self.burst_steps < burst)
        out = {}
        for kind, name in enumerate(_KINDS):
            mine = self.burst_kind == kind
            if kind != _VERIFY or mine.any():
                out[name] = {
                    "count": int(mine.sum()),
                    "shorter": int((short & mine).sum()),
                    **_spread(shares[mine]),
                }
        return out

    def overlaps_of_bursts(self) -> dict[str, Any]:
        """For neighbours A, B of a sequence: |A and B| / |A or B|, and |A and B| / |B|, the hits
        that a cache of A would have had for B."""
        size = _count(self.burst_bits)
        both = _count(self.burst_bits[:-1] & self.burst_bits[1:])
        pairs = (self.burst_sequence[1:] == self.burst_sequence[:-1]) & (size[1:] > 0)
        decode = pairs & (self.burst_kind[1:] == _DECODE) & (self.burst_kind[:-1] == _DECODE)
        out = {}
        for name, chosen in (("burst_overlap", pairs), ("decode_burst_overlap", decode)):
            shared, before, now = both[chosen], size[:-1][chosen], size[1:][chosen]
            out[name] = {
                "pairs": int(chosen.sum()),
                "jaccard": _mean(shared / (before + now - shared)),
                "held": _mean(shared / now),
            }
        return out

    def overlap_of_steps(self) -> dict[str, Any]:
        decode = self.step_kind == _DECODE
        pairs = decode[1:] & decode[:-1] & (self.step_sequence[1:] == self.step_sequence[:-1])
        now = numpy.flatnonzero(pairs) + 1
        shares = self._shares(now - 1, now, by_token=False)
        return {"pairs": len(shares), "share": _mean(shares)}

    def _shares(
        self, before: numpy.ndarray, now: numpy.ndarray, by_token: bool = True
    ) -> numpy.ndarray:
        """For pairs of steps, the share of the later one's decisions that the earlier one made; a
        step without decisions is left out."""
        both = numpy.zeros(len(now), numpy.int64)
        made = numpy.zeros(len(now), numpy.int64)
        alike = (self.step_tokens[before] == self.step_tokens[now]) & by_token
        for at in _chunks(numpy.flatnonzero(~alike)):
            later = self.step_bits[now[at]]
            both[at] = _count(self.step_bits[before[at]] & later)
            made[at] = _count(later)
        for at in _chunks(numpy.flatnonzero(alike), self.step_tokens[now]):
            tokens = self.step_tokens[now[at]]
            first = numpy.cumsum(tokens) - tokens
            place = numpy.arange(int(tokens.sum())) - numpy.repeat(first, tokens)
            later = self.rows_of_tokens[numpy.repeat(self.step_first[now[at]], tokens) + place]
            earlier = self.rows_of_tokens[numpy.repeat(self.step_first[before[at]], tokens) + place]
            both[at] = numpy.add.reduceat(_count(earlier & later), first)
            made[at] = numpy.add.reduceat(_count(later), first)
        some = made > 0
        return both[some] / made[some]

    def footprints(self) -> dict[str, Any]:
        """Experts used after 1, 2, 4, ... bursts: by each sequence, and by all together in order of
        the bursts' beginnings."""
        after: dict[int, list[float]] = {}
        ends = []
        first = _starts(self.burst_sequence)
        for begin, length in zip(first, _lengths(first, len(self.burst_sequence))):
            grown = self._grown(numpy.arange(begin, begin + length))
            for power, share in enumerate(grown[:-1]):
                after.setdefault(power, []).append(share)
            ends.append(grown[-1])
        whole = self._grown(numpy.argsort(self.burst_row, kind="stable"))
        return {
            "sequence_footprint": {
                "after": [
                    {
                        "bursts": 1 << power,
                        "sequences": len(shares),
                        "share": _mean(numpy.array(shares)),
                    }
                    for power, shares in sorted(after.items())
                ],
                "end": {"sequences": len(ends), **_spread(numpy.array(ends))},
            },
            "trace_footprint": {
                "after": [
                    {"bursts": 1 << power, "share": share} for power, share in enumerate(whole[:-1])
                ],
                "end": {"bursts": len(self.burst_first), "share": whole[-1]},
            },
        }

    def _grown(self, bursts: numpy.ndarray) -> list[float]:
        """Shares of the pool after 1, 2, 4, ... bursts, and after all."""
        used = numpy.zeros(self.burst_bits.shape[1], numpy.uint16)
        out = []
        done = 0
        while done < len(bursts):
            upto = min(max(1, 2 * done), len(bursts))
            used |= numpy.bitwise_or.reduce(self.burst_bits[bursts[done:upto]], axis=0)
            if upto & (upto - 1) == 0:
                out.append(int(_count(used)) / self.pool)
            done = upto
        return [*out, int(_count(used)) / self.pool]

    def agreements(
        self, distances: int, seed: int, told: Callable[[int, int], None]
    ) -> list[dict[str, Any]]:
        first = _starts(self.step_sequence)
        shuffled = numpy.arange(len(self.step_sequence))
        base = SplitMix64(seed).next()
        for begin, length in zip(first, _lengths(first, len(shuffled))):
            order = shuffled[begin : begin + length].tolist()
            SplitMix64(base ^ int(self.step_sequence[begin])).shuffle(order)
            shuffled[begin : begin + length] = order
        out = []
        powers = [1 << power for power in range(distances.bit_length())]
        for done, distance in enumerate(powers):
            told(done, len(powers))
            in_order = self._agreement(numpy.arange(len(shuffled)), distance)
            by_chance = self._agreement(shuffled, distance)
            out.append(
                {
                    "distance": distance,
                    "pairs": len(in_order),
                    "share": _mean(in_order),
                    "shuffled_pairs": len(by_chance),
                    "shuffled": _mean(by_chance),
                }
            )
        told(len(powers), len(powers))
        return out

    def _agreement(self, order: numpy.ndarray, distance: int) -> numpy.ndarray:
        before, now = order[:-distance], order[distance:]
        pairs = (self.step_sequence[before] == self.step_sequence[now]) & (
            self.step_kind[before] == self.step_kind[now]
        )
        return self._shares(before[pairs], now[pairs])


def _chunks(places: numpy.ndarray, weights: Any = None) -> list[numpy.ndarray]:
    """Parts of about _CHUNK rows each."""
    if not len(places):
        return []
    rows = numpy.arange(len(places)) if weights is None else numpy.cumsum(weights[places])
    return numpy.split(places, numpy.flatnonzero(numpy.diff(rows // _CHUNK)) + 1)


def to_text(found: dict[str, Any]) -> str:
    """Lines for a terminal, in per cent; "-" if there is no value."""
    out = []

    def line(label: str, value: str) -> None:
        out.append(f"{label:<18} {value}")

    for name, bursts in found["bursts"].items():
        line(f"{name} bursts", _bursts_text(bursts, found["burst_steps"]))
    for label, name in (
        ("next burst", "burst_overlap"),
        ("next decode burst", "decode_burst_overlap"),
    ):
        overlap = found[name]
        text = (
            f"{_percent(overlap['jaccard'])} alike (Jaccard), {_percent(overlap['held'])} held by"
            " the burst before"
        )
        line(label, text if overlap["pairs"] else "no neighbours")
    steps = found["step_overlap"]
    text = f"{_percent(steps['share'])} of a decode step's experts were used by the step before"
    line("next step", text if steps["pairs"] else "no neighbours")
    line("growth", f"of the footprint, as a share of the pool of {found['pool']} experts")
    out.append(f"{'bursts':>10} {'sequences':>10} {'of a sequence':>14} {'of the trace':>14}")
    sequences, whole = found["sequence_footprint"], found["trace_footprint"]
    some = sequences["after"]
    for at, point in enumerate(whole["after"]):
        count, share = (some[at]["sequences"], some[at]["share"]) if at < len(some) else (0, None)
        out.append(_growth(str(point["bursts"]), count, share, point["share"]))
    end = sequences["end"]
    out.append(_growth("all", end["sequences"], end["mean"], whole["end"]["share"]))
    line("agreement", "of the decisions of steps at a distance, in order and shuffled")
    out.append(f"{'distance':>10} {'in order':>10} {'shuffled':>14}")
    for point in found["agreement"]:
        out.append(
            f"{point['distance']:>10} {_percent(point['share']):>10}"
            f" {_percent(point['shuffled']):>14}"
        )
    return "\n".join(out) + "\n"


def _percent(share: Any) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _growth(bursts: str, sequences: int, of_a_sequence: Any, of_the_trace: Any) -> str:
    return (
        f"{bursts:>10} {sequences:>10} {_percent(of_a_sequence):>14} {_percent(of_the_trace):>14}"
    )


def _bursts_text(bursts: dict[str, Any], steps: int) -> str:
    count = bursts["count"]
    if not count:
        return "none"
    spread = _percent(bursts["mean"])
    if count > 1:
        spread += f" ({_percent(bursts['least'])} to {_percent(bursts['most'])})"
    shorter = f", {bursts['shorter']} of fewer than {steps} steps" if bursts["shorter"] else ""
    return f"{spread} of the pool, {count} burst{'' if count == 1 else 's'}{shorter}"
