# SPDX-License-Identifier: Apache-2.0
"""Policies of one's own decide as the library's do, and as independent forms of their rules."""

import collections
import gc
import importlib.util
import math
import pathlib
import weakref

import made_traces
import numpy
import pytest

import hotset

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


def example(module, name):
    spec = importlib.util.spec_from_file_location(module, EXAMPLES / f"{module}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return getattr(loaded, name)


Sieve, S3Fifo, LeCaR = (example(*names) for names in (("sieve", "Sieve"), ("s3_fifo", "S3Fifo"), ("lecar", "LeCaR")))


class Lru(hotset.EvictionPolicy):
    def reset(self, layout):
        self.last = numpy.zeros(layout.slots, numpy.int64)
        self.clock = 0

    def on_visit(self, event):
        slots = event.slots
        self.last[slots] = numpy.arange(self.clock, self.clock + len(slots))
        self.clock += len(slots)

    def on_prefetch(self, slot, pool, layer, expert, step):
        self.last[slot] = self.clock
        self.clock += 1

    def select_victims(self, choice):
        slots = choice.candidates
        return slots[self.last[slots].argsort()[: choice.count]]


class Lfu(hotset.EvictionPolicy):
    """By key, the history kept; ties: the least recently used."""

    def reset(self, layout):
        self.keys = layout.keys
        self.uses = collections.Counter()
        self.last = {}
        self.clock = 0

    def on_visit(self, event):
        for expert in [*event.experts.tolist(), *event.bypassed["expert"].tolist()]:
            key = (event.layer, expert)
            self.uses[key] += event.counted is None or not event.counted[expert]
            self.clock += 1
            self.last[key] = self.clock

    def select_victims(self, choice):
        def rank(slot):
            key = tuple(self.keys[slot].tolist())
            return self.uses[key], self.last[key]

        return sorted(choice.candidates.tolist(), key=rank)[: choice.count]


@pytest.fixture(scope="module")
def trace():
    return made_traces.wild(5, layers=3, experts=12, top_k=3, tokens=400, absent=0.1, sequences=3, most=3, kinds=True)


def counts(run):
    return {
        key: run[key]
        for key in ("misses", "hits", "accesses", "compulsory_misses", "collision_misses", "fills", "evictions", "bytes_filled", "miss_free_steps", "by_kind", "bytes_demand", "reuse_hits")
    }


@pytest.mark.parametrize("own, name", [(Lru, "lru"), (Lfu, "lfu")])
@pytest.mark.parametrize(
    "options",
    [
        {"scope": ["shared", "per-layer"], "slots": ["25%", 9]},
        {"replay": "per-access", "slots": 10},
        {"max_tokens": 2, "slots": 10},
        {"admission": "after_n_uses", "slots": 10},
        {"split": "leave-rest", "scope": "per-layer", "slots": 4},
        {"scope": "per-layer", "slots": 3},
        {"budget": "40kB", "expert_bytes": "2kB", "first": 200},
    ],
)
def test_counts_equal_those_of_the_native_policy(trace, own, name, options):
    result = hotset.simulate(trace, eviction=[own(), name, "belady"], **options)
    runs = result.runs
    assert len(runs) % 3 == 0
    for mine, native, bound in zip(runs[::3], runs[1::3], runs[2::3]):
        assert (mine["eviction"], native["eviction"], bound["eviction"]) == (own.__name__, name, "belady")
        assert (mine["scope"], mine["slots"], mine["replay"]) == (native["scope"], native["slots"], native["replay"])
        assert counts(mine) == counts(native)
        hits = ("layer", "accesses", "hits", "collision_misses")
        assert [{k: row[k] for k in hits} for row in mine["per_layer"]] == [{k: row[k] for k in hits} for row in native["per_layer"]]
        assert mine.get("windows") == native.get("windows")
        assert mine.keys() == native.keys()
        assert native["key"] and mine["key"] is None


def test_a_policy_alone_and_a_file(trace, tmp_path):
    trace.save(tmp_path / "t.trace")
    (alone,) = hotset.simulate(tmp_path / "t.trace", eviction=Lru(), slots=10).runs
    (native,) = hotset.simulate(trace, eviction="lru", slots=10).runs
    assert counts(alone) == counts(native)


def test_gate_weights_come_to_a_policy_that_needs_them():
    trace = made_traces.one_layer(8, [[0, 1], [2, 3], [0, 4], [5, 1]])
    weights = numpy.arange(8, dtype=numpy.float32).reshape(4, 1, 2)
    weighed = hotset.Trace.from_arrays(trace.ids.astype(numpy.int64), 8, weights=weights)

    class Weigh(Lru):
        needs_weights = True

        def on_visit(self, event):
            seen.append(dict(zip(event.experts.tolist(), event.weights.tolist())))
            super().on_visit(event)

    seen = []
    hotset.simulate(weighed, eviction=Weigh(), slots=4)
    assert seen == [{0: 0.0, 1: 1.0}, {2: 2.0, 3: 3.0}, {0: 4.0, 4: 5.0}, {5: 6.0, 1: 7.0}]
    with pytest.raises(hotset.InvalidVisit, match="without weights"):
        hotset.simulate(trace, eviction=Weigh(), slots=4)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"prefetch": "popular"}, "prefetch: not with an eviction policy of your own, accepted: slots, budget"),
        ({"replay": "deferred", "budget": "8kB"}, "replay: 'deferred' with an eviction policy of your own, accepted: event-atomic, per-access"),
        ({"admission": ["always", "budgeted"]}, "admission: .* accepted: one name"),
    ],
)
def test_what_a_pager_cannot_replay_is_refused(trace, options, words):
    with pytest.raises(hotset.Error, match=words):
        hotset.simulate(trace, eviction=Lru(), **options)


