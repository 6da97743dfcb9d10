# SPDX-License-Identifier: Apache-2.0
"""Alerts and dashboard in a real Prometheus that scrapes the example engine; needs prometheus, promtool, and tiny_moe.

$HOTSET_TINY_MOE is the program tiny_moe; `make engines ENGINES=prometheus` brings all three."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest

ROOT = pathlib.Path(os.environ.get("HOTSET_SOURCE_DIR", pathlib.Path(__file__).parents[3]))
FOLDER = ROOT / "integrations" / "prometheus"
TINY_MOE = os.environ.get("HOTSET_TINY_MOE", "")

pytestmark = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")), reason="no promtool and prometheus on the path"
)


def promtool(*words):
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def queries():
    """(title, query) of the dashboard, with Grafana's variables as it would set them."""
    for panel in json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "4s").replace("$instance", ".+")


def test_the_configuration_and_the_rules_are_valid():
    assert "SUCCESS: 10 rules found" in promtool("check", "config", "prometheus.yml")


def test_alerts_fire_and_stay_silent():
    assert "SUCCESS" in promtool("test", "rules", "hotset.rules.test.yml")


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def get(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        return answer.read().decode()


def waited(what, seconds=120):
    """The first result of the function that is true."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if result := what():
                return result
        except OSError:  # not yet listening
            pass
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The address of tiny_moe's metrics while it serves requests."""
    folder = tmp_path_factory.mktemp("engine")
    if not TINY_MOE:
        pytest.skip("no $HOTSET_TINY_MOE")
    requests = folder / "requests.jsonl"
    requests.write_text("".join(
        json.dumps({"timestamp": n * 1000, "input_length": 64, "output_length": 200, "hash_ids": [n]}) + "\n"
        for n in range(100_000)  # more than it serves before the last question
    ))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [TINY_MOE, "serve-trace", str(requests), "--budget", "8MiB", "--split", "12", "--metrics", address],
            stdout=log, stderr=log,
        )
    try:
        waited(lambda: "hotset_visits_total" in get(f"http://{address}/metrics"))
        yield address
        assert running.poll() is None, (folder / "log").read_text()
    finally:
        running.kill()
        running.wait()


@pytest.fixture(scope="module")
def query(engine, tmp_path_factory):
    """A function that asks a Prometheus, which scrapes the engine each second."""
    folder = tmp_path_factory.mktemp("prometheus")
    shutil.copy(FOLDER / "hotset.rules.yml", folder)
    config = (FOLDER / "prometheus.yml").read_text().replace("127.0.0.1:9100", engine).replace(": 5s", ": 1s")
    (folder / "prometheus.yml").write_text(config)
    address = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={address}"], stdout=log, stderr=log,
        )

    def ask(path, **parameters):
        answer = json.loads(get(f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
        assert answer["status"] == "success"
        return answer["data"]

    try:
        waited(lambda: ask("query", query="hotset_visits_total")["result"])
        yield ask
    finally:
        running.kill()
        running.wait()


def test_prometheus_takes_the_engines_page(query):
    (target,) = query("targets")["activeTargets"]
    assert (target["health"], target["lastError"], target["labels"]["job"]) == ("up", "", "hotset")
    listed = set(re.findall(r"^\| `(hotset_\w+)` \| (\w+)", (ROOT / "docs" / "metrics.md").read_text(), re.M))
    types = {name: own[0]["type"] for name, own in query("metadata").items() if name.startswith("hotset_")}
    assert types and set(types.items()) <= listed


@pytest.mark.parametrize("title, expression", [pytest.param(*q, id=f"{n}-{q[0]}") for n, q in enumerate(queries())])
def test_a_query_of_the_dashboard_has_values(query, title, expression):
    assert waited(lambda: query("query", query=expression)["result"])


def test_no_rule_fails_and_a_healthy_engine_is_not_down(query):
    def evaluated():
        rules = query("rules")["groups"][0]["rules"]
        return all(rule["health"] != "unknown" for rule in rules) and rules

    rules = waited(evaluated)
    assert {rule["name"]: rule["health"] for rule in rules} == dict.fromkeys((rule["name"] for rule in rules), "ok")
    assert len(rules) == 10
    silent = ("HotsetDown", "HotsetBudgetExceeded", "HotsetCopiesFail")
    assert [rule["state"] for rule in rules if rule["name"] in silent] == ["inactive"] * 3
