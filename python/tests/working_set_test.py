# SPDX-License-Identifier: Apache-2.0
"""Working sets compared with hand-walked traces, and with their definitions by Python sets."""

import json

import pytest
from made_traces import DECODE, PREFILL, VERIFY, json_of, made, one_layer, refused, run, wild

import hotset
from hotset.studies import working_set
from hotset.studies._random import SplitMix64


def shares(points):
    return [p["share"] for p in points]


def near(*numbers):
    return pytest.approx(numbers[0] if len(numbers) == 1 else list(numbers), abs=1e-12)


# Five steps of one token: bursts of two steps use {0 1 2}, {2 3} and {0 3}.
def test_a_hand_walked_sequence():
    found = working_set.measure(one_layer(8, [[0, 1], [1, 2], [2, 3], [3, 2], [0, 3]]), burst=2, distances=9)
    assert found["pool"] == 8
    decode = found["bursts"]["decode"]
    assert (decode["count"], decode["shorter"], decode["least"], decode["most"]) == (3, 1, 0.25, 0.375)
    assert decode["mean"] == near(7 / 24)
    assert found["bursts"]["prefill"] == {"count": 0, "shorter": 0, "mean": None, "least": None, "most": None}
    assert "verify" not in found["bursts"]
    # {2} of {0 1 2 3}, then {3} of {0 2 3}; each time one of the next two.
    assert found["burst_overlap"] == {"pairs": 2, "jaccard": near(7 / 24), "held": 0.5}
    assert found["decode_burst_overlap"]["held"] == 0.5
    assert found["step_overlap"] == {"pairs": 4, "share": near((0.5 + 0.5 + 1 + 0.5) / 4)}
    assert shares(found["sequence_footprint"]["after"]) == [0.375, 0.5]
    assert shares(found["trace_footprint"]["after"]) == [0.375, 0.5]
    assert found["sequence_footprint"]["end"]["mean"] == 0.5
    assert found["trace_footprint"]["end"] == {"bursts": 3, "share": 0.5}
    # Ranks do not matter.
    agreement = found["agreement"]
    assert [p["distance"] for p in agreement] == [1, 2, 4, 8]
    assert shares(agreement)[:3] == near(2.5 / 4, 1 / 3, 0.5)
    assert agreement[3] == {"distance": 8, "pairs": 0, "share": None, "shuffled_pairs": 0, "shuffled": None}


def test_a_prompt_is_one_burst_however_it_is_cut():
    rows = [[0, 1], [2, 3], [4, 5], [6, 7], [0, 1], [1, 2], [2, 8]]
    trace = made([[r] for r in rows], 10, steps=[0, 0, 1, 2, 3, 4, 5], kinds=[PREFILL] * 4 + [DECODE] * 3)
    found = working_set.measure(trace, burst=2)
    assert found["bursts"]["prefill"] == {"count": 1, "shorter": 0, "mean": 0.8, "least": 0.8, "most": 0.8}
    assert found["bursts"]["decode"]["count"] == 2
    assert found["bursts"]["decode"]["mean"] == near((0.3 + 0.2) / 2)
    # {0 1 2} after the prompt's eight, {2 8} after {0 1 2}; only the latter is decode.
    assert found["burst_overlap"] == {"pairs": 2, "jaccard": near((3 / 8 + 1 / 4) / 2), "held": 0.75}
    assert found["decode_burst_overlap"] == {"pairs": 1, "jaccard": 0.25, "held": 0.5}
    assert found["step_overlap"] == {"pairs": 2, "share": 0.5}, "the first decode step has a prompt before it"
    # Steps of different kinds are not compared: 2 pairs of prefill and 2 of decode.
    assert found["agreement"][0]["pairs"] == 4
    assert found["agreement"][0]["share"] == 0.25


