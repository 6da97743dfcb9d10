# SPDX-License-Identifier: Apache-2.0
"""Every Mixture-of-Experts family of the installed transformers: paged bit for bit, or refused in
words."""

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
# Words of the refusal, by configuration.
REFUSED = {
    "DbrxConfig": r"blocks.0.ffn.experts \(DbrxExperts\) has no weights of its own",
    "DogeConfig": "DogeForCausalLM has no experts that hotset knows, accepted",
    "JetMoeConfig": r"\(JetMoeParallelExperts\) is called with \(inputs, expert_size\)",
    "NllbMoeConfig": r"\(NllbMoeExperts\) has no weights of its own",
    "SwitchTransformersConfig": r"\(SwitchTransformersExperts\) has no weights of its own",
}
# Families of transformers 5.24.0 that are paged: a family that is lost fails here.
PAGED = """
    AXK1 AXK2 Afmoe AriaText BailingHybrid Beam Cohere2Moe DeepseekOcr2Text DeepseekV2 DeepseekV3 DeepseekV32
    DeepseekV4 DiffusionGemmaText Dots1 Dots3NoteText Ernie4_5_Moe Ernie4_5_VLMoeText ExaoneMoe FlexOlmo Flint
    Gemma4Text Glm4Moe Glm4MoeLite Glm4vMoeText Glm5NextText GlmMoeDsa GptOss GraniteMoe GraniteMoeHybrid
    GraniteMoeSWA GraniteMoeShared HYV3 HYV4 HYV4VLText HunYuanMoEV1 Inkling2LoopText Inkling2Text InklingText
    Jamba KimiLinear Kolibri1 Laguna LaraMini Lfm2Moe Llama4Text LongcatFlash Mellum MiMoV2Flash MiniMax MiniMaxM2
    MiniMaxM3VLText Mistral4 MistralLarge4Text Mixtral MuseSparkText NemotronH Olmoe OpenAIPrivacyFilter Phimoe
    Qwen2Moe Qwen3Moe Qwen3Next Qwen3OmniMoeTalkerText Qwen3OmniMoeText Qwen3VLMoeText Qwen3_5MoeText
    Qwen4ExpText SolarOpen Step3p7Text UnlimitedOcrText Zaya
""".split()
RELEASE = "5.24.0"
# Families whose routers are no plain product, or whose choice or weights follow another rule.
WITHOUT_SCORES = {
    "DeepseekV4Config": r"\(DeepseekV4HashRouter\) has tid2eid",
    "DiffusionGemmaTextConfig": r"\(DiffusionGemmaTextRouter\) has scale, per_expert_scale",
    "Gemma4TextConfig": r"\(Gemma4TextRouter\) has scale, per_expert_scale",
    "InklingTextConfig": r"\(InklingTopkRouter\) has global_scale",
    "LongcatFlashConfig": r"\(LongcatFlashTopkRouter\) has 12 outputs for 8 experts",
    "MuseSparkTextConfig": "has gate weights that are neither the softmax nor the sigmoid of its logits",
    "Kolibri1Config": r"\(Kolibri1TopKRouter\) adds its bias to the logits before it chooses",
    "ZayaConfig": r"\(ZayaRouter\) has router_mlp.norm.weight",
}


@pytest.fixture(scope="module", params=sorted(FAMILIES.keys() - REFUSED.keys()))
def family(request):
    torch.set_num_threads(1)
    model = tiny.build(FAMILIES[request.param])
    return request.param, model, tiny.outputs(model)


def slots_of(model):
    """The fewest slots, some that evict, and all: each expert of each layer."""
    layers = len(ht._layers.layers_of(model))
    few = ht._layers.top_k_of(model)
    return few, few + 3, tiny.EXPERTS * layers


def test_no_family_is_lost(capsys):
    paged = sorted(name.removesuffix("Config") for name in FAMILIES.keys() - REFUSED.keys())
    refused = sorted(name.removesuffix("Config") for name in FAMILIES.keys() & REFUSED.keys())
    with capsys.disabled():
        print(f"\ntransformers {transformers.__version__}, families with experts")
        print(f"paged ({len(paged)}): {', '.join(paged)}")
        print(f"refused ({len(refused)}): {', '.join(refused)}")
    if version_of(transformers.__version__) < version_of(RELEASE):
        pytest.skip(f"transformers is {transformers.__version__}, the lists are of {RELEASE}")
    assert not set(PAGED) - set(paged)
    assert not {name.removesuffix("Config") for name in REFUSED} - set(refused)


def version_of(text):
    return [int(part) for part in text.split(".")[:2]]


@pytest.mark.parametrize("config", sorted(REFUSED))
def test_other_families_are_refused_in_words(config):
    if config not in FAMILIES:
        pytest.skip(f"transformers {transformers.__version__} has no {config}")
    model = tiny.build(FAMILIES[config])
    for begin in (lambda: ht.page(model, slots=6), lambda: ht.record(model)):
        with pytest.raises(hotset.InvalidArgument, match=REFUSED[config]):
            begin()


def test_a_prompt_and_decoded_tokens_are_the_same(family):
    _, model, plain = family
    assert all(torch.isfinite(one).all() for one in plain)
    for slots in slots_of(model):
        with ht.page(model, slots=slots, eviction="lru") as paged:
            assert tiny.same(tiny.outputs(model), plain), f"{slots} slots"
            stats = paged.stats()
        assert stats["fills"] > 0
        if slots == slots_of(model)[-1]:
            assert stats["misses"] == stats["compulsory_misses"]
    assert tiny.same(tiny.outputs(model), plain), "detached"


