# SPDX-License-Identifier: Apache-2.0
"""The files for Prometheus and Grafana name metrics that exist, and no alert lacks a test or a line in the docs.

python/tests/engines/prometheus_test.py runs them in Prometheus itself."""

import json
import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(os.environ.get("HOTSET_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
FOLDER = ROOT / "integrations" / "prometheus"


def text(name):
    return (FOLDER / name).read_text()


def expressions():
    """(panel, query) of the dashboard."""
    for panel in json.loads(text("grafana-dashboard.json"))["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


def listed():
    """The metrics of docs/metrics.md with their labels; a histogram has three names."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    for name, kind, labels in re.findall(r"^\| `(hotset_\w+)` \| (\w+) \|[^|]*\|([^|]*)\|", page, re.M):
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            yield name + suffix, set(re.findall(r"`(\w+)`", labels))


METRICS = dict(listed())


def recorded():
    return set(re.findall(r"- record: (\S+)", text("hotset.rules.yml")))


@pytest.mark.parametrize("name", ["hotset.rules.yml", "hotset.rules.test.yml", "grafana-dashboard.json"])
def test_every_metric_is_listed_in_the_docs(name):
    used = set(re.findall(r"\bhotset_\w+", text(name)))
    assert used and used <= METRICS.keys(), used - METRICS.keys()
    assert set(re.findall(r"\bhotset:[\w:]+", text(name))) <= recorded()


def test_labels_of_the_dashboard_exist():
    for panel in json.loads(text("grafana-dashboard.json"))["panels"]:
        for target in panel["targets"]:
            names = re.findall(r"hotset_\w+", target["expr"])
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) - {"instance"}
            assert all(labels <= METRICS[name] for name in names), (panel["title"], target)
            assert target["expr"].count('instance=~"$instance"') == len(names), (panel["title"], target)


def test_panels_do_not_overlap():
    taken = set()
    for panel in json.loads(text("grafana-dashboard.json"))["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells


def test_every_alert_has_a_test_that_fires_one_that_does_not_and_a_line_in_the_docs():
    alerts = re.findall(r"- alert: (\w+)", text("hotset.rules.yml"))
    tests = re.split(r"(?=- \{?alertname: )", text("hotset.rules.test.yml"))
    page = (ROOT / "docs" / "watching.md").read_text()
    assert len(alerts) == 7 and len(set(alerts)) == 7
    for alert in alerts:
        own = [test for test in tests if re.search(rf"alertname: {alert}\b", test)]
        assert any("exp_alerts:" in test for test in own), f"{alert} never fires in a test"
        assert any("exp_alerts:" not in test for test in own), f"{alert} is never silent in a test"
        assert f"| `{alert}` |" in page
