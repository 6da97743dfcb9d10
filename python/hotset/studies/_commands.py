# SPDX-License-Identifier: Apache-2.0
"""The studies as commands of `python3 -m hotset`."""

from __future__ import annotations

import argparse
import gzip
import io
import lzma
import os
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, Optional

from hotset import _plot, _report, _top, importers
from hotset._errors import InvalidArgument, InvalidConfig
from hotset.studies import (
    _console,
    coactivation,
    diff,
    expert_selection,
    train_gate,
    working_set,
)
from hotset.studies._console import Parser, Usage

_MOST = 2**31 - 1
_SEEDS = 2**64 - 1


# coactivation

_STUDY_TITLES = (
    "user, tokens, personal %, population %, others %, popular %, cap, population's cap, wins"
)


def _coactivation(words: Sequence[str]) -> int:
    parser = Parser(
        "coactivation",
        "Learns, merges, saves and evaluates users' tables of experts that are used together.",
        "python3 -m hotset coactivation monday.trace --save me.table --evaluate tuesday.trace",
        "python3 -m hotset coactivation --load me.table --load you.table --coverage 0.99",
        "python3 -m hotset coactivation code.trace math.trace --study personal-vs-population"
        " --sizes 64,256",
    )
    add = parser.add_argument
    add(
        "traces",
        nargs="*",
        metavar="TRACE",
        help="traces of one model to learn from, one user each",
    )
    add(
        "--load",
        action="append",
        default=[],
        metavar="FILE",
        help="a saved table of a user, merged first; repeatable",
    )
    add("--save", metavar="FILE", help="write the merged table")
    add(
        "--evaluate",
        metavar="TRACE",
        help="an unseen trace on which the table's forecasts of each next layer are evaluated",
    )
    parser.number(
        "--reach", 0, 0, 64, "earlier layers that a forecast uses; 0: as in the loaded tables, or 4"
    )
    parser.number("--decay", 0.8, 1e-6, 1.0, "weight of a layer relative to the next nearer one")
    parser.number("--coverage", 0.95, 1e-6, 1.0, "share of the uses that the cap covers")
    add(
        "--study",
        metavar="NAME",
        help=(
            "compare by training size: personal-vs-population (a user's table with that of all"
            " users)"
        ),
    )
    add(
        "--sizes",
        action="append",
        metavar="LIST",
        help="training tokens of each user, such as 64,256; tokens after the largest are held out",
    )
    add(
        "--users",
        metavar="NAME",
        help="unit of a user: traces (default), or sequences of the traces",
    )
    add("--json", action="store_true", help=f"print JSON (schema {coactivation.SCHEMA})")
    add("--out", metavar="FILE", help="file to write (default: standard output)")
    parser.reading()
    options = parser.given(words)
    for name in ("sizes", "users"):
        if getattr(options, name) and not options.study:
            parser.error(f"--{name} requires --study")
    for name in ("load", "save", "evaluate"):
        if getattr(options, name) and options.study:
            parser.error(f"--{name} excludes --study")
    return _study(options) if options.study else _tables(options)


def _users(path: str, options: argparse.Namespace) -> list[coactivation.User]:
    """Names users by file, because traces of one model often share its name."""
    trace = _console.open_trace(path, options)
    name = "stdin" if path == "-" else os.path.basename(path)
    if options.users == "sequences":
        return coactivation.users_by_sequence(trace, name)
    return [coactivation.user_of(trace, name)]


