# SPDX-License-Identifier: Apache-2.0
"""Trains the networks of the predictor `learned-gate` on recorded hidden states and routing, and
evaluates them on unseen sequences.

Rule: each layer l and distance d = 1..depth has its own network: softmax(B relu(A x + a) + b), x
the hidden state that enters layer l's router, gives the scores of layer l + d; with width 0
softmax(B x + b). Training minimises cross-entropy by Adam in small batches, on inputs shifted and
scaled to mean 0 and deviation 1; shift and scale are then folded into the weights.
Source: ProMoE (a neuron predictor for each layer and stride), as fMoE describes it.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, NamedTuple

import numpy

from hotset._errors import InvalidArgument, InvalidConfig
from hotset._trace import Trace
from hotset.studies._random import SplitMix64

SCHEMA = "hotset.train-gate/1"
TARGETS = ("routed", "probabilities")
_MAGIC = b"hslearng"
_MOST_BYTES = 1 << 34
_CHUNK = 4096  # tokens that are evaluated at once

Told = Callable[[int, int], None]


class Training(NamedTuple):
    """Options of the training."""

    depth: int = 1
    """Distances, 1 to this."""
    width: int = 64
    """Hidden units of a network; 0: none, the networks are linear."""
    epochs: int = 10
    """Times that each token is learnt from."""
    seed: int = 1
    holdout: float = 0.2
    """Share of the sequences that are judged on and not learnt from; 0: none."""
    target: str = "routed"
    """What a network's scores should be: "routed", 1/K for each routed expert, or "probabilities",
    what the router gave each."""
    rate: float = 0.002
    """Of learning, at the beginning; it falls to 0."""
    batch: int = 64
    """Tokens of a step."""

    def validate(self) -> None:
        """Raises InvalidConfig."""
        for what, good, accepted in (
            ("depth", self.depth >= 1, "1 or more"),
            ("width", self.width >= 0, "0 or more"),
            ("epochs", self.epochs >= 1, "1 or more"),
            ("holdout", 0 <= self.holdout < 1, "0 or more, less than 1"),
            ("target", self.target in TARGETS, "routed, probabilities"),
            ("rate", 0 < self.rate <= 1, "more than 0, at most 1"),
            ("batch", self.batch >= 1, "1 or more"),
        ):
            if not good:
                raise InvalidConfig(f"{what} = {getattr(self, what)}, accepted: {accepted}")


class Network:
    """The parts of one network, in one array, as in the file."""

    def __init__(self, values: numpy.ndarray, experts: int, d_model: int, width: int) -> None:
        inputs = width or d_model
        cuts = numpy.cumsum([width * d_model, width, experts * inputs])
        hidden, self.hidden_bias, scores, self.scores_bias = numpy.split(values, cuts)
        self.values = values
        self.hidden = hidden.reshape(width, d_model)
        self.scores = scores.reshape(experts, inputs)

    def units(self, inputs: numpy.ndarray) -> numpy.ndarray:
        """Inputs of the last matrix."""
        if not len(self.hidden_bias):
            return inputs
        return numpy.maximum(inputs @ self.hidden.T + self.hidden_bias, 0)

    def forecast(self, inputs: numpy.ndarray) -> numpy.ndarray:
        """float32 [tokens, experts]."""
        return _softmax(self.units(inputs) @ self.scores.T + self.scores_bias)


class Weights:
    """The networks of all layers and distances."""

    def __init__(self, layers: int, experts: int, d_model: int, depth: int, width: int) -> None:
        """Makes zeroed weights. Raises InvalidConfig."""
        many = 1 << 20
        for what, n, least, most in (
            ("layers", layers, 2, 65536),
            ("experts", experts, 1, 65536),
            ("d_model", d_model, 1, many),
            ("depth", depth, 1, layers - 1),
            ("width", width, 0, many),
        ):
            if not least <= n <= most:
                raise InvalidConfig(f"learned_gate {what} = {n}, accepted: {least}..{most}")
        self.size = (layers, experts, d_model, depth, width)
        self.places = [
            (l, d) for l in range(layers - 1) for d in range(1, min(depth, layers - 1 - l) + 1)
        ]
        count = width * (d_model + 1) + experts * ((width or d_model) + 1)
        if 4 * count * len(self.places) > _MOST_BYTES:
            raise InvalidConfig(
                f"learned_gate weights of {len(self.places)} networks x {count} numbers, accepted:"
                f" at most {_MOST_BYTES} bytes"
            )
        self._values = numpy.zeros((len(self.places), count), numpy.float32)

    def of(self, layer: int, distance: int) -> Network:
        """A view of the numbers of one network."""
        _, experts, d_model, _, width = self.size
        return Network(self._values[self.places.index((layer, distance))], experts, d_model, width)

    def save(self) -> bytes:
        """Returns a file for `--predictor learned-gate:weights=FILE`."""
        return _MAGIC + struct.pack("<6I", 1, *self.size) + self._values.astype("<f4").tobytes()


class Result(NamedTuple):
    """The weights, and their evaluation on held-out sequences: `report` is {"schema", "trace",
    "layers", "experts", "top_k", "d_model", "depth", "width", "epochs", "seed", "target", "learnt":
    {"sequences", "tokens"}, "judged": {"sequences", "tokens"}, "distances": [{"distance", "places",
    "precision", "most_used", "current_gate", "recorded"}]}; None for data that the trace lacks."""

    weights: Weights
    report: dict[str, Any]


def train(
    trace: Trace, training: Training = Training(), told: Told = lambda done, total: None
) -> Result:
    """A network's values depend only on the seed, its layer and its distance. `told(done, total)`
    is called with epochs.
    Raises InvalidConfig for training that works on no trace, InvalidArgument for a trace without
    the needed data.
    """
    training.validate()
    _check(trace, training)
    hidden = trace.arrays["hidden"]
    weights = Weights(trace.layers, trace.experts, hidden.shape[2], training.depth, training.width)
    learnt, judged, sequences, held_out = _split(trace, training)
    _train_all(trace, training, learnt, weights, told)
    report = {
        "schema": SCHEMA,
        "trace": trace.metadata.get("name", ""),
        "layers": trace.layers,
        "experts": trace.experts,
        "top_k": trace.top_k,
        "d_model": hidden.shape[2],
        "depth": training.depth,
        "width": training.width,
        "epochs": training.epochs,
        "seed": training.seed,
        "target": training.target,
        "learnt": {"sequences": sequences - held_out, "tokens": len(learnt)},
        "judged": {"sequences": held_out, "tokens": len(judged)},
        "distances": _judge(trace, learnt, judged, weights) if len(judged) else [],
    }
    return Result(weights, report)


def _check(trace: Trace, training: Training) -> None:
    if trace.tokens == 0:
        raise InvalidArgument("the trace has no tokens, accepted: 1 or more")
    if trace.layers < 2:
        raise InvalidArgument("the trace has 1 layer, accepted: 2 or more")
    if training.depth >= trace.layers:
        raise InvalidConfig(
            f"depth = {training.depth}, accepted: 1..{trace.layers - 1} (layers - 1)"
        )
    if "hidden" not in trace.arrays:
        raise InvalidArgument(
            "the trace has no hidden states, accepted: a trace that recorded them"
        )
    if training.target == "probabilities" and "probabilities" not in trace.arrays:
        raise InvalidArgument(
            "the trace has no probabilities, accepted: a trace that recorded them, or target routed"
        )


def _split(trace: Trace, training: Training) -> tuple[numpy.ndarray, numpy.ndarray, int, int]:
    """Tokens to learn from and tokens to evaluate on, split by whole sequences; and the numbers of
    sequences and of held-out ones."""
    numbers, firsts, inverse = numpy.unique(trace.sequences, return_index=True, return_inverse=True)
    order = numpy.argsort(firsts).tolist()  # in order of their beginnings
    SplitMix64(training.seed).shuffle(order)
    held_out = 0
    if training.holdout > 0:
        if len(order) < 2:
            raise InvalidArgument(
                "1 sequence in the trace, accepted: 2 or more, of which some are held out, or a"
                " holdout of 0"
            )
        held_out = min(max(int(training.holdout * len(order) + 0.5), 1), len(order) - 1)
    held = numpy.zeros(len(numbers), bool)
    held[order[:held_out]] = True
    judged = held[inverse]
    return numpy.flatnonzero(~judged), numpy.flatnonzero(judged), len(order), held_out


def _states(trace: Trace, tokens: Any, layer: int) -> numpy.ndarray:
    states: numpy.ndarray = trace.arrays["hidden"][tokens, layer].astype(numpy.float32)
    if not numpy.isfinite(states).all():
        raise InvalidArgument(
            f"a hidden state of layer {layer} is not finite, accepted: finite numbers"
        )
    return states


class _Scale(NamedTuple):
    """Shift and scale of the inputs: removed before training, and folded into the weights
    afterwards."""

    mean: numpy.ndarray
    factor: numpy.ndarray
    """1 / deviation; 0 for an input that never changes."""


def _scale_of(states: numpy.ndarray) -> _Scale:
    mean = states.mean(0, dtype=numpy.float64)
    variance = numpy.square(states, dtype=numpy.float64).mean(0) - mean * mean
    moves = variance > 1e-12 * (1 + mean * mean)
    factor = numpy.where(moves, 1 / numpy.sqrt(numpy.where(moves, variance, 1)), 0)
    return _Scale(mean.astype(numpy.float32), factor.astype(numpy.float32))


def _goals(trace: Trace, tokens: numpy.ndarray, layer: int, target: str) -> numpy.ndarray:
    """float32 [tokens, experts]: target scores; rows of zeros if unknown."""
    if target == "probabilities":
        goals = trace.arrays["probabilities"][tokens, layer].astype(numpy.float32)
    else:
        ids = trace.ids[tokens, layer].astype(numpy.int64)
        goals = numpy.zeros((len(tokens), trace.experts + 1), numpy.float32)
        numpy.put_along_axis(goals, numpy.where(ids == 65535, trace.experts, ids), 1, 1)
        goals = goals[:, :-1]
    sums = numpy.where((goals >= 0).all(1), goals.sum(1, dtype=numpy.float64), 0)
    known = (sums > 0) & numpy.isfinite(sums)
    return numpy.where(known[:, None], goals / numpy.where(known, sums, 1)[:, None], 0).astype(
        numpy.float32
    )


def _softmax(scores: numpy.ndarray) -> numpy.ndarray:
    powers = numpy.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _train_all(
    trace: Trace, training: Training, learnt: numpy.ndarray, weights: Weights, told: Told
) -> None:
    total = len(weights.places) * training.epochs
    done = 0
    for layer in range(trace.layers - 1):
        states = _states(trace, learnt, layer)
        scale = _scale_of(states)
        inputs = (states - scale.mean) * scale.factor
        for distance in range(1, min(training.depth, trace.layers - 1 - layer) + 1):
            goals = _goals(trace, learnt, layer + distance, training.target)
            known = numpy.flatnonzero(goals.any(1))
            if len(known):  # else zeros: all experts are equal
                seed = SplitMix64(training.seed + (layer << 32) + distance).next()
                network = weights.of(layer, distance)
                student = _Student(network, SplitMix64(seed))
                for epoch in range(training.epochs):
                    student.learn_all(inputs[known], goals[known], training, epoch)
                    told(done + epoch, total)
                _unscale(network, scale)
            done += training.epochs
    told(done, total)


class _Student:
    """One network in training, with its gradient and Adam's moments."""

    _KEEP = numpy.float32(0.9), numpy.float32(0.999)
    _TAKE = numpy.float32(1) - _KEEP[0], numpy.float32(1) - _KEEP[1]

    def __init__(self, network: Network, random: SplitMix64) -> None:
        """Initial values: uniform with variance 2 / inputs (He); biases are 0."""
        self._net, self._random = network, random
        self._order: list[int] = []
        for part in (network.hidden, network.scores):
            most = (6.0 / part.shape[1]) ** 0.5 if part.size else 0.0
            part[:] = ((2 * random.uniform(part.size) - 1) * most).reshape(part.shape)
        self._first = numpy.zeros_like(network.values)
        self._second = numpy.zeros_like(network.values)
        self._slope = numpy.zeros_like(network.values)
        experts, inputs = network.scores.shape
        width, d_model = network.hidden.shape
        self._slopes = Network(self._slope, experts, d_model if width else inputs, width)
        self._steps = 0

    def learn_all(
        self, inputs: numpy.ndarray, goals: numpy.ndarray, training: Training, epoch: int
    ) -> None:
        """Trains one epoch; its order continues that of the previous epoch."""
        if epoch == 0:
            self._order = list(range(len(inputs)))
        self._random.shuffle(self._order)
        batches = -(-len(inputs) // training.batch)
        for batch in range(batches):
            rows = self._order[batch * training.batch : (batch + 1) * training.batch]
            done = (epoch * batches + batch) / (training.epochs * batches)
            self.learn(inputs[rows], goals[rows], training.rate * (1 - done))

    def learn(self, inputs: numpy.ndarray, goals: numpy.ndarray, rate: float) -> None:
        net, slopes = self._net, self._slopes
        units = net.units(inputs)
        error = (_softmax(units @ net.scores.T + net.scores_bias) - goals) / numpy.float32(
            len(goals)
        )
        slopes.scores[:] = error.T @ units
        slopes.scores_bias[:] = error.sum(0)
        if len(net.hidden_bias):
            back = (error @ net.scores) * (units > 0)
            slopes.hidden[:] = back.T @ inputs
            slopes.hidden_bias[:] = back.sum(0)
        self._descend(rate)

    def _descend(self, rate: float) -> None:
        for moment, slope, keep, take in zip(
            (self._first, self._second),
            (self._slope, self._slope * self._slope),
            self._KEEP,
            self._TAKE,
        ):
            moment *= keep
            moment += take * slope
        self._steps += 1
        first_bias, second_bias = (1 - float(keep) ** self._steps for keep in self._KEEP)
        size, grow = numpy.float32(rate / first_bias), numpy.float32(second_bias**-0.5)
        self._net.values[:] -= (
            size * self._first / (numpy.sqrt(self._second) * grow + numpy.float32(1e-8))
        )


def _unscale(network: Network, scale: _Scale) -> None:
    """Folds the input scaling into a trained network."""
    wide = len(network.hidden_bias) > 0
    inward, bias = (
        (network.hidden, network.hidden_bias) if wide else (network.scores, network.scores_bias)
    )
    inward *= scale.factor
    bias -= inward @ scale.mean


def _best(values: numpy.ndarray, count: int) -> numpy.ndarray:
    """[..., count]: the positions of the largest values, ties to the lower one; NaN is smallest."""
    known = numpy.where(numpy.isnan(values), -numpy.inf, values)
    best: numpy.ndarray = numpy.argsort(-known, axis=-1, kind="stable")[..., :count]
    return best


def _judge(
    trace: Trace, learnt: numpy.ndarray, judged: numpy.ndarray, weights: Weights
) -> list[dict[str, Any]]:
    """Evaluates the trained weights on unseen tokens, and predictors without training for
    comparison."""
    arrays, top_k, depth = trace.arrays, trace.top_k, weights.size[3]
    current = arrays.get("probabilities", arrays.get("logits"))
    recorded = arrays.get("predictions")
    counts = (
        numpy.bincount(trace.ids[learnt, layer].reshape(-1), minlength=trace.experts)
        for layer in range(trace.layers)
    )
    popular = [_best(uses[: trace.experts], top_k) for uses in counts]
    places = numpy.zeros(depth, numpy.int64)
    hits = {
        name: numpy.zeros(depth, numpy.int64)
        for name in ("precision", "most_used", "current_gate", "recorded")
    }
    for first in range(0, len(judged), _CHUNK):
        tokens = judged[first : first + _CHUNK]
        for layer in range(trace.layers - 1):
            states = _states(trace, tokens, layer)
            for distance in range(1, min(depth, trace.layers - 1 - layer) + 1):
                at = distance - 1
                routed = trace.ids[tokens, layer + distance].astype(numpy.int64)
                routed[routed == 65535] = -1
                places[at] += top_k * int((routed >= 0).any(1).sum())
                guesses = {
                    "precision": _best(weights.of(layer, distance).forecast(states), top_k),
                    "most_used": popular[layer + distance][None, :],
                }
                if current is not None:
                    guesses["current_gate"] = _best(
                        current[tokens, layer].astype(numpy.float32), top_k
                    )
                if recorded is not None and distance <= recorded.shape[2]:
                    guesses["recorded"] = _best(
                        recorded[tokens, layer, at].astype(numpy.float32), top_k
                    )
                for name, guess in guesses.items():
                    hits[name][at] += (guess[:, :, None] == routed[:, None, :]).any(-1).sum()
    ahead = 0 if recorded is None else recorded.shape[2]
    reach = {
        "precision": depth,
        "most_used": depth,
        "current_gate": 0 if current is None else depth,
        "recorded": ahead,
    }
    return [
        {
            "distance": at + 1,
            "places": int(places[at]),
            **{
                n: (int(h[at]) / int(places[at]) if places[at] else 0.0) if at < reach[n] else None
                for n, h in hits.items()
            },
        }
        for at in range(depth)
    ]
