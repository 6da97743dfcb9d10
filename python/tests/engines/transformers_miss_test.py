# SPDX-License-Identifier: Apache-2.0
"""Miss policies on models of transformers: the model computes what the pager decides."""

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


def experts_of(model):
    return [layer.module for layer in ht._layers.layers_of(model)]


def expert(module, number, states, bits=None):
    """One expert of Mixtral, Qwen3-MoE or DeepSeek-V3, in plain torch."""
    up, down = (quantised(w[number], bits) for w in (module.gate_up_proj, module.down_proj))
    gate, up = (states @ up.T).chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up) @ down.T


def quantised(weight, bits):
    if bits is None:
        return weight
    flat = torch.nn.functional.pad(weight.reshape(-1), (0, -weight.numel() % 32)).reshape(-1, 32)
    limit = 2 ** (bits - 1) - 1
    scale = flat.abs().max(-1, keepdim=True).values / limit
    whole = torch.round(flat / torch.where(scale > 0, scale, 1)).clamp(-limit, limit)
    return (whole * scale).reshape(-1)[: weight.numel()].reshape(weight.shape)


def layer_output(module, token, places, bits=lambda _: None):
    """The sum of (expert, weight) over the places of one token."""
    return sum(weight * expert(module, number, token, bits(number)) for number, weight in places)


class Lru:
    """A shared cache: experts by (layer, number), the least recently used first."""

    def __init__(self, slots):
        self.slots, self.held = slots, []

    def use(self, layer, numbers):
        for number in numbers:
            key = layer, number
            if key in self.held:
                self.held.remove(key)
            elif len(self.held) == self.slots:
                self.held.remove(next(k for k in self.held if k not in [(layer, n) for n in numbers]))
            self.held.append(key)


def calls(model, tokens=12, top_k=2):
    """Calls of each layer in turn with one token: layer, states, ids in rank order, weights."""
    random = torch.Generator().manual_seed(3)
    for _ in range(tokens):
        for layer in range(len(experts_of(model))):
            states = torch.randn(1, 32, generator=random)
            ids = torch.randperm(8, generator=random)[None, :top_k]
            yield layer, states, ids, torch.rand(1, top_k, generator=random).sort(-1, descending=True).values


def close(a, b):
    return torch.allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keep", [1, 2])
def test_a_dropped_expert_is_left_out_and_the_others_take_its_weight(keep):
    model, cache, dropped = build("Mixtral"), Lru(9), 0
    modules = experts_of(model)
    with ht.page(model, slots=9, eviction="lru", miss=f"drop:keep={keep}") as paged, torch.no_grad():
        for layer, states, ids, weights in calls(model, top_k=2):
            places = [
                (n, w) for rank, (n, w) in enumerate(zip(ids[0].tolist(), weights[0])) if (layer, n) in cache.held or rank < keep
            ]
            dropped += 2 - len(places)
            cache.use(layer, [n for n, _ in places])
            factor = weights.sum() / sum(w for _, w in places)
            naive = layer_output(modules[layer], states, [(n, w * factor) for n, w in places])
            assert close(modules[layer](states, ids, weights), naive)
        assert paged.stats()["dropped"] == dropped
    assert (dropped > 0) == (keep == 1)


def test_ranks_are_those_of_the_weights_where_a_family_does_not_sort():
    model = build("Mixtral")
    module = experts_of(model)[0]
    states, ids = torch.randn(1, 32), torch.tensor([[5, 3]])
    with ht.page(model, slots=4, miss="drop:keep=1") as paged, torch.no_grad():
        naive = expert(module, 3, states)
        assert close(module(states, ids, torch.tensor([[0.25, 0.75]])), naive)
        assert paged.stats()["dropped"] == 1


