#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a paper's published points beside ours, which this folder's scripts measure.

    benchmarks/reproduction/figures.py wisp-throughput build/release

writes docs/pictures/papers/wisp-throughput.svg; `all` instead of a name draws every figure. Published points and their
tables are in published.json. HOTSET_DATA_DIR names the folder of recorded traces: figures that need it say so.
"""
import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PICTURES = ROOT / "docs/pictures/papers"
PUBLISHED = json.loads((HERE / "published.json").read_text())
MODELS = {"olmoe": "OLMoE", "mixtral": "Mixtral", "phi-3.5": "Phi-3.5", "qwen1.5": "Qwen1.5", "llama-moe": "LLaMA-MoE",
          "tiny-moe": "tiny-moe"}
GIB = 1 << 30
NEEDS_DATA = "accepted: HOTSET_DATA_DIR with the folders that CONTRIBUTING.md describes"


class Failed(Exception):
    """One line for the user."""


class Measured:
    """Runs the programs of a build folder."""

    def __init__(self, build, kept):
        self.build, self.kept = Path(build), kept and Path(kept)

    def study(self, script, name):
        """Returns the tables that `script BUILD_DIR name` prints, from the folder of kept tables if they are there."""
        file = self.kept and self.kept / f"{script}-{name}.txt"
        if file and file.exists():
            return file.read_text()
        text = self._run(["bash", str(HERE / f"{script}.sh"), str(self.build), name])
        if file:
            self.kept.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return text

    def hotset(self, *arguments):
        """Returns the JSON that the program prints."""
        return json.loads(self._run([str(self.build / "hotset"), *map(str, arguments), "--json"]))

    @staticmethod
    def _run(command):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: exit code {done.returncode}; its own message is above")
        return done.stdout


def published(name):
    return PUBLISHED[name]["rows"]


def sections(text):
    """Returns {heading: lines}; a heading begins with `-- `."""
    found, lines = {}, []
    for line in text.splitlines():
        if line.startswith("-- "):
            lines = found.setdefault(line[3:], [])
        else:
            lines.append(line)
    return found


def section(text, start):
    """Returns the lines of the one section whose heading starts so."""
    for heading, lines in sections(text).items():
        if heading.startswith(start):
            return lines
    raise Failed(f"a study printed no section '{start}'; accepted: tables of the same version as figures.py")


def tables(lines):
    """Returns {title: {name of a row: cells}} of Markdown tables; the title is the first cell of the header."""
    found, rows, header = {}, None, None
    for line in lines:
        cells = [cell.strip().replace("`", "") for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("|---"):
            rows = found.setdefault(header, {})
        elif not line.startswith("|"):
            rows = None
        elif rows is None:
            header = cells[0]
        else:
            rows[cells[0]] = cells[1:]
    return found


def number(text):
    return float(text.replace("%", ""))


# --- Vega-Lite

LOOK = json.loads((ROOT / "python/hotset/figures/themes.json").read_text())["light"]
PALETTE = LOOK["range"]["category"]
PAPER = "#9a9a9a"


def svg(specification, build):
    """Draws by the build folder's Python package, as `hotset plot` does."""
    sys.path.insert(0, str(Path(build) / "python"))
    try:
        from hotset import _draw
        from hotset._errors import Error
    except ImportError as missing:
        raise Failed(f"{missing}; accepted: NumPy, and a build folder with the target python_package built")
    try:
        return _draw.drawn([{**specification, "config": LOOK}], "svg", "")
    except Error as reason:
        raise Failed(reason)


def channel(field, title=None, **rest):
    """Returns an encoding: a field as `name:Q`, and its title, or none."""
    name, kind = field.split(":")
    return {"field": name, "type": {"Q": "quantitative", "N": "nominal", "O": "ordinal"}[kind], "title": title, **rest}


def sources(*ours, field="source"):
    """Colours by source: grey is the paper."""
    return channel(f"{field}:N", scale={"domain": ["paper", *ours], "range": [PAPER, *PALETTE[:len(ours)]]}, sort=None)


