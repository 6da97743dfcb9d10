# SPDX-License-Identifier: Apache-2.0
"""Sweeps: the merged result equals the serial program's byte for byte, on any executor and after any kill."""

import contextlib
import json
import multiprocessing
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy
import pytest

import hotset
from hotset import _program, sweep

SOURCE = pathlib.Path(os.environ["HOTSET_SOURCE_DIR"])
GRID = {"eviction": ["lru", "belady"], "slots": ["25%", "50%"], "scope": ["shared", "per-layer"]}


def made(path, seed, tokens=100):
    hotset.run(
        "synth", str(path), "--layers", "3", "--experts", "16", "--top-k", "2", "--tokens", str(tokens), "--sequences", "3",
        "--seed", str(seed),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with two traces."""
    monkeypatch.chdir(tmp_path)
    made("a.trace", 1)
    made("b.trace", 2)
    return tmp_path


PROGRAM = _program.program()


def serial(result):
    """What the command in a result prints."""
    name, *words = shlex.split(result["generator"]["command"])
    assert name in ("hotset", "instead") and not {"--resume", "--jobs"} & set(words)
    return subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True).stdout


def files(folder):
    return sorted(os.listdir(folder))


def instead(monkeypatch, folder, before):
    """A program that runs `before` ahead of each cell and notes each cell in cells.log. It refuses to replay all runs."""
    path = folder / "instead"
    log = shlex.quote(str(folder / "cells.log"))
    path.write_text(
        f"""#!/bin/sh
case "$*" in
  *" --only "*) echo "$*" >>{log}; {before or ":"};;
  *" --dry-run"* | *" --resume "*) ;;
  *) exit 1;;
