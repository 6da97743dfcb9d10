# SPDX-License-Identifier: Apache-2.0
"""The pager: decisions are the library's, arrays are not copied, and every mistake is reported."""

import array
import gc
import os
import sys
import threading
import weakref

import numpy
import pytest

import hotset

SHAPE = dict(layers=3, experts=16, top_k=2)


def pager(**options):
    return hotset.Pager(**{**SHAPE, "max_tokens": 4, "slots": 6, **options})


def ids(*rows):
    return numpy.array(rows, numpy.int32)


def test_a_visit_is_planned_committed_and_found():
    p = pager()
    visit = p.plan(1, ids([3, 5], [5, 7]))
    assert visit.experts.tolist() == [3, 5, 7]
    assert visit.services.tolist() == [1, 1, 1]
    assert visit.tokens.tolist() == [0, 1]
    assert visit.routed.tolist() == [3, 5, 5, 7]
    assert visit.fill_count == 3 and not visit.more and visit.groups == 1
    assert visit.fills["expert"].tolist() == [3, 5, 7]
    assert visit.fills["layer"].tolist() == [1, 1, 1]
    assert visit.fills["slot"].tolist() == visit.slots.tolist()
    assert visit.fills["victim_expert"].tolist() == [-1, -1, -1]
    assert p.locate(1, 5) == -1 or p.is_open
    visit.commit()
    assert p.row(1)[5] == visit.slots[1]
    assert p.row(1)[0] == -1
    again = p.plan(1, ids([5, 3]))
    assert again.services.tolist() == [0, 0]
    again.commit()
    assert p.stats()["hits"] == 2 and p.stats()["fills"] == 3


def test_arrays_are_the_librarys_own_memory():
    p = pager()
    row = p.row(0)
    before = p.row_version(0)
    visit = p.plan(0, ids([1, 2]))
    assert visit.slots.__array_interface__["data"] == visit.slots.__array_interface__["data"]
    visit.commit()
    assert row[1] == p.locate(0, 1) >= 0, "the same memory as before the visit"
    assert p.row_version(0) != before
    with pytest.raises(ValueError):
        row[0] = 3


def test_steps_are_counted_where_none_is_given():
    p = pager()
    steps = []
    for _ in range(2):
        for layer in range(3):
            p.plan(layer, ids([1, 2])).commit()
            steps.append(p.step)
    assert steps == [0, 0, 0, 1, 1, 1]
    p.plan(0, ids([1, 2]), step=40).commit()
    assert p.step == 40


def test_rows_that_lie_apart_are_taken_as_they_are():
    wide = numpy.zeros((4, 9), numpy.int32)
    wide[:, :2] = [[1, 2], [3, 4], [1, 5], [6, 2]]
    visit = pager(slots=8).plan(0, wide[:, :2])
    assert visit.experts.tolist() == [1, 2, 3, 4, 5, 6]


class Dlpack:
    """A tensor of another library."""

    def __init__(self, held, device=(1, 0)):
        self.held, self.device = held, device

    def __dlpack__(self, **given):
        return self.held.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.device


def test_what_speaks_dlpack_or_is_a_buffer_is_taken():
    p = pager()
    assert p.plan(0, Dlpack(ids([4, 9]))).experts.tolist() == [4, 9]
    p.commit()
    assert p.plan(1, array.array("i", [7, 8])).experts.tolist() == [7, 8]
    p.commit()
    with pytest.raises(hotset.InvalidArgument, match="DLPack device 2, accepted: the CPU's memory"):
        p.plan(0, Dlpack(ids([4, 9]), (2, 0)))


@pytest.mark.parametrize(
    "given, words",
    [
        (numpy.array([[1, 2]]), "experts: int64, accepted: int32 \\(nothing is converted in silence\\)"),
        (numpy.zeros((1, 3), numpy.int32), "experts: shape \\[1, 3\\], accepted: \\[tokens, 2\\]"),
        (numpy.zeros((1, 1, 2), numpy.int32), "accepted: \\[tokens, 2\\]"),
        (numpy.zeros((2, 8), numpy.int32)[:, ::4], "rows without gaps"),
        (numpy.zeros((4, 2), numpy.int32)[::-1], "rows that follow one another"),
        (numpy.broadcast_to(numpy.zeros((1, 2), numpy.int32), (3, 2)), "do not overlap"),
        ([[1, 2]], "experts: list, accepted: an array"),
        (None, "experts: NoneType, accepted: an array"),
    ],
)
def test_arrays_that_do_not_belong_are_refused(given, words):
    p = pager()
    with pytest.raises(hotset.InvalidArgument, match=words):
        p.plan(0, given)
    assert p.stats()["visits"] == 0
    p.plan(0, ids([1, 2])).commit()


