# SPDX-License-Identifier: Apache-2.0
"""Handmade and seeded traces, and the studies as a user runs them."""

import json
import subprocess
import sys

import numpy

import hotset

DECODE, PREFILL, VERIFY = range(3)


def made(tokens, experts, **others):
    """tokens: for each token a list of its experts, layer by layer; -1 is none."""
    return hotset.Trace.from_arrays(tokens, experts, **{"name": "hand", **others})


def one_layer(experts, rows):
    """Each row is a step of one token."""
    return made([[row] for row in rows], experts)


def wild(seed, *, layers, experts, top_k, tokens, absent=0.0, sequences=1, most=1, kinds=False):
    """Steps of up to `most` tokens; ids of a token differ, sequences take turns within steps."""
    random = numpy.random.default_rng(seed)
    ids = random.random((tokens, layers, experts)).argsort(-1)[:, :, :top_k]
    ids[random.random(ids.shape) < absent] = -1
    steps = numpy.cumsum(random.integers(0, most, tokens) == 0)
    kinds = random.integers(0, 3, tokens) * (random.random(tokens) < 0.2) if kinds else None
    return made(ids, experts, steps=steps, sequences=9 * random.integers(0, sequences, tokens), kinds=kinds)


def with_hidden(trace, hidden, **others):
    """Half-precision arrays of a trace: hidden states, probabilities, predictions."""
    arrays = {"hidden": hidden, **others}
    for name, values in arrays.items():
        trace.arrays[name] = numpy.ascontiguousarray(values, "<f4" if name == "logits" else "<f2")
    return trace


class Done:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode()
        self.bytes = done.stdout


def run(folder, *words, given=None):
    """`python3 -m hotset WORDS` in the folder."""
    command = [sys.executable, "-B", "-m", "hotset", *map(str, words)]
    return Done(subprocess.run(command, cwd=folder, input=given, capture_output=True, check=False))


def json_of(folder, *words):
    done = run(folder, *words)
    assert done.code == 0, done.err
    return json.loads(done.out)


def refused(folder, code, *words_and_parts):
    """Checks that the command ends with the code and one line with all parts, which follow a None.
    """
    at = words_and_parts.index(None)
    done = run(folder, *words_and_parts[:at])
    assert done.code == code, done.err
    assert done.out == ""
    assert done.err.startswith("hotset: ") and done.err.count("\n") == 1, done.err
    for part in words_and_parts[at + 1 :]:
        assert part in done.err, done.err
