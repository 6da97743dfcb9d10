# SPDX-License-Identifier: Apache-2.0
"""The report: its words, and the page in a browser."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from made_traces import refused, run

import hotset

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of a seeded trace, where the build keeps pictures."""
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    folder = pathlib.Path(os.environ.get("HOTSET_PICTURES") or tmp_path_factory.mktemp("report"))
    folder.mkdir(parents=True, exist_ok=True)
    words = "--layers 4 --experts 16 --top-k 2 --tokens 300 --zipf 1.1 --seed 3".split()
    hotset.run("synth", str(folder / "made.trace"), *words)
    done = run(folder, "report", "made.trace", "-o", "report.html")
    assert (done.code, done.err) == (0, "")
    return folder / "report.html"


def test_the_page_says_what_the_program_says(page):
    words = re.sub(r"<script>.*?</script>|<[^>]+>", "", page.read_text(), flags=re.S)
    (result,) = hotset.simulate(page.parent / "made.trace", eviction="lru", slots="25%", scope="shared").runs
    assert "300 tokens of 1 sequence" in words
    assert "4 layers of 16 experts, 2 for each token" in words
    assert f"{result['hits'] / result['accesses']:.1%}" in words
    for beginning in ("The policy:", "The slots:", "More memory:", "What is left:"):
        assert beginning in words
    assert "hotset report made.trace -o report.html" in words


def test_the_page_needs_no_other_file(page):
    text = page.read_text()
    assert len(text) <= 2_000_000
    written = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert not re.search(r"(src|href)=", written)


def _chromium(folder, page, *words):
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}"]
    command += ["--virtual-time-budget=30000", "--enable-logging=stderr", "--v=0", *words, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


@pytest.mark.skipif(not BROWSER, reason="chromium is not installed")
def test_a_browser_draws_every_figure(page, tmp_path):
    done = _chromium(tmp_path, page, "--dump-dom")
    assert "CONSOLE" not in done.stderr, done.stderr
    figures = re.split(r'<div class="figure', done.stdout.split("<script>")[0])[1:]
    assert len(figures) == len(re.findall(r'<div class="figure', page.read_text().split("<script>")[0])) >= 7
    for figure in figures:
        assert "<svg" in figure
        assert len(re.findall(r'aria-label="[^"]*\d', figure)) > 4  # marks that tell numbers
    _chromium(tmp_path, page, f"--screenshot={page.with_suffix('.png')}", "--window-size=1000,4800")
    assert page.with_suffix(".png").stat().st_size > 50_000


def test_refusals(tmp_path):
    refused(tmp_path, 2, "report", "t.trace", "-o", "x.svg", None, "'x.svg'; accepted: a path that ends with .html")
    refused(tmp_path, 2, "report", "t.trace", "-o", "x.html", "--theme", "blue", None, "accepted: light, dark")
