# SPDX-License-Identifier: Apache-2.0
"""Experts that ESFT tunes: the rule, its readers, and the configurations that its authors
published."""

import json
import os
import pathlib
import random
import tarfile

import pytest
from made_traces import made, refused, run

import hotset
from hotset.studies.expert_selection import config_text, parse_summary, score_trace, select_experts

FOUR = {0: 0.25, 1: 0.125, 2: 0.5, 3: 0.125}
TEXT = """{"token_scores": {"10": {"1": 0.75, "0": 0.25}, "9": {"0": 0.5, "1": 0.5}},
           "gate_scores": {"9": {"0": 0.1, "1": 0.2}, "10": {"0": 0, "1": 1}}}"""


def selected(summary, p):
    return json.loads(config_text(summary, p))["experts"]


def test_it_takes_the_best_while_those_before_sum_to_less_than_p():
    for p, experts in (
        (0.2, [2]),  # the expert that crosses p is taken
        (0.5, [2]),  # reaching p is enough
        (0.51, [2, 0]),
        (0.75, [2, 0]),
        (0.76, [2, 0, 1]),  # ties go to the lower expert
        (1, [2, 0, 1, 3]),
        (7, [2, 0, 1, 3]),  # there are no more
    ):
        assert select_experts(FOUR, p) == experts


def test_it_agrees_with_taking_the_best_that_is_left_again_and_again():
    drawn = random.Random(0xE5F7)
    for _ in range(500):
        scores = {e: drawn.randrange(8) / 64 for e in reversed(range(1 + drawn.randrange(20)))}
        p = (1 + drawn.randrange(80)) / 64
        left, expected = dict(sorted(scores.items())), []
        while left and sum(scores[e] for e in expected) < p:
            expected.append(max(left, key=left.get))
            del left[expected[-1]]
        assert select_experts(scores, p) == expected


def test_a_summary_has_both_scores_and_its_layers_ascend_by_number():
    token = parse_summary(TEXT, "s.json", "token")
    assert list(token) == [9, 10]
    assert selected(token, 0.5) == {"9": [0], "10": [1]}
    assert selected(parse_summary(TEXT, "s.json", "gate"), 0.5) == {"9": [1, 0], "10": [1]}
    assert config_text({1: {4: 1.0}}, 0.2) == (
        '{"experts": {"1": [4]}, "shared_experts": false, "non_expert_modules": false}\n'
    )


@pytest.mark.parametrize(
    "text, words",
    [
        ("{", "s.json: ends before its JSON does"),
        ('{"a": x}', "s.json: byte 7: is not JSON here"),
        ("7", "s.json: is no JSON object; accepted: an ESFT summary"),
        (b"\xff", "s.json: is not JSON here"),
        ("[" * 100000, "s.json: is not JSON here"),
        ('{"gate_scores": {}}', "key 'token_scores': is missing"),
        ('{"token_scores": {}}', "has no layers"),
        ('{"token_scores": 1}', "key 'token_scores': is 1"),
        ('{"token_scores": {"x": {"0": 1}}}', "layer 'x'"),
        ('{"token_scores": {"01": {"0": 1}}}', "layer '01'"),
        ('{"token_scores": {"65536": {"0": 1}}}', "is no layer's number; accepted: 0..65535"),
        ('{"token_scores": {"1": {}}}', "token_scores: layer 1: has no experts"),
        ('{"token_scores": {"1": [1]}}', "is an array of 1"),
        ('{"token_scores": {"1": {"-1": 1}}}', "expert '-1' is no number; accepted: 0..1048575"),
        ('{"token_scores": {"1": {"0": 1, "0": 1}}}', "key '0': is there twice"),
        *(
            (f'{{"token_scores": {{"1": {{"4": {bad}}}}}}}', "layer 1: the score of expert 4 is ")
            for bad in ("-0.1", '"1"', "null", "1e300", "true", "NaN", "1e999")
        ),
    ],
)
def test_what_is_no_summary_is_refused(text, words):
    with pytest.raises(hotset.InvalidArgument, match=words):
        parse_summary(text, "s.json", "token")


def test_a_damaged_summary_is_read_or_refused_in_one_line():
    drawn = random.Random(0x5DA)
    accepted = 0
    for _ in range(5000):
        damaged = bytearray(TEXT.encode())
        for _ in range(1 + drawn.randrange(3)):
            damaged[drawn.randrange(len(damaged))] = drawn.randrange(256)
        try:
            read = parse_summary(bytes(damaged), "s.json", "token")
        except hotset.InvalidArgument as bad:
            assert str(bad).startswith("s.json: ")
            assert len(str(bad)) < 400
            continue
        accepted += 1
        assert all(score >= 0 for scores in read.values() for score in scores.values())
    assert accepted > 50, "some damage leaves a summary"


def test_recorded_routing_is_scored_to_four_decimals():
    trace = made([[[0, 1], [2, 1]], [[0, 2], [2, -1]], [[1, 0], [0, 2]]], 4, weights=[[[0.5, 0.25]] * 2] * 3)
    trace.metadata["layers"] = "3,7"
    token, gate = (score_trace(trace, score) for score in ("token", "gate"))
    assert token == {3: {0: 0.5, 1: 0.3333, 2: 0.1667, 3: 0}, 7: {0: 0.1667, 1: 0.1667, 2: 0.5, 3: 0}}
    assert gate[3] == {0: round(1.25 / 3, 4), 1: 0.25, 2: round(0.25 / 3, 4), 3: 0}
    with pytest.raises(hotset.InvalidArgument, match="has no weights"):
        score_trace(made([[[0]]], 2), "gate")