def plan(pager, *experts):
    return pager.plan(0, numpy.array(experts, numpy.int32))


def full(policy, **options):
    """A pager whose layer is full with experts 0 and 1."""
    pager = hotset.Pager(1, 8, 2, slots=2, eviction=policy, **options)
    plan(pager, 0, 1).commit()
    return pager


class Broken(Lru):
    bad = None

    def select_victims(self, choice):
        if self.bad is not None:
            return self.bad(choice)
        return super().select_victims(choice)


@pytest.mark.parametrize(
    "bad, error, words",
    [
        (lambda c: [99], hotset.PolicyFailed, "policy Broken: select_victims named slot 99, accepted: 0..1"),
        (lambda c: numpy.array([2**32]), hotset.PolicyFailed, "named slot 2147483647, accepted: 0..1"),
        (lambda c: [], hotset.PolicyFailed, "named 0 victims, accepted: 1"),
        (lambda c: [0, 1], hotset.PolicyFailed, "named 2 victims, accepted: 1"),
        (lambda c: [s for s in (0, 1) if s not in c.candidates], hotset.PolicyFailed, r"\(expert 0 of layer 0\) for layer 0, which the visit uses"),
        (lambda c: [0.5], TypeError, "Broken.select_victims: float64, accepted: whole numbers"),
        (lambda c: None, TypeError, ""),
        (lambda c: 1 // 0, ZeroDivisionError, ""),
    ],
)
def test_a_wrong_answer_changes_nothing(bad, error, words):
    policy = Broken()
    pager = full(policy)
    before = pager.decision_hash()
    policy.bad = bad
    with pytest.raises(error, match=words) as raised:
        plan(pager, 0, 5)
    if error is not hotset.PolicyFailed:
        assert isinstance(raised.value.__cause__, hotset.PolicyFailed)
        assert "policy Broken: select_victims failed with -1" in str(raised.value.__cause__)
    assert pager.decision_hash() == before and not pager.is_open
    policy.bad = None
    plan(pager, 0, 5).commit()
    assert [pager.locate(0, e) >= 0 for e in (0, 1, 5)] == [True, False, True]


def test_an_exception_keeps_its_own_cause():
    policy = Broken()
    pager = full(policy)

    def bad(choice):
        try:
            {}["key"]
        except KeyError as cause:
            raise ValueError("mine") from cause

    policy.bad = bad
    with pytest.raises(ValueError, match="mine") as raised:
        plan(pager, 0, 5)
    assert isinstance(raised.value.__cause__, KeyError)


def test_an_exception_of_on_visit_is_raised_by_the_commit_which_has_taken_place():
    class Once(Lru):
        raises = False

        def on_visit(self, event):
            super().on_visit(event)
            if self.raises:
                raise KeyboardInterrupt

    policy = Once()
    pager = hotset.Pager(1, 8, 2, slots=2, eviction=policy)
    policy.raises = True
    visit = plan(pager, 0, 1)
    with pytest.raises(KeyboardInterrupt):
        visit.commit()
    assert not pager.is_open and pager.locate(0, 1) >= 0
    policy.raises = False
    plan(pager, 0, 5).commit()


def test_an_exception_of_reset_makes_no_pager():
    class Never(Lru):
        def reset(self, layout):
            raise ValueError("never")

    with pytest.raises(ValueError, match="never") as raised:
        hotset.Pager(1, 8, 2, slots=2, eviction=Never())
    assert isinstance(raised.value.__cause__, hotset.PolicyFailed)


def test_hooks_receive_what_happens_outside_of_visits():
    heard = []

    class Listening(Lru):
        def on_prefetch(self, slot, pool, layer, expert, step):
            heard.append(("prefetch", pool, layer, expert, step))
            super().on_prefetch(slot, pool, layer, expert, step)

        def on_evict(self, slot, pool, layer, expert):
            heard.append(("evict", pool, layer, expert))

    pager = full(Listening())
    requests = numpy.zeros(1, hotset.request)
    requests["expert"], requests["for_step"], requests["probability"] = 6, 9, 1
    pager = hotset.Pager(1, 8, 1, slots=2, eviction=Listening())
    for expert in (0, 1):
        plan(pager, expert).commit()
    pager.prefetch(0, 2, requests, 1)[0].commit()
    assert heard == [("evict", 0, 0, 0), ("prefetch", 0, 0, 6, 9)]
    pager.invalidate(0, 1)
    assert heard[-1] == ("evict", 0, 0, 1)


def test_arrays_are_views_and_keys_follow():
    seen = []

    class Seeing(Lru):
        def reset(self, layout):
            super().reset(layout)
            self.layout = layout

        def on_visit(self, event):
            super().on_visit(event)
            seen.append((event.layer, event.step, event.experts.tolist(), event.fills["victim_expert"].tolist(), self.layout.keys.tolist()))
            assert not event.slots.flags.writeable and not event.slots.flags.owndata

    policy = Seeing()
    pager = full(policy)
    plan(pager, 1, 5).commit()
    assert (policy.layout.layers, policy.layout.experts, policy.layout.top_k, policy.layout.slots, policy.layout.pool_slots.tolist()) == (1, 8, 2, 2, [2])
    assert [of[2] for of in seen] == [[0, 1], [1, 5]]
    assert [of[3] for of in seen] == [[-1, -1], [0]]
    assert sorted(seen[-1][4]) == [[0, 1], [0, 5]]


def test_an_object_serves_one_pager():
    policy = Lru()
    pager = hotset.Pager(1, 8, 2, slots=2, eviction=policy)
    with pytest.raises(hotset.InvalidConfig, match="the Lru decides for another pager, accepted: an object for each pager"):
        hotset.Pager(1, 8, 2, slots=2, eviction=policy)
    freed = weakref.ref(pager)
    del pager
    assert freed() is None, "no cycle keeps a pager"
    hotset.Pager(1, 8, 2, slots=2, eviction=policy)


def test_wrong_types_are_refused_in_words():
    with pytest.raises(TypeError, match="eviction: the class Lru, accepted: an object, Lru()"):
        hotset.Pager(1, 8, 2, slots=2, eviction=Lru)
    with pytest.raises(TypeError, match="eviction: int, accepted: str"):
        hotset.Pager(1, 8, 2, slots=2, eviction=7)

    class Nothing(hotset.EvictionPolicy):
        pass

    pager = hotset.Pager(1, 8, 2, slots=2, eviction=Nothing())
    with pytest.raises(NotImplementedError, match="Nothing has no on_visit"):
        plan(pager, 0, 1).commit()


# ---- the examples against naive forms of the published rules, one access at a time ----


def naive_sieve(accesses, slots):
    queue, marks, hand, misses = [], {}, None, 0  # the newest first
    for key in accesses:
        if key in marks:
            marks[key] = True
            continue
        misses += 1
        if len(queue) == slots:
            at = len(queue) - 1 if hand is None else hand
            while marks[queue[at]]:
                marks[queue[at]] = False
                at = at - 1 if at > 0 else len(queue) - 1
            del marks[queue.pop(at)]
            hand = at - 1 if at > 0 else None
        queue.insert(0, key)
        marks[key] = False
        hand = None if hand is None else hand + 1
    return misses


def naive_s3_fifo(accesses, slots):
    small_slots = slots // 10
    small, main, ghost = collections.deque(), collections.deque(), collections.OrderedDict()
    uses, misses, evicted = {}, 0, False

    def evict():
        nonlocal evicted
        evicted = True
        if len(main) > slots - small_slots or not small:
            while main:
                key = main.popleft()
                if uses[key] == 0:
                    del uses[key]
                    return
                uses[key] = min(uses[key], 3) - 1
                main.append(key)
        while small:
            key = small.popleft()
            if uses[key] < 2:
                del uses[key]
                ghost[key] = None
                if len(ghost) > int(0.9 * slots):
                    ghost.popitem(last=False)
                return
            main.append(key)
            uses[key] = 0

    for key in accesses:
        if key in uses:
            uses[key] += 1
            continue
        misses += 1
        known = key in ghost
        ghost.pop(key, None)
        while len(small) + len(main) >= slots:
            evict()
        (main if known or (not evicted and len(small) >= small_slots) else small).append(key)
        uses[key] = 0
    return misses


def naive_lecar(accesses, slots, draws):
    last, uses, ghost, weight, misses, evictions = {}, {}, [], 0.5, 0, 0
    for now, key in enumerate(accesses, 1):
        if key not in last:
            misses += 1
            draw = draws(1 + evictions)
            by_lru = draw < weight
            victim = None
            if len(last) == slots:
                victim = min(last, key=last.get) if by_lru else min(last, key=lambda k: (uses[k], last[k]))
            for entry in [e for e in ghost if e[0] == key]:
                ghost.remove(entry)
                factor = math.exp(-0.45 * 0.005 ** ((now - entry[2]) / slots))
                lru, lfu = weight * (factor if entry[1] else 1), (1 - weight) * (1 if entry[1] else factor)
                weight = lru / (lru + lfu)
            if victim is not None:
                del last[victim], uses[victim]
                ghost.append((victim, by_lru, now))
                del ghost[:-slots]
                evictions += 1
        last[key] = now
        uses[key] = uses.get(key, 0) + 1
    return misses


@pytest.fixture(scope="module")
def accesses(tmp_path_factory):
    """A trace, and its accesses in the order of per-access visits."""
    path = tmp_path_factory.mktemp("trace") / "t.trace"
    hotset.run("synth", str(path), "--layers", "4", "--experts", "32", "--top-k", "2", "--tokens", "1500", "--zipf", "0.8", "--seed", "3")
    trace = hotset.Trace.load(path)
    keys = trace.ids.astype(int) + 32 * numpy.arange(4)[:, None]
    return trace, keys.reshape(-1).tolist()


@pytest.mark.parametrize("slots", [21, 40, 77])
@pytest.mark.parametrize("policy, naive", [(Sieve, naive_sieve), (S3Fifo, naive_s3_fifo)])
def test_examples_count_as_the_naive_forms(accesses, policy, naive, slots):
    trace, keys = accesses
    (run,) = hotset.simulate(trace, eviction=policy(), slots=slots, replay="per-access").runs
    assert run["misses"] == naive(keys, slots)


@pytest.mark.parametrize("slots", [21, 40, 77])
def test_lecar_counts_as_its_naive_form(accesses, slots):
    trace, keys = accesses
    (run,) = hotset.simulate(trace, eviction=LeCaR(), slots=slots, replay="per-access").runs
    drawn = example("lecar", "draws")
    assert run["misses"] == naive_lecar(keys, slots, lambda seed: drawn(seed, 1)[0])


@pytest.mark.parametrize("policy", [Sieve, S3Fifo, LeCaR])
def test_examples_serve_visits_of_several_experts(trace, policy):
    runs = hotset.simulate(trace, eviction=[policy(), "fifo", "belady"], slots=["25%", "50%"], scope=["shared", "per-layer"]).runs
    for mine, fifo, bound in zip(runs[::3], runs[1::3], runs[2::3]):
        assert mine["accesses"] == fifo["accesses"]
        assert mine["misses"] >= bound["misses"]


def test_a_pager_with_a_policy_is_freed():
    gc.collect()
    pager = hotset.Pager(1, 8, 2, slots=2, eviction=Sieve())
    plan(pager, 0, 1).commit()
    plan(pager, 2, 3).commit()
    handle = weakref.ref(pager._handle)
    del pager
    assert handle() is None


def test_the_page_shows_the_examples():
    page = (EXAMPLES.parents[1] / "docs" / "python-policies.md").read_text()
    blocks = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    code = "".join(file.read_text() for file in EXAMPLES.glob("*.py"))
    assert len(blocks) == 3
    for block in blocks:
        assert block in code