esac
exec {shlex.quote(PROGRAM)} "$@"
"""
    )
    path.chmod(0o755)
    monkeypatch.setenv("HOTSET_PROGRAM", str(path))


def examples():
    """(command, printed output) of the first section of docs/sweeps.md."""
    text = (SOURCE / "docs" / "sweeps.md").read_text().split("\n## ")[1]
    for block in re.findall(r"```console\n(.*?)```", text, re.S):
        for shown in re.split(r"^\$ ", block, flags=re.M)[1:]:
            end = shown.index("\nEND\n") + 4 if "<<'END'" in shown else shown.index("\n")
            yield shown[:end], shown[end + 1 :]


def cells_run(folder):
    log = folder / "cells.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_the_page_shows_what_is_printed(tmp_path):
    head = 'hotset() { "$PROGRAM" "$@"; }; python3() { "$PYTHON" -B "$@"; }\n'
    given = {**os.environ, "PROGRAM": _program.program(), "PYTHON": sys.executable}
    shown = list(examples())
    assert len(shown) == 7
    for command, printed in shown:
        done = subprocess.run(["bash", "-c", head + command], cwd=tmp_path, env=given, capture_output=True, text=True)
        assert done.stdout + done.stderr == printed, command


# --- cells


def test_cells_are_the_product_in_the_order_of_the_results(folder):
    cells = sweep.cells(["b.trace", pathlib.Path("a.trace")], **GRID)
    assert [str(cell) for cell in cells[:5]] == [
        "lru 25% shared of b.trace",
        "belady 25% shared of b.trace",
        "lru 50% shared of b.trace",
        "belady 50% shared of b.trace",
        "lru 25% per-layer of b.trace",
    ]
    results = [
        {**run, "trace": trace}
        for trace in ("b.trace", "a.trace")
        for run in hotset.simulate(trace, **GRID)["results"]
    ]
    assert [cell.key for cell in cells] == [run["key"] for run in results]
    for cell, run in zip(cells, results):
        assert cell.trace == run["trace"]
        assert cell.options["eviction"] == run["eviction"] and cell.options["size"] == run["size"]
    assert len({cell.key for cell in cells}) == 16
    assert sweep.cells("a.trace", eviction="lru,belady", slots="25%")[1].options["eviction"] == "belady"


def test_lists_of_other_options_make_commands_of_their_own(folder):
    cells = sweep.cells("a.trace", eviction=["lru", "lfu"], slots="25%", max_tokens=[0, 1], tokens=["0:50", "50:100"])
    assert [cell.words[4:] for cell in cells[::2]] == [
        ("--max-tokens", limit, "--tokens", part) for limit in "01" for part in ("0:50", "50:100")
    ]
    assert len({cell.key for cell in cells}) == 8
    flags = sweep.cells("a.trace", slots="25%", size_classes=[False, True])
    assert [cell.words for cell in flags] == [("--slots", "25%"), ("--slots", "25%", "--size-classes")]


def test_the_options_with_several_values_are_those_of_the_program():
    listed = re.findall(r"^  --([\w-]+) LIST", hotset.run("simulate", "--help"), re.M)
    others = {"field", *(name.replace("_", "-") for name in sweep.REFUSED)}
    assert {name.replace("_", "-") for name in sweep.LISTS} == set(listed) - others


@pytest.mark.parametrize(
    "grid, said",
    [
        ({"evicton": ["lru"]}, "--evicton"),
        ({"eviction": ["lru", "lur"]}, "unknown eviction policy 'lur' \\(did you mean lru\\?\\)"),
        ({"slots": ["25"], "scope": ["everywhere"]}, "--scope: unknown 'everywhere'|everywhere"),
        ({"slots": ["0%"]}, "--slots"),
        ({"slots": ["1"]}, "a.trace: size 1: fewer slots"),
        ({"slots": []}, "slots: \\[\\], accepted: .* at least one"),
        ({"slots": [object()]}, "slots: .*accepted: a text, a number"),
        ({"tokens": ["0:10", "500:"]}, "a.trace: has no token 500; accepted: --tokens within 0:300"),
        ({"out": "x.json"}, "out: not in a sweep"),
        ({"jobs": 2}, "jobs: not in a sweep"),
        ({"until": "hit=50%"}, "until: not in a sweep"),
    ],
)
def test_a_bad_option_is_one_line_before_anything_runs(folder, monkeypatch, grid, said):
    instead(monkeypatch, folder, "")
    with pytest.raises(hotset.Error, match=said) as refused:
        sweep.cells(["a.trace", "b.trace"], **grid)
    assert "\n" not in str(refused.value)
    assert cells_run(folder) == 0


def test_bad_traces_are_refused(folder):
    with pytest.raises(hotset.Error, match="c.trace: .*No such file"):
        sweep.cells(["a.trace", "c.trace"], slots="25%")
    with pytest.raises(hotset.Error, match="a.trace: given twice"):
        sweep.cells(["a.trace", "a.trace"], slots="25%")
    with pytest.raises(hotset.Error, match="no trace, accepted: one or more"):
        sweep.cells([], slots="25%")
    with pytest.raises(TypeError):
        sweep.cells([hotset.Trace.load("a.trace")], slots="25%")


# --- run and merge


class Inline(Executor):
    """An executor that is none of the standard library's: runs the cells at once."""

    def submit(self, call, *arguments):
        future = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as why:
            future.set_exception(why)
        return future


@pytest.mark.parametrize(
    "executor",
    [
        lambda: ProcessPoolExecutor(2),
        lambda: ProcessPoolExecutor(2, multiprocessing.get_context("spawn")),
        lambda: ProcessPoolExecutor(2, initializer=os.chdir, initargs=("/",)),
        lambda: ThreadPoolExecutor(2),
        Inline,
    ],
)
def test_the_merged_result_is_the_serial_one(folder, executor):
    cells = sweep.cells(["a.trace", "b.trace"], **GRID)
    with executor() as workers:
        sweep.run(cells, workers, folder="done")
    assert files("done") == sorted(f"{cell.key}.json" for cell in cells)
    results = sweep.merge(cells, "done", out="merged.json")
    text = pathlib.Path("merged.json").read_text()
    assert text == serial(results[0])
    assert results == json.loads(text) and isinstance(results[0], hotset.Result) and len(results[0].runs) == 8
    one = sweep.merge(sweep.cells("a.trace", **GRID), "done", out="merged.json")
    assert pathlib.Path("merged.json").read_text() == serial(one)


