# SPDX-License-Identifier: Apache-2.0
"""Refusals are a hotset.Error with a message, change nothing, and crash nothing."""

import copy
import inspect
import pathlib
import pickle

import numpy
import pytest

import hotset
from hotset._pager import bytes_of

SHAPE = dict(layers=3, experts=16, top_k=2)


def pager(**options):
    return hotset.Pager(**{**SHAPE, "max_tokens": 4, "slots": 6, **options})


def ids(*rows):
    return numpy.array(rows, numpy.int32)


def apart(*rows):
    """The same rows within a wider array."""
    wide = numpy.full((len(rows), 5), -9, numpy.int32)
    wide[:, :2] = rows
    return wide[:, :2]


def test_a_refused_plan_leaves_the_rows_of_the_visit_under_way():
    rows = [1, 2], [3, 4], [5, 6], [7, 8]

    def groups(disturbed):
        p = pager(slots=2)
        seen = []
        visit = p.plan(0, apart(*rows))
        while True:
            if disturbed:
                with pytest.raises(hotset.VisitOpen):
                    p.plan(0, apart([15, 14], [15, 14], [15, 14], [15, 14]))
            seen.append((visit.experts.tolist(), visit.routed.tolist()))
            visit.commit()
            if not visit.more:
                return seen
            if disturbed:
                with pytest.raises(hotset.VisitOpen):
                    p.plan(1, apart([15, 14], [13, 12], [11, 10], [9, 0]))
            visit = p.plan_next()

    assert groups(True) == groups(False)
    assert [group[0] for group in groups(False)] == list(rows)


def test_a_plan_that_finds_no_slots_ends_the_visit_before():
    p = pager(slots=2)
    old = p.plan(0, ids([1, 2]))
    slots = old.slots.tolist()
    old.commit()
    pins = [p.pin(slot) for slot in slots]
    with pytest.raises(hotset.NoVictim):
        p.plan(0, ids([3, 4]))
    with pytest.raises(hotset.InvalidArgument, match="the visit is over"):
        old.experts
    assert not p.is_open
    for pin in pins:
        p.unpin(pin)
    p.plan(0, ids([3, 4])).commit()


@pytest.mark.parametrize(
    "held, call",
    [
        (hotset.Pager, lambda o: o.stats()),
        (hotset.Pager, lambda o: o.plan(0, ids([1, 2]))),
        (hotset.Visit, lambda o: o.commit()),
        (hotset.Visit, lambda o: o.slots),
        (hotset.Recorder, lambda o: o.tokens()),
        (hotset.Prefetcher, lambda o: o.propose(0, ids([1, 2]), 0)),
        (hotset.Curve, lambda o: o.misses(1)),
        (hotset.Consumer, lambda o: hotset.divide([o], 1)),
    ],
)
def test_an_object_whose_init_has_not_run_is_refused(held, call):
    class Half(held):
        def __init__(self):
            pass

    for made in (held.__new__(held), Half()):
        with pytest.raises(AttributeError):
            call(made)


def test_what_holds_an_object_of_the_library_is_not_copied():
    for held in (P, R, C, F):
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=f"a {type(held).__name__} cannot be copied or pickled"):
                make(held)


P = pager()
R = hotset.Recorder(**SHAPE, capacity=4)
C = hotset.Curve(**SHAPE)
F = hotset.Prefetcher(**SHAPE)
HUGE = 2**70


