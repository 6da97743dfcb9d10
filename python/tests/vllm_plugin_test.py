# SPDX-License-Identifier: Apache-2.0
"""Recording by vLLM's plug-in. Two substitute classes stand for vLLM; python/tests/engines uses the
real ones."""

import dataclasses
import logging
import sys
import threading
import types
from typing import Any

import numpy
import pytest

import hotset
import hotset.vllm as plugin

IDS = numpy.array([[[3, 1], [0, 2]], [[3, 2], [1, 0]]], numpy.uint8)


@pytest.fixture
def vllm(monkeypatch, tmp_path):
    """vllm.config and vllm.outputs in a process without registration."""

    class VllmConfig:
        def __init__(self, experts):
            self.model_config = types.SimpleNamespace(get_num_experts=lambda: experts)
            self.__post_init__()

        def __post_init__(self):
            pass

    @dataclasses.dataclass
    class CompletionOutput:
        routed_experts: Any = None
        finish_reason: Any = None

    for name, held in (("vllm", {}), ("vllm.config", {"VllmConfig": VllmConfig}), ("vllm.outputs", {"CompletionOutput": CompletionOutput})):
        module = types.ModuleType(name)
        module.__dict__.update(held)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(plugin, "_plugin", None)
    monkeypatch.setattr(plugin.atexit, "register", lambda call: None)
    monkeypatch.setenv("HOTSET_VLLM_RECORD", str(tmp_path / "traces"))
    return types.SimpleNamespace(VllmConfig=VllmConfig, CompletionOutput=CompletionOutput, folder=tmp_path / "traces")


def test_a_finished_request_is_a_sequence(vllm):
    plugin.register()
    plugin.register()  # vLLM may call it several times
    vllm.VllmConfig(experts=8)
    vllm.CompletionOutput(IDS)  # not finished
    vllm.CompletionOutput(IDS, "stop")
    vllm.CompletionOutput(None, "stop")
    vllm.CompletionOutput(IDS[:1], "length")
    plugin._plugin.close()
    (path,) = vllm.folder.glob("*.trace")
    trace = hotset.Trace.load(path)
    assert trace.experts == 8
    assert trace.ids.tolist() == [*IDS.tolist(), *IDS[:1].tolist()]
    assert trace.sequences.tolist() == [0, 0, 1]


def test_files_are_cut_by_requests_and_experts_may_be_told(vllm, monkeypatch):
    monkeypatch.setenv("HOTSET_VLLM_REQUESTS", "2")
    monkeypatch.setenv("HOTSET_VLLM_EXPERTS", "16")
    plugin.register()
    vllm.VllmConfig(experts=8)
    for _ in range(5):
        vllm.CompletionOutput(IDS, "stop")
    plugin._plugin.close()
    traces = [hotset.Trace.load(path) for path in sorted(vllm.folder.glob("*.trace"))]
    assert [t.ids.shape[0] for t in traces] == [4, 4, 2]
    assert {t.experts for t in traces} == {16}


def test_without_the_variable_nothing_is_touched(vllm, monkeypatch):
    monkeypatch.delenv("HOTSET_VLLM_RECORD")
    before = vllm.CompletionOutput.__init__
    plugin.register()
    assert plugin._plugin is None
    assert vllm.CompletionOutput.__init__ is before


@pytest.mark.parametrize("name", ["HOTSET_VLLM_REQUESTS", "HOTSET_VLLM_EXPERTS"])
def test_a_variable_that_is_no_number_is_refused(vllm, monkeypatch, name):
    for bad in ("0", "-1", "many", ""):
        monkeypatch.setenv(name, bad)
        with pytest.raises(hotset.InvalidArgument, match=f"{name} is '{bad}', accepted"):
            plugin.register()
    assert plugin._plugin is None


def test_a_server_that_returns_no_experts_is_told(vllm, caplog):
    plugin.register()
    vllm.CompletionOutput(None, "stop")
    with caplog.at_level(logging.WARNING):
        plugin._plugin.close()
    assert "--enable-return-routed-experts" in caplog.text
    assert not vllm.folder.exists()


def test_what_cannot_be_written_never_reaches_the_server(vllm, caplog):
    vllm.folder.write_text("a file where a folder belongs")
    plugin.register()
    with caplog.at_level(logging.ERROR):
        vllm.CompletionOutput(IDS, "stop")
        vllm.CompletionOutput(IDS, "stop")
    plugin._plugin.close()
    assert caplog.text.count("nothing is recorded") == 1


def test_any_failure_of_the_writer_ends_the_recording(tmp_path, caplog, monkeypatch):
    def fail(*given, **named):
        raise MemoryError("no memory for a trace")

    monkeypatch.setattr(plugin, "from_routed_experts", fail)
    recorder = plugin.RequestRecorder(str(tmp_path), requests=1)
    recorder.add(IDS)
    recorder._writer.join(10)
    assert not recorder._writer.is_alive()
    recorder.add(IDS)
    assert recorder._full.empty(), "nothing waits for a writer that has ended"
    assert "nothing more is recorded: no memory for a trace" in caplog.text


def test_requests_of_two_models_end_the_recording_and_are_told(tmp_path, caplog):
    recorder = plugin.RequestRecorder(str(tmp_path), requests=2)
    recorder.add(IDS)
    recorder.add(IDS[:, :1])
    recorder.close()
    recorder.close()
    recorder.add(IDS)
    assert "nothing more is recorded" in caplog.text
    assert recorder.written == []
    with pytest.raises(hotset.InvalidArgument, match="requests = 0"):
        plugin.RequestRecorder(str(tmp_path), requests=0)


def test_what_is_added_is_copied_and_threads_may_add_together(tmp_path):
    recorder = plugin.RequestRecorder(str(tmp_path), requests=7, experts=256)

    def add(value):
        mine = numpy.full((3, 2, 2), value, numpy.uint8)
        mine[..., 1] += 100
        for _ in range(20):
            recorder.add(mine)
        mine[:] = 99

    threads = [threading.Thread(target=add, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    recorder.close()
    ids = numpy.concatenate([hotset.Trace.load(path).ids for path in recorder.written])
    assert len(ids) == 4 * 20 * 3
    assert sorted(ids[:, 0, 0].tolist()) == sorted(n for n in range(4) for _ in range(60))
    recorder.add(numpy.zeros((0, 2, 2), numpy.uint8))


def test_a_vllm_whose_experts_cannot_be_paged_is_refused_and_not_served_unpaged(vllm, monkeypatch):
    monkeypatch.setenv("HOTSET_VLLM_BUDGET", "6GiB")
    with pytest.raises(hotset.InvalidArgument, match="HOTSET_VLLM_BUDGET: this vLLM has other layers .*accepted: vLLM 0.32"):
        plugin.register()