def test_a_burst_ends_with_its_sequence_and_its_kind():
    rows = [  # step, sequence, expert, kind
        (0, 7, 0, DECODE),
        (1, 7, 1, VERIFY),
        (1, 7, 2, DECODE),  # verify, like the previous row
        (1, 3, 3, DECODE),  # of another sequence
        (1, 3, 4, VERIFY),
        (1, 3, 5, PREFILL),  # and one prefill row
        (2, 3, 6, DECODE),
        (3, 7, 8, DECODE),
    ]
    steps, sequences, experts, kinds = zip(*rows)
    trace = made([[[e]] for e in experts], 16, steps=steps, sequences=sequences, kinds=kinds)
    found = working_set.measure(trace, burst=4)
    bursts = found["bursts"]
    assert bursts["decode"] == {"count": 3, "shorter": 3, "mean": 1 / 16, "least": 1 / 16, "most": 1 / 16}
    assert (bursts["verify"]["count"], bursts["verify"]["shorter"], bursts["verify"]["mean"]) == (1, 1, 2 / 16)
    assert (bursts["prefill"]["count"], bursts["prefill"]["mean"]) == (1, 3 / 16)
    assert found["burst_overlap"]["pairs"] == 3
    assert found["decode_burst_overlap"] == {"pairs": 0, "jaccard": None, "held": None}
    assert found["step_overlap"]["pairs"] == 0


# Sequence 1 comes between the two bursts of sequence 0 and shares one expert with it.
def test_footprints_grow_burst_by_burst_as_they_begin():
    tokens = [[[0], [0]], [[0], [1]], [[1], [0]], [[0], [2]], [[1], [3]]]
    trace = made(tokens, 4, steps=[0, 0, 1, 1, 2], sequences=[0, 1, 0, 1, 0])
    found = working_set.measure(trace, burst=1)
    # Pairs of layer and expert: sequence 0: 2, 3, 4; sequence 1: 2, 3; all: 2, 3, 4, 5, 6.
    sequences = found["sequence_footprint"]
    assert [p["sequences"] for p in sequences["after"]] == [2, 2]
    assert shares(sequences["after"]) == [2 / 8, 3 / 8]
    assert sequences["end"] == {"sequences": 2, "mean": 3.5 / 8, "least": 3 / 8, "most": 4 / 8}
    assert shares(found["trace_footprint"]["after"]) == [2 / 8, 3 / 8, 5 / 8]
    assert found["trace_footprint"]["end"] == {"bursts": 5, "share": 6 / 8}


def test_tokens_are_compared_one_by_one_where_there_are_equally_many():
    trace = made([[[e]] for e in (0, 1, 1, 0, 1, 2, 1, 2, 3)], 4, steps=[0, 0, 1, 1, 2, 2, 3, 3, 3])
    found = working_set.measure(trace, distances=2)
    # By sets: all of two, one of two and two of three repeat. By positions: none, one of two; for
    # three tokens after two the sets are used.
    assert found["step_overlap"]["share"] == near((1 + 0.5 + 2 / 3) / 3)
    assert shares(found["agreement"]) == near((0 + 0.5 + 2 / 3) / 3, (0 + 1 / 3) / 2)


def test_absent_ids_are_no_decisions():
    found = working_set.measure(
        one_layer(4, [[0, 1], [0, -1], [-1, -1], [0, 3], [3, -1], [1, 3]]), burst=1, distances=1
    )
    assert found["bursts"]["decode"]["least"] == 0
    assert found["bursts"]["decode"]["mean"] == near(8 / 24)
    # {0} after {0 1} is all; nothing after {0} is left out; {0 3} after nothing, {3} after {0 3},
    # {1 3} after {3}.
    expected = near((1 + 0 + 1 + 0.5) / 4)
    assert found["step_overlap"] == {"pairs": 4, "share": expected}
    assert found["burst_overlap"] == {"pairs": 4, "jaccard": near((0.5 + 0 + 0.5 + 0.5) / 4), "held": expected}
    assert (found["agreement"][0]["pairs"], found["agreement"][0]["share"]) == (4, expected)


def test_one_token_has_no_neighbours():
    found = working_set.measure(one_layer(4, [[2, 1]]), distances=1)
    nothing = {"pairs": 0, "jaccard": None, "held": None}
    assert found == {
        "pool": 4,
        "burst_steps": 32,
        "seed": 1,
        "bursts": {
            "decode": {"count": 1, "shorter": 1, "mean": 0.5, "least": 0.5, "most": 0.5},
            "prefill": {"count": 0, "shorter": 0, "mean": None, "least": None, "most": None},
        },
        "burst_overlap": nothing,
        "decode_burst_overlap": nothing,
        "step_overlap": {"pairs": 0, "share": None},
        "sequence_footprint": {
            "after": [{"bursts": 1, "sequences": 1, "share": 0.5}],
            "end": {"sequences": 1, "mean": 0.5, "least": 0.5, "most": 0.5},
        },
        "trace_footprint": {"after": [{"bursts": 1, "share": 0.5}], "end": {"bursts": 1, "share": 0.5}},
        "agreement": [{"distance": 1, "pairs": 0, "share": None, "shuffled_pairs": 0, "shuffled": None}],
    }
    assert working_set.to_text(found) == ("""\
decode bursts      50.0 % of the pool, 1 burst, 1 of fewer than 32 steps
prefill bursts     none
next burst         no neighbours
next decode burst  no neighbours
next step          no neighbours
growth             of the footprint, as a share of the pool of 4 experts
    bursts  sequences  of a sequence   of the trace
         1          1         50.0 %         50.0 %
       all          1         50.0 %         50.0 %
agreement          of the decisions of steps at a distance, in order and shuffled
  distance   in order       shuffled
         1          -              -
""")


