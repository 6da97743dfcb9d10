# SPDX-License-Identifier: Apache-2.0
"""Small random models of transformers: recorded routing equals their routers', paging changes no
bit."""

import copy
import gc
import pickle
import threading

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
        whole, copies = layer._copy, iter(range(100))

        def broken(fills):
            if next(copies) == 2:
                paged._layers[1].slots["down_proj"].bank.whole[fills["slot"][0]] = 0
                raise OSError("the disk is gone")
            whole(fills)

        layer._copy = broken
        with pytest.raises(OSError, match="the disk is gone"):
            outputs(model)
        layer._copy = whole
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


def experts_of(model):
    return [m for m in model.modules() if hasattr(m, "_is_expert_parallel")]


def apart(a, b):
    return max((x - y).abs().max().item() for x, y in zip(a, b))


def cpu_offload(model, _):
    return pytest.importorskip("accelerate").cpu_offload(model, execution_device=torch.device("cpu"))


def disk_offload(model, folder):
    return pytest.importorskip("accelerate").disk_offload(model, str(folder), execution_device=torch.device("cpu"))


def hooks_without_offload(model, _):
    hooks = pytest.importorskip("accelerate.hooks")
    for module in experts_of(model):
        hooks.add_hook_to_module(module, hooks.AlignDevicesHook(execution_device=torch.device("cpu")))
    return model


SOME = ["Qwen3Moe", "DeepseekV3", "GptOss"]


@pytest.mark.parametrize("family", SOME)
@pytest.mark.parametrize("offload", [cpu_offload, disk_offload, hooks_without_offload])
def test_modules_that_accelerate_moves_are_refused_and_still_run(tmp_path, offload, family):
    model = build(family)
    plain = outputs(model)
    model = offload(model, tmp_path)
    before = [m.forward for m in experts_of(model)]
    with pytest.raises(hotset.InvalidArgument, match="experts: accelerate moves its weights, accepted: a model loaded without"):
        ht.page(model, slots=6)
    assert [m.forward for m in experts_of(model)] == before
    assert same(outputs(model), plain)


def test_a_paged_model_that_accelerate_offloads_then_answers_right_and_is_detached_after_it():
    hooks = pytest.importorskip("accelerate.hooks")
    model = build("Qwen3Moe")
    plain = outputs(model)
    paged = ht.page(model, slots=6)
    offloaded = cpu_offload(model, None)
    assert same(outputs(offloaded), plain)
    with pytest.raises(hotset.Error, match="its forward was replaced after page\\(\\), accepted: detach\\(\\) after that is undone"):
        paged.detach()
    hooks.remove_hook_from_module(model, recurse=True)
    paged.detach()
    assert not [m for m in experts_of(model) if "forward" in m.__dict__]
    assert same(outputs(model), plain)


def test_what_cannot_be_paged_is_refused_and_nothing_changes():
    class Quantized(torch.nn.Parameter):
        pass

    def replaced_forward(module):
        module.forward = module.forward
        return "its forward was replaced, accepted: the forward of its class"

    def on_meta(module):
        module.down_proj = torch.nn.Parameter(module.down_proj.to("meta"))
        return "down_proj is on the meta device, accepted: weights in memory"

    def quantized(module):
        module.down_proj = Quantized(module.down_proj.data)
        return "down_proj is a Quantized, accepted: parameters of plain torch"

    for change in (replaced_forward, on_meta, quantized):
        model = build("Mixtral")
        words = change(experts_of(model)[-1])
        before = [dict(m.__dict__) for m in experts_of(model)]
        with pytest.raises(hotset.InvalidArgument, match=words):
            ht.page(model, slots=8)
        assert all(m.__dict__.keys() == b.keys() for m, b in zip(experts_of(model), before))
        assert ht.paging_of(model) is None


@pytest.mark.parametrize("family", SOME)
def test_a_checkpoint_of_a_paged_model_is_whole(tmp_path, family):
    model = build(family)
    plain = outputs(model)
    names = list(model.state_dict())
    with ht.page(model, slots=6):
        outputs(model)
        assert list(model.state_dict()) == names
        model.save_pretrained(tmp_path)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, experts_implementation="eager").eval()
    assert same(outputs(loaded), plain)


def load_state_dict(model, other):
    model.load_state_dict(other.state_dict())


def load_by_assignment(model, other):
    model.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)


def set_data(model, other):
    for mine, given in zip(model.parameters(), other.parameters()):
        mine.data = given.data.clone()