def test_other_mistakes_are_told_and_change_nothing():
    p = pager()
    with pytest.raises(hotset.InvalidVisit, match="a visit of layer 3, accepted: 0..2"):
        p.plan(3, ids([1, 2]))
    with pytest.raises(hotset.VisitTooLarge, match="a visit of 5 tokens, accepted: at most 4"):
        p.plan(0, numpy.zeros((5, 2), numpy.int32))
    with pytest.raises(hotset.InvalidArgument, match="kind: 'prompt', accepted: decode, prefill, verify"):
        p.plan(0, ids([1, 2]), kind="prompt")
    with pytest.raises(hotset.InvalidArgument, match="weights: of 2 tokens, accepted: 1, as experts"):
        p.plan(0, ids([1, 2]), weights=numpy.zeros((2, 2), numpy.float32))
    with pytest.raises(hotset.NoPlan):
        p.commit()
    visit = p.plan(0, ids([1, 2]))
    with pytest.raises(hotset.VisitOpen):
        p.plan(0, ids([1, 2]))
    with pytest.raises(hotset.InvalidArgument, match="begun has 3 entries, accepted: 2"):
        p.abort([1, 1, 1])
    visit.abort([1, 0])
    with pytest.raises(hotset.InvalidArgument, match="layer 0, expert 16, accepted"):
        p.locate(0, 16)
    with pytest.raises(hotset.InvalidConfig, match="unknown eviction policy 'lur'"):
        pager(eviction="lur")
    with pytest.raises(hotset.InvalidConfig, match="slots = 0 and budget_bytes = 0"):
        pager(slots=None)
    with pytest.raises(hotset.InvalidArgument, match="scope: 'global', accepted: per_layer, shared"):
        pager(scope="global")
    with pytest.raises(hotset.InvalidArgument, match="size: '6 quarts', accepted: a number of bytes"):
        pager(slots=None, budget="6 quarts", expert_bytes=100)
    assert pager(slots=None, budget="1000", expert_bytes=100, scope="shared").slots == 10
    assert pager(slots=None, budget="1kB", expert_bytes=100, scope="shared").slots == 10
    assert pager(slots=6).slots == 6 * SHAPE["layers"]
    assert issubclass(hotset.InvalidArgument, ValueError)
    try:
        pager(eviction="lur")
    except hotset.Error as e:
        assert e.code == 100


def test_a_visit_that_does_not_fit_comes_in_groups():
    p = pager(slots=3)
    seen = []
    for visit in p.visits(0, ids([1, 2], [3, 4], [5, 6], [1, 3])):
        assert visit.groups > 1
        seen += visit.tokens.tolist()
        visit.commit()
        for token in visit.tokens:
            assert (p.row(0)[ids([1, 2], [3, 4], [5, 6], [1, 3])[token]] >= 0).all()
    assert sorted(seen) == [0, 1, 2, 3]
    with pytest.raises(hotset.DoesNotFit):
        pager(slots=3, split="refuse").plan(0, ids([1, 2], [3, 4]))


def test_a_loop_that_is_left_leaves_nothing_open():
    p = pager(slots=3)
    for visit in p.visits(0, ids([1, 2], [3, 4], [5, 6])):
        break
    with pytest.raises(KeyError):
        for visit in p.visits(1, ids([1, 2], [3, 4], [5, 6])):
            visit.commit()
            raise KeyError
    with pytest.raises(hotset.VisitOpen, match="neither committed nor aborted"):
        for visit in p.visits(2, ids([1, 2])):
            pass
    p.plan(0, ids([1, 2])).commit()
    assert p.row(2).max() == -1, "what was not committed is nowhere"


def test_serve_copies_commits_and_uses():
    p = pager(slots=3)
    bank = {}
    used = []

    def copy(fills):
        for f in fills:
            bank[int(f["slot"])] = int(f["expert"])

    def use(visit):
        row = p.row(0)
        used.extend(bank[int(row[e])] for e in visit.experts)

    p.serve(0, ids([1, 2], [3, 4]), copy, use)
    assert used == [1, 2, 3, 4]

    def fails(fills):
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        p.serve(1, ids([1, 2]), fails, use)
    assert p.row(1).max() == -1
    p.serve(1, ids([1, 2]), copy, None)


