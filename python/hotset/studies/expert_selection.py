# SPDX-License-Identifier: Apache-2.0
"""Selects the experts that ESFT tunes for a task: those that the task's tokens use most, up to a
threshold in each layer.

Rule: by descending score, ties by ascending expert, take experts while the sum of the earlier ones
is less than p. A layer whose scores sum to less gives all of its experts.
  token score: the expert's share of the routed places, count / (tokens * top_k), rounded to four
  decimals.
  gate score: its summed gate weight / tokens, rounded to four decimals; a layer's sum is not 1, so
  p is not a share of it.
Source: Expert-Specialized Fine-Tuning, section 3, following the configurations that its authors
published.
Deviations: their later script divides by the sum over layers instead of experts; no published file
follows it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy

from hotset._errors import InvalidArgument
from hotset._trace import Trace

SCORES = ("token", "gate")
_MOST_LAYERS, _MOST_EXPERTS = 65536, 1 << 20
_MOST_SCORE = float(numpy.finfo(numpy.float32).max)

Summary = dict[int, dict[int, float]]
"""Scores by expert, by the model's number of the layer, ascending."""


def select_experts(scores: Mapping[int, float], p: float) -> list[int]:
    """The experts of a layer in order of selection."""
    out = []
    total = 0.0
    for expert, score in sorted(scores.items(), key=lambda one: (-one[1], one[0])):
        if not total < p:
            break
        out.append(expert)
        total += score
    return out


def config_text(summary: Summary, p: float) -> str:
    """The configuration of an adapter in DeepSeek's ESFT format."""
    experts = {str(layer): select_experts(scores, p) for layer, scores in summary.items()}
    return (
        json.dumps({"experts": experts, "shared_experts": False, "non_expert_modules": False})
        + "\n"
    )


def parse_summary(text: Any, file: str, score: str) -> Summary:
    """Parses {"token_scores": {layer: {expert: score}}, "gate_scores": ...}. `file` is for
    messages. Raises InvalidArgument."""
    key = f"{score}_scores"
    root = _parsed(text, file)
    if key not in root:
        raise _refused(file, f"key '{key}': is missing", "an object of layer: {expert: score}")
    layers = root[key]
    if not isinstance(layers, dict) or not layers:
        found = "has no layers" if isinstance(layers, dict) else f"is {_told(layers)}"
        raise _refused(file, f"key '{key}': {found}", "an object of layer: {expert: score}")
    out = {}
    for name, scores in layers.items():
        layer = _number(name, _MOST_LAYERS)
        if layer is None:
            raise _refused(
                file, f"{key}: layer '{name[:60]}': is no layer's number", f"0..{_MOST_LAYERS - 1}"
            )
        out[layer] = _scores_of(scores, file, f"{key}: layer {layer}")
    return dict(sorted(out.items()))


def _scores_of(scores: Any, file: str, place: str) -> dict[int, float]:
    if not isinstance(scores, dict) or not scores:
        found = "has no experts" if isinstance(scores, dict) else f"is {_told(scores)}"
        raise _refused(file, f"{place}: {found}", "an object of expert: score")
    out = {}
    for name, score in scores.items():
        expert = _number(name, _MOST_EXPERTS)
        if expert is None:
            raise _refused(
                file, f"{place}: expert '{name[:60]}' is no number", f"0..{_MOST_EXPERTS - 1}"
            )
        if (
            isinstance(score, bool)
            or not isinstance(score, (int, float))
            or not 0 <= score <= _MOST_SCORE
        ):
            raise _refused(
                file,
                f"{place}: the score of expert {expert} is {_told(score)}",
                "a number of 0 or more",
            )
        out[expert] = float(score)
    return out


def score_trace(trace: Trace, score: str) -> Summary:
    """Computes the summary of recorded routing, to four decimals. Raises InvalidArgument for a
    trace without weights."""
    if trace.weights is None:
        raise InvalidArgument("the trace has no weights, accepted: a trace with weights")
    numbers = [int(n) for n in trace.metadata.get("layers", "").split(",") if n] or list(
        range(trace.layers)
    )
    places = trace.tokens * (trace.top_k if score == "token" else 1)
    out = {}
    for layer, number in enumerate(numbers):
        ids = trace.ids[:, layer].reshape(-1)
        weights = (
            None if score == "token" else trace.weights[:, layer].reshape(-1).astype(numpy.float64)
        )
        sums = numpy.bincount(ids, weights, minlength=trace.experts)[: trace.experts]
        out[number] = {expert: round(float(one) / places, 4) for expert, one in enumerate(sums)}
    return out


def _refused(file: str, found: str, accepted: str) -> InvalidArgument:
    return InvalidArgument(f"{file}: {found}; accepted: {accepted}")


def _parsed(text: Any, file: str) -> dict[str, Any]:
    accepted = "an ESFT summary, a JSON object"

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise _refused(file, f"key '{name[:60]}': is there twice", "each key once")
            found[name] = value
        return found

    try:
        root = json.loads(text, object_pairs_hook=unique)
    except InvalidArgument:
        raise
    except json.JSONDecodeError as bad:
        ends = not bad.doc[bad.pos :].strip()
        found = (
            "ends before its JSON does (is it cut short?)"
            if ends
            else f"byte {bad.pos + 1}: is not JSON here"
        )
        raise _refused(file, found, accepted) from bad
    except (ValueError, RecursionError) as bad:
        raise _refused(file, "is not JSON here", accepted) from bad
    if not isinstance(root, dict):
        raise _refused(file, "is no JSON object", accepted)
    return root


def _number(name: str, limit: int) -> Any:
    """Parses a key that is a number below the limit, or returns None."""
    plain = name.isascii() and name.isdigit() and len(name) <= 9 and (name == "0" or name[0] != "0")
    return int(name) if plain and int(name) < limit else None


def _told(value: Any) -> str:
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value)[:80]