def bars(rows, category, value, *, colour, title, size, facet=None, order=None, value_title, digits):
    """Returns horizontal bars in groups, with the value at the end of each."""
    y = channel(f"{category}:N", sort=order, axis={"title": None, "labelLimit": 260})
    offset = channel("source:N", sort=colour["scale"]["domain"])
    x = channel(f"{value}:Q", value_title, axis={"labelFlush": False})
    shared = {"y": y, "yOffset": offset, "x": x}
    unit = {
        "width": size[0], "height": {"step": size[1]},
        "layer": [
            {"mark": {"type": "bar"}, "encoding": {**shared, "color": colour}},
            {"mark": {"type": "text", "align": {"expr": f"datum.{value} < 0 ? 'right' : 'left'"},
                      "dx": {"expr": f"datum.{value} < 0 ? -3 : 3"}, "fontSize": 9},
             "encoding": {**shared, "text": channel(f"{value}:Q", format=digits)}},
        ],
    }
    return {"title": title, "data": {"values": rows}, **(faceted(unit, facet) if facet else unit)}


def faceted(unit, facet):
    """Returns panels by `row` and `column`, or by one field that fills two columns."""
    wrapped = {"columns": 2} if "field" in facet else {}
    return {"facet": facet, "spec": unit, **wrapped}


def heading(text, name, command):
    """Returns a title with the source of the published points and the command of ours, or its script and study."""
    script, _, study = command.partition(" ")
    if script in ("wisp", "specmd", "activeevict", "fmoe"):
        command = f"benchmarks/reproduction/{script}.sh build/release {study}"
    return {"text": text, "subtitle": [f"theirs: {PUBLISHED[name]['source']}", f"ours: {command}"], "anchor": "start"}


# --- The figures

def wisp_throughput(measured):
    rows = []
    arms = {"in place": ("offload", "ours: in place"), "gemma": ("paged", "ours: Gemma's routing"),
            "esft-law": ("paged", "ours: DeepSeek-V2-Lite's routing"),
            "synthetic": ("paged", "ours: synthetic routing")}
    labels = {"paged": "experts paged (WiSP)", "offload": "experts in host memory (static offload)"}
    for line in section(measured.study("wisp", "table2"), "ms a step for 384 experts"):
        name = line[:34].strip()
        if name in arms:
            rates = re.findall(r"\(\s*([\d.]+)\)", line)
            rows += [{"cap": cap, "rate": float(rate), "arm": labels[arms[name][0]], "source": arms[name][1]}
                     for cap, rate in zip((16, 32, 64), rates)]
    missing = set(source for _, source in arms.values()) - set(row["source"] for row in rows)
    if missing:
        raise Failed(f"wisp.sh table2 printed no rates for {', '.join(sorted(missing))}; {NEEDS_DATA}")
    rows += [{"cap": row["cap"], "rate": row[arm], "arm": labels[arm], "source": "paper"}
             for row in published("wisp-throughput") for arm in labels]
    encoding = {"x": channel("cap:O", "resident experts of 128 in each layer", axis={"labelAngle": 0}),
                "y": channel("rate:Q", "tokens/s"), "color": sources(*(source for _, source in arms.values()))}
    return {
        "title": heading("Decoding Qwen3-30B-A3B from fewer resident experts", "wisp-throughput", "wisp table2"),
        "data": {"values": rows},
        **faceted({"width": 250, "height": 240, "mark": {"type": "line", "point": True}, "encoding": encoding},
                  {"column": channel("arm:N", sort=list(labels.values()))}),
    }


def wisp_kv(measured):
    rows = [{"cap": f"cap {row['cap']}", "tokens": row["tokens"], "source": "paper"} for row in published("wisp-kv")]
    found = re.findall(r"cap (\d+), (\d+) tokens of KV", measured.study("wisp", "table3"))
    rows += [{"cap": f"cap {cap}", "tokens": int(tokens), "source": "ours"} for cap, tokens in found]
    for row in rows:
        row["label"] = f"{row['tokens']:,}" if row["tokens"] else "does not start"
        row["tokens"] = row["tokens"] or 0
    order = [f"cap {row['cap']}" for row in published("wisp-kv")]
    chart = bars(rows, "cap", "tokens", colour=sources("ours"), size=(420, 16), order=order, digits=",",
                 title=heading("KV tokens beside the experts of one budget", "wisp-kv", "wisp table3"),
                 value_title="tokens of KV cache")
    chart["layer"][1]["encoding"]["text"] = channel("label:N")
    return chart