def test_a_step_uses_the_union_of_its_rows():
    found = working_set.measure(made([[[0], [1]], [[0], [2]], [[3], [1]]], 4, steps=[0, 0, 0], kinds=[PREFILL] * 3))
    assert found["bursts"]["prefill"]["mean"] == 4 / 8
    assert found["bursts"]["decode"]["count"] == 0
    assert [p["pairs"] for p in found["agreement"]] == [0] * 6


def test_text_has_all_figures():
    rows = [[0, 1], [1, 2], [2, 3], [3, 2], [0, 3], [4, 5], [5, 6]]
    trace = made([[r] for r in rows], 8, steps=[0, 1, 2, 3, 4, 5, 5], kinds=[DECODE] * 5 + [VERIFY] * 2)
    text = working_set.to_text(working_set.measure(trace, burst=2, distances=2, seed=5))
    for part in (
        "decode bursts      29.2 % (25.0 % to 37.5 %) of the pool, 3 bursts, 1 of fewer than 2 steps\n",
        "verify bursts      37.5 % of the pool, 1 burst, 1 of fewer than 2 steps\n",
        "next decode burst  29.2 % alike (Jaccard), 50.0 % held by the burst before\n",
        "next step          62.5 % of a decode step's experts were used by the step before\n",
        "       all          1         87.5 %         87.5 %\n",
        "         1     62.5 %",
    ):
        assert part in text


def test_what_measures_nothing_is_refused():
    trace = one_layer(4, [[0, 1]])
    for name in ("burst", "distances"):
        with pytest.raises(hotset.InvalidConfig, match=f"{name} = 0, accepted: 1 or more"):
            working_set.measure(trace, **{name: 0})


