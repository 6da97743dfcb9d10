# SPDX-License-Identifier: Apache-2.0
"""Models of transformers, small and random: recorded as their own routers say, paged without a bit's difference."""

import numpy
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip(f"transformers is {transformers.__version__}, 5 or later is needed", allow_module_level=True)

import hotset  # noqa: E402
import hotset.transformers as ht  # noqa: E402

COMMON = dict(
    vocab_size=96,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    num_experts_per_tok=2,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,
)
FAMILIES = {
    "Mixtral": dict(intermediate_size=48, num_local_experts=8),
    "Qwen2Moe": dict(intermediate_size=48, moe_intermediate_size=24, shared_expert_intermediate_size=24, num_experts=8, decoder_sparse_step=1),
    "Qwen3Moe": dict(intermediate_size=48, moe_intermediate_size=24, num_experts=8, head_dim=8, decoder_sparse_step=1),
    "Olmoe": dict(intermediate_size=24, num_experts=8),
    "DeepseekV2": dict(
        intermediate_size=48, moe_intermediate_size=24, n_routed_experts=8, n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=16,
        q_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, num_key_value_heads=4, n_group=1, topk_group=1, topk_method="greedy",
    ),
    "DeepseekV3": dict(
        intermediate_size=48, moe_intermediate_size=24, n_routed_experts=8, n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=16,
        q_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, num_key_value_heads=4, n_group=2, topk_group=1,
    ),
    "GptOss": dict(intermediate_size=24, num_local_experts=8, head_dim=8, sliding_window=16),
}


def build(family):
    torch.manual_seed(7)
    config = getattr(transformers, family + "Config")(**{**COMMON, **FAMILIES[family]})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.3)
    model.set_experts_implementation("eager")
    return model


@pytest.fixture(params=list(FAMILIES))
def model(request):
    return build(request.param)


PROMPTS = torch.tensor([[0, 0, 5, 9, 2, 44], [7, 8, 9, 10, 11, 12], [0, 3, 90, 3, 90, 4]])
MASK = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])


def outputs(model, steps=12):
    """Logits of a prompt, and of tokens decoded with its cache, greedily."""
    torch.manual_seed(0)
    out = []
    with torch.no_grad():
        got = model(input_ids=PROMPTS, attention_mask=MASK, use_cache=True)
        mask = MASK
        for _ in range(steps):
            out.append(got.logits.clone())
            mask = torch.cat([mask, torch.ones(3, 1, dtype=mask.dtype)], 1)
            token = got.logits[:, -1].argmax(-1, keepdim=True)
            got = model(input_ids=token, attention_mask=mask, past_key_values=got.past_key_values, use_cache=True)
    return out


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("slots, scope", [(24, "shared"), (12, "shared"), (6, "shared"), (2, "shared"), (8, "per_layer"), (4, "per_layer"), (2, "per_layer")])
def test_a_paged_model_answers_bit_for_bit(model, slots, scope):
    plain = outputs(model)
    with ht.page(model, slots=slots, scope=scope, eviction="lru") as paged:
        assert same(outputs(model), plain)
        stats = paged.stats()
        assert stats["fills"] > 0
        # 24 slots hold every expert of three layers; a dense first layer leaves fewer.
        if (slots, scope) in ((24, "shared"), (8, "per_layer")):
            assert stats["misses"] == stats["compulsory_misses"]
        else:
            assert stats["evictions"] > 0
    assert same(outputs(model), plain), "detached"
    assert not [n for n, _ in model.named_parameters() if "gate_up_proj" in n] == []


def test_generate_gives_the_same_tokens(model):
    inputs = dict(input_ids=PROMPTS, attention_mask=MASK, max_new_tokens=20, do_sample=False)
    plain = model.generate(**inputs)
    with ht.page(model, slots=8) as paged:
        assert torch.equal(model.generate(**inputs), plain)
        assert paged.stats()["evictions"] > 0


