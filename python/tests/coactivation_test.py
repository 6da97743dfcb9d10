# SPDX-License-Identifier: Apache-2.0
"""Co-activation tables compared with a naive version of their rule, and the command."""

import struct

import numpy
import pytest
from made_traces import json_of, made, one_layer, refused, run, wild

import hotset
from hotset.studies.coactivation import Table, compare, judge, routed, support_of, user_of, users_by_sequence


def shifted(shift, tokens, name):
    """A user whose second layer follows from the first: e -> (e + shift) mod 4, over all e in turn.
    """
    return made([[[t % 4], [(t + shift) % 4]] for t in range(tokens)], 4, name=name)


def table_of(trace, **options):
    return Table(trace.layers, trace.experts, **options)


def learnt(trace, upto=None, **options):
    table = table_of(trace, **options)
    table.learn(routed(trace)[:upto])
    return table


def test_a_table_counts_what_fires_together():
    trace = made([[[0, 1], [2, -1], [1, 0]], [[0, -1], [2, 3], [-1, -1]]], 4)
    table = learnt(trace, reach=2)
    assert table.fired.tolist() == [[2, 1, 0, 0], [0, 0, 2, 1], [1, 1, 0, 0]]
    assert table.together[0, 0, 0].tolist() == [0, 0, 2, 1], "expert 0 of layer 0 with layer 1"
    assert table.together[0, 1, 1].tolist() == [1, 1, 0, 0], "expert 1 of layer 0 with layer 2"
    assert table.together[1, 0, 2].tolist() == [1, 1, 0, 0]
    assert table.together.sum() == 4 + 4 + 2, "of neighbours twice, of the outer layers once"
    assert table.uses == 8


def test_scores_are_the_rule_written_out():
    trace = wild(5, layers=5, experts=6, top_k=2, tokens=80, absent=0.15)
    ids, reach, decay = trace.ids.astype(int), 3, 0.7
    table = learnt(trace, upto=50, reach=reach, decay=decay)
    fired, pairs = {}, {}
    for token in ids[:50].tolist():
        for s, before in enumerate(token):
            for i in (i for i in before if i < 6):
                fired[s, i] = fired.get((s, i), 0) + 1
                for back in range(1, min(reach, 4 - s) + 1):
                    for j in (j for j in token[s + back] if j < 6):
                        pairs[s, back, i, j] = pairs.get((s, back, i, j), 0) + 1
    assert table.uses == sum(fired.values())
    for layer in range(4):
        got = table.scores(routed(trace)[50:], layer)
        for t, token in enumerate(ids[50:].tolist()):
            scores, total = [0.0] * 6, 0.0
            for back in range(1, min(layer + 1, reach) + 1):
                s = layer + 1 - back
                for i in (i for i in token[s] if i < 6):
                    total += decay ** (back - 1)
                    for j in range(6):
                        if fired.get((s, i)):
                            scores[j] += decay ** (back - 1) * pairs.get((s, back, i, j), 0) / fired[s, i]
            assert got[t] == pytest.approx([score / (total or 1) for score in scores], abs=1e-6)


def test_tables_are_saved_loaded_and_merged():
    one, two = (wild(seed, layers=3, experts=5, top_k=2, tokens=40) for seed in (1, 2))
    both = learnt(one)
    both.learn(routed(two))
    merged = learnt(one)
    merged.merge(learnt(two))
    assert merged.save() == both.save()
    saved = merged.save()
    assert saved[:8] == b"hscoact1" and struct.unpack("<3I", saved[8:20]) == (3, 5, 4)
    assert len(saved) == 20 + 4 * (3 * 5 + 3 * 4 * 5 * 5)
    copy = table_of(one)
    copy.load(saved)
    assert copy.save() == saved
    full = learnt(one)
    full.fired[:] = full.together[:] = 2**32 - 1
    full.merge(merged)
    assert full.fired.min() == full.together.min() == 2**32 - 1, "counts stop, and do not wrap"


def test_what_is_no_table_of_the_shape_is_refused():
    table = table_of(shifted(1, 4, "a"))
    saved = table.save()
    for data, words in (
        (b"", "no co_activation table, accepted: a saved one"),
        (b"hscoact2" + saved[8:], "no co_activation table"),
        (saved[:-1], f"{len(saved) - 1} bytes, accepted: {len(saved)} for 2 layers x 4 experts, reach 4"),
        (saved[:8] + struct.pack("<3I", 0, 4, 4), "a table of 0 layers x 4 experts"),
        (saved[:8] + struct.pack("<3I", 2, 70000, 4), "accepted: at most 17179869184 bytes"),
    ):
        with pytest.raises(hotset.InvalidArgument, match=words):
            table.load(data)
    near = table_of(shifted(1, 4, "a"), reach=2)
    for refusing in (lambda: near.load(saved), lambda: near.merge(table)):
        with pytest.raises(hotset.InvalidConfig, match="reach 4, accepted: 2 layers x 4 experts, reach 2"):
            refusing()
    for options, words in (
        ({"reach": 0}, "reach = 0, accepted: 1 or more"),
        ({"decay": 0}, "decay = 0, accepted: more than 0, at most 1"),
        ({"reach": 1 << 28}, "a co_activation table of 2 layers x 4 experts"),
    ):
        with pytest.raises(hotset.InvalidConfig, match=words):
            table_of(shifted(1, 4, "a"), **options)