def _tables(options: argparse.Namespace) -> int:
    if not options.traces and not options.load:
        raise Usage("coactivation: nothing to learn from; accepted: traces, or --load")
    saved = _console.output(options.save, binary=True) if options.save else None
    out = _console.output(options.out)
    paths = options.traces + ([options.evaluate] if options.evaluate else [])
    users = [user for path in paths for user in _users(path, options)]
    for path, user in zip(paths, users):
        if user.shape_text != users[0].shape_text:
            raise Usage(
                f"{path}: {user.shape_text}; accepted: {users[0].shape_text}, as {paths[0]}"
            )
    loaded = [(path, _read_table(path)) for path in options.load]
    layers, experts, reach = coactivation.Table.shape_of(loaded[0][1]) if loaded else (0, 0, 4)
    if users:
        layers, experts = users[0].ids.shape[1], users[0].experts
    shape = (layers, experts, options.reach or reach, options.decay)
    merged = coactivation.Table(*shape)
    rows = []

    def take(name: str, table: coactivation.Table) -> None:
        rows.append(_row(name, table, options.coverage))
        merged.merge(table)

    for path, data in loaded:
        table = coactivation.Table(*shape)
        try:
            table.load(data)
        except (InvalidArgument, InvalidConfig) as bad:
            raise type(bad)(f"{path}: {bad}") from bad
        take(os.path.basename(path), table)
    for user in users[: len(options.traces)]:
        table = coactivation.Table(*shape)
        table.learn(user.ids)
        take(user.name, table)
    report: dict[str, Any] = {
        "schema": coactivation.SCHEMA,
        "layers": layers,
        "experts": experts,
        "reach": merged.reach,
        "decay": options.decay,
        "coverage": options.coverage,
        "users": rows,
        "merged": _row("merged", merged, options.coverage),
        "evaluation": _evaluation(merged, users[-1]) if options.evaluate else None,
    }
    if saved:
        saved.write([merged.save()])
    _console.write_text(out, _console.json_line(report) if options.json else _tables_text(report))
    return _console.OK


def _read_table(path: str) -> bytes:
    data = _read(path)
    try:
        coactivation.Table.shape_of(data)
    except InvalidArgument as bad:
        raise InvalidArgument(f"{path}: {bad}") from bad
    return data


