# SPDX-License-Identifier: Apache-2.0
"""Recorded scores: router logits, probabilities, predictions of the next layers, hidden states."""

import subprocess
import sys

import numpy
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip(f"transformers is {transformers.__version__}, 5 or later is needed", allow_module_level=True)

import hotset  # noqa: E402
import hotset.transformers as ht  # noqa: E402
import tiny_families as tiny  # noqa: E402

FAMILIES = tiny.families()


def build(name):
    return tiny.build(FAMILIES[name + "Config"])


def recorded(model, path, run=tiny.outputs, **ask):
    with ht.record(model, scores=True, **ask) as recording:
        run(model)
        recording.write(str(path))
    return hotset.Trace.load(path)


def routers(model):
    """The routers themselves, and the input and output of their calls."""
    found = [r for r in (getattr(block, "gate", getattr(block, "router", None)) for block in model.modules()) if r is not None]
    found = [r for r in found if isinstance(r, torch.nn.Module) and "Router" in type(r).__name__]
    calls = [[] for _ in found]
    for router, own in zip(found, calls):
        router.register_forward_hook(lambda _, given, out, own=own: own.append((given[0].detach().reshape(-1, 32), out)))
    return found, calls


@pytest.mark.parametrize("family", ["Mixtral", "Qwen2Moe", "DeepseekV3", "GptOss", "Ernie4_5_Moe", "SolarOpen"])
def test_logits_and_predictions_are_those_of_the_model_s_routers(family, tmp_path):
    model = build(family)
    found, calls = routers(model)
    layers = len(found)
    trace = recorded(model, tmp_path / "a.trace", next_layers=layers - 1, hidden=True)
    assert trace.arrays["predictions"].shape == (trace.tokens, layers, layers - 1, 8)
    kept = tiny.MASK.reshape(-1).nonzero().reshape(-1)
    row = 0
    for step in range(4):
        tokens = kept if step == 0 else torch.arange(3)
        rows = slice(row, row + len(tokens))
        for layer in range(layers):
            states, out = calls[layer][step]
            assert numpy.allclose(trace.arrays["logits"][rows, layer], out[0][tokens].detach(), atol=1e-4)
            assert numpy.allclose(trace.arrays["hidden"][rows, layer], states[tokens], atol=2e-2)
            for ahead in range(1, layers - layer):
                with torch.no_grad():
                    chosen = found[layer + ahead](states[tokens])[2]
                calls[layer + ahead].pop()
                shares = torch.from_numpy(trace.arrays["predictions"][rows, layer, ahead - 1].astype(numpy.float32))
                others = shares.scatter(-1, chosen, -1)
                assert (shares.gather(-1, chosen).amin(-1) >= others.amax(-1) - 1e-3).all()
                assert torch.allclose(shares.sum(-1), torch.ones(len(tokens)), atol=2e-3)
        past = trace.arrays["predictions"][rows, layers - 1]
        assert not past.any()
        row += len(tokens)
    assert row == trace.tokens


def test_the_experts_of_refused_groups_have_no_share(tmp_path):
    model = build("DeepseekV3")  # 4 groups of 2 experts, of which 2 stay
    trace = recorded(model, tmp_path / "a.trace")
    shares = trace.arrays["predictions"][:, 0, 0].reshape(-1, 4, 2)
    assert ((shares > 0).any(-1).sum(-1) <= 2).all()


def test_scores_belong_to_the_tokens_that_are_kept(tmp_path):
    """Two writes, a padded batch and a call that was interrupted."""
    model = build("Mixtral")

    def interrupt(*_):
        raise KeyboardInterrupt

    with ht.record(model, scores=True) as recording:
        tiny.outputs(model)
        recording.write(str(tmp_path / "a.trace"))
        hook = model.model.layers[1].register_forward_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(input_ids=tiny.PROMPTS)
        hook.remove()
        tiny.outputs(model)
        recording.write(str(tmp_path / "b.trace"))
    first, second = (hotset.Trace.load(tmp_path / name) for name in ("a.trace", "b.trace"))
    assert first.tokens == int(tiny.MASK.sum()) + 9 and second.tokens == first.tokens + tiny.PROMPTS.numel()
    for name in ("ids", "logits", "probabilities", "predictions"):
        assert (first.arrays[name] == second.arrays[name][-first.tokens :]).all()
    assert not second.arrays["logits"][: tiny.PROMPTS.numel(), 2].any(), "the layer was not reached"
    assert first.arrays["expert_bytes"].tolist() == 3 * [4 * (2 * 48 * 32 + 32 * 48)]
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_paged_model_has_the_same_scores(tmp_path):
    model = build("Mixtral")
    plain = recorded(model, tmp_path / "plain")
    with ht.page(model, slots=5):
        paged = recorded(model, tmp_path / "paged")
    for name in ("logits", "predictions"):
        assert (plain.arrays[name] == paged.arrays[name]).all()