def test_the_program_goes_on_with_a_sweep_and_a_sweep_with_the_program(folder, monkeypatch):
    words = ["simulate", "a.trace", "--eviction", "lru,lfu", "--slots", "25%,50%", "--json"]
    whole = hotset.run(*words)
    cells = sweep.cells("a.trace", eviction=["lru", "lfu"], slots=["25%", "50%"])
    hotset.run("simulate", "a.trace", "--eviction", "lru", "--slots", "25%,50%", "--json", "--resume", "done")
    instead(monkeypatch, folder, "")
    with ThreadPoolExecutor(2) as workers:
        sweep.run(cells, workers, folder="done")
        assert cells_run(folder) == 2
        sweep.run(cells, workers, folder="done")
    assert cells_run(folder) == 2
    sweep.merge(cells, "done", out="merged.json")
    assert pathlib.Path("merged.json").read_text() == whole
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    os.utime(folder / "done" / f"{cells[1].key}.json", (0, 0))
    assert hotset.run(*words, "--resume", "done") == whole
    assert os.stat(folder / "done" / f"{cells[1].key}.json").st_mtime == 0


def test_a_long_trace_is_cut_into_cells(folder):
    cells = sweep.cells("a.trace", sequences=["0:1", "1:3"], eviction=["lru", "lfu"], slots=["25%"])
    with ThreadPoolExecutor(2) as workers:
        sweep.run(cells, workers, folder="done")
    results = sweep.merge(cells, "done", out="merged.json")
    assert pathlib.Path("merged.json").read_text() == "[\n" + ",\n".join(serial(each)[:-1] for each in results) + "\n]\n"
    whole = hotset.Trace.load("a.trace")
    for result, first, end in zip(results, (0, 1), (1, 3)):
        rows = (whole.sequences >= first) & (whole.sequences < end)
        alone = hotset.Trace.from_arrays(
            numpy.array(whole.ids)[rows], experts=whole.experts, sequences=numpy.array(whole.sequences)[rows],
            steps=numpy.unique(numpy.array(whole.steps)[rows], return_inverse=True)[1].astype(numpy.uint32),
        )  # fmt: skip
        expected = hotset.simulate(alone, eviction=["lru", "lfu"], slots=["25%"])
        for run, by_hand in zip(result.runs, expected.runs):
            assert run["misses"] == by_hand["misses"] and run["by_sequence"] == by_hand["by_sequence"]
        assert result["trace"]["tokens"] == rows.sum()


def test_some_of_the_cells_are_merged_alone(folder):
    cells = sweep.cells(["a.trace", "b.trace"], **GRID)
    some = [cell for cell in cells if cell.options["eviction"] == "belady" and cell.trace == "a.trace"]
    with ThreadPoolExecutor(2) as workers:
        sweep.run(some[::-1], workers, folder="done")
    result = sweep.merge(some[::-1], "done", out="merged.json")
    assert [run["key"] for run in result.runs] == [cell.key for cell in some]
    assert pathlib.Path("merged.json").read_text() == serial(result)


def test_missing_cells_are_one_line(folder):
    cells = sweep.cells("a.trace", **GRID)
    with pytest.raises(hotset.Error, match="^8 of 8 cells are missing in nowhere, first lru 25% shared of a.trace; accepted"):
        sweep.merge(cells, "nowhere")
    assert not os.path.exists("nowhere")
    with ThreadPoolExecutor(2) as workers:
        sweep.run(cells[:3], workers, folder="done")
    with pytest.raises(hotset.Error, match="^5 of 8 cells are missing in done, first belady 50% shared of a.trace; accepted"):
        sweep.merge(cells, "done")