def _read(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as bad:
        raise InvalidArgument(
            f"{path}: cannot be opened: {bad.strerror}; accepted: a readable file"
        ) from bad


def _row(name: str, table: coactivation.Table, coverage: float) -> dict[str, Any]:
    cap, mean = coactivation.support_of(table, coverage)
    return {"name": name, "uses": table.uses, "cap": cap, "mean_support": mean}


def _evaluation(table: coactivation.Table, user: coactivation.User) -> dict[str, Any]:
    found = coactivation.judge(table, user.ids)
    return {
        "trace": user.name,
        "tokens": found.tokens,
        "places": found.places,
        "hits": found.hits,
        "precision": found.precision,
        "popular_precision": found.popular_precision,
    }


def _tables_text(report: dict[str, Any]) -> str:
    rows = report["users"] + ([report["merged"]] if len(report["users"]) > 1 else [])
    text = (
        f"{report['layers']} layers x {report['experts']} experts; reach {report['reach']}, decay"
        f" {_console.plain(report['decay'])}; experts of a layer for"
        f" {_console.plain(100 * report['coverage'])} % of the uses\n"
    )
    text += _console.table(
        ("user", "uses", "cap", "mean"),
        [
            (
                _console.shown(r["name"], 24),
                str(r["uses"]),
                str(r["cap"]),
                f"{r['mean_support']:.1f}",
            )
            for r in rows
        ],
    )
    found = report["evaluation"]
    if found:
        text += (
            f"{_console.shown(found['trace'], 40)}: {found['tokens']} tokens, next layer's experts"
            f" named {100 * found['precision']:.2f} % (the most used ones"
            f" {100 * found['popular_precision']:.2f} %)\n"
        )
    return text


def _study(options: argparse.Namespace) -> int:
    _console.one_of("--study", options.study, ("personal-vs-population",))
    _console.one_of("--users", options.users or "traces", ("traces", "sequences"))
    if not options.sizes:
        raise Usage("--study needs --sizes; accepted: tokens of training, such as 64,256")
    sizes = [_size(text) for text in ",".join(options.sizes).split(",")]
    out = _console.output(options.out)
    users = [user for path in options.traces for user in _users(path, options)]
    found = coactivation.compare(
        users, sizes, reach=options.reach or 4, decay=options.decay, coverage=options.coverage
    )
    _console.write_text(out, _console.json_line(found) if options.json else _study_text(found))
    return _console.OK


def _size(text: str) -> int:
    size = _console.whole(text)
    if not 1 <= size <= 1 << 32:
        raise _console.refused("--sizes", text, f"1..{1 << 32}")
    return int(size)


def _study_text(found: dict[str, Any]) -> str:
    most_shown = 8
    top_k, users = found["top_k"], found["users"]
    text = (
        f"{len(users)} users of {found['layers']} layers x {found['experts']} experts, top-{top_k};"
        f" reach {found['reach']}, decay {_console.plain(found['decay'])}; tested on"
        f" {sum(u['tested_tokens'] for u in users)} tokens; {len(found['left_out'])} users too"
        f" short\nprecision at {top_k} of the next layer, by tokens of training of each user; caps"
        f" at {_console.plain(100 * found['coverage'])} % of the uses\n"
    )
    rows = []
    if len(users) <= most_shown:
        for user in users:
            for cell in user["sizes"]:
                won = cell["personal"]["precision"] >= cell["population"]["precision"]
                rows.append(_study_row(user["name"], cell, "yes" if won else "no"))
    rows += [_study_row("all", cell, f"{cell['wins']}/{len(users)}") for cell in found["all"]]
    return text + _console.table(_STUDY_TITLES.split(", "), rows)


def _study_row(name: str, cell: dict[str, Any], wins: str) -> tuple[str, ...]:
    own = cell["personal"]
    shares = (
        own["precision"],
        cell["population"]["precision"],
        cell["others"]["precision"],
        own["popular_precision"],
    )
    caps = (own["cap"], cell["population"]["cap"])
    return (
        _console.shown(name, 20),
        str(cell["tokens"]),
        *(f"{100 * share:.2f}" for share in shares),
        *(f"{cap:.1f}" for cap in caps),
        wins,
    )


# train-gate


def _train_gate(words: Sequence[str]) -> int:
    parser = Parser(
        "train-gate",
        "Trains a predictor of the layers ahead on a trace's hidden states.",
        "python3 -m hotset train-gate hidden.trace --out model.gate",
        "python3 -m hotset train-gate hidden.trace --out model.gate --depth 4 --epochs 20",
        "hotset simulate hidden.trace --slots 25% --prefetch next_layer_top_k:depth=2 \\",
        "    --predictor learned-gate:weights=model.gate",
    )
    usual = train_gate.Training()
    add = parser.add_argument
    add("trace", metavar="TRACE", help="trace that recorded hidden states")
    add(
        "--out",
        required=True,
        metavar="FILE",
        help="weights to write, for --predictor learned-gate:weights=FILE",
    )
    parser.number("--depth", usual.depth, 1, _MOST, "layers ahead, each with separate networks")
    parser.number(
        "--width",
        usual.width,
        0,
        1 << 20,
        "hidden units of a network; 0: none, the networks are linear",
    )
    parser.number("--epochs", usual.epochs, 1, 1 << 20, "passes over the tokens")
    parser.number(
        "--seed", usual.seed, 0, _SEEDS, "the same seed gives the same weights on one machine"
    )
    parser.number(
        "--holdout",
        usual.holdout,
        0.0,
        0.99,
        "share of the sequences held out for evaluation; 0: none",
    )
    add(
        "--target",
        default=usual.target,
        metavar="NAME",
        help=(
            "training target: routed (1/K for each routed expert, the default), or probabilities"
            " (those of the trace)"
        ),
    )
    add("--json", action="store_true", help=f"print JSON (schema {train_gate.SCHEMA})")
    parser.reading()
    options = parser.given(words)
    _console.one_of("--target", options.target, train_gate.TARGETS)
    training = usual._replace(
        **{
            name: getattr(options, name)
            for name in ("depth", "width", "epochs", "seed", "holdout", "target")
        }
    )
    out = _console.output(options.out, binary=True)
    trace = _console.open_trace(options.trace, options)
    try:
        told = _console.progress(f"training on {_console.shown(trace.metadata['name'], 40)}")
        weights, report = train_gate.train(trace, training, told)
    except InvalidArgument as bad:
        raise InvalidArgument(f"{options.trace}: {bad}") from bad
    text = _console.json_line(report) if options.json else _gate_text(report, len(weights.places))
    _console.write_and_report(out, weights.save(), text)
    return _console.OK


def _gate_text(report: dict[str, Any], networks: int) -> str:
    learnt, judged = report["learnt"], report["judged"]
    text = (
        f"{report['layers']} layers x {report['experts']} experts, hidden states of"
        f" {report['d_model']}; {networks} networks of width {report['width']}, {report['epochs']}"
        f" epochs; learnt from {learnt['tokens']} tokens of {learnt['sequences']} sequences\n"
    )
    distances = report["distances"]
    if not distances:
        return text
    text += (
        f"precision at {report['top_k']} in %, of {judged['tokens']} tokens of"
        f" {judged['sequences']} sequences that were held out\n"
    )
    columns = {
        "precision": "learned gate",
        "most_used": "most used",
        "current_gate": "current gate",
        "recorded": "recorded",
    }
    told = [key for key in columns if distances[0][key] is not None]
    rows = [
        (str(d["distance"]), *("-" if d[key] is None else f"{100 * d[key]:.2f}" for key in told))
        for d in distances
    ]
    # Right-aligns the distance, which is a number, too.
    rows = [(row[0].rjust(len("layers ahead")), *row[1:]) for row in rows]
    return text + _console.table(("layers ahead", *(columns[key] for key in told)), rows)


# working-set


def _working_set(words: Sequence[str]) -> int:
    parser = Parser(
        "working-set",
        "Measures how concentrated and how local the routing of a trace is: bursts, overlap,"
        " growth, agreement.",
        "python3 -m hotset working-set routes.trace",
        "python3 -m hotset working-set --burst 16 --json routes.csv",
    )
    many = 2**32 - 1
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="traces of any known format")
    parser.number("--burst", 32, 1, many, "steps of a burst; a prompt is one burst")
    parser.number(
        "--distances", 32, 1, many, "largest distance for agreement, measured at 1, 2, 4, ... steps"
    )
    parser.number(
        "--seed", 1, 0, _SEEDS, "seed of the shuffled order that agreement is compared with"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help=f"print JSON (schema {working_set.SCHEMA}): an object, or an array for several traces",
    )
    parser.reading()
    options = parser.given(words)
    found = []
    for path in options.traces:
        trace = _console.open_trace(path, options)
        told = _console.progress(_console.shown(trace.metadata["name"], 40))
        measured = working_set.measure(
            trace, burst=options.burst, distances=options.distances, seed=options.seed, told=told
        )
        found.append({"schema": working_set.SCHEMA, "trace": trace.metadata["name"], **measured})
    if options.json:
        text = _console.json_line(found[0] if len(found) == 1 else found)
    elif len(found) == 1:
        text = working_set.to_text(found[0])
    else:
        text = "\n".join(f"{one['trace']}\n{working_set.to_text(one)}" for one in found)
    _console.write_text(_console.output(None), text)
    return _console.OK