def test_a_visit_that_is_over_cannot_be_read():
    p = pager()
    old = p.plan(0, ids([1, 2]))
    old.commit()
    assert old.slots.tolist() == [0, 1], "until the next plan"
    p.plan(0, ids([1, 2])).commit()
    for read in (lambda: old.slots, lambda: old.fills, lambda: old.commit()):
        with pytest.raises(hotset.InvalidArgument, match="the visit is over"):
            read()


def test_arrays_keep_the_pager_alive():
    p = pager()
    visit = p.plan(0, ids([1, 2]))
    slots = visit.slots
    row = p.row(0)
    del p, visit
    gc.collect()
    assert slots.tolist() == [0, 1]
    assert row.tolist() == [-1] * 16


def test_removals_are_reported_and_what_they_raise_comes_out():
    gone = []
    p = pager(slots=2, removed=lambda layer, expert, slot, precision, reader: gone.append((layer, expert)))
    p.plan(0, ids([1, 2])).commit()
    p.plan(0, ids([3, 4])).commit()
    assert sorted(gone) == [(0, 1), (0, 2)]

    def bad(*_):
        raise RuntimeError("no")

    p = pager(slots=2, removed=bad)
    p.plan(0, ids([1, 2])).commit()
    p.plan(0, ids([3, 4]))
    with pytest.raises(RuntimeError, match="no"):
        p.commit()


def test_a_pager_that_its_listener_knows_is_collected():
    class Owner:
        def __init__(self):
            self.pager = pager(removed=self.gone)

        def gone(self, *_):
            pass

    owner = Owner()
    dead = weakref.ref(owner)
    del owner
    gc.collect()
    assert dead() is None


