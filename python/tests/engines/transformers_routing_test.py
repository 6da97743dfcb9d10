# SPDX-License-Identifier: Apache-2.0
"""Routing policies on models of transformers: hotset chooses the experts, the model computes them."""

import numpy
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip(f"transformers is {transformers.__version__}, 5 or later is needed", allow_module_level=True)

import hotset  # noqa: E402
import hotset.transformers as ht  # noqa: E402
import tiny_families as tiny  # noqa: E402
from transformers_miss_test import build, close, experts_of, watch  # noqa: E402

BUDGET = dict(routing="budget_top_k", pre_eviction="active_evict", eviction="importance")
# The function of the logits, whether a token's gate weights are divided by their sum, and their factor.
RULES = {
    "Mixtral": ("softmax", True, 1),
    "Olmoe": ("softmax", False, 1),
    "GptOss": ("softmax", True, 1),
    "Ernie4_5_Moe": ("softmax", True, 1),  # a bias of the choice
    "DeepseekV3": ("sigmoid", True, 2.5),  # a bias; the best 2 of 4 groups
    "Dots1": ("sigmoid", False, 1),
}


def generate(model, tokens=tiny.PROMPTS, count=10):
    with torch.no_grad():
        return model.generate(tokens, max_new_tokens=count, do_sample=False)


class Naive:
    """A layer's router in plain torch. It listens to the inputs of the model's router."""

    def __init__(self, family, model, layer):
        block = ht._layers.path_to(layer.layer, model)[-1]
        gate = getattr(block, "gate", getattr(block, "router", None))
        self.function, self.normalises, self.factor = RULES[family]
        held = {n.rpartition(".")[2]: p.detach() for n, p in [*block.named_parameters(), *block.named_buffers()]}
        self.weight, self.bias = gate.weight.detach(), held.get("e_score_correction_bias")
        self.offset = gate.bias.detach() if family == "GptOss" else 0
        self.groups = family == "DeepseekV3"
        self.hook = gate.register_forward_pre_hook(self.keep)
        self.ranges = []

    def keep(self, _, given):
        self.inputs = given[0].detach().reshape(-1, 32)

    def scores(self):
        logits = self.inputs @ self.weight.T + self.offset
        return logits, logits.softmax(-1) if self.function == "softmax" else logits.sigmoid()

    def ranks(self):
        logits, scores = self.scores()
        if self.bias is None:
            return logits
        ranks = scores + self.bias.reshape(-1)
        if self.groups:
            sums = ranks.reshape(-1, 4, 2).sum(-1)
            refused = sums < sums.sort(-1).values[:, 2:3]
            ranks = ranks.masked_fill(refused.repeat_interleave(2, -1), -torch.inf)
        return ranks

    def choose(self, resident, strength):
        """Ids and gate weights by cache-aware routing."""
        ranks = self.ranks()
        finite = ranks.masked_fill(ranks == -torch.inf, torch.inf).amin(-1)
        self.ranges.append(float((ranks.amax(-1) - finite).mean()))
        boost = strength * numpy.mean(self.ranges)
        ids = (ranks + boost * torch.from_numpy(resident)).topk(2, -1).indices
        return ids, self.weigh(ids)

    def weigh(self, ids):
        weights = self.scores()[1].gather(-1, ids)
        return self.factor * (weights / weights.sum(-1, keepdim=True) if self.normalises else weights)


def check(layer, paged, expected):
    """Compares each call's ids and weights, as the module gets them, with expected(residents, ids)."""
    compute = layer._compute

    def checked(states, ids, weights, given):
        resident = numpy.array(paged.pager.row(layer.number)) >= 0
        wanted, of = expected(resident)
        assert torch.equal(given, torch.where(ids < 0, given, ids)) and (given >= 0).all()
        dense = torch.zeros(len(ids), 8)
        want = dense.scatter_add(-1, wanted.clamp_min(0), of)
        assert close(dense.scatter_add(-1, given, weights), want)
        assert torch.equal(ids.sort(-1).values, wanted.sort(-1).values)
        return compute(states, ids, weights, given)

    layer._compute = checked