# select-experts


def _select_experts(words: Sequence[str]) -> int:
    parser = Parser(
        "select-experts",
        "Selects the experts that ESFT tunes for a task.",
        "python3 -m hotset select-experts intent.summary.json --out intent.json",
        "python3 -m hotset select-experts esft-law.tar.xz --score gate --p 0.1",
    )
    add = parser.add_argument
    add(
        "summary",
        metavar="SUMMARY",
        help=(
            "scores of a task's experts: a summary.json, or a folder or archive with one or with"
            " expert_weights_<layer>.txt"
        ),
    )
    add(
        "--score",
        default="token",
        metavar="NAME",
        help=(
            "token (share of the routed places, the default), gate (mean gate weight; a layer's sum"
            " is not 1)"
        ),
    )
    parser.number(
        "--p",
        0.2,
        0.0,
        1.0,
        "threshold: a layer's best experts are taken while the earlier ones sum to less",
    )
    add("--out", metavar="FILE", help="file to write (default: standard output)")
    options = parser.given(words)
    if options.p == 0:
        raise _console.refused("--p", "0", "more than 0, at most 1")
    _console.one_of("--score", options.score, expert_selection.SCORES)
    out = _console.output(options.out)
    summary = _summary_of(options.summary, options.score)
    text = expert_selection.config_text(summary, options.p)
    _console.write_text(out, text)
    if not out.is_standard_output:
        counts = [
            len(expert_selection.select_experts(scores, options.p)) for scores in summary.values()
        ]
        total, most = sum(counts), max(counts)
        report = f"{out.name}: {len(counts)} layers, {total} experts, at most {most} of a layer\n"
        _console.write_text(_console.output(None), report)
    return _console.OK


def _summary_of(path: str, score: str) -> expert_selection.Summary:
    held = _summary_text(path)
    if held is not None:
        text, name = held
        return expert_selection.parse_summary(text, name, score)
    reading = argparse.Namespace(reading_format=["esft"])
    try:
        return expert_selection.score_trace(_console.open_trace(path, reading), score)
    except InvalidArgument as bad:
        raise InvalidArgument(str(bad) if str(bad).startswith(path) else f"{path}: {bad}") from bad


