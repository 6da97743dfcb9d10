# SPDX-License-Identifier: Apache-2.0
"""Figures as Vega-Lite specifications, and as SVG, PNG and HTML by vl-convert."""

from __future__ import annotations

import copy
import csv
import html
import io
import json
import os
import re
import string
from collections.abc import Sequence
from typing import Any

from hotset._errors import Error
from hotset._figures import Figure

THEMES = ("light", "dark")
FORMATS = ("svg", "png", "html")
VEGA_LITE = "6.4"
_FOLDER = os.path.join(os.path.dirname(__file__), "figures")
_PNG_SCALE = 2


def data_file(name: str) -> str:
    """Text of a file in figures/."""
    with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
        return file.read()


def config(theme: str) -> dict[str, Any]:
    """Vega-Lite's config of a theme."""
    found: dict[str, Any] = json.loads(data_file("themes.json"))[theme]
    return found


def specification(figure: Figure, theme: str) -> dict[str, Any]:
    """The figure's specification with its rows."""
    look = config(theme)
    texts = {"$background": look["background"], "$ink": look["title"]["color"], **figure.texts}
    spec: dict[str, Any] = _filled(json.loads(data_file(f"{figure.name}.json")), texts)
    spec["title"] = {"text": spec["title"], "subtitle": figure.subtitle}
    return {**spec, "data": {"name": figure.name}, "datasets": {figure.name: figure.rows}, "config": look}


def _filled(value: Any, texts: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, texts) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, texts) for one in value]
    return texts.get(value, value) if isinstance(value, str) else value


def together(specs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One specification of several, one below the other."""
    if len(specs) == 1:
        return specs[0]
    below = copy.deepcopy(list(specs))
    sets: dict[str, Any] = {}
    for at, spec in enumerate(below):
        name = f"{spec['data']['name']} {at}"
        sets[name] = spec.pop("datasets")[spec["data"]["name"]]
        spec["data"] = {"name": name}
        del spec["config"]
        _rename_parameters(spec, f"_{at}")
    apart = {"scale": {"color": "independent", "shape": "independent", "strokeDash": "independent"}}
    return {"vconcat": below, "datasets": sets, "config": specs[0]["config"], "spacing": 40, "resolve": apart}


def _rename_parameters(value: Any, end: str) -> None:
    """Names of parameters are unique in a specification."""
    if isinstance(value, list):
        for one in value:
            _rename_parameters(one, end)
    elif isinstance(value, dict):
        for one in value.get("params", []):
            one["name"] += end
        for one in value.values():
            _rename_parameters(one, end)


def csv_of(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as CSV; a field that a row lacks is empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def converter() -> Any:
    """vl_convert. Raises Error that says how to get it."""
    try:
        import vl_convert
    except ImportError as bad:
        raise Error("the package vl-convert-python is missing; get it: pip install vl-convert-python (or hotset[plot])") from bad
    return vl_convert


def drawn(specs: Sequence[dict[str, Any]], form: str, title: str) -> bytes:
    """A picture of the specifications in one of FORMATS. Raises Error."""
    convert = converter()
    if form == "html":
        look = specs[0]["config"]
        figures = "".join(figure_html(f"figure-{at}") for at in range(len(specs)))
        return page(title, figures, {f"figure-{at}": spec for at, spec in enumerate(specs)}, look).encode()
    spec = together(specs)
    if form == "svg":
        return str(convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)).encode()
    return bytes(convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=_PNG_SCALE))


def figure_html(name: str) -> str:
    """Where a page draws the figure of this name."""
    return f'<div class="figure" id="{html.escape(name)}"></div>\n'


def page(title: str, body: str, specs: dict[str, dict[str, Any]], look: dict[str, Any]) -> str:
    """A page that needs no other file: the text, the figures by their elements' names, and Vega."""
    bundle = converter().javascript_bundle(vl_version=VEGA_LITE)
    for spec in specs.values():
        spec["config"] = {"$config": True}
    return string.Template(data_file("page.html")).substitute(
        title=html.escape(title),
        body=body,
        background=look["background"],
        text=look["title"]["color"],
        faint=look["title"]["subtitleColor"],
        line=look["axis"]["gridColor"],
        link=look["range"]["category"][0],
        vega=_script(bundle),
        config=_script(json.dumps(look)),
        specifications=_script(json.dumps(specs, separators=(",", ":"))),
    )


def _script(text: str) -> str:
    """Text within <script>, which the first </script would end."""
    return re.sub("</(?=script)", r"<\\/", text, flags=re.IGNORECASE)
