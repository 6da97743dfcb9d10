# SPDX-License-Identifier: Apache-2.0
"""Trained gates: training, evaluation, and predictions by the program."""

import json
import struct

import numpy
import pytest
from made_traces import json_of, made, one_layer, refused, run, with_hidden

import hotset
from hotset.studies.train_gate import Network, Training, Weights, train

LAYERS, EXPERTS, TOP_K, D_MODEL = 3, 6, 2, 4


def recorded(seed, sequences, tokens):
    """Hidden states drawn independently for each token and layer, off the origin and of different
    sizes. The routing of layer l follows from the hidden state of layer l - 1, by weights of the
    layer; probabilities are the softmax of the scores."""
    rule = numpy.random.default_rng(17).uniform(-2, 2, (LAYERS, EXPERTS, D_MODEL))
    random = numpy.random.default_rng(seed)
    count = sequences * tokens
    inputs = random.uniform(-1, 1, (count, LAYERS, D_MODEL))
    scores = random.uniform(0, 2, (count, LAYERS, EXPERTS))  # those of layer 0 are unpredictable
    scores[:, 1:] = numpy.einsum("led,tld->tle", rule[1:], inputs[:, :-1])
    ids = numpy.argsort(-scores, axis=-1, kind="stable")[:, :, :TOP_K]
    powers = numpy.exp(scores)
    trace = made(ids, EXPERTS, sequences=numpy.arange(count) // tokens)
    hidden = numpy.array([5, -3, 0, 0.5]) + numpy.array([2, 0.125, 1, 0.5]) * inputs
    return with_hidden(trace, hidden, probabilities=powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize("width", [0, 16])
def test_it_learns_what_hidden_states_tell_of_the_next_layer(width):
    report = train(recorded(1, 20, 100), Training(depth=2, width=width, epochs=30, rate=0.01, batch=32)).report
    one, two = report["distances"]
    assert one["precision"] > 0.9
    assert one["most_used"] < 0.6 and one["current_gate"] < 0.6
    assert two["precision"] < 0.6, "nothing tells of it"
    assert report["judged"] == {"sequences": 4, "tokens": 400}
    assert report["learnt"] == {"sequences": 16, "tokens": 1600}
    assert (one["places"], two["places"]) == (400 * 2 * TOP_K, 400 * TOP_K)


def test_it_comes_to_the_probabilities_where_these_are_its_target():
    trace = recorded(2, 4, 500)
    training = Training(width=0, epochs=60, holdout=0, target="probabilities", rate=0.02)
    weights, report = train(trace, training)
    assert report["distances"] == []
    for layer in range(LAYERS - 1):
        states = trace.arrays["hidden"][:50, layer].astype(numpy.float32)
        wanted = trace.arrays["probabilities"][:50, layer + 1]
        assert numpy.abs(weights.of(layer, 1).forecast(states) - wanted).max() < 0.02


def test_the_same_seed_gives_the_same_weights():
    trace = recorded(3, 5, 20)
    training = Training(depth=2, width=3, epochs=2, batch=16)
    first, again = train(trace, training), train(trace, training)
    assert first.weights.save() == again.weights.save()
    assert first.report == again.report
    assert train(trace, training._replace(seed=2)).weights.save() != first.weights.save()
    # A network does not depend on the number of others.
    near = train(trace, training._replace(depth=1)).weights
    assert (near.of(1, 1).values == first.weights.of(1, 1).values).all()


def test_a_step_follows_the_gradient():
    """Compared with differences of the loss, in one step of Adam: its first step moves each value
    by the rate, down the slope."""
    trace = recorded(9, 2, 8)
    states = trace.arrays["hidden"][:, 0].astype(numpy.float64)
    states = (states - states.mean(0)) / states.std(0)
    goals = numpy.zeros((16, EXPERTS))
    numpy.put_along_axis(goals, trace.ids[:, 1].astype(int), 0.5, 1)
    training = Training(width=3, epochs=1, holdout=0, rate=1e-3, batch=16)
    before = train(trace, training._replace(rate=1e-12)).weights.of(0, 1)
    after = train(trace, training).weights.of(0, 1)

    def loss(values):
        net = Network(values, EXPERTS, D_MODEL, 3)
        return -(goals * numpy.log(net.forecast(states))).sum() / 16

    # The weights are for unscaled states: remove the scale again.
    real = trace.arrays["hidden"][:, 0].astype(numpy.float64)
    mean, deviation = real.mean(0), real.std(0)

    def scaled(net):
        hidden = net.hidden.astype(numpy.float64) * deviation
        bias = net.hidden_bias + net.hidden.astype(numpy.float64) @ mean
        return numpy.concatenate([hidden.ravel(), bias, net.scores.ravel(), net.scores_bias]).astype(numpy.float64)

    start, moved = scaled(before), scaled(after) - scaled(before)
    for i in range(len(start)):
        step = numpy.zeros(len(start))
        step[i] = 1e-5
        slope = (loss(start + step) - loss(start - step)) / 2e-5
        if abs(slope) > 1e-3:
            assert moved[i] == pytest.approx(-1e-3 * numpy.sign(slope), rel=0.02), i


def test_it_learns_nothing_of_what_is_held_out():
    trace = recorded(4, 6, 10)
    training = Training(width=2, epochs=2, holdout=0.5)
    before = train(trace, training)
    assert before.report["judged"]["sequences"] == 3
    # Each sequence in turn is replaced: the weights change exactly if it was learnt from.
    learnt = 0
    for sequence in range(6):
        changed = hotset.Trace({**trace.arrays, "ids": trace.ids.copy()}, trace.metadata)
        changed.ids[trace.sequences == sequence] = (changed.ids[trace.sequences == sequence] + 1) % EXPERTS
        learnt += train(changed, training).weights.save() != before.weights.save()
    assert learnt == 3


def test_it_counts_what_was_named_beside_what_needs_no_training():
    # Two sequences of one token each; whichever is held out, the other taught experts 0 and 1 in
    # every layer.
    trace = made([[[0, 1], [1, 0], [0, -1]]] * 2, 4, sequences=[0, 1])
    half = numpy.array([[[0.5, 0.25, 0.125, 0]], [[0.25, 0.25, 0, 0.5]], [[0, 0, 0, 0]]])
    with_hidden(
        trace,
        numpy.ones((2, 3, 1)),
        # Layer 0 prefers 2 and 1, layer 1 prefers 3 and 2.
        logits=[[[0, 2, 3, 1], [0, 1, 2, 3], [0, 0, 0, 0]]] * 2,
        # One layer ahead: experts 0 and 1 of layer 1, 3 and 0 (a tie with 1) of layer 2.
        predictions=[half] * 2,
    )
    weights, report = train(trace, Training(depth=2, width=0, epochs=50, rate=0.1))
    assert report == {
        "schema": "hotset.train-gate/1",
        "trace": "hand",
        "layers": 3,
        "experts": 4,
        "top_k": 2,
        "d_model": 1,
        "depth": 2,
        "width": 0,
        "epochs": 50,
        "seed": 1,
        "target": "routed",
        "learnt": {"sequences": 1, "tokens": 1},
        "judged": {"sequences": 1, "tokens": 1},
        "distances": [
            # A constant hidden state teaches the most used: 0 and 1 of {1, 0}; 0 of {0, -1}.
            {"distance": 1, "places": 4, "precision": 0.75, "most_used": 0.75, "current_gate": 0.25, "recorded": 0.75},
            # The trace looked one layer ahead.
            {"distance": 2, "places": 2, "precision": 0.5, "most_used": 0.5, "current_gate": 0.0, "recorded": None},
        ],
    }
    assert len(weights.places) == 3


def test_tokens_that_nothing_was_routed_for_are_left_out():
    trace = recorded(5, 4, 20)
    del trace.arrays["probabilities"]
    # The recorded sequences, with an extra token after each that teaches nothing.
    twice = {name: numpy.repeat(array, 2, 0) for name, array in trace.arrays.items()}
    twice["ids"][1::2] = 65535
    twice["step"] = numpy.arange(160, dtype=numpy.uint32)
    training = Training(width=2, epochs=3)
    wanted, got = train(trace, training).report, train(hotset.Trace(twice, trace.metadata), training).report
    assert got["judged"]["tokens"] == 2 * wanted["judged"]["tokens"]
    for g, w in zip(got["distances"], wanted["distances"]):
        assert g["places"] == w["places"]
        assert g["precision"] == pytest.approx(w["precision"], abs=0.05)


def test_a_layer_that_never_routes_is_forecast_evenly():
    trace = recorded(6, 4, 25)
    trace.arrays["ids"] = trace.ids.copy()
    trace.ids[:, 2] = 65535
    weights, report = train(trace, Training(width=2, epochs=1))
    assert not weights.of(1, 1).values.any()
    assert report["distances"][0]["places"] == report["judged"]["tokens"] * TOP_K, "of layer 1 alone"


def test_an_input_that_never_changes_weighs_nothing():
    trace = recorded(6, 4, 25)
    trace.arrays["hidden"][:, :, 2] = 3
    hidden = train(trace, Training(width=2, epochs=1)).weights.of(0, 1).hidden
    assert not hidden[:, 2].any() and hidden[:, 0].all()


def test_it_tells_how_far_it_is():
    told = []
    train(recorded(7, 2, 10), Training(depth=2, width=2, epochs=4, holdout=0), lambda *at: told.append(at))
    assert told == [(done, 3 * 4) for done in range(3 * 4 + 1)]


def test_saved_weights_are_those_of_the_library():
    weights = Weights(3, 2, 2, 2, 1)
    assert weights.places == [(0, 1), (0, 2), (1, 1)]
    count = 1 * (2 + 1) + 2 * (1 + 1)
    for n, (layer, distance) in enumerate(weights.places):
        weights.of(layer, distance).values[:] = numpy.arange(count) + 100 * n
    net = weights.of(0, 2)
    assert net.hidden.tolist() == [[100, 101]] and net.hidden_bias.tolist() == [102]
    assert net.scores.tolist() == [[103], [104]] and net.scores_bias.tolist() == [105, 106]
    saved = weights.save()
    assert saved[:32] == b"hslearng" + struct.pack("<6I", 1, 3, 2, 2, 2, 1)
    assert numpy.frombuffer(saved, "<f4", offset=32).tolist() == [100 * n + i for n in range(3) for i in range(count)]


def test_what_it_cannot_learn_from_is_refused():
    trace = recorded(8, 2, 5)

    def changed(**arrays):
        kept = {n: a for n, a in {**trace.arrays, **arrays}.items() if a is not None}
        return hotset.Trace(kept, trace.metadata)

    for options, words in (
        ({"depth": 0}, "depth = 0, accepted: 1 or more"),
        ({"depth": 3}, r"depth = 3, accepted: 1..2 \(layers - 1\)"),
        ({"width": -1}, "width = -1, accepted: 0 or more"),
        ({"width": 1 << 21}, "learned_gate width = 2097152, accepted: 0..1048576"),
        ({"epochs": 0}, "epochs = 0, accepted: 1 or more"),
        ({"holdout": 1}, "holdout = 1, accepted: 0 or more, less than 1"),
        ({"rate": 0}, "rate = 0, accepted: more than 0, at most 1"),
        ({"batch": 0}, "batch = 0, accepted: 1 or more"),
        ({"target": "rooted"}, "target = rooted, accepted: routed, probabilities"),
    ):
        with pytest.raises(hotset.InvalidConfig, match=words):
            train(trace, Training(**options))
    infinite = trace.arrays["hidden"].copy()
    infinite[0, 1, 1] = numpy.inf
    quick = Training(width=2, epochs=1)
    for bad, training, words in (
        (changed(hidden=None), quick, "the trace has no hidden states, accepted: a trace that recorded them"),
        (changed(probabilities=None), Training(target="probabilities"), "no probabilities"),
        (changed(sequence=numpy.full(10, 4)), quick, "1 sequence in the trace, accepted: 2 or more"),
        (changed(hidden=infinite), quick._replace(holdout=0), "a hidden state of layer 1 is not finite"),
        (one_layer(4, [[0], [1]]), quick, "the trace has 1 layer, accepted: 2 or more"),
    ):
        with pytest.raises(hotset.InvalidArgument, match=words):
            train(bad, training)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three layers of 4 experts, top-1: the hidden state of each layer determines the next layer's
    expert."""
    path = tmp_path_factory.mktemp("gate")
    t = numpy.arange(160)
    routed = numpy.stack([t * 7 % 4, t // 4 % 4, t * t // 3 % 4, 0 * t], 1)
    trace = made(routed[:, :3, None], 4, sequences=t // 16, name="told", expert_bytes=100)
    trace.save(path / "plain.trace")
    with_hidden(trace, numpy.eye(4)[routed[:, 1:]]).save(path / "hidden.trace")
    one = slice(0, 16)
    hotset.Trace({n: a if n == "expert_bytes" else a[one] for n, a in trace.arrays.items()}, trace.metadata).save(
        path / "one.trace"
    )
    options = ("--width", "8", "--epochs", "400", "--json")
    report = json_of(path, "train-gate", "hidden.trace", "--out", "told.gate", *options)
    (path / "report.json").write_text(json.dumps(report))
    return path


def test_the_command_writes_weights_and_says_what_they_are_worth(folder):
    report = json.loads((folder / "report.json").read_text())
    assert (report["trace"], report["depth"], report["width"], report["target"]) == ("told", 1, 8, "routed")
    assert report["learnt"]["sequences"] == 8
    (distance,) = report["distances"]
    assert distance["places"] == 32 * 2
    assert distance["precision"] > 0.95
    assert distance["current_gate"] is distance["recorded"] is None
    told = (folder / "told.gate").read_bytes()
    again = run(folder, "train-gate", "hidden.trace", "--out", "again.gate", "--width", "8", "--epochs", "400")
    assert again.code == 0, again.err
    for part in (
        "3 layers x 4 experts, hidden states of 4; 2 networks of width 8, 400 epochs; learnt from 128 tokens of 8 seq",
        "precision at 1 in %, of 32 tokens of 2 sequences that were held out",
        "layers ahead  learned gate  most used\n",
    ):
        assert part in again.out
    assert (folder / "again.gate").read_bytes() == told
    piped = run(folder, "train-gate", "hidden.trace", "--out", "-", "--width", "8", "--epochs", "400")
    assert piped.bytes == told
    assert "precision at 1" in piped.err
    # Without a holdout nothing is evaluated.
    alone = run(folder, "train-gate", "one.trace", "--out", "one.gate", "--holdout", "0", "--epochs", "1")
    assert alone.code == 0 and "precision" not in alone.out


def test_the_program_prefetches_by_what_was_learnt(folder):
    predictor = f"learned-gate:weights={folder / 'told.gate'}"
    found = hotset.simulate(
        folder / "hidden.trace", slots="50%", prefetch="next_layer_top_k", link="1GB/s", predictor=predictor
    )
    assert found.runs[0]["prefetch_precision"] > 0.9


def test_the_command_refuses_what_it_cannot_learn_from(folder):
    (folder / "earlier.gate").write_text("earlier")
    before = sorted(p.name for p in folder.iterdir())
    hidden = ("hidden.trace", "--out", "new.gate")
    for code, words, part in (
        (2, ("hidden.trace",), "arguments are required: --out"),
        (4, ("plain.trace", "--out", "earlier.gate"), "plain.trace: the trace has no hidden states, accepted: a trace"),
        (2, (*hidden, "--depth", "3"), "depth = 3, accepted: 1..2"),
        (4, ("one.trace", "--out", "new.gate"), "one.trace: 1 sequence in the trace"),
        (2, (*hidden, "--depth", "0"), "--depth: '0'"),
        (2, (*hidden, "--holdout", "1"), "--holdout: '1'"),
        (2, (*hidden, "--target", "rooted"), "--target: 'rooted' (did you mean routed?)"),
        (4, (*hidden, "--target", "probabilities"), "no probabilities"),
        (4, ("absent.trace", "--out", "new.gate"), "absent.trace"),
        (1, ("hidden.trace", "--out", "nowhere/new.gate"), "nowhere"),
    ):
        refused(folder, code, "train-gate", *words, None, part)
    assert sorted(p.name for p in folder.iterdir()) == before, "nothing was written"
    assert (folder / "earlier.gate").read_text() == "earlier"