def test_a_budget_is_kept():
    model = build("Mixtral")
    one = 4 * (2 * 48 * 32 + 32 * 48)
    with ht.page(model, budget=5 * one + 1) as paged:
        assert paged.stats()["slots"] == 5
        assert paged.stats()["bytes"] == 5 * one


def test_what_is_recorded_is_what_the_router_chose(model, tmp_path):
    chosen = []
    hooks = [
        m.register_forward_pre_hook(lambda _, args, named: chosen.append([*args, *named.values()][1].clone()), with_kwargs=True)
        for m in model.modules()
        if hasattr(m, "_is_expert_parallel")
    ]
    recording = ht.record(model)
    with recording:
        outputs(model, steps=4)
    for hook in hooks:
        hook.remove()
    assert recording.tokens == int(MASK.sum()) + 3 * 4
    recording.write(str(tmp_path / "a.trace"))
    trace = hotset.Trace.load(tmp_path / "a.trace")
    layers = len(hooks)
    assert (trace.layers, trace.experts, trace.top_k) == (layers, 8, 2)
    kept = MASK.reshape(-1).nonzero().reshape(-1)
    row = 0
    for step in range(5):
        of = kept if step == 0 else torch.arange(3)
        for layer in range(layers):
            wanted = chosen[step * layers + layer][of].sort(-1).values
            got = numpy.sort(trace.ids[row : row + len(of), layer].astype(numpy.int64), -1)
            assert (torch.from_numpy(got) == wanted).all()
        expected = (of // 6).tolist() if step == 0 else [0, 1, 2]
        assert trace.sequences[row : row + len(of)].tolist() == expected
        assert set(trace.kinds[row : row + len(of)].tolist()) == {1 if step == 0 else 0}
        row += len(of)
    weights = trace.weights
    assert (numpy.diff(weights, axis=-1) <= 0).all(), "rank order"
    before = len(hooks)
    outputs(model, steps=1)
    assert recording.tokens == 0 and before == layers, "detached"


def test_a_recording_of_a_paged_model_is_the_same(tmp_path):
    model = build("Qwen3Moe")

    def trace(name):
        with ht.record(model) as recording:
            outputs(model, steps=3)
            recording.write(str(tmp_path / name))
        return hotset.Trace.load(tmp_path / name)

    plain = trace("plain")
    with ht.page(model, slots=5):
        paged = trace("paged")
    assert (plain.ids == paged.ids).all()


def test_a_copy_that_fails_gives_an_error_and_no_wrong_answer():
    model = build("Mixtral")
    plain = outputs(model)
    with ht.page(model, slots=6, eviction="lru") as paged:
        layer = paged._layers[1]
        kept = layer.layer.weights["down_proj"]

        class Broken:
            left = 3

            def __getitem__(self, expert):
                Broken.left -= 1
                if Broken.left == 0:
                    raise OSError("the disk is gone")
                return kept[expert]

        layer.layer.weights["down_proj"] = Broken()
        with pytest.raises(OSError, match="the disk is gone"):
            outputs(model)
        layer.layer.weights["down_proj"] = kept
        assert same(outputs(model), plain), "nothing of the copy that failed is used"


def test_mistakes_are_told():
    model = build("Mixtral")
    with pytest.raises(hotset.InvalidArgument, match="Linear has no experts that hotset knows"):
        ht.page(torch.nn.Linear(2, 2), slots=4)
    with pytest.raises(hotset.InvalidArgument, match="model: str"):
        ht.record("mixtral")
    with pytest.raises(hotset.InvalidConfig, match="slots = 0 and budget_bytes = 0"):
        ht.page(model)
    with pytest.raises(hotset.InvalidConfig):
        ht.page(model, slots=1)
    with pytest.raises(hotset.InvalidConfig, match="unknown eviction policy"):
        ht.page(model, slots=8, eviction="lur")
    with ht.page(model, slots=8):
        with pytest.raises(hotset.InvalidArgument, match="the model is paged"):
            ht.page(model, slots=8)
    with ht.record(model, capacity=4):
        with pytest.raises(hotset.ExceedsMemory):
            outputs(model)
    outputs(model, steps=1)