class Naive:
    """A literal implementation of the definitions."""

    def __init__(self, trace, burst, distances, seed):
        self.pool = trace.layers * trace.experts
        self.found = {n: [] for n in ("jaccard", "held", "decode", "step", "end")}
        self.sizes = {k: [] for k in range(3)}
        self.shorter = [0, 0, 0]
        self.after = {}
        self.agreement = {1 << p: ([], []) for p in range(distances.bit_length())}
        everything = []
        for sequence, steps in sorted(self.steps_of(trace).items()):
            bursts = self.bursts_of(steps, burst)
            for at, one in enumerate(bursts):
                self.add_burst(bursts[at - 1] if at else None, one, burst)
            self.follow(bursts, self.after, self.found["end"])
            everything += bursts
            for a, b in zip(steps, steps[1:]):
                if a[1] == b[1] == DECODE:
                    self.add(self.found["step"], self.all_of([a]) & self.all_of([b]), self.all_of([b]))
            shuffled = list(steps)
            SplitMix64(SplitMix64(seed).next() ^ sequence).shuffle(shuffled)
            for distance, sums in self.agreement.items():
                for order, out in zip((steps, shuffled), sums):
                    for a, b in zip(order, order[distance:]):
                        self.compare(a, b, out)
        everything.sort(key=lambda b: b[0][0])
        self.trace_after, self.trace_end, self.all_bursts = {}, [], len(everything)
        self.follow(everything, self.trace_after, self.trace_end)

    @staticmethod
    def steps_of(trace):
        """[first row, kind, tokens] by sequence; a token is a set of layers and experts."""
        out = {}
        for t in range(trace.tokens):
            steps = out.setdefault(int(trace.sequences[t]), [])
            if not steps or steps[-1][3] != trace.steps[t]:
                steps.append([t, DECODE, [], trace.steps[t]])
            kind = int(trace.kinds[t])
            if kind == PREFILL or (kind == VERIFY and steps[-1][1] == DECODE):
                steps[-1][1] = kind
            token = {(l, int(e)) for l in range(trace.layers) for e in trace.experts_of(t, l) if e >= 0}
            steps[-1][2].append(token)
        return out

    @staticmethod
    def bursts_of(steps, length):
        out = []
        for one in steps:
            goes_on = out and out[-1][-1][1] == one[1] and (one[1] == PREFILL or len(out[-1]) < length)
            if not goes_on:
                out.append([])
            out[-1].append(one)
        return out

    @staticmethod
    def all_of(steps):
        return set().union(*(token for step in steps for token in step[2]))

    @staticmethod
    def add(out, part, whole):
        if whole:
            out.append(len(part) / len(whole))

    def add_burst(self, before, one, length):
        kind = one[0][1]
        now = self.all_of(one)
        self.sizes[kind].append(len(now) / self.pool)
        self.shorter[kind] += kind != PREFILL and len(one) < length
        if before is None or not now:
            return
        earlier = self.all_of(before)
        self.add(self.found["jaccard"], earlier & now, earlier | now)
        self.add(self.found["held"], earlier & now, now)
        if kind == before[0][1] == DECODE:
            self.add(self.found["decode"], earlier & now, now)

    def compare(self, a, b, out):
        if a[1] != b[1]:
            return
        if len(a[2]) != len(b[2]):
            self.add(out, self.all_of([a]) & self.all_of([b]), self.all_of([b]))
            return
        shared = [(i, key) for i, (x, y) in enumerate(zip(a[2], b[2])) for key in x & y]
        self.add(out, shared, [(i, key) for i, y in enumerate(b[2]) for key in y])

    def follow(self, bursts, after, ends):
        used = set()
        for n, one in enumerate(bursts, 1):
            used |= self.all_of(one)
            if n & (n - 1) == 0:
                after.setdefault(n, []).append(len(used) / self.pool)
        ends.append(len(used) / self.pool)


def mean(values):
    return near(sum(values) / len(values)) if values else None


@pytest.mark.parametrize("block", range(10))
def test_figures_are_what_sets_say(block):
    for seed in range(block * 20, block * 20 + 20):
        trace = wild(
            seed,
            layers=1 + seed % 3,
            experts=4 + seed % 5,
            top_k=1 + seed % 3,
            tokens=5 + seed % 60,
            absent=0.5 if seed % 4 == 0 else 0,
            sequences=1 + seed % 4,
            most=1 + seed % 4,
            kinds=seed % 3 == 0,
        )
        options = {"burst": 1 + seed % 5, "distances": 1 + seed % 20, "seed": seed}
        found, naive = working_set.measure(trace, **options), Naive(trace, **options)
        for kind, name in enumerate(("decode", "prefill", "verify")):
            sizes = naive.sizes[kind]
            least_most = [min(sizes), max(sizes)] if sizes else [None, None]
            bursts = found["bursts"].get(name, {"count": 0, "shorter": 0, "mean": None, "least": None, "most": None})
            assert list(bursts.values()) == [len(sizes), naive.shorter[kind], mean(sizes), *least_most], seed
        overlap = found["burst_overlap"]
        assert overlap == {
            "pairs": len(naive.found["held"]),
            "jaccard": mean(naive.found["jaccard"]),
            "held": mean(naive.found["held"]),
        }, seed
        assert found["decode_burst_overlap"]["held"] == mean(naive.found["decode"]), seed
        assert found["step_overlap"] == {"pairs": len(naive.found["step"]), "share": mean(naive.found["step"])}, seed
        assert found["sequence_footprint"]["after"] == [
            {"bursts": n, "sequences": len(s), "share": mean(s)} for n, s in naive.after.items()
        ], seed
        assert found["sequence_footprint"]["end"]["mean"] == mean(naive.found["end"]), seed
        assert found["trace_footprint"] == {
            "after": [{"bursts": n, "share": mean(s)} for n, s in naive.trace_after.items()],
            "end": {"bursts": naive.all_bursts, "share": mean(naive.trace_end)},
        }, seed
        assert found["agreement"] == [
            {"distance": d, "pairs": len(a), "share": mean(a), "shuffled_pairs": len(b), "shuffled": mean(b)}
            for d, (a, b) in naive.agreement.items()
        ], seed