@pytest.mark.parametrize(
    "words, call",
    [
        ("step = -1, accepted: 0..18446744073709551615", lambda: P.plan(0, ids([1, 2]), step=-1)),
        ("step = -1", lambda: C.observe(0, ids([1, 2]), step=-1)),
        ("step = -1", lambda: F.propose(0, ids([1, 2]), -1)),
        ("step = -1", lambda: R.begin_step(1, step=-1)),
        ("tokens = -1", lambda: R.begin_step(-1)),
        ("layer = 2147483648, accepted: -2147483648..2147483647", lambda: P.plan(2**31, ids([1, 2]))),
        ("layer = ", lambda: R.record(HUGE, ids([1, 2]))),
        ("layer = ", lambda: P.locate(HUGE, 0)),
        ("expert = ", lambda: P.locate(0, -HUGE)),
        ("slot = ", lambda: P.pin(HUGE)),
        ("generation = -1", lambda: P.arrived(0, -1)),
        ("pin = -1", lambda: P.unpin(-1)),
        ("reader = ", lambda: P.unpin(1, HUGE)),
        ("most = -1", lambda: P.prefetch(0, 0, numpy.zeros(0, hotset.request), -1)),
        ("slots = ", lambda: P.set_quota(0, HUGE)),
        ("slots = -1", lambda: C.misses(-1)),
        ("layers = ", lambda: pager(layers=HUGE)),
        ("experts = ", lambda: pager(experts=-HUGE)),
        ("top_k = ", lambda: pager(top_k=HUGE)),
        ("max_tokens = ", lambda: pager(max_tokens=HUGE)),
        ("slots = ", lambda: pager(slots=HUGE)),
        ("slots = ", lambda: pager(slots=[HUGE, 1], expert_bytes=2, lower_bytes=1)),
        ("slots: 1.5, accepted: a number, or several", lambda: pager(slots=1.5)),
        ("capacity = -1", lambda: hotset.Recorder(**SHAPE, capacity=-1)),
        ("total_bytes = -1", lambda: hotset.divide([hotset.Consumer([1, 0], 1, 1)], -1)),
        ("unit_bytes = -1", lambda: hotset.Consumer([1, 0], -1, 1)),
        ("min_units = -1", lambda: hotset.Consumer([1, 0], 1, 1, min_units=-1)),
        ("max_units = ", lambda: hotset.Consumer([1, 0], 1, 1, max_units=HUGE)),
        ("misses: shape \\[2, 2\\]", lambda: hotset.Consumer([[1, 0], [1, 0]], 1, 1)),
        ("size: '100000000000GiB', accepted: a number of bytes below 2\\^64", lambda: pager(slots=None, budget="100000000000GiB", expert_bytes=1)),
        ("size: -1, ", lambda: pager(slots=None, budget=-1, expert_bytes=1)),
        ("size: -1, ", lambda: pager(slots=None, budget=10, expert_bytes=[1, -1, 1])),
        ("expert_bytes: 1.5, accepted: a number, or several", lambda: pager(expert_bytes=1.5)),
        ("experts = 70000, accepted: 1..65535", lambda: hotset.Recorder(layers=1, experts=70000, top_k=2, capacity=1)),
        ("eviction: a text with a NUL", lambda: pager(eviction="lru\0x")),
        ("admission: a text with a NUL", lambda: pager(admission="always\0x")),
        ("miss: a text with a NUL", lambda: pager(miss="fetch\0x")),
        ("prefetch: a text with a NUL", lambda: hotset.Prefetcher(**SHAPE, prefetch="none\0")),
        ("predictor: a text with a NUL", lambda: hotset.Prefetcher(**SHAPE, predictor="similar-steps\0")),
        ("name: a text with a NUL", lambda: hotset.Recorder(**SHAPE, capacity=1, name="a\0b")),
        ("model: a text with a NUL", lambda: hotset.Recorder(**SHAPE, capacity=1, model="a\0b")),
        ("path: a text with a NUL", lambda: R.write("a.trace\0b")),
        ("popularity needs the profile '/nonexistent'", lambda: pager(eviction="popularity:profile=/nonexistent")),
        ("probabilities: float64 of shape .*, accepted: float32", lambda: P.expect(0, 1, numpy.ones((1, 1, 16)))),
        ("probabilities: float32 of shape", lambda: P.expect(0, 1, numpy.ones((1, 16), numpy.float32))),
        ("probability 0 is nan, accepted: 0..1", lambda: P.expect(0, 1, numpy.full((1, 1, 16), numpy.nan, numpy.float32))),
        ("depth = 0, accepted: 1..3", lambda: P.expect(0, 1, numpy.ones((1, 0, 16), numpy.float32))),
        ("lfu: parameter 'history' is given twice", lambda: pager(eviction="lfu:history=resident:history=resident")),
        ("a visit without weights", lambda: pager(eviction="gate_score").plan(0, ids([1, 2]))),
        ("begun: no whole numbers", lambda: P.abort("abc")),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_words(words, call):
    with pytest.raises(hotset.Error, match=words):
        call()
    assert not P.is_open and P.stats()["visits"] == 0


@pytest.mark.parametrize(
    "words, call",
    [
        ("layer: float, accepted: int", lambda: P.plan(1.0, ids([1, 2]))),
        ("step: str, accepted: int", lambda: P.plan(0, ids([1, 2]), step="1")),
        ("eviction: int, accepted: str", lambda: pager(eviction=3)),
        ("eviction: NoneType, accepted: str", lambda: pager(eviction=None)),
        ("path: PosixPath, accepted: str", lambda: R.write(pathlib.Path("a.trace"))),
        ("consumers: float, accepted: Consumer", lambda: hotset.divide([1.0], 1)),
    ],
)
def test_a_wrong_type_is_a_type_error(words, call):
    with pytest.raises(TypeError, match=words):
        call()


def test_sizes_are_exact():
    assert bytes_of("1.5kB") == 1500
    assert bytes_of(2**64 - 1) == bytes_of(str(2**64 - 1)) == 2**64 - 1
    assert bytes_of(numpy.int64(7)) == 7
    assert pager(slots=numpy.int64(6)).slots == 18
    for bad in ("1e400GiB", "nanB", "-1B", "1.5", "", "9" * 5000, 2**64, 1.5, None, b"1"):
        with pytest.raises(hotset.InvalidArgument, match="size: "):
            bytes_of(bad)


@pytest.mark.parametrize("empty", [numpy.zeros((0, 2), numpy.int32), numpy.zeros((4, 2), numpy.int32)[:0]])
def test_a_batch_without_tokens_is_a_visit(empty):
    p = pager()
    visits = 0
    for visit in p.visits(0, empty):
        assert visit.experts.tolist() == []
        visit.commit()
        visits += 1
    assert visits == p.stats()["visits"] == 1
    p.warm(empty, lambda fills: None)
    weights = numpy.zeros((0, 2), numpy.float32)
    p.plan(1, empty, weights=weights, sequences=numpy.zeros(0, numpy.uint32)).commit()


def test_arrays_at_odd_addresses_are_refused():
    odd = numpy.frombuffer(bytes(9), numpy.uint8)[1:].view(numpy.int32).reshape(1, 2)
    with pytest.raises(hotset.InvalidArgument, match="experts: not aligned to 4 bytes"):
        pager().plan(0, odd)


def test_marks_of_begun_copies_are_not_cut_to_eight_bits():
    p = pager()
    visit = p.plan(0, ids([1, 2]))
    fills = [(int(f["slot"]), int(f["expert"])) for f in visit.fills]
    visit.commit()
    p.plan(0, ids([3, 4], [5, 6])).commit()
    visit = p.plan(0, ids([7, 8]))
    begun = {int(f["victim_expert"]) for f in visit.fills}
    visit.abort(numpy.full(visit.fill_count, 256))
    assert begun == {expert for _, expert in fills}
    assert all(p.locate(0, expert) == -1 for expert in begun), "the old bytes are gone"


def test_what_a_listener_raises_leaves_the_pager_in_step():
    def bad(*_):
        raise KeyError("no")

    p = pager(slots=2, removed=bad)
    p.plan(0, ids([1, 2])).commit()
    with pytest.raises(KeyError):
        for visit in p.visits(0, ids([3, 4])):
            visit.commit()
    assert not p.is_open
    assert p.locate(0, 3) >= 0, "the commit was made"
    p.plan(1, ids([3, 4])).commit()


def test_a_listener_that_calls_its_pager_is_told_so():
    p = None

    def calls(*_):
        p.stats()

    p = pager(slots=2, removed=calls)
    p.plan(0, ids([1, 2])).commit()
    p.plan(0, ids([3, 4]))
    with pytest.raises(hotset.WrongThread, match="a callback calls with the handle that its own call holds"):
        p.commit()
    assert not p.is_open


def test_a_recorder_that_is_full_says_so_and_a_failed_write_keeps_what_it_has(tmp_path):
    recorder = hotset.Recorder(**SHAPE, capacity=2)
    with recorder.step(tokens=2):
        for layer in range(3):
            recorder.record(layer, ids([1, 2], [3, 4]))
    with pytest.raises(hotset.ExceedsMemory, match="a step of 1 tokens, accepted: at most 0, the rest of capacity = 2"):
        recorder.begin_step(1)
    with pytest.raises(hotset.CannotWrite):
        recorder.write(str(tmp_path / "no" / "folder.trace"))
    recorder.write(str(tmp_path / "a.trace"))
    assert hotset.Trace.load(tmp_path / "a.trace").tokens == 2


def public():
    """(name, object) of every public class and function, and of their methods and properties."""
    for name in hotset.__all__:
        held = getattr(hotset, name)
        if inspect.isclass(held):
            yield from ((f"{name}.{n}", m) for n, m in vars(held).items() if not n.startswith("_") and (callable(m) or isinstance(m, property)))
        if inspect.isclass(held) or inspect.isfunction(held):
            yield name, held


@pytest.mark.parametrize("name, held", [pytest.param(n, h, id=n) for n, h in public()])
def test_a_name_says_what_it_is(name, held):
    assert held.__doc__
    if inspect.isclass(held):
        assert held.__doc__[0].isupper() and held.__doc__.splitlines()[0].endswith((".", ":")), held.__doc__
