# SPDX-License-Identifier: Apache-2.0
"""Traces and recorders: the program reads files written by Python, and the reverse."""

import json
import os
import pathlib
import re

import numpy
import pytest

import hotset

SOURCE = pathlib.Path(os.environ.get("HOTSET_SOURCE_DIR", pathlib.Path(__file__).parents[2]))


def recorded(path):
    recorder = hotset.Recorder(layers=2, experts=8, top_k=2, capacity=10, weights=True, name="a run", model="toy")
    with recorder.step(tokens=2, kind="prefill", sequences=numpy.array([4, 5], numpy.uint32)):
        for layer in range(2):
            recorder.record(layer, numpy.array([[1, 2], [3, layer]], numpy.int32), numpy.full((2, 2), 0.5, numpy.float32))
    with recorder.step(tokens=3):
        recorder.record(0, numpy.array([[0, 1], [2, 3], [4, 5]], numpy.int32))
        recorder.record(1, numpy.array([[6, 7]], numpy.int32), rows=numpy.array([2], numpy.uint32))
    assert recorder.tokens() == (5, 0)
    recorder.write(str(path))
    return path


def test_a_recorder_writes_what_a_trace_reads(tmp_path):
    trace = hotset.Trace.load(recorded(tmp_path / "a.trace"))
    assert (trace.tokens, trace.layers, trace.experts, trace.top_k) == (5, 2, 8, 2)
    assert trace.steps.tolist() == [0, 0, 1, 1, 1]
    assert trace.sequences.tolist() == [4, 5, 0, 0, 0]
    assert trace.kinds.tolist() == [1, 1, 0, 0, 0]
    assert trace.ids[1].tolist() == [[3, 0], [3, 1]]
    assert trace.experts_of(3, 1).tolist() == [-1, -1], "it had no row there"
    assert trace.experts_of(4, 1).tolist() == [6, 7]
    assert trace.weights[0, 0].tolist() == [0.5, 0.5]
    assert "a run" in repr(trace)


def test_a_recorder_tells_mistakes():
    recorder = hotset.Recorder(layers=2, experts=8, top_k=2, capacity=3)
    with pytest.raises(hotset.InvalidArgument):
        recorder.end_step()
    with pytest.raises(hotset.InvalidVisit, match="a visit of layer 5, accepted: 0..1"):
        with recorder.step(tokens=1):
            recorder.record(5, numpy.zeros((1, 2), numpy.int32))
    with pytest.raises(hotset.ExceedsMemory):
        recorder.begin_step(3)
    with pytest.raises(hotset.CannotWrite, match="absent"):
        recorder.write("/absent/folder/a.trace")
    with pytest.raises(hotset.InvalidConfig, match="capacity = 0"):
        hotset.Recorder(layers=2, experts=8, top_k=2, capacity=0)


def test_what_is_saved_is_read_by_the_program(tmp_path):
    rng = numpy.random.default_rng(5)
    ids = rng.permuted(numpy.tile(numpy.arange(16), (40, 3, 1)), axis=2)[..., :4]  # a router names an expert once in a row
    ids[rng.random(ids.shape) < 0.1] = -1
    trace = hotset.Trace.from_arrays(ids, 16, expert_bytes=1000, name="made", weights=rng.random((40, 3, 4)))
    path = tmp_path / "made.trace"
    trace.save(path)
    about = json.loads(hotset.run("info", str(path), "--json"))
    assert (about["layers"], about["experts"], about["tokens"]) == (3, 16, 40)
    again = hotset.Trace.load(path)
    assert (again.ids == trace.ids).all() and again.metadata["name"] == "made"
    # Through the program and back: equal to the program's own output, byte for byte.
    hotset.run("import", str(path), str(tmp_path / "other.trace"))
    other = hotset.Trace.load(tmp_path / "other.trace")
    for name, array in trace.arrays.items():
        assert (other.arrays[name] == array).all(), name