def test_shuffles_depend_on_the_seed_and_each_sequence_alone():
    trace = wild(3, layers=2, experts=32, top_k=2, tokens=60)

    def shuffled(of, seed):
        point = working_set.measure(of, distances=1, seed=seed)["agreement"][0]
        return point["shuffled"] * point["shuffled_pairs"]

    alone = shuffled(trace, 4)
    assert shuffled(trace, 4) == alone
    assert shuffled(trace, 5) != alone
    # A further sequence that never agrees with itself adds nothing.
    ids = trace.ids.tolist() + [[[4 * i, 4 * i + 1], [4 * i, 4 * i + 1]] for i in range(8)]
    assert shuffled(made(ids, 32, sequences=[0] * 60 + [1] * 8), 4) == pytest.approx(alone)


def test_splitmix64_draws_the_librarys_numbers():
    random = SplitMix64(0)
    assert [random.next() for _ in range(2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    assert SplitMix64(7).uniform(3).tolist() == [(SplitMix64(s).next() >> 11) * 2.0**-53 for s in seeds_after(7, 3)]
    assert {SplitMix64(s).below(5) for s in range(99)} == set(range(5))


def seeds_after(seed, count):
    """States of a generator, as seeds of others."""
    return [(seed + n * 0x9E3779B97F4A7C15) % 2**64 for n in range(count)]


def diffusion(folder, stickiness):
    words = "--layers 4 --experts 64 --top-k 8 --sequences 2 --positions 64 --steps 48 --zipf 0.6 --seed 5".split()
    path = folder / f"{stickiness}.trace"
    hotset.run("synth", str(path), *words, "--position-stickiness", str(stickiness))
    return working_set.measure(hotset.Trace.load(path), burst=1)


# A step routes 64 positions: each uses all experts, so sets would be equal.
def test_a_diffusion_model_agrees_more_the_nearer_its_steps_are(tmp_path):
    free = diffusion(tmp_path, 0)
    assert free["bursts"]["decode"]["least"] > 0.95
    assert free["step_overlap"]["share"] > 0.95
    chance = free["agreement"][0]["share"]
    for point in free["agreement"]:
        assert point["pairs"] == point["shuffled_pairs"] == 2 * (48 - point["distance"])
        assert point["share"] == pytest.approx(point["shuffled"], abs=0.01)
        assert point["share"] == pytest.approx(chance, abs=0.01)
    for kept in (0.3, 0.9):
        found = diffusion(tmp_path, kept)
        assert found["bursts"]["decode"]["least"] > 0.95, "as without"
        assert found["agreement"][0]["share"] > found["agreement"][0]["shuffled"] + 0.2
        for point in found["agreement"]:
            # Decisions kept in every step between, and of the rest those that agree by chance.
            still = kept ** point["distance"]
            assert point["share"] == pytest.approx(still + (1 - still) * chance, abs=0.02)


def test_the_command_prints_text_or_json(tmp_path):
    trace = wild(1, layers=2, experts=8, top_k=2, tokens=24)
    trace.save(tmp_path / "t.trace")
    expected = working_set.measure(trace, burst=8, distances=4, seed=9)
    words = ("working-set", "t.trace", "--burst", 8, "--distances", 4, "--seed", 9)
    assert run(tmp_path, *words).out == working_set.to_text(expected)
    found = json_of(tmp_path, *words, "--json")
    assert found == {"schema": "hotset.working-set/1", "trace": "hand", **json.loads(json.dumps(expected))}
    both = json_of(tmp_path, "working-set", "t.trace", "t.trace", "--json")
    assert len(both) == 2 and both[0] == both[1]
    assert run(tmp_path, "working-set", "t.trace", "t.trace").out.count("hand\ndecode bursts") == 2


def test_the_command_refuses_in_one_line(tmp_path):
    one_layer(4, [[0, 1]]).save(tmp_path / "t.trace")
    refused(tmp_path, 2, "working-set", None, "arguments are required: TRACE; see python3 -m hotset working-set --help")
    refused(tmp_path, 2, "working-set", "t.trace", "--burst", 0, None, "--burst: '0'; accepted: 1..4294967295")
    refused(tmp_path, 2, "working-set", "t.trace", "--distances", 0, None, "--distances: '0'; accepted: 1..")
    refused(tmp_path, 2, "working-set", "t.trace", "--seed", "x", None, "--seed: 'x'; accepted: 0..")
    refused(tmp_path, 4, "working-set", "absent.trace", None, "absent.trace")