def test_a_substitute_is_the_resident_expert_with_the_nearest_score():
    model, cache, replaced = build("Mixtral"), Lru(12), 0
    gates = [layer.mlp.gate for layer in model.model.layers]
    modules = experts_of(model)
    random = torch.Generator().manual_seed(5)
    with ht.page(model, slots=12, eviction="lru", miss="substitute:tolerance=0.2") as paged, torch.no_grad():
        for step in range(36):
            layer = step % 3
            states = torch.randn(1, 32, generator=random) * 0.1
            logits, weights, ids = gates[layer](states)
            scores = logits.softmax(-1)[0]
            chosen = ids[0].tolist()
            for place, number in enumerate(ids[0].tolist()):
                free = [n for n in range(8) if (layer, n) in cache.held and n not in chosen]
                near = [n for n in free if abs(float(scores[n] - scores[number])) <= 0.2]
                if (layer, number) not in cache.held and near:
                    chosen[place] = min(near, key=lambda n: abs(float(scores[n] - scores[number])))
                    replaced += 1
            cache.use(layer, chosen)
            naive = layer_output(modules[layer], states, list(zip(chosen, weights[0])))
            assert close(modules[layer](states, ids, weights), naive)
        assert paged.stats()["substituted"] == replaced > 0


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_every_expert_in_its_lowest_precision(bits):
    model = build("Qwen3Moe")
    plain = tiny.outputs(model)
    with ht.page(model, slots=[2, 24], miss="fetch_lowest", precision=f"32:{bits}", eviction="lru") as paged:
        found = tiny.outputs(model)
        stats = paged.stats()
    assert stats["lowered"] > 0 and stats["dropped"] == stats["substituted"] == 0
    one = 4 * (2 * 24 * 32 + 32 * 24)
    lower = (2 * 24 * 32 + 32 * 24) * bits // 8 + (2 * 24 + 24) * 32 // 32 * 4
    assert stats["bytes"] == 2 * one + 24 * lower
    with torch.no_grad():
        for module in experts_of(model):
            for weight in (module.gate_up_proj, module.down_proj):
                weight.copy_(torch.stack([quantised(one, bits) for one in weight]))
    assert all(close(a, b) for a, b in zip(found, tiny.outputs(model)))
    assert not any(close(a, b) for a, b in zip(found, plain))


@pytest.mark.parametrize(
    "miss, slots, changed",
    [
        ("fetch_priority:percentile=50", [3, 3], ["lowered"]),
        ("fetch_priority:percentile=50", [7, 7], ["lowered"]),
        ("drop_cascade:keep=1:percentile=50", [3, 3], ["lowered", "dropped"]),
        ("drop:threshold=0.45", 3, ["dropped"]),
        ("drop:threshold=0.45", 7, ["dropped"]),
        ("substitute:tolerance=1", 7, ["substituted"]),
    ],
)
@pytest.mark.parametrize("longest", [8192, 5])
def test_prompts_are_computed_as_decided(miss, slots, changed, longest, monkeypatch):
    """Each visit's decisions, applied to its tokens one by one."""
    monkeypatch.setattr(ht._paging, "_LONGEST_PROMPT", longest)
    model = build("DeepseekV3")
    precision = "32:4" if isinstance(slots, list) else None
    seen = []
    with ht.page(model, miss=miss, slots=slots, precision=precision, eviction="lru") as paged:
        for layer in paged._layers:
            watch(layer, paged, seen)
        found = tiny.outputs(model)
        stats = paged.stats()
    assert all(torch.isfinite(one).all() for one in found)
    assert seen and len(seen) == sum(len(one) for one in tiny_steps()) * len(experts_of(model))
    for got, naive in seen:
        assert close(got, naive)
    assert [name for name in ("lowered", "dropped", "substituted") if stats[name]] == changed


def tiny_steps():
    return [tiny.PROMPTS.reshape(-1), *(tokens.reshape(-1) for tokens in tiny.NEXT)]


def watch(layer, paged, seen):
    """Adds the output of each token of the layer, and what the visit's decisions make of it."""
    compute = layer._compute_visit

    def checked(call, parts, visit):
        compute(call, parts, visit)
        states, _, ids, weights = call
        routed = visit.routed.reshape(ids.shape).tolist()
        slot = dict(zip(visit.experts.tolist(), visit.slots.tolist()))

        def bits(number):
            return 4 if paged.precisions[slot[number]] else None

        for token in visit.tokens.tolist():
            places = [(n, w) for n, w in zip(routed[token], weights[token]) if n >= 0]
            factor = weights[token].sum() / sum(w for _, w in places)
            naive = layer_output(layer.module, states[token], [(n, w * factor) for n, w in places], bits)
            seen.append((parts[token].detach(), naive.detach()))

    layer._compute_visit = checked