@pytest.mark.parametrize("family", RULES)
def test_residents_are_preferred_and_weighed_as_the_model_weighs(family):
    model = build(family)
    with ht.page(model, slots=9, eviction="lru", routing="cache_aware:lambda=0.4") as paged:
        routers, changed = [], []
        for layer in paged._layers:
            naive = Naive(family, model, layer)
            routers.append(naive)

            def expected(resident, naive=naive):
                ids, weights = naive.choose(resident, 0.4)
                own = naive.ranks().topk(2, -1).indices
                changed.append(int((ids.unsqueeze(-1) != own.unsqueeze(-2)).all(-1).sum()))
                return ids, weights

            check(layer, paged, expected)
        generate(model)
        assert paged.stats()["rerouted"] == sum(changed) > 0
        assert len(changed) == 10 * len(routers)
    for naive in routers:
        naive.hook.remove()


@pytest.mark.parametrize("family", ["Mixtral", "DeepseekV3", "Olmoe"])
def test_a_token_keeps_the_prefix_whose_absent_experts_fit(family):
    model = build(family)
    with ht.page(model, slots=4, scope="per_layer", **BUDGET) as paged:
        routers, free, dropped = [], {}, []
        watch_free(paged, free)
        for layer in paged._layers:
            naive = Naive(family, model, layer)
            routers.append(naive)

            def expected(resident, naive=naive, number=layer.number):
                ranks = naive.ranks().topk(2, -1).indices
                whole = naive.weigh(ranks)
                ranks = ranks.gather(-1, whole.argsort(-1, descending=True))
                ids = torch.tensor(prefixes(ranks.tolist(), free[number], resident))
                weights = naive.weigh(ids.clamp_min(0)).masked_fill(ids < 0, 0)
                dropped.append(int((ids < 0).sum()))
                return ids, weights * (whole.sum(-1) / weights.sum(-1))[:, None]

            check(layer, paged, expected)
        generate(model)
        assert paged.stats()["rerouted"] == sum(dropped) > 0
    for naive in routers:
        naive.hook.remove()


def watch_free(paged, free):
    """Notes the free slots of each layer when it is routed; the first layer's are not freed."""
    route = paged.pager.route

    def noted(layer, *given, **named):
        free[layer] = 99 if layer == 0 else 4 - int((numpy.array(paged.pager.row(layer)) >= 0).sum())
        return route(layer, *given, **named)

    paged.pager.route = noted


def prefixes(ranks, free, resident):
    out, taken = [], set()
    for token in ranks:
        kept = []
        for expert in token:
            if not resident[expert] and expert not in taken:
                if free == 0 and kept:
                    break
                free -= free > 0
                taken.add(expert)
            kept.append(expert)
        out.append(kept + [-1] * (2 - len(kept)))
    return out


def test_slots_are_freed_by_the_next_layers_router():
    model = build("Mixtral")
    with ht.page(model, slots=9, **BUDGET) as paged:
        routers = [Naive("Mixtral", model, layer) for layer in paged._layers]
        expect, seen = paged.pager.expect, []

        def noted(layer, step, probabilities):
            naive = (routers[layer].inputs @ routers[layer + 1].weight.T).softmax(-1)
            seen.append(layer)
            assert close(torch.from_numpy(probabilities[:, 0]), naive)
            expect(layer, step, probabilities)

        paged.pager.expect = noted
        tiny.outputs(model)
    assert seen == [0, 1] * 4
    for naive in routers:
        naive.hook.remove()