def test_the_command_writes_a_configuration(tmp_path):
    (tmp_path / "s.json").write_text(
        '{"token_scores": {"1": {"0": 0.1, "1": 0.6, "2": 0.3}, "2": {"0": 1}},'
        ' "gate_scores": {"1": {"0": 0.3, "1": 0.1, "2": 0.1}, "2": {"0": 0.5}}}'
    )
    by_token = '{"experts": {"1": [1], "2": [0]}, "shared_experts": false, "non_expert_modules": false}\n'
    assert run(tmp_path, "select-experts", "s.json").out == by_token
    assert run(tmp_path, "select-experts", "-", "--p", "0.2", given=(tmp_path / "s.json").read_bytes()).out == by_token
    found = run(tmp_path, "select-experts", "s.json", "--p", "0.7", "--out", "c.json")
    assert (found.code, found.out) == (0, "c.json: 2 layers, 3 experts, at most 2 of a layer\n"), found.err
    assert '{"1": [1, 2], "2": [0]}' in (tmp_path / "c.json").read_text()
    assert '{"1": [0, 1], "2": [0]}' in run(tmp_path, "select-experts", "s.json", "--score", "gate", "--p", "0.35").out
    hotset.run("adapters", "plan", "--base", "3x2", "--expert-bytes", "3MiB", str(tmp_path / "c.json"))
    # A folder or an archive that contains one.
    (tmp_path / "law").mkdir()
    (tmp_path / "law" / "summary.json").write_bytes((tmp_path / "s.json").read_bytes())
    with tarfile.open(tmp_path / "law.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "law", "law")
    for path in ("law", "law.tar.xz"):
        assert run(tmp_path, "select-experts", path).out == by_token


def test_the_command_scores_records_that_come_without_a_summary(tmp_path):
    (tmp_path / "expert_weights_1.txt").write_text("0\t1\t0\t2\t\t0.5\t0.25\t0.5\t0.25\n")
    (tmp_path / "expert_weights_2.txt").write_text("2\t1\t2\t0\t\t0.5\t0.25\t0.5\t0.25\n")
    found = run(tmp_path, "select-experts", ".", "--p", "0.6")
    assert json.loads(found.out)["experts"] == {"1": [0, 1], "2": [2, 0]}, found.err


def test_the_command_refuses_what_it_cannot_read_and_writes_nothing(tmp_path):
    (tmp_path / "kept.json").write_text("kept")
    (tmp_path / "cut.json").write_text('{"token_scores": {')
    (tmp_path / "one.json").write_text('{"experts": {"1": [1]}}')
    (tmp_path / "s.json").write_text(TEXT)
    before = sorted(p.name for p in tmp_path.iterdir())
    for code, words, part in (
        (2, ("s.json", "--p", "0"), "--p: '0'; accepted: more than 0"),
        (2, ("s.json", "--p", "1.1"), "--p: '1.1'; accepted: 0..1"),
        (2, ("s.json", "--score", "gates"), "--score: 'gates' (did you mean gate?); accepted: token, gate"),
        (4, ("cut.json", "--out", "kept.json"), "cut.json: ends before its JSON does"),
        (4, ("one.json", "--out", "kept.json"), "one.json: key 'token_scores'"),
        (4, ("absent.json",), "absent.json: cannot be opened"),
        (1, ("s.json", "--out", "nowhere/c.json"), "nowhere"),
    ):
        refused(tmp_path, code, "select-experts", *words, None, part)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert (tmp_path / "kept.json").read_text() == "kept"


DATA = pathlib.Path(os.environ.get("HOTSET_DATA_DIR") or "/absent")
LAW = DATA / "routing" / "esft-law" / "esft-law.tar.xz"
published = pytest.mark.skipif(
    not LAW.exists() or not (DATA / "adapters" / "esft").exists(),
    reason="HOTSET_DATA_DIR holds no adapters/esft or routing/esft-law",
)


def expect_published(found, name):
    wanted = json.loads((DATA / "adapters" / "esft" / f"{name}.json").read_text())["experts"]
    assert found == wanted, name


@published
def test_published_selections_are_those_of_token_scores_at_a_fifth_in_order(tmp_path):
    for name in ("intent", "summary", "translation"):
        path = DATA / "adapters" / "esft" / "scores" / f"{name}.summary.json"
        expect_published(json.loads(run(tmp_path, "select-experts", path).out)["experts"], name)
    expect_published(json.loads(run(tmp_path, "select-experts", LAW).out)["experts"], "law")


# Without rounding two of the layers differ.
@published
def test_published_selections_come_out_of_the_recorded_routing_itself(tmp_path):
    with tarfile.open(LAW) as archive:
        archive.extractall(tmp_path)
    for summary in tmp_path.rglob("summary.json"):
        folder = summary.parent
        summary.unlink()
    expect_published(json.loads(run(tmp_path, "select-experts", folder).out)["experts"], "law")


@published
def test_selections_by_gate_score_are_larger_for_the_same_p(tmp_path):
    for p, mean, room in ((0.1, 6.27, 0.0051), (0.2, 16.4, 0.051)):
        found = json.loads(run(tmp_path, "select-experts", LAW, "--score", "gate", "--p", p).out)["experts"]
        assert sum(map(len, found.values())) / 26 == pytest.approx(mean, abs=room)
