# SPDX-License-Identifier: Apache-2.0
"""Imports routed experts, logits and counts of other engines."""

import json
import struct
import warnings

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
        ([numpy.full((2, 2, 2), 0.5)], "request 0: float64 of shape"),
        ([numpy.full((2, 2, 2), numpy.nan)], "request 0: float64 of shape"),
        ([numpy.zeros((2, 2, 2), int), numpy.zeros((2, 3, 2), int)], "request 1: .* alike in all requests"),
        ([numpy.full((1, 1, 1), 9)], "an expert 9, accepted: below 8"),
        ([numpy.zeros((3, 2, 2), int)], "6 of 6 rows name an expert twice, .* accepted: rows of"),
        ([numpy.full((3, 2, 2), -1)], "no expert is routed, accepted: rows of"),
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
    for bad in (numpy.nan, numpy.inf):
        with pytest.raises(hotset.InvalidArgument, match="NaN or infinity, accepted: numbers or -inf"):
            importers.from_router_logits([numpy.array([[0.0, bad]])], top_k=1)


@pytest.mark.parametrize("renormalise", [True, False])
def test_a_logit_of_minus_infinity_is_never_chosen(renormalise):
    masked = -numpy.inf
    logits = numpy.array([[1.5, masked, 1.5], [masked, 0.5, masked], [masked, masked, masked]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = importers.from_router_logits([logits], top_k=2, renormalise=renormalise)
    assert trace.ids[:, 0].tolist() == [[0, 2], [1, 65535], [65535, 65535]]
    assert trace.weights[:, 0].tolist() == [[0.5, 0.5], [1, 0], [0, 0]]


def test_ids_are_not_taken_for_logits():
    ids = numpy.array([[5.0, 2.0], [9.0, 0.0]])
    with pytest.raises(hotset.InvalidArgument, match="whole numbers, 2 for a token of top_k = 2"):
        importers.from_router_logits([ids], top_k=2)


def test_whole_numbers_stored_as_real_ones_are_ids():
    ids = numpy.array([[[5, 2]], [[9, 0]], [[-1, 3]]], numpy.float32)
    with pytest.warns(UserWarning, match="request 0: whole numbers stored as float32, read as ids"):
        trace = importers.from_routed_experts(ids, experts=16)
    assert trace.ids[:, 0].tolist() == [[5, 2], [9, 0], [65535, 3]]


def test_a_map_of_the_routed_experts_becomes_ids():
    routed = numpy.zeros((3, 1, 4), bool)
    routed[0, 0, [1, 3]] = routed[1, 0, [2]] = True
    for given in (routed, routed.astype(numpy.uint8), routed.astype(numpy.float32)):
        with pytest.warns(UserWarning, match="request 0: zeros and ones, read as a map of the routed"):
            trace = importers.from_routed_experts(given, experts=4)
        assert trace.ids[:, 0].tolist() == [[1, 3], [2, 65535], [65535, 65535]]
    with pytest.raises(hotset.InvalidArgument, match="3 of 3 rows name an expert twice"):
        importers.from_routed_experts(routed.astype(int), experts=5)


def test_rows_that_no_router_made_are_left_out(tmp_path):
    ids = numpy.array([[[0, 0], [1, 2], [3, 3]], [[0, 0], [4, 4], [5, 6]]])
    numpy.savez(tmp_path / "a.npz", ids=ids, weights=1 + ids)
    words = "4 of 6 rows name an expert twice, which no router does: taken as not routed; "
    words += "layers 0 without a routed row: left out as dense"
    with pytest.warns(UserWarning, match=words):
        trace = importers.from_numpy(tmp_path / "a.npz", 8)
    assert trace.ids.tolist() == [[[1, 2], [65535, 65535]], [[65535, 65535], [5, 6]]]
    assert trace.weights.tolist() == [[[2, 3], [0, 0]], [[0, 0], [6, 7]]]
    assert trace.metadata["layers"] == "1,2"
    with pytest.warns(UserWarning, match=words):
        again = importers.from_routed_experts([ids[:1], ids[1:]], experts=8)
    assert again.ids.tolist() == trace.ids.tolist()
    trace.save(tmp_path / "a.trace")
    assert hotset.Trace.load(tmp_path / "a.trace").layers == 2


def test_numpy_files_hold_one_trace_or_requests(tmp_path):
    ids = numpy.arange(12, dtype=numpy.int8).reshape(3, 2, 2) % 8
    numpy.save(tmp_path / "a.npy", numpy.asfortranarray(ids).astype(">i4"))
    assert importers.from_numpy(tmp_path / "a.npy", 8).ids.tolist() == ids.tolist()
    numpy.savez_compressed(tmp_path / "b.npz", topk_ids=ids, weights=ids / 8, sequences=[0, 1, 1])
    trace = importers.from_numpy(tmp_path / "b.npz", 8)
    assert trace.sequences.tolist() == [0, 1, 1] and trace.weights[2, 0, 0] == ids[2, 0, 0] / 8
    numpy.savez(tmp_path / "c.npz", request_1=ids[:1], request_2=ids[1:])
    assert importers.from_numpy(tmp_path / "c.npz", 8).sequences.tolist() == [0, 1, 1]
    one = {f"request{n:02}" if n < 4 else f"request{n}": ids[n % 3 : n % 3 + 1] for n in range(12)}
    numpy.savez(tmp_path / "g.npz", **{n: one[n] for n in reversed(one)})
    assert importers.from_numpy(tmp_path / "g.npz", 8).ids.tolist() == 4 * ids.tolist()
    good = (tmp_path / "b.npz").read_bytes()
    for bad in (good[:40], good[:-30], good[:60] + 20 * b"\xff" + good[80:]):
        (tmp_path / "bad.npz").write_bytes(bad)
        with pytest.raises(hotset.InvalidArgument, match="bad.npz: "):
            importers.from_numpy(tmp_path / "bad.npz", 8)
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
    """A GGUF file of one layer in the format of llama-imatrix."""
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


def recorded(**beside):
    """A dump of SGLang's recorder: layer 0 is dense, and place 4 holds a copy of expert 0."""
    return {
        "records": [{"forward_pass_id": 8, **beside["later"]}, {"forward_pass_id": 7, **beside["first"]}],
        "last_physical_to_logical_map": numpy.array([[0, 1, 2, 3, 0]] * 2),
    }


def test_records_of_a_recorder_become_a_trace_or_counts(tmp_path, monkeypatch):
    held = {}
    monkeypatch.setattr(importers, "_load_torch", lambda path: held["file"])
    for name in ("r.pt", "g.pt"):
        (tmp_path / name).write_bytes(b"PK")
    none = [[-1, -1, -1]]
    held["file"] = recorded(
        later={"topk_ids_of_layer": numpy.array([none, [[4, 1, -1]]])},
        first={
            "topk_ids_of_layer": numpy.array([none * 2, [[3, 2, -1], [1, 4, -1]]]),
            "extend_seq_lens": [2],
        },
    )
    with pytest.warns(UserWarning, match="layers 0 without a routed row"):
        written = importers.convert(tmp_path / "r.pt", tmp_path / "r.trace")
    assert written == "3 tokens, 1 layers, 4 experts, top-2"
    trace = hotset.Trace.load(tmp_path / "r.trace")
    assert trace.ids.tolist() == [[[3, 2]], [[1, 0]], [[0, 1]]]
    assert (trace.steps.tolist(), trace.kinds.tolist()) == ([0, 0, 1], [1, 1, 0])
    count = {"global_physical_count": numpy.array([[0] * 5, [1, 2, 3, 4, 5]])}
    held["file"] = recorded(later=count, first=count)
    assert importers.convert(tmp_path / "g.pt", tmp_path / "g.json") == "counts of 2 layers x 4 experts"
    assert json.loads((tmp_path / "g.json").read_text()) == {"logical_count": [[0] * 4, [12, 4, 6, 8]]}
    held["file"] = {"logical_count": numpy.ones((3, 2, 4))}
    assert importers.from_torch("stat.pt").tolist() == [[3] * 4] * 2
    held["file"] = {"topk_ids": numpy.array([[[1, 0]]])}
    assert importers.from_torch("ids.pt", experts=4).experts == 4
    with pytest.warns(UserWarning, match="experts per layer: 2, the highest id"):
        assert importers.from_torch("ids.pt").experts == 2
    for bad, words in (
        ({"foo": 1}, "holds foo, accepted: one of"),
        ({"records": [{}]}, "accepted: records of"),
        ({"records": [], "last_physical_to_logical_map": numpy.array([[0]])}, "no records"),
        ({"router_logits": numpy.ones((2, 3, 4)) / 2}, "of router logits, from_router_logits"),
    ):
        held["file"] = bad
        with pytest.raises(hotset.InvalidArgument, match=words):
            importers.from_torch("bad.pt")


def test_ids_of_requests_or_layers_become_a_trace(monkeypatch):
    first, second = numpy.array([[[1, 0], [2, 3]]]), numpy.array([[[3, 1], [0, 2]]])
    both = numpy.concatenate([first, second])
    for held, layers in (
        ([first, second], None),
        ({"req10": second, "req2": first}, None),
        ({"model.layers.5.mlp": both[:, 1], "model.layers.2.mlp": both[:, 0]}, "2,5"),
        ({2: [tuple(row) for row in both[:, 0].tolist()], 5: both[:, 1]}, "2,5"),
    ):
        monkeypatch.setattr(importers, "_load_torch", lambda path, held=held: held)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = importers.from_torch("ids.pt", experts=4)
        assert trace.ids.tolist() == both.tolist()
        assert trace.metadata.get("layers") == layers


def test_parquet_becomes_json_lines(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    rows = [{"layer": 0, "experts": [1, 2]}, {"layer": 1, "experts": [3, 0]}]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "r.parquet")
    assert importers.convert(tmp_path / "r.parquet", tmp_path / "r.jsonl") == "2 rows as JSON lines"
    assert [json.loads(line) for line in (tmp_path / "r.jsonl").open()] == rows
    numbers = [{"layer": 0, "expert": 1, "count": 7}]
    parquet.write_table(arrow.Table.from_pylist(numbers), tmp_path / "c.parquet")
    assert importers.convert(tmp_path / "c.parquet", tmp_path / "c.csv") == "1 rows as a CSV"
    assert (tmp_path / "c.csv").read_text() == '"layer","expert","count"\n0,1,7\n'
    (tmp_path / "half.parquet").write_bytes((tmp_path / "r.parquet").read_bytes()[:40])
    with pytest.raises(hotset.InvalidArgument, match="accepted: a whole Parquet file"):
        importers.convert(tmp_path / "half.parquet", tmp_path / "half")
    assert not (tmp_path / "half").exists()