def specmd_first_token(measured):
    text = measured.study("specmd", "ttft")
    systems = {"eliseev-23": "Eliseev '23", "zhu-25": "Zhu '25", "hobbit-24": "HOBBIT '24",
               "mixture-cache-25": "MixtureCache '25"}
    rows = []

    def add(model, preset, own, least_stale, source):
        rows.append({"model": MODELS[model], "system": systems[preset], "source": source,
                     "change": round(100 * (least_stale / own - 1), 1) + 0})

    for row in published("specmd-first-token"):
        add(row["model"], row["preset"], row["own"], row["least_stale"], "paper")
    for heading_line, lines in sections(text).items():
        model, _, clock = heading_line.partition(", ")
        if model not in MODELS or "--link" not in clock:
            continue
        busy = "--compute 100us+5us" in clock
        table = [cells for cells in map(str.split, lines) if cells and cells[0].split("+")[0] in systems]
        times = {cells[0]: float(cells[-2]) for cells in table}
        for preset in systems:
            own, least_stale = times[preset], times[f"{preset}+least_stale"]
            # Mixtral leaves no arithmetic beside its copies: both clocks are one.
            if busy:
                add(model, preset, own, least_stale, "ours: busy link")
            if not busy or model == "mixtral":
                add(model, preset, own, least_stale, "ours: Table 1's clock")
    return bars(rows, "system", "change", colour=sources("ours: busy link", "ours: Table 1's clock"), size=(260, 13),
                order=list(systems.values()), digits="+.1f", value_title="change, %",
                title=heading("Least-Stale in place of a system's own eviction: time to the first token",
                              "specmd-first-token", "specmd ttft"),
                facet=channel("model:N", sort=[MODELS[m] for m in ("olmoe", "mixtral", "phi-3.5", "qwen1.5")]))