def test_judging_counts_the_places_that_the_table_names_and_teaches_nothing():
    seen, other = shifted(1, 4, "seen"), shifted(2, 8, "other")
    table = table_of(seen)
    assert judge(table, routed(seen)) == (4, 4, 0, 0), "an empty table names no expert"
    assert judge(table, routed(seen)).precision == 0
    table.learn(routed(seen))
    before = table.save()
    own = judge(table, routed(seen))
    assert (own.tokens, own.hits, own.precision) == (4, 4, 1.0)
    assert own.popular_hits == 1, "all are used alike: expert 0, the lowest"
    assert judge(table, routed(other)).hits == 0
    assert judge(table, routed(other)[6:]).places == 2
    assert judge(table, routed(other)[8:]) == (0, 0, 0, 0)
    assert table.save() == before


def test_precision_is_what_pairs_of_neighbours_say():
    trace = wild(3, layers=3, experts=6, top_k=2, tokens=60, absent=0.15)
    table = learnt(trace, upto=40, reach=1)
    places = hits = 0
    for layer in range(2):
        scores = table.scores(routed(trace)[40:], layer)
        for score, now in zip(scores.tolist(), trace.ids[40:, layer + 1].astype(int).tolist()):
            if min(now) == 65535:
                continue
            places += 2
            best = sorted(range(6), key=lambda e: (-score[e], e))[:2]
            hits += sum(score[e] > 0 and e in now for e in best)
    found = judge(table, routed(trace)[40:])
    assert (found.places, found.hits) == (places, hits)
    assert hits > 0


def test_tokens_are_judged_in_parts(monkeypatch):
    trace = wild(4, layers=3, experts=6, top_k=2, tokens=60)
    table = learnt(trace, upto=20)
    whole = judge(table, routed(trace))
    monkeypatch.setattr("hotset.studies.coactivation._CHUNK", 7)
    assert judge(table, routed(trace)) == whole


def test_a_support_is_that_of_the_layer_that_needs_most():
    trace = made([[[0], [e], [-1]] for e in range(4)], 4)
    table = learnt(trace)
    cap, mean = support_of(table, 1.0)
    assert (cap, mean) == (4, 2.5), "a layer that routes nothing needs nothing and is not counted"
    assert support_of(table, 0.5)[0] == 2
    assert support_of(table_of(trace), 0.95) == (0, 0.0)


def test_sequences_are_users():
    trace = shifted(1, 6, "law")
    trace.arrays["sequence"] = numpy.array([7, 7, 3, 3, 7, 3], numpy.uint32)
    users = users_by_sequence(trace)
    assert [u.name for u in users] == ["law/7", "law/3"]
    assert [u.ids[:, 0, 0].tolist() for u in users] == [[0, 1, 0], [2, 3, 1]]


# Two users who contradict each other: a user's own table is right, the table of both is ambiguous,
# the other's is wrong.
def test_a_users_table_is_told_from_the_populations_and_from_the_others():
    users = [user_of(shifted(s, n, name)) for s, n, name in ((1, 40, "one"), (2, 44, "two"), (3, 16, "brief"))]
    found = compare(users, [2, 8, 16])
    assert found["left_out"] == ["brief"]
    assert [u["tested_tokens"] for u in found["users"]] == [24, 28]
    first, second = (u["sizes"] for u in found["users"])
    assert first[0]["personal"]["precision"] == 0.5, "two of four experts seen"
    assert first[1]["personal"]["precision"] == 1
    assert first[1]["others"]["precision"] == 0
    # Both followers of e have equal scores and the lower id is named: the first user's for e = 0,
    # 1, 3, the second's for e = 2.
    assert first[1]["population"]["precision"] == 3 / 4
    assert second[1]["population"]["precision"] == 1 / 4
    assert first[2]["personal"]["cap"] == 4
    everybody = found["all"][1]
    assert (everybody["tokens"], everybody["wins"]) == (8, 2)
    assert everybody["personal"]["precision"] == 1
    assert everybody["population"]["precision"] == 0.5