def _summary_text(path: str) -> Optional[tuple[bytes, str]]:
    """Text and name of a summary, for messages; None for records without one."""
    name = "summary.json"
    if os.path.isdir(path):
        inside = os.path.join(path, name)
        return (_read(inside), inside) if os.path.exists(inside) else None
    if os.path.basename(path).startswith("expert_weights_"):
        return None
    data = _read(path)
    files = _files_of(data)
    if files is not None:
        found = [text for inside, text in files if os.path.basename(inside) == name]
        return (found[0], f"{path}: {name}") if found else None
    for unpack in (gzip.decompress, lzma.decompress):
        try:
            return unpack(data), path
        except (OSError, EOFError, lzma.LZMAError):
            continue
    return data, path


def _files_of(data: bytes) -> Optional[list[tuple[str, bytes]]]:
    """Names and bytes of an archive's JSON files; None for other data."""
    held = io.BytesIO(data)
    if zipfile.is_zipfile(held):
        with zipfile.ZipFile(held) as packed:
            return [(n, packed.read(n)) for n in packed.namelist() if n.endswith(".json")]
    held.seek(0)
    try:
        with tarfile.open(fileobj=held) as archive:
            members = [
                (m.name, archive.extractfile(m)) for m in archive if m.name.endswith(".json")
            ]
            return [(name, file.read()) for name, file in members if file]
    except (tarfile.TarError, OSError, EOFError, lzma.LZMAError):
        return None


# diff


def _diff(words: Sequence[str]) -> int:
    parser = Parser(
        "diff",
        "Compares two results of hotset simulate --json. Rows are matched by trace, policies, scope,"
        " replay, slots, budget, precision and link; so are the facts of each trace. Marks: ~ changed,"
        " - only in A, + only in B. Exit code 0: equal; 1: different.",
        "python3 -m hotset diff before.json after.json",
        "python3 -m hotset diff before.json after.json --tolerance 0.01",
    )
    parser.add_argument("a", metavar="A", help="result before")
    parser.add_argument("b", metavar="B", help="result after")
    parser.number(
        "--tolerance", 0.0, 0.0, 1.0, "accept numbers that differ by this share of the larger one"
    )
    options = parser.given(words)
    before, after = (diff.read(_read(path), path) for path in (options.a, options.b))
    found = diff.compare(before, after, options.tolerance)
    counts = (
        f"{found.equal} rows equal, {found.changed} changed, {found.removed} removed,"
        f" {found.added} added"
    )
    _console.write_text(_console.output(None), "\n".join([*found.lines, counts]) + "\n")
    return _console.FAILURE if found.lines else _console.OK


def _convert(words: Sequence[str]) -> int:
    parser = Parser(
        "convert",
        "Converts what only Python reads to what every command reads.",
        "python3 -m hotset convert expert_distribution_recorder.pt counts.json",
        "python3 -m hotset convert routes.parquet routes.jsonl",
    )
    parser.add_argument(
        "input",
        metavar="IN",
        help=(
            "a .pt file (a tensor of routed experts, or SGLang's expert-distribution recorder), or"
            " Parquet"
        ),
    )
    parser.add_argument(
        "out", metavar="OUT", help="file to write: a trace, counts as JSON, or rows as JSON lines"
    )
    parser.number(
        "--experts", 0, 0, _MOST, "experts per layer of a tensor; 0: the highest id + 1"
    )
    options = parser.given(words)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        written = importers.convert(options.input, options.out, options.experts)
    for one in said:
        sys.stderr.write(f"{one.message}\n")
    print(f"{options.out}: {written}")
    return _console.OK


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "coactivation": _coactivation,
    "convert": _convert,
    "diff": _diff,
    "plot": _plot.plot,
    "report": _report.report,
    "select-experts": _select_experts,
    "top": _top.main,
    "train-gate": _train_gate,
    "working-set": _working_set,
}


def run(words: Sequence[str]) -> int:
    """Runs the study named by the first word. Returns its exit code."""
    return _console.guarded(lambda: COMMANDS[words[0]](words[1:]))
