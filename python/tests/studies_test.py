# SPDX-License-Identifier: Apache-2.0
"""Properties of every study: docs/studies.md shows the real output; sources of inputs, targets of
outputs."""

import gzip
import os
import pathlib
import re
import stat
import subprocess
import sys

import pytest
from made_traces import json_of, made, one_layer, refused, run, wild

import hotset
from hotset import _program
from hotset.studies import _console

SOURCE = pathlib.Path(os.environ.get("HOTSET_SOURCE_DIR") or pathlib.Path(__file__).parents[2])
STUDIES = ("coactivation", "convert", "diff", "select-experts", "train-gate", "working-set")


def shell(folder, script):
    """A shell with this test's program and package."""
    head = 'hotset() { "$PROGRAM" "$@"; }; python3() { "$PYTHON" -B "$@"; }\n'
    given = {**os.environ, "PROGRAM": _program.program(), "PYTHON": sys.executable}
    done = subprocess.run(["bash", "-c", head + script], cwd=folder, env=given, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def examples():
    """(command, printed output) of the console blocks."""
    text = (SOURCE / "docs" / "studies.md").read_text()
    for block in re.findall(r"```console\n(.*?)```", text, re.S):
        for shown in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, printed = shown.partition("\n")
            yield command, printed


def test_the_document_shows_what_is_printed(tmp_path):
    shown = list(examples())
    assert len(shown) >= 12
    code = 0
    for command, printed in shown:
        code, said = shell(tmp_path, f"(exit {code})\n{command}")
        assert said == printed, command


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_has_help_with_examples(tmp_path, study):
    done = run(tmp_path, study, "--help")
    assert done.code == 0 and done.err == ""
    assert f"python3 -m hotset {study}" in done.out and "Examples:" in done.out


def test_every_other_command_is_the_programs(tmp_path):
    assert run(tmp_path, "synth", "t.trace", "--tokens", "20").out.startswith("t.trace: 20 tokens")
    assert json_of(tmp_path, "info", "t.trace", "--json")["tokens"] == 20
    assert run(tmp_path).out == run(tmp_path, "help").out
    assert run(tmp_path, "infos").code == 2
    assert run(tmp_path, "--version").out == f"hotset {hotset.version()}\n"


def test_traces_of_other_formats_come_through_the_program(tmp_path):
    (tmp_path / "h.csv").write_text("layer,expert\n0,1\n1,2\n0,3\n1,4\n")
    found = json_of(tmp_path, "working-set", "h.csv", "--top-k", 1, "--json")
    assert (found["pool"], found["trace"]) == (2 * 5, "h")
    packed = tmp_path / "h.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "h.csv").read_bytes()))
    assert json_of(tmp_path, "working-set", "h.csv.gz", "--top-k", 1, "--json")["pool"] == 10
    trace = wild(1, layers=2, experts=8, top_k=2, tokens=30)
    trace.save(tmp_path / "t.trace")
    assert (
        json_of(tmp_path, "working-set", "t.trace", "--first", 10, "--json")["sequence_footprint"]["end"]["sequences"]
        == 1
    )
    cut = json_of(tmp_path, "working-set", "t.trace", "--as", "prefill:5", "--json")
    assert cut["bursts"]["prefill"]["count"] == 1 and cut["bursts"]["decode"]["count"] == 0
    refused(tmp_path, 2, "working-set", "t.trace", "--format", "natve", None, "did you mean native?")
    refused(tmp_path, 4, "working-set", "t.trace", "--format", "csv", None, "t.trace")


def test_standard_input_and_pipes_by_name_are_read(tmp_path):
    trace = wild(1, layers=2, experts=8, top_k=2, tokens=30)
    trace.save(tmp_path / "t.trace")
    wanted = run(tmp_path, "working-set", "t.trace").out
    for command in (
        "cat t.trace | python3 -m hotset working-set -",
        "python3 -m hotset working-set - <t.trace",
        "mkfifo pipe; cat t.trace >pipe & python3 -m hotset working-set pipe",
    ):
        assert shell(tmp_path, command) == (0, wanted), command


def test_a_trace_that_means_nothing_is_refused(tmp_path):
    good = made([[[0, 1]], [[1, 2]]], 4)
    path = tmp_path / "bad.trace"

    def bad(**changes):
        facts = {**good.metadata, **changes.pop("metadata", {})}
        arrays = {n: a for n, a in {**good.arrays, **changes}.items() if a is not None}
        hotset.Trace(arrays, facts).save(path)

    for changes, words in (
        ({"ids": good.ids + 3}, "bad.trace: ids: an expert 4, accepted: 0..3, or 65535 (absent)"),
        ({"step": good.steps[::-1].copy()}, "step: falls"),
        ({"kind": good.kinds + 3}, "kind: 3, accepted: 0 (decode)"),
        ({"step": None}, "tensor 'step': is missing"),
        ({"sequence": good.sequences[:1]}, "tensor 'sequence': is uint32 [1]; accepted: uint32 [2]"),
        ({"weights": good.ids}, "tensor 'weights': is uint16"),
        ({"metadata": {"experts": "many"}}, "experts is 'many'; accepted: 1..65535"),
    ):
        bad(**changes)
        refused(tmp_path, 4, "working-set", path.name, None, words)
    path.write_bytes(path.read_bytes()[:-20])
    refused(tmp_path, 4, "working-set", path.name, None, "bad.trace")


def test_an_empty_name_is_the_files(tmp_path):
    one_layer(4, [[0, 1]]).save(tmp_path / "named.trace")
    made([[[0]]], 2, name="").save(tmp_path / "file.trace")
    assert json_of(tmp_path, "working-set", "named.trace", "--json")["trace"] == "hand"
    assert json_of(tmp_path, "working-set", "file.trace", "--json")["trace"] == "file"


def test_outputs_replace_whole_files_and_write_pipes_through(tmp_path):
    one_layer(4, [[0, 1], [2, 3]]).save(tmp_path / "t.trace")
    command = "python3 -m hotset coactivation t.trace"
    _, wanted = shell(tmp_path, command)
    (tmp_path / "real").write_text("earlier")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to("real")
    assert shell(tmp_path, f"{command} --out link") == (0, "")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == wanted
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o600
    assert shell(tmp_path, f"umask 027; {command} --out new; stat -c %a new") == (0, "640\n")
    for script in (
        f"{command} --out -",
        f"{command} --out /dev/stdout",
        f"mkfifo pipe; cat pipe & {command} --out pipe; wait",
        f"{{ {command}; }} >all; {{ echo before; {command} --out /dev/stdout; echo after; }} >both; sed '1d;$d' both",
    ):
        assert shell(tmp_path, script) == (0, wanted), script
    code, said = shell(tmp_path, f"{command} --out /dev/full")
    assert code == 1 and said == "hotset: /dev/full: cannot be written: No space left on device\n"
    assert shell(tmp_path, f"{command} | head -c 5; exit ${{PIPESTATUS[0]}}") == (0, wanted[:5])
    code, said = shell(tmp_path, f"{command} >&-")
    assert code == 1 and said == "hotset: standard output: cannot be written: Bad file descriptor\n"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".hotset-")]


def test_numbers_and_names_are_shown_in_the_fewest_digits_and_cut():
    assert [_console.plain(x) for x in (0.8, 1.0, 95.0, 1e-06)] == ["0.8", "1", "95", "1e-06"]
    assert _console.shown("a\nb\x1b", 9) == "a?b?"
    assert _console.shown("abcdef", 3) == "abc..."
    assert _console.table(("user", "n"), [("a", "1"), ("bcdef", "10")]) == "user    n\na       1\nbcdef  10\n"
