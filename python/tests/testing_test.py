# SPDX-License-Identifier: Apache-2.0
"""hotset.testing.check accepts policies that keep the rules, and says in words which rule another breaks."""

import policy_test
import pytest

import hotset
import hotset.testing


@pytest.mark.parametrize("policy", [policy_test.Lru, policy_test.Sieve, policy_test.S3Fifo, policy_test.LeCaR])
def test_policies_that_keep_the_rules_pass(policy):
    hotset.testing.check(policy)
    hotset.testing.check(policy())


class Counting(policy_test.Lru):
    """Counts the calls of a hook and then breaks a rule."""

    def reset(self, layout):
        super().reset(layout)
        self.calls = 0


class Moving(Counting):
    def select_victims(self, choice):
        self.calls += 1
        slots = choice.candidates
        return [slots[(self.calls + i) % len(slots)] for i in range(choice.count)]


class Backwards(Counting):
    """The first of several victims depends on their number."""

    def select_victims(self, choice):
        return super().select_victims(choice)[::-1]


class TooFew(Counting):
    def select_victims(self, choice):
        return super().select_victims(choice)[:2]


class Twice(Counting):
    def select_victims(self, choice):
        return [choice.candidates[0]] * choice.count


class Protected(Counting):
    """Names the slot used last."""

    def on_visit(self, event):
        super().on_visit(event)
        if len(event.slots):
            self.newest = int(event.slots[-1])

    def select_victims(self, choice):
        named = super().select_victims(choice).tolist()
        newest = getattr(self, "newest", named[0])
        return named if newest in choice.candidates else [newest, *named[1:]]


class Forgetful(policy_test.Sieve):
    """Ignores prefetches, which the first evictions then meet."""

    def on_prefetch(self, slot, pool, layer, expert, step):
        pass


class Raising(Counting):
    def on_visit(self, event):
        super().on_visit(event)
        if event.layer == 2:
            raise LookupError("layer 2 is missing")


@pytest.mark.parametrize(
    "policy, words",
    [
        (Moving, "a repeated request names the same victims, and a smaller one the first of them, after"),
        (Backwards, r"select_victims named slot \d+ .* for \d+ victims, accepted: slot \d+ .* a smaller one the first of them, after .* of layer \d+"),
        (TooFew, "policy TooFew: select_victims named 2 victims, accepted: 3, the choice's count"),
        (Twice, r"policy Twice: select_victims named slot \d+ .*, twice, accepted: candidates, each once"),
        (Protected, r"policy Protected: select_victims named slot \d+ \(expert \d+ of layer \d+\) for layer \d+, which .*, after .* of layer"),
        (Forgetful, "policy Forgetful: select_victims named 0 victims"),
        (Raising, r"policy Raising: on_visit returned -1.*, after a visit of layer 2 by experts .*: LookupError: layer 2 is missing"),
    ],
)
def test_a_broken_rule_is_told_in_words(policy, words):
    with pytest.raises(AssertionError, match=words):
        hotset.testing.check(policy)


def test_the_exception_of_a_callback_is_the_cause():
    with pytest.raises(AssertionError) as raised:
        hotset.testing.check(Raising)
    assert isinstance(raised.value.__cause__, LookupError)


def test_an_interrupt_is_raised_as_it_is():
    class Interrupted(policy_test.Lru):
        def on_visit(self, event):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hotset.testing.check(Interrupted)


def test_only_policies_are_checked():
    with pytest.raises(TypeError, match="policy: str, accepted: a hotset.EvictionPolicy"):
        hotset.testing.check("lru")