def test_training_in_steps_is_training_from_the_start():
    traces = [wild(seed, layers=3, experts=6, top_k=2, tokens=90) for seed in (1, 2)]
    users = [user_of(t) for t in traces]
    in_steps, at_once = compare(users, [5, 20, 60]), compare(users, [60])
    for u in range(2):
        assert in_steps["users"][u]["sizes"][2] == at_once["users"][u]["sizes"][0]
    assert in_steps["all"][2] == at_once["all"][0]
    # Equals the result of tables learnt by hand.
    own, other = (learnt(t, upto=60) for t in traces)
    cell = at_once["users"][0]["sizes"][0]
    assert cell["personal"]["precision"] == judge(own, users[0].ids[60:]).precision
    assert cell["others"]["precision"] == judge(other, users[0].ids[60:]).precision
    own.merge(other)
    assert cell["population"]["precision"] == judge(own, users[0].ids[60:]).precision


def test_what_cannot_be_compared_is_refused():
    one, two = user_of(shifted(1, 40, "one")), user_of(shifted(2, 10, "two"))
    wide = user_of(one_layer(9, [[0], [1], [2]]))
    for users, sizes, options, words in (
        ([], [], {}, "no user, accepted: 2 or more"),
        ([one], [], {}, "no size, accepted: tokens of training, such as 64,256"),
        ([one], [4, 4], {}, "size 4, accepted: 1 or more, each larger"),
        ([one], [0], {}, "size 0, accepted"),
        ([one, two], [10], {}, "1 of 2 users have more than 10 tokens"),
        ([one, wide], [1], {}, "hand: 1 layers x 9 experts, top-1; accepted: 2 layers x 4 experts, top-1, as one"),
        ([one], [4], {"coverage": 0}, "coverage = 0, accepted"),
        ([one, one], [4], {"reach": 0}, "reach = 0"),
    ):
        with pytest.raises(hotset.InvalidConfig, match=words):
            compare(users, sizes, **options)


@pytest.fixture
def folder(tmp_path):
    shape = "--layers 4 --experts 8 --top-k 2 --tokens 60 --sequences 3 --zipf 1 --stickiness 0.5".split()
    for name in "abc":
        hotset.run("synth", str(tmp_path / f"{name}.trace"), *shape, "--seed", str(ord(name)))
    return tmp_path


def test_the_command_learns_saves_loads_and_merges(folder):
    both = json_of(folder, "coactivation", "a.trace", "b.trace", "--save", "both.table", "--json")
    assert {n: both[n] for n in ("schema", "layers", "experts", "reach", "decay", "coverage")} == {
        "schema": "hotset.coactivation/1",
        "layers": 4,
        "experts": 8,
        "reach": 4,
        "decay": 0.8,
        "coverage": 0.95,
    }
    assert [u["name"] for u in both["users"]] == ["a.trace", "b.trace"]
    assert both["users"][0]["uses"] == 3 * 60 * 4 * 2
    assert both["merged"]["uses"] == 2 * 3 * 60 * 4 * 2
    assert both["users"][0]["mean_support"] <= both["merged"]["cap"] <= 8
    assert both["evaluation"] is None
    # Two users' saved tables are the table of both, byte for byte.
    for name in "ab":
        assert run(folder, "coactivation", f"{name}.trace", "--save", f"{name}.table").code == 0
    loads = ("--load", "a.table", "--load", "b.table")
    merged = json_of(folder, "coactivation", *loads, "--save", "merged.table", "--json")
    assert merged["merged"] == both["merged"]
    saved = (folder / "both.table").read_bytes()
    assert (folder / "merged.table").read_bytes() == saved
    # A saved table continues to learn.
    assert run(folder, "coactivation", "b.trace", "--load", "a.table", "--save", "onward.table").code == 0
    assert (folder / "onward.table").read_bytes() == saved
    # Standard output is a file, too.
    piped = run(folder, "coactivation", *loads, "--save", "-", "--out", "ignored")
    assert piped.bytes == saved
    stdin = run(folder, "coactivation", "--load", "-", "--save", "stdin.table", given=saved)
    assert stdin.code == 0 and (folder / "stdin.table").read_bytes() == saved


def test_the_command_judges_a_trace_that_the_table_has_not_seen(folder):
    found = json_of(folder, "coactivation", "a.trace", "--evaluate", "c.trace", "--json")["evaluation"]
    assert (found["trace"], found["tokens"], found["places"]) == ("c.trace", 180, 180 * 3 * 2)
    assert found["precision"] == found["hits"] / found["places"] > 0
    own = json_of(folder, "coactivation", "a.trace", "--evaluate", "a.trace", "--json")["evaluation"]
    assert own["hits"] > found["hits"]
    run(folder, "coactivation", "a.trace", "--save", "a.table")
    assert (
        json_of(folder, "coactivation", "--load", "a.table", "--evaluate", "c.trace", "--json")["evaluation"] == found
    )
    text = run(folder, "coactivation", "a.trace", "--evaluate", "c.trace").out
    assert "c.trace: 180 tokens, next layer's experts named" in text