@pytest.mark.parametrize("load", [load_state_dict, load_by_assignment, set_data])
def test_weights_that_are_loaded_while_paged_are_the_ones_that_answer(load):
    model, other = build("GptOss"), build("GptOss")
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1.5)
    expected = outputs(other)
    with ht.page(model, slots=24):
        assert not same(outputs(model), expected)
        load(model, other)
        assert same(outputs(model), expected)
    assert same(outputs(model), expected)


def test_weights_of_another_type_while_paged_are_an_error_and_the_model_stays_whole():
    model, converted = build("Mixtral"), build("Mixtral").to(torch.bfloat16)
    with ht.page(model, slots=6):
        outputs(model)
        model.to(torch.bfloat16)
        with pytest.raises(hotset.Error, match="now torch.bfloat16 .*, paged as torch.float32 .*, accepted: detach\\(\\) before"):
            outputs(model)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert same(outputs(model), outputs(converted))


def test_a_paged_model_moves_to_a_device_without_its_experts():
    model = build("Mixtral")
    plain = outputs(model)
    weights = {n: p.clone() for n, p in model.named_parameters() if "experts" in n}
    with ht.page(model, slots=6):
        model.to("cpu")
        assert same(outputs(model), plain)
        model.to("meta", torch.float64)
        assert {p.device.type for n, p in model.named_parameters() if n not in weights} == {"meta"}
        moved = {n: p for n, p in model.named_parameters() if n in weights}
        assert all(torch.equal(moved[n], w.double()) for n, w in weights.items())
        assert len(moved) == len(weights) > 0
    with ht.page(build("Mixtral"), slots=6) as paged:
        layer = paged._layers[0]
        states = torch.zeros(1, 32, device="meta")
        with pytest.raises(hotset.Error, match="hidden states on meta, slots on cpu, accepted: page\\(..., device='meta'\\)"):
            layer.module(states, torch.tensor([[0, 1]]), torch.ones(1, 2))


def test_a_weight_that_is_computed_while_paged_is_an_error():
    model = build("Mixtral")
    plain = outputs(model)

    class Half(torch.nn.Module):
        def forward(self, weight):
            return weight / 2

    with ht.page(model, slots=6):
        module = experts_of(model)[1]
        torch.nn.utils.parametrize.register_parametrization(module, "down_proj", Half())
        with pytest.raises(hotset.Error, match="experts.down_proj: now no parameter of the module"):
            outputs(model)
        torch.nn.utils.parametrize.remove_parametrizations(module, "down_proj", leave_parametrized=False)
        assert same(outputs(model), plain)


@pytest.mark.parametrize(
    "begin",
    [
        lambda m: ht.page(m, slots=6),
        lambda m: ht.page(m, slots=6, miss="substitute"),
        ht.record,
        lambda m: ht.record(m, scores=True),
    ],
)
@pytest.mark.parametrize("part", [lambda m: m, lambda m: m.model.layers[1]])
def test_a_paged_or_recorded_model_is_not_copied(begin, part):
    model = build("Mixtral")
    with begin(model):
        for copied in (copy.deepcopy, pickle.dumps):
            with pytest.raises(hotset.Error, match="cannot be copied or pickled, accepted: detach\\(\\) first"):
                copied(part(model))
    assert same(outputs(copy.deepcopy(model)), outputs(model))


def test_a_compiled_model_is_paged_and_recorded(tmp_path):
    model = build("Mixtral")
    with ht.record(model, scores=True) as recording:
        plain = outputs(model, steps=1)
        recording.write(str(tmp_path / "plain"))
    torch.compiler.reset()
    with ht.page(model, slots=6), ht.record(model, scores=True) as recording:
        found = outputs(torch.compile(model, backend="aot_eager"), steps=1)
        recording.write(str(tmp_path / "compiled"))
    torch.compiler.reset()
    assert apart(found, plain) < 1e-5
    compiled, eager = (hotset.Trace.load(tmp_path / name) for name in ("compiled", "plain"))
    assert (compiled.ids == eager.ids).all()
    assert numpy.allclose(compiled.arrays["logits"], eager.arrays["logits"], atol=1e-4)


def test_a_base_model_is_recorded_too_and_a_call_of_both_once(tmp_path):
    model = build("Qwen3Moe")
    with ht.record(model) as recording, torch.no_grad():
        model(input_ids=PROMPTS, attention_mask=MASK)
        assert recording.tokens == int(MASK.sum())
        model.model(input_ids=PROMPTS, attention_mask=MASK)
        assert recording.tokens == 2 * int(MASK.sum())
        recording.write(str(tmp_path / "a.trace"))
        with pytest.raises(hotset.CannotWrite, match="no tokens"):
            recording.write(str(tmp_path / "b.trace"))
    trace = hotset.Trace.load(tmp_path / "a.trace")
    assert (trace.ids[: int(MASK.sum())] == trace.ids[int(MASK.sum()) :]).all()