def specmd_collisions(measured):
    names = {"gate_score": "score-based", "lru": "LRU", "least_stale": "Least-Stale"}
    lines = section(measured.study("specmd", "collisions"), "the same, expert by expert")
    header = next(line for line in lines if line.startswith("| trace"))
    policies = [cell.strip().strip("`") for cell in header.strip().strip("|").split("|")][2:]
    points, seen = [], {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        model = cells[0]
        if model not in MODELS or model == "tiny-moe":
            continue
        seen[model] = seen.get(model, 0) + 1
        # Sizes are 1, 5 and 25 % of the bytes.
        if seen[model] == 2:
            points += [{"policy": names[policy], "collisions": float(cell.split("/")[1]), "model": MODELS[model]}
                       for policy, cell in zip(policies, cells[2:]) if policy in names]
    ranges = [{"policy": names[row["eviction"]], "least": row["least"], "most": row["most"],
               "source": "paper, four models"}
              for row in published("specmd-collisions")]
    y = channel("policy:N", sort=list(names.values()), axis={"title": None})
    x = {"scale": {"type": "log", "domain": [0.5, 100]}, "axis": {"values": [0.5, 1, 2, 5, 10, 20, 50, 100]}}
    shapes = [MODELS[m] for m in ("olmoe", "mixtral", "phi-3.5", "qwen1.5")]
    return {
        "title": heading("Collision misses at 5 % of the experts' bytes", "specmd-collisions", "specmd collisions"),
        "width": 460, "height": {"step": 54},
        "layer": [
            {"data": {"values": ranges}, "mark": {"type": "bar", "height": 14, "color": PAPER},
             "encoding": {"y": y, "x": channel("least:Q", "% of accesses", **x), "x2": {"field": "most"},
                          "opacity": channel("source:N", scale={"range": [1]})}},
            {"data": {"values": points}, "mark": {"type": "point", "filled": True, "opacity": 1, "size": 70},
             "encoding": {"y": y, "x": channel("collisions:Q", "% of accesses", **x),
                          "color": channel("model:N", "ours", scale={"domain": shapes, "range": PALETTE[:4]})}},
        ],
    }


def expertweave_memory(measured):
    layers, experts = 26, 64
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for adapter in PUBLISHED["expertweave-memory"]["adapters"]:
            files.append(Path(folder) / f"{adapter['name']}.json")
            tuned = counts(adapter["most"], round(adapter["mean"] * layers), layers)
            files[-1].write_text(json.dumps({"experts": tuned}))
        setting = ["--base", f"{experts}x{layers}", "--expert-bytes", "16.5MiB", "--resident-bytes", "2.4431GiB",
                   "--kv-bytes-per-token", "31104B", "--budget", "52.72GiB"]
        plans = [measured.hotset("adapters", "plan", *setting, *files[:n]) for n in (1, 2, 3)]
    named = ["1 adapter", "2 adapters", "3 adapters"]
    placements = {"virtual": "virtual memory", "padding": "padding"}
    memory, tokens = [], []
    for n, (plan, row) in enumerate(zip(plans, published("expertweave-memory"))):
        for placement, label in placements.items():
            place = {"adapters": named[n], "placement": label}
            memory += [{**place, "gib": row[placement], "source": "paper"},
                       {**place, "gib": plan["bytes"][placement] / GIB, "source": "ours"}]
            tokens.append({**place, "tokens": plan["kv_tokens"][placement] / 1000, "source": "ours"})
        if "kv_tokens" in row:
            tokens.append({"adapters": named[n], "placement": placements["virtual"], "source": "paper",
                           "tokens": row["kv_tokens"] / 1000})
    panel = {"facet": {"column": channel("placement:N", sort=list(placements.values()))}, "order": named,
             "colour": sources("ours"), "size": (230, 14)}
    return {
        "title": heading("Adapters of DeepSeek-V2-Lite on one device", "expertweave-memory", "hotset adapters plan"),
        "vconcat": [
            bars(memory, "adapters", "gib", title=None, value_title="GiB of weights", digits=".1f", **panel),
            bars(tokens, "adapters", "tokens", title=None, digits=".0f",
                 value_title="thousand KV tokens, of 52.72 GiB", **panel),
        ],
    }


def counts(most, total, layers):
    """Returns tuned experts by layer: the paper gives their maximum and mean, and ours divide the rest evenly."""
    others, rest = layers - 1, total - most
    each = [most] + [rest * (k + 1) // others - rest * k // others for k in range(others)]
    return {str(layer): list(range(count)) for layer, count in enumerate(each, 1)}


def activeevict_blocking(measured):
    arms = {"on demand": "on demand, lru", "top-k prefetch": "top-k prefetch", "MoE-APEX": "MoE-APEX",
            "ActiveEvict": "ActiveEvict, dynamic top-k"}
    measures = ("blocking I/O", "total I/O")
    blocks = tables(measured.study("activeevict", "table_3").splitlines())
    rows, first = [], {}
    for row in published("activeevict-blocking"):
        model = MODELS[row["model"]]
        first.setdefault(model, row)
        for measure, key in zip(measures, ("blocking", "total")):
            rows.append({"model": model, "arm": row["arm"], "measure": measure, "source": "paper",
                         "relative": row[key] / first[model][key]})
    for model in ("mixtral", "llama-moe"):
        for arm, name in arms.items():
            cells = blocks[f"{model}, duplex"][name]
            rows += [{"model": MODELS[model], "arm": arm, "measure": measure, "source": "ours",
                      "relative": number(cell)} for measure, cell in zip(measures, cells)]
    return bars(rows, "arm", "relative", colour=sources("ours"), size=(210, 14), order=list(arms), digits=".2f",
                title=heading("I/O time relative to on-demand copies, 75 % of the experts resident",
                              "activeevict-blocking", "activeevict table_3"),
                value_title="relative to on demand",
                facet={"column": channel("measure:N"), "row": channel("model:N", sort=["Mixtral", "LLaMA-MoE"])})


def activeevict_scores(measured):
    rivals = {"prediction only": "importance:alpha=0", "hotness only": "importance:alpha=1", "LRU": "lru"}
    rows = []
    for title, block in tables(measured.study("activeevict", "figure_7").splitlines()).items():
        model, slots = title.split(", ")
        full = number(block["pre-eviction, importance"][0])
        rows += [{"model": MODELS[model], "slots": number(slots), "than": f"against {rival}",
                  "less": 100 * (1 - full / number(block[f"pre-eviction, {policy}"][0]))}
                 for rival, policy in rivals.items()]
    for row in rows:
        row.update(next({"least": p["least"], "most": p["most"]} for p in published("activeevict-scores")
                        if row["than"] == f"against {p['than']}"))
    shapes = ["Mixtral", "LLaMA-MoE", "tiny-moe"]
    x = channel("slots:O", "experts resident, %", axis={"labelAngle": 0})
    colour = {"domain": ["paper, both models", *shapes], "range": [PAPER, *PALETTE[:3]]}
    return {
        "title": heading("Blocking that ActiveEvict's full score saves", "activeevict-scores", "activeevict figure_7"),
        "data": {"values": rows},
        **faceted({
            "width": 170, "height": 220,
            "layer": [
                {"mark": {"type": "area", "opacity": 0.35},
                 "encoding": {"x": x, "y": channel("least:Q", "% less blocking"), "y2": {"field": "most"},
                              "color": {"datum": "paper, both models", "scale": colour,
                                        "legend": {"symbolOpacity": 1, "title": None}}}},
                {"mark": {"type": "line", "point": True},
                 "encoding": {"x": x, "y": channel("less:Q", "% less blocking"),
                              "color": channel("model:N", scale=colour)}},
            ]}, {"column": channel("than:N", sort=[f"against {rival}" for rival in rivals])}),
    }


def fmoe_systems(measured):
    rivals = {"mixtral-offloading, copies that block": "mixtral-offloading, blocking copies",
              "mixtral-offloading": "mixtral-offloading", "promoe": "ProMoE",
              "moe-infinity evicting by lfu:history=resident": "MoE-Infinity, its public code",
              "moe-infinity": "MoE-Infinity, as described"}
    text = measured.study("fmoe", "systems")
    if "-- texts: tiny-moe/heldout" not in text:
        raise Failed(f"fmoe.sh systems ran without the held-out texts; {NEEDS_DATA}")
    blocks = tables(text.splitlines())
    measures = {"hits": ("hits of fMoE / of the other", 0), "latency": ("time of fMoE / of the other", 5)}
    rows = []
    for rho in ("0.4", "2"):
        block = blocks[f"50%, rho {rho}"]
        for name, label in rivals.items():
            # Copies that block are all ready: their hits are not comparable.
            rows += [{"system": label, "measure": title, "ratio": number(block["fmoe"][at]) / number(block[name][at]),
                      "source": f"ours, rho {rho}", "claim": PUBLISHED["fmoe-systems"][key]}
                     for key, (title, at) in measures.items() if key == "latency" or "block" not in name]
    chart = bars(rows, "system", "ratio", colour=sources("ours, rho 0.4", "ours, rho 2"), size=(230, 14),
                 order=list(rivals.values()), digits=".2f", value_title="ratio",
                 title=heading("fMoE beside other systems, half of the experts resident (tiny-moe)", "fmoe-systems",
                               "fmoe systems"),
                 facet={"column": channel("measure:N", sort=[title for title, _ in measures.values()])})
    chart["spec"]["layer"].append({"mark": {"type": "rule", "strokeWidth": 2},
                                   "encoding": {"x": channel("claim:Q", "ratio", aggregate="mean"),
                                                "color": {"datum": "paper"}}})
    return chart


def gemma_replay(measured):
    data = os.environ.get("HOTSET_DATA_DIR")
    folder = Path(data or "") / "routing/bigmoe-gemma"
    if not data or not (folder / "gemma-curve.csv").exists():
        raise Failed(f"routing/bigmoe-gemma/gemma-curve.csv is missing; {NEEDS_DATA}")
    policies = {"belady": ("shared", "belady"), "lru": ("shared", "lru"), "lfu": ("shared", "lfu"),
                "layer": ("per-layer", "lru"), "layerlfu": ("per-layer", "lfu")}
    labels = {"belady": "Belady", "lru": "LRU", "lfu": "LFU", "layer": "LRU, each layer", "layerlfu": "LFU, each layer"}
    with open(folder / "gemma-curve.csv") as file:
        theirs = [row for row in csv.DictReader(file) if row["policy"] in policies]
    points = [{"gib": int(row["budget_mib"]) / 1024, "hits": float(row["hit_pct_cum"]), "policy": labels[row["policy"]]}
              for row in theirs]
    lines = []
    for name, (scope, eviction) in policies.items():
        budgets = ",".join(f"{row['budget_mib']}MiB" for row in theirs if row["policy"] == name)
        report = measured.hotset("simulate", folder / "gemma.route.csv", "--replay", "deferred", "--scope", scope,
                                 "--eviction", eviction, "--budget", budgets)
        lines += [{"gib": run["budget_bytes"] / GIB, "hits": 100 * run["hits"] / run["accesses"],
                   "policy": labels[name]} for run in report["results"]]
    encoding = {"x": channel("gib:Q", "GiB of expert cache", axis={"tickCount": 8}), "y": channel("hits:Q", "hits, %"),
                "color": channel("policy:N", scale={"domain": list(labels.values()), "range": PALETTE[:5]}, sort=None)}
    return {
        "title": heading("A published replay of Gemma-4-26B-A4B: points theirs, lines ours", "gemma-replay",
                         "hotset simulate gemma.route.csv --replay deferred --budget ..."),
        "width": 460, "height": 280,
        "layer": [
            {"data": {"values": lines}, "mark": {"type": "line"}, "encoding": encoding},
            {"data": {"values": points}, "mark": {"type": "point", "size": 55}, "encoding": encoding},
        ],
    }


FIGURES = {
    "wisp-throughput": wisp_throughput,
    "wisp-kv": wisp_kv,
    "specmd-first-token": specmd_first_token,
    "specmd-collisions": specmd_collisions,
    "expertweave-memory": expertweave_memory,
    "activeevict-blocking": activeevict_blocking,
    "activeevict-scores": activeevict_scores,
    "fmoe-systems": fmoe_systems,
    "gemma-replay": gemma_replay,
}


def main(arguments):
    parser = argparse.ArgumentParser(
        description="Draws a paper's published points beside ours, which this folder's scripts measure.")
    parser.add_argument("figure", choices=[*FIGURES, "all"], help="the figure, or all of them")
    parser.add_argument("build", metavar="BUILD_DIR", help="build folder with demo_programs and python_package")
    parser.add_argument("--out", default=PICTURES, type=Path, metavar="FOLDER",
                        help="writes here (docs/pictures/papers)")
    parser.add_argument("--kept", metavar="FOLDER",
                        help="keeps the tables of the studies here; reads those that are there and does not measure")
    parser.add_argument("--json", action="store_true", help="prints the Vega-Lite specification instead of drawing it")
    options = parser.parse_args(arguments)
    if not os.access(Path(options.build) / "hotset", os.X_OK):
        print(f"figures.py: {options.build}/hotset is missing; accepted: a build folder with demo_programs built",
              file=sys.stderr)
        return 1
    measured, failed = Measured(options.build, options.kept), 0
    for name in FIGURES if options.figure == "all" else [options.figure]:
        try:
            specification = FIGURES[name](measured)
            if options.json:
                print(json.dumps(specification, indent=1))
            else:
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / f"{name}.svg").write_bytes(svg(specification, options.build))
                print(f"{options.out / name}.svg")
        except Failed as reason:
            print(f"figures.py: {name}: {reason}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
