# SPDX-License-Identifier: Apache-2.0
"""What other engines give, as traces and profiles."""

import json
import struct

import numpy
import pytest

import hotset
from hotset import importers


def test_routed_experts_of_requests_become_sequences():
    first = numpy.array([[[0, 1], [2, 3]], [[4, 5], [6, 65535]]], numpy.uint16)
    second = numpy.array([[[7, 0], [1, 2]]], numpy.uint16)
    trace = importers.from_routed_experts([first, second], experts=8)
    assert trace.ids.tolist() == [*first.tolist(), *second.tolist()]
    assert trace.experts_of(1, 1).tolist() == [6, -1]
    assert trace.sequences.tolist() == [0, 0, 1]
    assert importers.from_routed_experts(first, experts=8).tokens == 2


@pytest.mark.parametrize(
    "requests, words",
    [
        ([], "no requests"),
        ([numpy.zeros((2, 2), int)], "request 0: int64 of shape \\[2, 2\\]"),
        ([numpy.zeros((2, 2, 2))], "float64"),
        ([numpy.zeros((2, 2, 2), int), numpy.zeros((2, 3, 2), int)], "request 1: .* alike in all requests"),
        ([numpy.full((1, 1, 1), 9)], "an expert 9, accepted: below 8"),
    ],
)
def test_what_are_no_routed_experts_is_refused(requests, words):
    with pytest.raises(hotset.InvalidArgument, match=words):
        importers.from_routed_experts(requests, experts=8)


def test_router_logits_choose_the_highest_ties_by_number():
    logits = [numpy.array([[0.0, 2.0, 1.0, 2.0]]), numpy.array([[3.0, -1.0, 3.0, 3.0]])]
    trace = importers.from_router_logits(logits, top_k=2)
    assert trace.ids.tolist() == [[[1, 3], [0, 2]]]
    assert trace.weights[0, 0].tolist() == pytest.approx([0.5, 0.5])
    whole = importers.from_router_logits(logits, top_k=2, renormalise=False)
    softmax = numpy.exp(logits[0][0]) / numpy.exp(logits[0][0]).sum()
    assert whole.weights[0, 0].tolist() == pytest.approx([softmax[1], softmax[3]])
    assert trace.arrays["logits"].shape == (1, 2, 4)
    with pytest.raises(hotset.InvalidArgument, match="top_k = 5, accepted: 1..4"):
        importers.from_router_logits(logits, top_k=5)
    with pytest.raises(hotset.InvalidArgument, match="all alike"):
        importers.from_router_logits([logits[0], logits[1][:, :3]], top_k=1)
    with pytest.raises(hotset.InvalidArgument, match="not finite"):
        importers.from_router_logits([numpy.array([[0.0, numpy.nan]])], top_k=1)


def test_numpy_files_hold_one_trace_or_requests(tmp_path):
    ids = numpy.arange(12, dtype=numpy.int8).reshape(3, 2, 2) % 8
    numpy.save(tmp_path / "a.npy", numpy.asfortranarray(ids).astype(">i4"))
    assert importers.from_numpy(tmp_path / "a.npy", 8).ids.tolist() == ids.tolist()
    numpy.savez_compressed(tmp_path / "b.npz", topk_ids=ids, weights=ids / 8, sequences=[0, 1, 1])
    trace = importers.from_numpy(tmp_path / "b.npz", 8)
    assert trace.sequences.tolist() == [0, 1, 1] and trace.weights[2, 0, 0] == ids[2, 0, 0] / 8
    numpy.savez(tmp_path / "c.npz", request_1=ids[:1], request_2=ids[1:])
    assert importers.from_numpy(tmp_path / "c.npz", 8).sequences.tolist() == [0, 1, 1]
    numpy.savez(tmp_path / "d.npz", ids=ids, experts=ids)
    with pytest.raises(hotset.InvalidArgument, match="arrays experts, ids, accepted: one of them"):
        importers.from_numpy(tmp_path / "d.npz", 8)
    numpy.savez(tmp_path / "e.npz", other=ids[0])
    with pytest.raises(hotset.InvalidArgument, match="holds other"):
        importers.from_numpy(tmp_path / "e.npz", 8)
    (tmp_path / "f.npy").write_bytes(b"no array")
    with pytest.raises(hotset.InvalidArgument, match="accepted: a .npy or .npz file"):
        importers.from_numpy(tmp_path / "f.npy", 8)


def imatrix(counts):
    """A GGUF file as llama-imatrix writes it, of one layer."""
    name = b"blk.3.ffn_up_exps.weight.counts"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
    head += struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, 1, len(counts), 0, 0)
    return head + bytes(-len(head) % 32) + numpy.array(counts, "<f4").tobytes()


def test_counts_of_an_imatrix(tmp_path):
    (tmp_path / "m.gguf").write_bytes(imatrix([5, 0, 2, 9]))
    assert importers.counts_of(tmp_path / "m.gguf").tolist() == [[5, 0, 2, 9]]
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(hotset.Error, match="bad.gguf"):
        importers.counts_of(tmp_path / "bad.gguf")


def test_counts_are_a_profile(tmp_path):
    counts = numpy.array([[5, 1, 0], [2, 9, 5]])
    for held in (counts, {"logical_count": counts}, {"logical_count": numpy.stack([counts, counts])}):
        got = importers.counts_of(held)
        assert (got / got.max() == counts / counts.max()).all()
    (tmp_path / "c.json").write_text(json.dumps({"logical_count": counts.tolist()}))
    numpy.save(tmp_path / "c.npy", counts)
    assert (importers.counts_of(tmp_path / "c.json") == counts).all()
    assert (importers.counts_of(tmp_path / "c.npy") == counts).all()
    assert importers.warm_keys(counts, 3).tolist() == [[1, 2], [0, 0], [1, 1]]
    pager = hotset.Pager(2, 3, 1, slots=3, scope="shared")
    pager.warm(importers.warm_keys(counts, 3), lambda fills: None)
    assert sorted(map(tuple, pager.residents().tolist())) == [(0, 0), (1, 1), (1, 2)]
    for bad in ({}, [[-1.0]], [1, 2], [["x"]], [[float("nan")]]):
        with pytest.raises(hotset.InvalidArgument, match="counts: "):
            importers.counts_of(bad)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(hotset.InvalidArgument, match="accepted: .npy, .npz, .json, .pt or .gguf"):
        importers.counts_of(tmp_path / "bad.json")
