# SPDX-License-Identifier: Apache-2.0
"""Figures of benchmarks/reproduction/figures.py and the pages that show them.

figures_test.py SOURCE_DIR BUILD_DIR
"""

import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, BUILD = map(Path, sys.argv[1:3])
SPECIFICATION = importlib.util.spec_from_file_location("figures", SOURCE / "benchmarks/reproduction/figures.py")
figures = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(figures)


def ran(*arguments):
    """Returns the exit code, the output and the errors of figures.py."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = figures.main([str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()


def values(specification):
    """Yields every row of data of a Vega-Lite specification."""
    if isinstance(specification, dict):
        yield from specification.get("data", {}).get("values", [])
        for value in specification.values():
            yield from values(value)
    elif isinstance(specification, list):
        for value in specification:
            yield from values(value)


def drawn(name, *arguments):
    code, out, err = ran(name, BUILD, "--json", *arguments)
    assert code == 0, err
    return list(values(json.loads(out)))


class Pages(unittest.TestCase):
    def test_a_page_shows_each_figure_and_its_command(self):
        pages = [page.read_text() for page in (SOURCE / "docs").rglob("*.md")]
        for name in figures.FIGURES:
            self.assertTrue((figures.PICTURES / f"{name}.svg").exists(), name)
            shown = [page for page in pages if f"pictures/papers/{name}.svg" in page]
            self.assertEqual(len(shown), 1, name)
            self.assertIn(f"figures.py {name} build/release", shown[0], name)

    def test_each_picture_is_a_figure_with_a_source(self):
        pictures = {picture.stem for picture in figures.PICTURES.iterdir()}
        self.assertEqual(pictures, set(figures.FIGURES))
        self.assertEqual(set(figures.PUBLISHED), set(figures.FIGURES))
        for name, published in figures.PUBLISHED.items():
            self.assertTrue(published["source"], name)

    def test_a_picture_prints_its_source_and_command(self):
        for name in figures.FIGURES:
            text = (figures.PICTURES / f"{name}.svg").read_text()
            self.assertIn(figures.PUBLISHED[name]["source"].split(",")[0], text, name)
            self.assertRegex(text, "ours: (benchmarks/reproduction/|hotset )", name)


class Measured(unittest.TestCase):
    """The figures that take no second."""

    def test_kv_tokens_are_the_papers(self):
        rows = drawn("wisp-kv")
        tokens = {(row["cap"], row["source"]): row["tokens"] for row in rows}
        self.assertEqual(len(rows), 8)
        for cap in ("cap 8", "cap 16", "cap 32"):
            self.assertEqual(tokens[cap, "ours"], tokens[cap, "paper"])
        self.assertGreater(tokens["cap 64", "ours"], 0)

    def test_memory_of_adapters_is_the_papers(self):
        rows = [row for row in drawn("expertweave-memory") if "gib" in row]
        gib = {(row["adapters"], row["placement"], row["source"]): row["gib"] for row in rows}
        self.assertEqual(len(gib), 12)
        for (adapters, placement, source), ours in gib.items():
            if source == "ours":
                self.assertAlmostEqual(ours, gib[adapters, placement, "paper"], delta=0.4)


class Tables(unittest.TestCase):
    """Figures of the longer studies, from tables in the form that the scripts print."""

    def drawn(self, name, study, text):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / f"{study}.txt").write_text(text)
            return drawn(name, "--kept", folder)

    def test_rates_are_the_bracketed_ones(self):
        line = "{:<34}      66.3 (  9.65)      56.8 ( 10.62)      37.9 ( 13.30)\n"
        text = (
            "-- ms a step for 384 experts of 9 MiB\n"
            + "".join(line.format(name) for name in ("in place", "synthetic", "gemma", "esft-law"))
            + "-- in place / paged\n"
        )
        rows = self.drawn("wisp-throughput", "wisp-table2", text)
        ours = [row["rate"] for row in rows if row["source"] == "ours: Gemma's routing"]
        self.assertEqual(ours, [9.65, 10.62, 13.30])
        code, _, err = self.refused("wisp-throughput", "wisp-table2", text.replace("gemma", "other"))
        self.assertEqual(code, 1)
        self.assertIn("HOTSET_DATA_DIR", err)

    def refused(self, name, study, text):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / f"{study}.txt").write_text(text)
            return ran(name, BUILD, "--kept", folder)

    def test_a_study_of_another_form_is_refused_in_one_line(self):
        code, _, err = self.refused("specmd-collisions", "specmd-collisions", "nothing\n")
        self.assertEqual(code, 1)
        self.assertEqual(err.count("\n"), 1)
        self.assertIn("printed no section", err)

    def test_collisions_are_those_of_the_second_size(self):
        text = (
            "-- the same, expert by expert\n| trace | slots | `lru` | `gate_score` | `least_stale` |\n"
            "|---|---|---|---|---|\n"
            "| olmoe | 41 | 1 / 2 | 1 / 2 | 1 / 2 |\n| olmoe | 205 | 83.1 / 4.69 | 43.9 / 44.04 | 84.7 / 0.84 |\n"
        )
        rows = [row for row in self.drawn("specmd-collisions", "specmd-collisions", text) if "collisions" in row]
        self.assertEqual([row["collisions"] for row in rows], [4.69, 44.04, 0.84])

    def test_published_times_are_relative_to_on_demand(self):
        block = (
            "| {}, duplex | blocking | total I/O |\n|---|---|---|\n| on demand, `lru` | 1.000 | 1.000 |\n"
            "| top-k prefetch | 0.8 | 1.2 |\n| MoE-APEX | 0.7 | 1.3 |\n| ActiveEvict, dynamic top-k | 0.6 | 1.1 |\n\n"
        )
        rows = self.drawn(
            "activeevict-blocking", "activeevict-table_3", block.format("mixtral") + block.format("llama-moe")
        )
        at = {(row["model"], row["arm"], row["measure"], row["source"]): row["relative"] for row in rows}
        self.assertEqual(at["Mixtral", "ActiveEvict", "blocking I/O", "ours"], 0.6)
        self.assertAlmostEqual(at["Mixtral", "ActiveEvict", "blocking I/O", "paper"], 24.31 / 44.35)

    def test_held_out_texts_are_required(self):
        code, _, err = self.refused("fmoe-systems", "fmoe-systems", "-- texts: the prompts of the repository\n")
        self.assertEqual(code, 1)
        self.assertIn("held-out texts", err)


class Refusals(unittest.TestCase):
    def test_a_folder_without_programs_is_refused_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            code, _, err = ran("all", folder)
        self.assertEqual(code, 1)
        self.assertEqual(err.count("\n"), 1)
        self.assertIn("hotset is missing", err)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