def test_a_miss_policy_that_drops_nothing_changes_nothing_but_the_order_of_sums(family):
    name, model, plain = family
    if name == "Llama4TextConfig":
        pytest.skip("refused: its experts are not given the choice")
    with ht.page(model, slots=slots_of(model)[1], miss=f"drop:keep={tiny.TOP_K}") as paged:
        found = tiny.outputs(model)
        assert not paged.exact and paged.stats()["dropped"] == 0 and paged.stats()["evictions"] > 0
    assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max())) for a, b in zip(found, plain))


def test_a_routing_policy_that_prefers_nothing_changes_nothing(family):
    name, model, plain = family
    slots = slots_of(model)[1]
    words = {**WITHOUT_SCORES, "Llama4TextConfig": "is not given the choice", "PhimoeConfig": "no function of its logits"}.get(name)
    if words:
        with pytest.raises(hotset.Error, match=words):
            with ht.page(model, slots=slots, routing="cache_aware:lambda=0"):
                tiny.outputs(model)
        return
    with ht.page(model, slots=slots, routing="cache_aware:lambda=0") as paged:
        assert tiny.same(tiny.outputs(model), plain)
        assert not paged.exact and paged.stats()["rerouted"] == 0
    with ht.page(model, slots=slots_of(model)[0], routing="budget_top_k", pre_eviction="active_evict") as paged:
        assert all(torch.isfinite(one).all() for one in tiny.outputs(model))
        # Slots are freed for the next module of experts: none, or in Ernie-VL that of images, which does not run.
        binds = len(ht._layers.layers_of(model)) > 1 and name != "Ernie4_5_VLMoeTextConfig"
        assert (paged.stats()["rerouted"] > 0) == binds


def test_generated_tokens_are_the_same(family):
    _, model, _ = family
    if not hasattr(model, "generate"):
        pytest.skip("a base model: it generates nothing")
    ask = dict(input_ids=tiny.PROMPTS, attention_mask=tiny.MASK, max_new_tokens=6, do_sample=False)
    plain = model.generate(**ask)
    with ht.page(model, slots=slots_of(model)[1]):
        assert torch.equal(model.generate(**ask), plain)


def chosen(given):
    """Ids of a call of experts. Llama 4's get zeros from tokens that are not theirs."""
    if len(given) > 1:
        return given[1].clone()
    routed = (given[0].reshape(tiny.EXPERTS, -1, 32) != 0).any(-1)
    return routed.T.int().topk(tiny.TOP_K, -1).indices


def test_recorded_ids_are_those_of_the_router(family, tmp_path):
    _, model, _ = family
    steps = []  # of (layer, ids) of each call of experts
    begin = model.register_forward_pre_hook(lambda *_: steps.append([]))
    hooks = [
        layer.module.register_forward_pre_hook(
            lambda _, given, named, number=number: steps[-1].append((number, chosen([*given, *named.values()]))), with_kwargs=True
        )
        for number, layer in enumerate(ht._layers.layers_of(model))
    ]
    with ht.record(model) as recording:
        tiny.outputs(model)
        recording.write(str(tmp_path / "a.trace"))
    for hook in (begin, *hooks):
        hook.remove()
    trace = hotset.Trace.load(tmp_path / "a.trace")
    kept = tiny.MASK.reshape(-1).nonzero().reshape(-1)
    row = 0
    for step, calls in enumerate(steps):
        tokens = kept if step == 0 else torch.arange(3)
        for layer, ids in calls:
            wanted = ids[tokens].to(torch.int64)
            wanted = wanted.masked_fill(wanted >= trace.experts, 65535).sort(-1).values
            got = numpy.sort(trace.ids[row : row + len(tokens), layer].astype(numpy.int64), -1)
            assert calls and (got == wanted.numpy()).all()
        row += len(tokens)
    assert len(steps) == 4 and row == trace.tokens


def test_recorded_scores_rank_as_the_router_chooses(family, tmp_path):
    name, model, _ = family
    if name in WITHOUT_SCORES:
        with pytest.raises(hotset.Error, match=WITHOUT_SCORES[name]):
            with ht.record(model, scores=True, next_layers=0):
                tiny.outputs(model)
        return
    with ht.record(model, scores=True, next_layers=0) as recording:
        tiny.outputs(model)
        recording.write(str(tmp_path / "a.trace"))
    trace = hotset.Trace.load(tmp_path / "a.trace")
    assert "predictions" not in trace.arrays
    for layer, router in enumerate(recording._scores._routers):
        logits = torch.from_numpy(numpy.array(trace.arrays["logits"][:, layer]))
        routed = trace.ids[:, layer, 0] != 65535
        best = router.likely(logits, router.function).topk(trace.top_k, -1).indices.sort(-1).values.numpy()
        assert (best == numpy.sort(trace.ids[:, layer].astype(numpy.int64), -1))[routed].all()
        shares = trace.arrays["probabilities"][:, layer][routed].astype(numpy.float64)
        assert numpy.allclose(shares.sum(-1), 1, atol=2e-3)
        assert numpy.allclose(shares, router.shares(logits)[routed], atol=1e-3)


def test_bfloat16_is_the_same(family):
    """The last test of a model: it converts the weights."""
    _, model, _ = family
    tiny.to_bfloat16(model)
    plain = tiny.outputs(model)
    with ht.page(model, slots=slots_of(model)[1]):
        assert tiny.same(tiny.outputs(model), plain)