@pytest.mark.parametrize(
    "given, words",
    [
        (dict(ids=[[1, 2]], experts=4), "accepted: integers \\[tokens, layers, top_k\\]"),
        (dict(ids=numpy.zeros((1, 1, 1)), experts=4), "ids: float64"),
        (dict(ids=[[[4]]], experts=4), "an expert 4, accepted: below 4"),
        (dict(ids=[[[1]]], experts=0), "experts = 0, accepted: 1..65535"),
        (dict(ids=[[[1]], [[1]]], experts=2, steps=[1, 0]), "steps: fall"),
        (dict(ids=[[[1]]], experts=2, kinds=[3]), "kinds: 3, accepted: 0..2"),
        (dict(ids=[[[1]]], experts=2, weights=[1.0]), "weights: shape \\[1\\], accepted: \\[1, 1, 1\\]"),
    ],
)
def test_arrays_that_are_no_trace_are_refused(given, words):
    with pytest.raises(hotset.InvalidArgument, match=words):
        hotset.Trace.from_arrays(**given)


def test_a_failed_save_leaves_the_file_as_it_was(tmp_path):
    trace = hotset.Trace.from_arrays([[[1]]], 2)
    with pytest.raises(hotset.CannotWrite, match="No such file"):
        trace.save(tmp_path / "absent" / "a.trace")
    path = tmp_path / "a.trace"
    path.write_text("before")
    trace.arrays["ids"] = numpy.zeros((1, 1, 1), numpy.complex64)  # not a type of the format
    with pytest.raises(KeyError):
        trace.save(path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.trace"]


def test_a_file_is_written_without_the_umask_and_keeps_its_owner(tmp_path, monkeypatch):
    trace = hotset.Trace.from_arrays([[[1]]], 2)

    def refuse(*given):
        raise PermissionError(given)

    # Other threads of a server create files meanwhile.
    monkeypatch.setattr(os, "umask", refuse)
    trace.save(tmp_path / "a.trace")
    monkeypatch.setattr(os, "chown", refuse)
    trace.save(tmp_path / "b.trace")
    before = (tmp_path / "a.trace").stat()
    with pytest.raises(hotset.CannotWrite, match="a.trace: its owner cannot be kept"):
        trace.save(tmp_path / "a.trace")
    assert (tmp_path / "a.trace").stat().st_ino == before.st_ino
    assert sorted(os.listdir(tmp_path)) == ["a.trace", "b.trace"]


def test_damaged_files_are_refused(tmp_path):
    good = recorded(tmp_path / "good.trace").read_bytes()
    path = tmp_path / "bad.trace"
    for bad in (b"", good[:7], good[:40], good[:-1], b"\xff" * 64, good[:8] + b"[1]" + b" " * 100):
        path.write_bytes(bad)
        with pytest.raises(hotset.InvalidArgument, match="accepted: "):
            hotset.Trace.load(path)
    seeds = numpy.random.default_rng(3)
    for _ in range(300):
        damaged = bytearray(good)
        for at in seeds.integers(0, len(damaged) // 2, 3):
            damaged[at] = seeds.integers(0, 256)
        path.write_bytes(damaged)
        try:
            hotset.Trace.load(path).ids.sum()
        except hotset.InvalidArgument:
            pass


def test_the_reader_in_the_document_reads(tmp_path):
    text = (SOURCE / "docs" / "trace-format.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    assert len(code.strip().splitlines()) <= 10
    scope = {}
    exec(code, scope)  # the document's own lines
    path = recorded(tmp_path / "a.trace")
    facts, arrays = scope["read_trace"](str(path))
    expected = hotset.Trace.load(path)
    assert facts == expected.metadata
    assert set(arrays) == set(expected.arrays)
    for name, array in arrays.items():
        assert array.dtype == expected.arrays[name].dtype and (array == expected.arrays[name]).all()