def test_bfloat16_weights_tell_the_function_too(tmp_path):
    for name, words in (("Mixtral", "softmax of the logits"), ("DeepseekV3", "sigmoid of the logits, divided by the sum")):
        model = build(name)
        tiny.to_bfloat16(model)
        assert recorded(model, tmp_path / "a.trace").metadata["probabilities"] == words


@pytest.mark.parametrize(
    "ask, words",
    [
        (dict(next_layers=1), "next_layers and hidden belong to scores, accepted: scores=True"),
        (dict(hidden=True), "next_layers and hidden belong to scores"),
        (dict(scores=True, next_layers=3), r"next layers 3 of 3 layers, accepted: 0\.\.2"),
        (dict(scores=True, next_layers=-1), r"next layers -1 of 3 layers, accepted: 0\.\.2"),
    ],
)
def test_what_cannot_be_recorded_is_refused(ask, words):
    model = build("Mixtral")
    with pytest.raises(hotset.InvalidArgument, match=words):
        ht.record(model, **ask)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_scores_that_cannot_be_written_are_not_mixed_with_later_ones(tmp_path, monkeypatch):
    def full(*_):
        raise hotset.CannotWrite("the disk is full", 104)

    model = build("Mixtral")
    with ht.record(model, scores=True) as recording:
        tiny.outputs(model)
        with monkeypatch.context() as patch:
            patch.setattr(hotset.Trace, "save", full)
            with pytest.raises(hotset.CannotWrite, match="the disk is full"):
                recording.write(str(tmp_path / "a.trace"))
        assert "logits" not in hotset.Trace.load(tmp_path / "a.trace").arrays
        model(input_ids=tiny.PROMPTS)
        recording.write(str(tmp_path / "b.trace"))
    assert len(hotset.Trace.load(tmp_path / "b.trace").arrays["logits"]) == tiny.PROMPTS.numel()


def test_a_router_that_chooses_or_weighs_by_another_rule_has_no_scores():
    model = build("Mixtral")
    gate = model.model.layers[1].mlp.gate
    usual = gate.forward

    def least(states):
        logits = usual(states)[0]
        chosen = (-logits).topk(2, -1).indices
        return logits, logits.softmax(-1).gather(-1, chosen), chosen

    def flat(states):
        logits, weights, chosen = usual(states)
        return logits, torch.full_like(weights, 0.5), chosen

    for changed, words in ((least, "chooses by another rule than its scores plus its bias"), (flat, "has gate weights that are neither")):
        gate.forward = changed
        with ht.record(model, scores=True):
            with pytest.raises(hotset.Error, match=rf"layers.1.mlp.gate \(MixtralTopKRouter\) {words}.*, accepted: record\(model\) without"):
                model(input_ids=torch.arange(3, 60).reshape(3, 19))


def test_a_model_with_one_layer_of_experts_has_no_predictions(tmp_path):
    assert "predictions" not in recorded(build("Flint"), tmp_path / "a.trace").arrays


def test_experts_without_their_router_have_no_scores():
    model = build("Mixtral")
    with ht.record(model, scores=True) as recording:
        recording._scores._routers[1].remove()
        with pytest.raises(hotset.Error, match=r"layers.1.mlp.gate \(MixtralTopKRouter\): the experts were called without it"):
            model(input_ids=tiny.PROMPTS)


def test_all_systems_are_replayed_on_a_recorded_trace(tmp_path, monkeypatch):
    monkeypatch.setitem(tiny.SPECIFIC, "MixtralConfig", dict(num_hidden_layers=5))
    model = build("Mixtral")

    def run(model):
        torch.manual_seed(1)
        model.generate(input_ids=torch.randint(3, 96, (4, 8)), max_new_tokens=12, do_sample=True)

    path = tmp_path / "run.trace"
    trace = recorded(model, path, run, next_layers=3, hidden=True)
    assert trace.tokens == 4 * (8 + 11)
    gate = tmp_path / "gate"
    train = [sys.executable, "-m", "hotset", "train-gate", path, "--out", gate, "--depth", "3", "--epochs", "1"]
    subprocess.run(train, check=True, capture_output=True)
    found = hotset.simulate(path, compare="systems", gate_weights=str(gate), slots="50%")
    assert {one["preset"] for one in found.runs} >= {
        "on-demand", "deepspeed", "brainstorm", "mixtral-offloading", "promoe", "moe-infinity", "fmoe", "active-evict",
    }  # fmt: skip