def test_a_recording_goes_on_after_a_call_that_was_interrupted():
    model = build("Mixtral")

    def interrupt(*_):
        raise KeyboardInterrupt

    with ht.record(model) as recording:
        hook = model.model.layers[1].register_forward_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(input_ids=PROMPTS)
        hook.remove()
        model(input_ids=PROMPTS[:1])
        assert recording.tokens == PROMPTS.numel() + 6


def test_experts_that_see_other_tokens_than_the_model_was_called_with_are_not_recorded():
    model = build("Mixtral")
    with ht.record(model):
        hook = model.model.layers[1].mlp.register_forward_pre_hook(lambda _, args: (args[0][:2],))
        with pytest.raises(hotset.Error, match="experts of 12 tokens in a call of 18"):
            model(input_ids=PROMPTS)
        hook.remove()


def in_threads(count, call):
    results = []

    def one():
        try:
            results.append(call())
        except Exception as bad:
            results.append(bad)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_that_call_a_paged_model_together_get_its_answers():
    model = build("Qwen3Moe")
    plain = outputs(model)
    with ht.page(model, slots=3):
        for _ in range(3):
            assert [same(found, plain) for found in in_threads(3, lambda: outputs(model))] == 3 * [True]


def test_a_stream_waits_for_the_one_whose_kernels_may_read_the_slots():
    waits = []

    class Stream:
        def wait_stream(self, other):
            waits.append((self, other))

    first, second = Stream(), Stream()
    with ht.page(build("Mixtral"), slots=4) as paged:
        for stream in (first, first, second, second, first):
            paged.follow(stream)
    assert waits == [(second, first), (first, second)]


def test_another_thread_is_refused_while_a_model_is_recorded():
    model = build("Mixtral")
    refused = []

    def call_again(*_):
        hook.remove()
        refused.extend(in_threads(1, lambda: outputs(model)))

    with ht.record(model) as recording:
        hook = model.model.layers[0].register_forward_hook(call_again)
        model(input_ids=PROMPTS)
        assert recording.tokens == PROMPTS.numel()
    assert isinstance(refused[0], hotset.Error) and "another thread runs the model, accepted: one thread" in str(refused[0])


def test_a_model_has_one_paging_that_can_be_found_again():
    model = build("Mixtral")
    plain = outputs(model)
    ht.page(model, slots=6)
    gc.collect()
    assert same(outputs(model), plain), "its handle was dropped"
    for again in (model, model.model, model.model.layers[1]):
        with pytest.raises(hotset.InvalidArgument, match="the model is paged, accepted: one paging at a time"):
            ht.page(again, slots=6)
    paged = ht.paging_of(model.model)
    stats = paged.stats()
    paged.detach()
    paged.detach()
    assert ht.paging_of(model) is None and paged.stats() == stats
    with ht.page(model, slots=8) as other:
        paged.detach()
        assert ht.paging_of(model) is other
        assert same(outputs(model), plain)
    assert [m.__dict__.keys() & {"forward", "_apply"} for m in experts_of(model)] == 3 * [set()]


def test_a_model_that_is_paged_in_inference_mode_runs_outside_it():
    model = build("Mixtral")
    plain = outputs(model)
    with torch.inference_mode():
        paged = ht.page(model, slots=6)
        assert same(outputs(model), plain)
    assert same(outputs(model), plain)
    paged.detach()


@pytest.mark.parametrize("trained", ["", "embed_tokens", "mlp.gate", "mlp.experts"])
def test_a_backward_pass_through_paged_experts_is_an_error(trained):
    model = build("Mixtral")
    for name, weight in model.named_parameters():
        weight.requires_grad_(trained in name or "lm_head" in name)
    with ht.page(model, slots=6):
        with pytest.raises(hotset.Error, match="no gradient passes the experts of a paged model, accepted: detach\\(\\)"):
            model(input_ids=PROMPTS, labels=PROMPTS).loss.backward()
    model(input_ids=PROMPTS, labels=PROMPTS).loss.backward()


def test_another_implementation_of_experts_waits_until_the_model_is_detached():
    model = build("Qwen3Moe")
    plain = outputs(model)
    with ht.page(model, slots=6):
        model.set_experts_implementation("grouped_mm")
        assert same(outputs(model), plain)
    assert set(model.get_experts_implementation().values()) == {"grouped_mm"}