def test_progress_is_told_without_a_terminal_if_it_is_asked_for(folder, capfd):
    cells = sweep.cells("a.trace", eviction=["lru", "lfu"], slots=["25%", "50%"])
    with ThreadPoolExecutor(2) as workers:
        sweep.run(cells[:1], workers, folder="done")
        assert capfd.readouterr().err == ""
        sweep.run(cells, workers, folder="done", progress=True)
    assert capfd.readouterr().err == "hotset: sweep: 100 %  4 of 4 cells\n"


# --- what breaks


def test_damaged_files_are_reported_and_run_again(folder, monkeypatch, capfd):
    cells = sweep.cells("a.trace", **GRID)
    with ThreadPoolExecutor(2) as workers:
        sweep.run(cells, workers, folder="done")
        sweep.merge(cells, "done", out="before.json")
        paths = [folder / "done" / f"{cell.key}.json" for cell in cells]
        whole = [path.read_bytes() for path in paths]
        paths[0].write_bytes(whole[0][: len(whole[0]) // 2])
        paths[1].write_bytes(b"")
        paths[2].write_bytes(whole[3])
        paths[4].write_bytes(whole[4].replace(b'"hits":', b'"hits":1', 1))
        capfd.readouterr()
        with pytest.raises(hotset.Error, match="^4 of 8 cells are missing"):
            sweep.merge(cells, "done")
        said = capfd.readouterr().err.splitlines()
        assert len(said) == 4
        assert all(re.fullmatch(r"hotset: done/[0-9a-f]{16}\.json: damaged \(.*\); taken as missing", line) for line in said)
        instead(monkeypatch, folder, "")
        sweep.run(cells, workers, folder="done")
    assert len(capfd.readouterr().err.splitlines()) >= 4
    assert cells_run(folder) == 4
    assert [path.read_bytes() for path in paths] == whole
    sweep.merge(cells, "done", out="after.json")
    assert pathlib.Path("after.json").read_bytes() == pathlib.Path("before.json").read_bytes()


def test_a_full_disk_fails_cells_and_loses_none(folder, monkeypatch):
    cells = sweep.cells("a.trace", **GRID)
    with ThreadPoolExecutor(2) as workers:
        sweep.run(cells[:2], workers, folder="done")
        with monkeypatch.context() as full:
            instead(full, folder, "ulimit -f 1")
            with pytest.raises(
                hotset.Error,
                match=r"^6 of 8 cells failed, first .* of a.trace: done/[0-9a-f]+\.json: cannot be written: File too large: "
                r"\d+ of \d+ bytes fitted; the same call runs them again and keeps what done has$",
            ):
                sweep.run(cells, workers, folder="done")
        assert files("done") == sorted(f"{cell.key}.json" for cell in cells[:2])
        sweep.run(cells, workers, folder="done")
    assert sweep.merge(cells, "done")["results"] == hotset.simulate("a.trace", **GRID)["results"]


def test_a_folder_that_cannot_be_used_is_refused_before_anything_runs(folder, monkeypatch):
    cells = sweep.cells("a.trace", slots="25%")
    (folder / "file").touch()
    instead(monkeypatch, folder, "")
    with ThreadPoolExecutor(1) as workers:
        for path in ("file", "file/below", "/proc/below"):
            with pytest.raises(hotset.Error, match=f"^{path}: cannot be used.*accepted: a folder"):
                sweep.run(cells, workers, folder=path)
    assert cells_run(folder) == 0
    if os.geteuid() != 0:
        (folder / "locked").mkdir(0o500)
        with ThreadPoolExecutor(1) as workers, pytest.raises(hotset.Error, match="1 of 1 cells failed.*Permission denied"):
            sweep.run(cells, workers, folder="locked")


def test_a_trace_that_changed_is_refused(folder, monkeypatch):
    cells = sweep.cells("a.trace", slots="25%")
    with ThreadPoolExecutor(1) as workers:
        sweep.run(cells, workers, folder="done")
        made("a.trace", 5)
        instead(monkeypatch, folder, "")
        with pytest.raises(hotset.Error, match="^lru 25% shared of a.trace: the trace or hotset has changed"):
            sweep.run(cells, workers, folder="done")
        with pytest.raises(hotset.Error, match="has changed"):
            sweep.merge(cells, "done")
        assert cells_run(folder) == 0
        with pytest.raises(hotset.Error, match="--only: no run has the key"):  # as on a worker
            sweep._replay(cells[0], "done", os.getcwd())


def test_one_cell_that_fails_does_not_stop_the_others(folder, monkeypatch):
    cells = sweep.cells("a.trace", **GRID)
    instead(monkeypatch, folder, f'case "$*" in *{cells[0].key}*) kill -9 $$;; esac')
    with ThreadPoolExecutor(1) as workers, pytest.raises(hotset.Error, match="^1 of 8 cells failed, first lru.*signal 9"):
        sweep.run(cells, workers, folder="done")
    assert files("done") == sorted(f"{cell.key}.json" for cell in cells[1:])


def test_a_failure_of_any_kind_is_one_line(folder):
    class Failing(Executor):
        def submit(self, *_):
            future = Future()
            future.set_exception(ValueError("one\ntwo"))
            return future

    with pytest.raises(hotset.Error, match=r"^1 of 1 cells failed, first .*: ValueError: .*; the same call.* done has$") as failed:
        sweep.run(sweep.cells("a.trace", slots="25%"), Failing(), folder="done")
    assert "\n" not in str(failed.value)


def test_a_pool_that_is_broken_already_is_one_line(folder):
    cells = sweep.cells("a.trace", **GRID)
    with ProcessPoolExecutor(1) as workers:
        with pytest.raises(BrokenProcessPool):
            workers.submit(os._exit, 1).result()
        with pytest.raises(hotset.Error, match=r"^8 of 8 cells failed, .* a worker ended early \(BrokenProcessPool") as failed:
            sweep.run(cells, workers, folder="done")
    assert "\n" not in str(failed.value)


# --- killed workers and drivers

DRIVER = """
import os, pathlib, sys
from hotset import sweep

def note():
    pathlib.Path("workers", str(os.getpid())).touch()

def main(kind):
    cells = sweep.cells(["a.trace", "b.trace"], eviction=["lru", "lfu", "belady"], slots=["25%", "50%"], scope=["shared", "per-layer"])
    if kind == "pool":
        from concurrent.futures import ProcessPoolExecutor
        with ProcessPoolExecutor(2, initializer=note) as workers:
            sweep.run(cells, workers, folder="done")
    else:
        import dask
        from distributed import Client, LocalCluster
        dask.config.set({"distributed.scheduler.allowed-failures": 0 if kind == "strict dask" else 3})
        with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
            with Client(cluster) as client:
                client.run(note)
                sweep.run(cells, client.get_executor(), folder="done")
    sweep.merge(cells, "done", out="merged.json")

if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except sweep.Error as why:
        sys.exit(f"failed: {why}")
"""
CELLS = 24
HELD = 'while [ "$(ls done | grep -c json)" -ge "$(cat most)" ]; do sleep 0.02; done'
"""Ahead of a cell: waits while the folder has the cells that `hold` allows. Two workers may make one more."""


def hold(cells):
    pathlib.Path("most.new").write_text(str(cells))
    os.replace("most.new", "most")


class Driver:
    """A driver in a session of its own, in the working folder."""

    def __init__(self, kind):
        pathlib.Path("driver.py").write_text(DRIVER)
        pathlib.Path("workers").mkdir(exist_ok=True)
        for old in files("workers"):
            os.unlink(f"workers/{old}")
        self.process = subprocess.Popen(
            [sys.executable, "-B", "driver.py", kind], stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def wait_for(self, cells):
        """Until the folder has so many."""
        deadline = time.monotonic() + 60
        while not os.path.isdir("done") or len([name for name in files("done") if name.endswith(".json")]) < cells:
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def kill_a_worker(self):
        os.kill(int(files("workers")[0]), signal.SIGKILL)

    def end(self):
        """Waits, then kills what it left running. Returns the exit code and standard error."""
        self.process.wait(timeout=120)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        said = self.process.communicate()[1]
        return self.process.returncode, said

    def kill(self):
        """Kills the driver alone, then what it left running."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.end()


def results_of(folder):
    return {name: (os.stat(f"{folder}/{name}").st_mtime_ns) for name in files(folder) if name.endswith(".json")}


def expect_the_serial_result():
    code, said = Driver("pool").end()
    assert code == 0, said
    text = pathlib.Path("merged.json").read_text()
    assert text == serial(json.loads(text)[0])


def test_killed_workers_and_a_killed_driver_lose_nothing_finished(folder, monkeypatch):
    instead(monkeypatch, folder, HELD)
    hold(5)
    first = Driver("pool")
    first.wait_for(5)
    first.kill_a_worker()
    code, said = first.end()
    assert code == 1
    assert re.fullmatch(
        r"failed: \d+ of 24 cells failed, first .*: a worker ended early \(BrokenProcessPool: .*\); "
        r"the same call runs them again and keeps what done has\n",
        said,
    )
    kept = results_of("done")
    assert 5 <= len(kept) <= 6
    hold(12)
    second = Driver("pool")
    second.wait_for(12)
    second.kill()
    later = results_of("done")
    assert 12 <= len(later) <= 13
    hold(CELLS)
    expect_the_serial_result()
    final = results_of("done")
    assert len(final) == CELLS and {name: final[name] for name in later} == {**later, **kept}
    assert cells_run(folder) <= CELLS + 4, "at most the cells that ran on the two workers ran again"


def test_dask_runs_the_cells_of_killed_workers_again(folder, monkeypatch):
    pytest.importorskip("distributed", reason="distributed is not installed")
    instead(monkeypatch, folder, HELD)
    hold(5)
    first = Driver("dask")
    first.wait_for(5)
    first.kill_a_worker()
    hold(12)
    first.wait_for(12)
    first.kill()
    kept = results_of("done")
    assert 12 <= len(kept) <= 14
    hold(CELLS)
    code, said = Driver("dask").end()
    assert code == 0, said
    text = pathlib.Path("merged.json").read_text()
    assert text == serial(json.loads(text)[0])
    final = results_of("done")
    assert len(final) == CELLS and {name: final[name] for name in kept} == kept


def test_a_cell_that_kills_its_workers_on_dask_is_one_line(folder, monkeypatch):
    pytest.importorskip("distributed", reason="distributed is not installed")
    instead(monkeypatch, folder, HELD)
    hold(5)
    first = Driver("strict dask")
    first.wait_for(5)
    first.kill_a_worker()
    hold(CELLS)
    code, said = first.end()
    assert code == 1
    assert re.search(r"^failed: \d+ of 24 cells failed, first .*: a worker ended early \(KilledWorker: .*\); the same call", said, re.M)
    expect_the_serial_result()


def test_two_drivers_of_one_folder_agree(folder, monkeypatch):
    instead(monkeypatch, folder, "sleep 0.1")
    drivers = [Driver("pool"), Driver("pool")]
    for driver in drivers:
        code, said = driver.end()
        assert code == 0, said
    assert len(results_of("done")) == len(files("done")) == CELLS
    text = pathlib.Path("merged.json").read_text()
    assert text == serial(json.loads(text)[0])
    assert CELLS < cells_run(folder) <= 2 * CELLS
