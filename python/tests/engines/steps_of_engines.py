# SPDX-License-Identifier: Apache-2.0
"""Steps of a server with continuous batches, for the tests of placement: tokens of each expert in each step."""

import io
import os
import pathlib
import tarfile

import numpy
import pytest

EXPERTS, RUNNING = 64, 256
_ESFT = sorted((pathlib.Path(os.environ.get("HOTSET_DATA_DIR") or "/absent") / "routing").glob("esft-*/esft-*.tar.xz"))


def _served(sequences, seed, steps):
    """Each step is the next token of each running sequence. A sequence that ends makes room for another one."""
    random = numpy.random.default_rng(seed)
    running = [[int(n), int(random.integers(len(sequences[n])))] for n in random.integers(len(sequences), size=RUNNING)]
    for _ in range(steps):
        yield numpy.stack([sequences[n][at] for n, at in running])
        for one in running:
            one[1] += 1
            if one[1] == len(sequences[one[0]]):
                one[:] = [int(random.integers(len(sequences))), 0]


def _counts(batches):
    return numpy.stack([(ids[..., None] == numpy.arange(EXPERTS)).sum((0, 2)) for ids in batches])


def made(seed, steps, layers):
    """Sequences of topics: a topic prefers some experts in each layer. Even seeds serve other sequences than odd ones."""
    topics, length, top_k = 4, 40, 6
    fixed = numpy.random.default_rng(7)
    popular = fixed.normal(size=(1, layers, EXPERTS)) * 0.9
    scores = popular + fixed.normal(size=(topics, layers, EXPERTS)) * 0.9
    random = numpy.random.default_rng(100 + seed % 2)
    sequences = []
    for n in range(200):
        noise = random.gumbel(size=(length, layers, EXPERTS))
        sequences.append((scores[n % topics] + noise).argsort(-1)[..., -top_k:])
    return _counts(_served(sequences, seed, steps))


def esft(seed, steps, layers):
    """Recorded sequences of the tasks in $HOTSET_DATA_DIR. Even seeds serve other sequences than odd ones."""
    sequences = []
    for path in _ESFT:
        with tarfile.open(path) as archive:
            held = {os.path.basename(member.name): member for member in archive.getmembers()}
            of_layers = []
            for layer in range(layers):
                rows = io.TextIOWrapper(archive.extractfile(held[f"expert_weights_{6 + 5 * layer}.txt"]))
                ids = [line.rstrip("\n").split("\t\t")[0].split("\t") for line in rows]
                of_layers.append([numpy.array(row, int).reshape(-1, 6) for row in ids])
        order = numpy.random.default_rng(99).permutation(len(of_layers[0]))
        sequences.extend(numpy.stack([one[n] for one in of_layers], 1) for n in order[seed % 2 :: 2])
    return _counts(_served(sequences, seed, steps))


SOURCES = [
    pytest.param(made, id="made"),
    pytest.param(esft, id="esft", marks=pytest.mark.skipif(not _ESFT, reason="HOTSET_DATA_DIR holds no routing/esft-*")),
]