def test_a_miss_policy_is_marked_as_not_exact():
    model = build("Mixtral")
    with ht.page(model, slots=8) as paged:
        assert paged.exact and paged.stats()["exact"] and "dropped" not in paged.stats()
        assert repr(paged) == "<hotset.transformers.Paging of 8 slots, exact>"
    with ht.page(model, slots=8, miss="drop") as paged:
        assert not paged.exact and not paged.stats()["exact"]
        assert repr(paged) == "<hotset.transformers.Paging of 8 slots, NOT exact: miss=drop>"


def test_the_model_is_itself_again_after_a_miss_policy():
    model = build("Mixtral")
    plain = tiny.outputs(model)
    for ask in (dict(miss="drop:keep=1", slots=4), dict(miss="substitute:tolerance=1", slots=4)):
        with ht.page(model, **ask):
            assert not tiny.same(tiny.outputs(model), plain)
        assert tiny.same(tiny.outputs(model), plain)
        assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_budget_is_divided_evenly_between_precisions():
    model = build("Mixtral")
    one = 4 * (2 * 48 * 32 + 32 * 48)
    lower = one // 4 + (2 * 48 * 32 + 32 * 48) // 32 * 4
    with ht.page(model, budget=8 * one, miss="fetch_lowest", precision="32:8") as paged:
        assert numpy.bincount(paged.precisions).tolist() == [4, 4 * one // lower]
        assert paged.stats()["bytes"] <= 8 * one
    with ht.page(model, budget=24 * one, miss="fetch_lowest", precision="32:8", scope="per_layer") as paged:
        assert numpy.bincount(paged.precisions).tolist() == [3 * 4, 3 * 8]


def test_experts_that_the_admission_refuses_are_computed_from_the_model():
    model = build("Mixtral")
    plain = tiny.outputs(model)
    for admission in ("budgeted:fills_per_visit=1", "after_n_uses", "least_valuable"):
        with ht.page(model, slots=12, admission=admission) as paged:
            assert tiny.same(tiny.outputs(model), plain)
            assert paged.stats()["bypasses"] > 0
    with ht.page(model, slots=12, admission="after_n_uses", miss="drop:threshold=0.01"):
        assert all(close(a, b) for a, b in zip(tiny.outputs(model), plain))


@pytest.mark.parametrize(
    "ask, words",
    [
        (dict(miss="compute_on_host"), "compute_on_host, accepted: policies whose experts run where"),
        (dict(miss="drop", precision="32:8"), "miss policy drop knows one precision, and there are 2; accepted: one, or"),
        (dict(miss="fetch_lowest", precision="16:8"), 'precision: .16:8., accepted: .* such as "32:8" or "32:8:4"'),
        (dict(miss="fetch_lowest", precision="32:8:16"), "precision: .32:8:16., accepted"),
        (dict(miss="fetch_lowest", precision="32"), "precision: .32., accepted"),
        (dict(miss="fetch_lowest", precision="32:7"), "precision: .32:7., accepted"),
        (dict(miss="fetch_lowest", precision="32:8"), "slots: 8, accepted: 2 numbers, one for each precision, or a budget"),
    ],
)
def test_what_cannot_be_is_refused(ask, words):
    model = build("Mixtral")
    with pytest.raises(hotset.InvalidArgument, match=words):
        ht.page(model, slots=8, **ask)
    with pytest.raises(hotset.InvalidConfig):
        ht.page(model, slots=8, miss="fetch_lowest")
    with pytest.raises(hotset.InvalidArgument, match=r"router \(Gemma4TextRouter\) has scale, per_expert_scale, accepted for scores"):
        ht.page(build("Gemma4Text"), slots=8, miss="substitute")
    with pytest.raises(hotset.InvalidArgument, match="feed_forward.experts is not given the choice of experts, accepted: miss=fetch, routing"):
        ht.page(build("Llama4Text"), slots=8, miss="drop")
    assert ht.paging_of(model) is None