@pytest.mark.parametrize("longest", [8192, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["Mixtral", "Olmoe", "DeepseekV3"])
def test_what_never_binds_changes_nothing(family, dtype, longest, monkeypatch):
    monkeypatch.setattr(ht._paging, "_LONGEST_PROMPT", longest)
    model = build(family)
    if dtype == torch.bfloat16:
        tiny.to_bfloat16(model)
    plain = tiny.outputs(model)
    for ask in (dict(slots=9, routing="cache_aware:lambda=0"), dict(slots=24, **BUDGET), dict(slots=9, routing="router_order")):
        with ht.page(model, **ask) as paged:
            assert tiny.same(tiny.outputs(model), plain)
            assert paged.exact == (ask["routing"] == "router_order")
            assert paged.stats().get("rerouted", 0) == 0
    with ht.page(model, slots=9, routing="cache_aware:lambda=1") as paged:
        assert all(torch.isfinite(one).all() for one in tiny.outputs(model))
        assert paged.stats()["rerouted"] > 0
    assert tiny.same(tiny.outputs(model), plain), "detached"
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("family", ["Mixtral", "Olmoe", "DeepseekV3"])
def test_a_strong_preference_misses_nothing_that_it_can_avoid(family):
    """Residents of the groups that DeepSeek-V3's router takes may be too few."""
    model = build(family)
    misses = {}
    for routing in ("router_order", "cache_aware:lambda=100"):
        with ht.page(model, slots=3, scope="per_layer", eviction="lru", routing=routing) as paged:
            generate(model, tiny.PROMPTS[1:2], 1)
            before = paged.stats()["misses"]
            generate(model, tiny.PROMPTS[1:2, :1], 12)
            misses[routing] = paged.stats()["misses"] - before
    assert misses["cache_aware:lambda=100"] < misses["router_order"] / 2
    assert family == "DeepseekV3" or misses["cache_aware:lambda=100"] == 0


@pytest.mark.parametrize(
    "ask, changed",
    [
        (dict(slots=7, routing="cache_aware:lambda=1", miss="substitute:tolerance=1"), ["substituted", "rerouted"]),
        (dict(slots=7, routing="cache_aware:lambda=1", miss="drop:threshold=0.45"), ["dropped", "rerouted"]),
        (dict(slots=[3, 3], routing="cache_aware:lambda=1", miss="fetch_priority", precision="32:4"), ["lowered", "rerouted"]),
        (dict(slots=7, miss="drop:keep=1", **BUDGET), ["dropped", "rerouted"]),
        (dict(slots=7, miss="substitute:tolerance=1", **BUDGET), ["substituted", "rerouted"]),
    ],
)
def test_miss_policies_decide_about_the_experts_that_routing_chose(ask, changed):
    """Each visit's decisions, applied to its tokens one by one."""
    model = build("DeepseekV3")
    seen = []
    with ht.page(model, **ask) as paged:
        for layer in paged._layers:
            watch(layer, paged, seen)
        tiny.outputs(model)
        stats = paged.stats()
        assert repr(paged).endswith(f"NOT exact: miss={ask['miss']}, routing={ask['routing']}>")
    assert len(seen) == (tiny.PROMPTS.numel() + tiny.NEXT.numel()) * len(experts_of(model))
    for got, naive in seen:
        assert close(got, naive)
    assert [name for name in ("lowered", "dropped", "substituted", "rerouted") if stats[name]] == changed


@pytest.mark.parametrize(
    "family, ask, words",
    [
        ("Mixtral", dict(routing="nearest"), "unknown routing policy 'nearest'"),
        ("Mixtral", dict(routing="cache_aware:lambda=-1"), "cache_aware lambda = -1.000000, accepted: 0 or more"),
        ("Mixtral", dict(routing="budget_top_k"), "without slots that were freed ahead, accepted: with pre_eviction active_evict"),
        ("Mixtral", dict(pre_eviction="active_evict"), "pre_eviction: active_evict, accepted: with routing=budget_top_k"),
        ("Mixtral", dict(routing="cache_aware", pre_eviction="now"), "pre-eviction 'now'; accepted: none, active_evict"),
        ("Phimoe", dict(routing="cache_aware"), r"router \(PhimoeTopKRouter\) has gate weights that are no function of its logits"),
        ("Gemma4Text", dict(routing="cache_aware"), r"\(Gemma4TextRouter\) has scale, per_expert_scale, accepted for scores"),
        ("Llama4Text", dict(routing="cache_aware"), "routing=cache_aware: .* is not given the choice of experts, accepted: miss=fetch"),
    ],
)
def test_what_cannot_be_is_refused(family, ask, words):
    model = build(family)
    with pytest.raises((hotset.InvalidArgument, hotset.InvalidConfig), match=words):
        ht.page(model, slots=8, **ask)
    assert ht.paging_of(model) is None and not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda router: setattr(router, "groups", 2), "refuses groups by an unknown rule, accepted: .* without routing"),
        (lambda router: setattr(router, "_sums", torch.tensor([[0.0, 0.0], [1.0, 1.0]])), "weights whose sum follows an unknown rule, accepted"),
    ],
)
def test_a_router_of_another_rule_is_refused_at_its_first_call(spoil, words):
    model = build("Mixtral")
    with ht.page(model, slots=8, routing="cache_aware") as paged:
        spoil(paged._routers[0])
        with pytest.raises(hotset.Error, match=words):
            tiny.outputs(model)
