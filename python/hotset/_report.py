# SPDX-License-Identifier: Apache-2.0
"""`hotset report`: one page about traces, in words and figures, from a few replays."""

from __future__ import annotations

import html
import json
import os
import shlex
import tempfile
from collections.abc import Sequence
from typing import Any

from hotset import _draw, _figures
from hotset._figures import Figure
from hotset._library import version
from hotset._program import run
from hotset._trace import Trace
from hotset.studies import _console

_SIZES = ("12.5%", "25%", "50%")
_SIZE = "25%"
_GOALS = (0.5, 0.8, 0.9, 0.95)
_GIB = 2**30


def report(words: Sequence[str]) -> int:
    """The command. Returns its exit code."""
    parser = _console.Parser(
        "report",
        "Writes one HTML page about traces: what they are, which policy, how many slots, what memory"
        " is worth, what could still be gained. The page needs no other file.",
        "hotset report demo.trace -o demo.html",
        "hotset report ids.npy --experts 128 --theme dark -o ids.html",
    )
    add = parser.add_argument
    add("traces", nargs="+", metavar="TRACE", help="recorded routing, in any format that hotset import reads")
    add("-o", "--out", required=True, metavar="FILE", help="page to write: .html; - is standard output")
    add("--theme", default="light", metavar="NAME", help="light (default), dark")
    parser.reading()
    options = parser.given(words)
    _console.one_of("--theme", options.theme, _draw.THEMES)
    if options.out != "-" and not options.out.lower().endswith((".html", ".htm")):
        raise _console.refused("--out", options.out, "a path that ends with .html, or - for standard output")
    out = _console.output(options.out)
    _draw.converter()  # refused before any replay, if it is missing
    command = shlex.join(["hotset", "report", *words])
    page = Page(options.theme)
    for path in options.traces:
        page.add(_console.open_trace(path, options))
    _console.write_text(out, page.html(command))
    return _console.OK


class Page:
    """Sections of traces, and their figures by name."""

    def __init__(self, theme: str) -> None:
        self._theme = theme
        self._sections: list[str] = []
        self._figures: dict[str, dict[str, Any]] = {}

    def add(self, trace: Trace) -> None:
        """Replays a trace, and describes it."""
        with tempfile.TemporaryDirectory(prefix="hotset-") as folder:
            facts = Facts(trace, os.path.join(folder, "given.trace"))
        named = html.escape(facts.name)
        parts = [f"<h1>{named}</h1>\n", _list(facts.summary())]
        for title, text, figure in facts.sections():
            parts.append(f"<h2>{html.escape(title)}</h2>\n<p>{html.escape(text)}</p>\n{self._figure(figure)}")
        self._sections.append("".join(parts))

    def _figure(self, figure: Figure) -> str:
        name = f"figure-{len(self._figures)}"
        self._figures[name] = _draw.specification(figure, self._theme)
        return _draw.figure_html(name)

    def html(self, command: str) -> str:
        """The whole page."""
        made = (
            f"<footer><p>Made by hotset {version()} with <code>{html.escape(command)}</code>. Figures: drag moves them, the"
            " wheel zooms, a double click resets; a pointer on a mark shows its numbers.</p></footer>\n"
        )
        return _draw.page("hotset report", "".join(self._sections) + made, self._figures, _draw.config(self._theme))


def _list(lines: Sequence[str]) -> str:
    return "<ul>\n" + "".join(f"<li>{html.escape(line)}</li>\n" for line in lines) + "</ul>\n"


def _json(*words: str) -> Any:
    return json.loads(run(*words, "--json"))