def test_caps_cover_as_much_as_they_are_asked_to(folder):
    caps = [
        json_of(folder, "coactivation", "a.trace", "--json", "--coverage", c)["merged"]["cap"]
        for c in (0.01, 0.5, 0.99)
    ]
    assert caps[0] == 1 and caps[1] < caps[2]


def test_the_command_compares_personal_tables_with_the_populations(folder):
    study = ("--study", "personal-vs-population")
    found = json_of(folder, "coactivation", "a.trace", "b.trace", "c.trace", *study, "--sizes", "20,90", "--json")
    assert [u["name"] for u in found["users"]] == ["a.trace", "b.trace", "c.trace"]
    assert found["users"][2]["tested_tokens"] == 90
    assert [row["tokens"] for row in found["all"]] == [20, 90]
    sequences = ("coactivation", "a.trace", "b.trace", *study, "--sizes", "20", "--users", "sequences")
    assert len(json_of(folder, *sequences, "--json")["users"]) == 6
    text = run(folder, "coactivation", "a.trace", "b.trace", *study, "--sizes", "20", "--reach", "1").out
    for part in ("2 users of 4 layers x 8 experts, top-2; reach 1", "a.trace", "all", "wins"):
        assert part in text


def test_the_command_refuses_what_it_cannot_use(folder):
    one_layer(8, [[0, 1], [2, 3]]).save(folder / "other.trace")
    for words in (("a.trace", "--save", "a.table"), ("other.trace", "--save", "other.table")):
        assert run(folder, "coactivation", *words).code == 0
    assert run(folder, "coactivation", "a.trace", "--reach", "2", "--save", "near.table").code == 0
    (folder / "cut.table").write_bytes((folder / "a.table").read_bytes()[:999])
    before = sorted(p.name for p in folder.iterdir())
    study = ("a.trace", "b.trace", "--study", "personal-vs-population")
    other = "other.trace: 1 layers x 8 experts, top-2; accepted: 4 layers x 8 experts"
    for code, words, part in (
        (2, (), "nothing to learn from; accepted: traces, or --load"),
        (2, ("a.trace", "other.trace"), other),
        (2, ("a.trace", "--evaluate", "other.trace"), other),
        (
            2,
            ("a.trace", "--load", "other.table"),
            "other.table: a table of 1 layers x 8 experts, reach 4, accepted: 4 layers",
        ),
        (
            2,
            ("--load", "a.table", "--load", "near.table"),
            "near.table: a table of 4 layers x 8 experts, reach 2, accepted",
        ),
        (2, ("--load", "a.table", "--reach", "2"), "a.table: a table of 4 layers x 8 experts, reach 4, accepted"),
        (4, ("--load", "a.trace"), "a.trace: no co_activation table"),
        (4, ("--load", "cut.table", "--save", "new.table"), "cut.table: 999 bytes, accepted"),
        (4, ("--load", "absent.table"), "absent.table: cannot be opened: No such file"),
        (4, ("absent.trace",), "absent.trace"),
        (1, ("a.trace", "--save", "nowhere/a.table"), "nowhere/a.table: cannot be created: No such file or directory"),
        (1, ("a.trace", "--out", "."), ".: is a folder; accepted: a file"),
        (2, ("a.trace", "--coverage", "0"), "--coverage: '0'"),
        (2, ("a.trace", "--decay", "nan"), "--decay: 'nan'; accepted: 1e-06..1"),
        (
            2,
            ("a.trace", "--study", "horoscope", "--sizes", "4"),
            "--study: 'horoscope'; accepted: personal-vs-population",
        ),
        (2, ("a.trace", "--evalute", "b.trace"), "'--evalute' is no option (did you mean --evaluate?)"),
        (2, study, "--study needs --sizes"),
        (2, (*study, "--sizes", "4,x"), "--sizes: 'x'"),
        (2, (*study, "--sizes", "180"), "0 of 2 users have more than 180 tokens"),
        (2, (*study, "--sizes", "4", "--users", "cats"), "--users: 'cats'; accepted: traces, sequences"),
        (2, (*study, "--sizes", "4", "--users", "trace"), "(did you mean traces?)"),
        (2, (*study, "--sizes", "4", "--save", "t"), "--save excludes --study"),
        (2, ("a.trace", "--sizes", "4"), "--sizes requires --study"),
    ):
        refused(folder, code, "coactivation", *words, None, part)
    assert sorted(p.name for p in folder.iterdir()) == before, "nothing was written"