def test_another_thread_beside_a_call_is_told():
    p = None
    told = []

    def gone(*_):
        def call():
            try:
                p.stats()
            except hotset.WrongThread as e:
                told.append(str(e))

        t = threading.Thread(target=call)
        t.start()
        t.join()

    p = pager(slots=2, removed=gone)
    p.plan(0, ids([1, 2])).commit()
    p.plan(0, ids([3, 4])).commit()
    assert told and "another thread is in a call with the handle" in told[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_process_is_told():
    p = pager()
    child = os.fork()
    if child == 0:
        try:
            p.stats()
        except hotset.Forked:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_routing_prefers_residents_and_takes_the_slots_that_a_forecast_freed():
    logits = numpy.zeros((1, 16), numpy.float32)
    logits[0, [3, 4, 5]] = 1.0, 0.9, 0.8
    p = pager(routing="cache_aware:lambda=0.5", eviction="similar_steps")
    assert p.route(0, ids([3, 4]), logits=logits).tolist() == [[3, 4]]
    p.plan(0, ids([5, 6])).commit()
    found = p.route(0, ids([3, 4]), logits=logits)
    assert found.tolist() == [[5, 3]] and found.dtype == numpy.int32
    p.plan(0, found, chosen=ids([3, 4])).commit()
    with pytest.raises(hotset.InvalidVisit, match="with the router's logits, which the routing policy needs"):
        p.route(0, ids([3, 4]))
    with pytest.raises(hotset.InvalidArgument, match=r"logits: shape \[1, 8\], accepted: \[tokens, 16\]"):
        p.route(0, ids([3, 4]), logits=logits[:, :8].copy())
    with pytest.raises(hotset.InvalidArgument, match="chosen: of 2 tokens, accepted: 1"):
        p.plan(0, found, chosen=ids([3, 4], [5, 6]))
    with pytest.raises(hotset.InvalidArgument, match="chosen: float32, accepted: int32"):
        p.plan(0, found, chosen=logits[:, :2])
    p = pager(slots=2, routing="budget_top_k", pre_eviction="active_evict:tau=0")
    p.plan(1, ids([1, 2])).commit()
    likely = numpy.zeros((1, 1, 16), numpy.float32)
    likely[0, 0, [1, 2]] = 0.5, 0.4
    p.expect(0, 1, likely)
    assert p.route(1, ids([1, 9])).tolist() == [[1, -1]]
    with pytest.raises(hotset.InvalidConfig, match="accepted: with pre_eviction active_evict"):
        pager(routing="budget_top_k")


def test_prefetches_are_proposed_planned_and_told():
    p = pager(scope="shared", slots=7)
    expects = hotset.Prefetcher(**SHAPE)
    fills = 0
    for step in range(60):
        for layer in range(3):
            now = ids([(step % 3) * 2, layer + 1])
            p.plan(layer, now, step=step).commit()
            asked = expects.propose(layer, now, step)
            assert asked.dtype == hotset.request
            if len(asked):
                ahead, handled = p.prefetch(layer, step, asked, 2)
                assert handled == min(len(asked), 4)
                taken = [(int(f["slot"]), int(f["generation"])) for f in ahead.fills]
                assert all(ahead.fills["speculative"])
                ahead.commit()
                for slot, generation in taken:
                    p.arrived(slot, generation)
                fills += len(taken)
    assert fills > 0
    assert p.stats()["speculative_fills"] == fills
    with pytest.raises(hotset.InvalidArgument, match="requests: no row of hotset.request"):
        p.prefetch(0, 99, numpy.zeros(3), 1)


@pytest.mark.parametrize("told, victims", [(False, [1, 2]), (True, [3, 4])])
def test_a_forecast_keeps_the_experts_that_it_names(told, victims):
    p = pager(slots=4, eviction="importance:alpha=0")
    for step, first in enumerate((1, 3)):
        p.plan(0, ids([first, first + 1]), step=step).commit()
    if told:
        likely = numpy.zeros((1, 1, 16), numpy.float32)
        likely[0, 0, [1, 2]] = 0.9
        p.expect(-1, 2, likely)
    assert p.plan(0, ids([5, 6]), step=2).fills["victim_expert"].tolist() == victims


def test_residents_warm_another_pager():
    first = pager(scope="shared", slots=4)
    first.plan(0, ids([1, 2])).commit()
    first.plan(2, ids([3, 9])).commit()
    kept = first.residents()
    assert sorted(map(tuple, kept.tolist())) == [(0, 1), (0, 2), (2, 3), (2, 9)]
    second = pager(scope="shared", slots=4)
    copied = []
    second.warm(kept, lambda fills: copied.extend(fills["expert"].tolist()))
    assert sorted(copied) == [1, 2, 3, 9]
    assert second.residents().tolist() == kept.tolist()
    second.invalidate(2)
    assert len(second.residents()) == 2


def test_quotas_and_pins():
    p = pager(slots=6)
    visit = p.plan(0, ids([1, 2]))
    slot = int(visit.slots[0])
    visit.commit()
    pin = p.pin(slot)
    with pytest.raises(hotset.Busy):
        p.invalidate(0, 1)
    p.unpin(pin)
    p.invalidate(0, 1)
    p.set_quota(0, 2)
    assert p.quota(0) == 2
    with pytest.raises(hotset.InvalidArgument, match="a quota of 99 slots"):
        p.set_quota(0, 99)


def test_several_precisions():
    p = hotset.Pager(**SHAPE, scope="shared", slots=[4, 3], expert_bytes=1000, lower_bytes=500, miss="fetch_lowest")
    assert [p.precision(s) for s in range(7)] == [0, 0, 0, 0, 1, 1, 1]


def test_a_budget_is_bytes_or_a_text():
    p = pager(slots=None, budget="2KiB", expert_bytes=256, scope="shared")
    assert sum(1 for _ in range(8) if p.precision(_) == 0) == 8
    with pytest.raises(hotset.InvalidArgument, match="slot 8"):
        p.precision(8)


def test_curves_and_the_division_of_bytes():
    curve = hotset.Curve(**SHAPE, scope="per_layer")
    for step in range(30):
        for layer in range(3):
            curve.observe(layer, ids([step % 6 if layer == 0 else 1, 7]))
    table = curve.table(0)
    assert len(table) == 17 and (numpy.diff(table) <= 0).all()
    assert curve.misses(7, 0) < curve.misses(3, 0)
    units, seconds = hotset.divide(
        [hotset.Consumer(curve.table(layer), unit_bytes=1, seconds_per_miss=1, min_units=2) for layer in range(3)], 12
    )
    assert units[0] == 7 and sum(units) <= 12 and seconds >= 0
    with pytest.raises(hotset.ExceedsMemory, match="accepted: 6 bytes or more"):
        hotset.divide([hotset.Consumer([1, 0], 3, 1, min_units=2)], 5)
    with pytest.raises(hotset.InvalidArgument, match="never rising"):
        hotset.divide([hotset.Consumer([1, 2], 1, 1)], 5)


def test_nothing_is_leaked_visit_by_visit():
    p = pager()
    now = ids([1, 2])

    def visits(n):
        for _ in range(n):
            v = p.plan(0, now)
            _ = v.slots, v.fills
            v.commit()

    visits(100)
    gc.collect()
    before = sys.getallocatedblocks()
    visits(2000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 200