class Facts:
    """What the program says about a trace: four runs of it, each prints JSON."""

    def __init__(self, trace: Trace, path: str) -> None:
        trace.save(path)
        self.trace = trace
        self.info = _json("info", path)
        self.name = self.info["name"] or "a trace"
        self.curve = _json("curve", path)
        self.scope = "shared" if self._fits(_SIZE) else "per-layer"
        self.rank = _json("simulate", path, "--rank", "--scope", self.scope, "--slots", _SIZE)
        online = [one for one in self.rank["policies"] if not one["offline"] and one["saved"] is not None]
        self.best = max(online, key=lambda one: one["saved"])["eviction"] if online else "lru"
        compared = ",".join(dict.fromkeys(("lru", self.best, "belady")))
        self.runs = _json("simulate", path, "--eviction", compared, "--scope", self.scope, "--slots", ",".join(_SIZES))

    def _fits(self, size: str) -> bool:
        """Whether the widest visit fits into slots that all layers share."""
        slots = float(size.rstrip("%")) / 100 * self.info["layers"] * self.info["experts"]
        return bool(self.info["widest_union"] <= slots)

    def _run(self, policy: str, size: str) -> Any:
        return next((one for one in self.runs["results"] if one["eviction"] == policy and one["size"] == size), None)

    # the words

    def summary(self) -> list[str]:
        """The page's first lines."""
        return [line for line in (self._what(), self._which(), self._slots(), self._worth(), self._left()) if line]

    def _what(self) -> str:
        held = self.info
        total = held["layers"] * held["experts"]
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in held["steps_by_kind"].items() if count)
        text = (
            f"The trace: {held['tokens']:,} tokens of {held['sequences']:,} sequence(s) in {held['steps']:,} steps ({kinds}),"
            f" through {held['layers']} layers of {held['experts']} experts, {held['top_k']} for each token. They use"
            f" {held['distinct_experts']:,} of {total:,} experts"
        )
        if held["expert_bytes_max"]:
            size = held["expert_bytes_max"]
            text += f"; an expert has {size / 2**20:,.1f} MiB, all of them {total * size / _GIB:,.1f} GiB"
        return text + "."

    def _which(self) -> str:
        lru, best, belady = (self._run(policy, _SIZE) for policy in ("lru", self.best, "belady"))
        if not (lru and best and belady):
            return ""
        where = f"With slots for {_SIZE} of the experts, {self._sharing()}"
        if self.best == "lru":
            return f"The policy: lru. {where}, no other policy that was tried misses less; it hits {_hits(lru)}."
        room = lru["misses"] - belady["misses"]
        share = f" That is {(lru['misses'] - best['misses']) / room:.0%} of what could be avoided." if room > 0 else ""
        return f"The policy: {self.best}. {where}, it hits {_hits(best)}; lru hits {_hits(lru)}.{share}"

    def _sharing(self) -> str:
        return "shared by all layers" if self.scope == "shared" else "equally many in each layer"

    def _slots(self) -> str:
        points = _figures.points(self.curve)
        accesses, total = self.curve["accesses"], self.curve["experts_total"]
        reached = []
        for goal in _GOALS:
            slots = next((slots for slots, misses in points if 1 - misses / accesses >= goal), None)
            if slots is not None:
                reached.append(f"{goal:.0%} of the accesses at {slots:,} slots ({slots / total:.0%} of the experts)")
        text = f"The slots: lru, shared by all layers, hits {', '.join(reached)}." if reached else ""
        return f"{text} Below {self.curve['cycle']:,} slots, one token's cycle through all layers, lru reuses nearly nothing.".strip()

    def _worth(self) -> str:
        """Copies that a tenth of the experts more saves, between the sizes that were replayed."""
        tenth = self.info["layers"] * self.info["experts"] / 10
        size = self.info["expert_bytes_max"]
        parts = []
        for small, large in zip(_SIZES, _SIZES[1:]):
            one, other = self._run(self.best, small), self._run(self.best, large)
            if one and other and other["slots"] > one["slots"]:
                saved = (one["misses"] - other["misses"]) * tenth / (other["slots"] - one["slots"])
                parts.append(f"{saved / self.info['tokens']:,.2f} copies a token between {small} and {large}")
        weight = f", {tenth * size / _GIB:,.2f} GiB," if size else ""
        return f"More memory: slots for a tenth of the experts{weight} save {', '.join(parts)}." if parts else ""

    def _left(self) -> str:
        best, belady = self._run(self.best, _SIZE), self._run("belady", _SIZE)
        if not (best and belady):
            return ""
        more = (best["misses"] - belady["misses"]) / best["accesses"]
        first = best["compulsory_misses"] / best["accesses"]
        return (
            f"What is left: at {_SIZE}, a policy that knew the future would hit {more:.1%} of the accesses more; first uses"
            f" are {first:.1%} of the accesses, and only prefetching can hide them."
        )

    # the figures

    def sections(self) -> list[tuple[str, str, Figure]]:
        """Titles, words and figures."""
        made = _figures.made
        out = [
            (
                "How many slots?",
                "The lines are replays of the whole trace. No policy exceeds belady, which knows the future. The dotted line on"
                " top is a cache of all experts; the upright one the slots that one token goes through.",
                made("simulate", "sizes", self.runs),
            ),
            ("lru at every size", "One pass over the trace counts all sizes.", made("curve", "sizes", self.curve)),
            ("What is more memory worth?", "The slope of the line above.", made("curve", "value", self.curve)),
            (
                "Which policy?",
                f"Policies that need nothing but the routing, with slots for {_SIZE} of the experts, {self._sharing()}.",
                made("rank", "rank", self.rank),
            ),
            ("Where are the misses?", self._by_layer(), made("simulate", "layers", self.runs)),
        ]
        if self.runs["results"][0].get("windows"):
            out.append(("When are the misses?", self._by_time(), made("simulate", "time", self.runs)))
        out += [
            (
                "What does the trace use over time?",
                "Experts that are used again soon can be kept; those used for the first time cannot.",
                made("trace", "working-set", self.trace),
            ),
            ("Which experts?", "Even rows have no favourites to keep.", made("trace", "heat", self.trace)),
        ]
        return out

    def _by_layer(self) -> str:
        one = self._run(self.best, _SIZE)
        if not one:
            return "Misses of each layer."
        missed = [(1 - row["hits"] / row["accesses"], row["layer"]) for row in one["per_layer"] if row["accesses"]]
        (low, least), (high, most) = min(missed), max(missed)
        return f"With {self.best} at {_SIZE}, layer {most} misses most ({high:.1%} of its accesses), layer {least} least ({low:.1%})."

    def _by_time(self) -> str:
        one = self._run(self.best, _SIZE)
        rates = [row["hits"] / row["accesses"] for row in one["windows"] if row["accesses"]] if one else []
        if len(rates) < 4:
            return "Hits of windows of steps."
        quarter = len(rates) // 4
        first, last = (sum(part) / len(part) for part in (rates[:quarter], rates[-quarter:]))
        return f"With {self.best} at {_SIZE}, the first quarter of the trace hits {first:.1%} on average, the last {last:.1%}."


def _hits(one: Any) -> str:
    return f"{one['hits'] / one['accesses']:.1%}"
