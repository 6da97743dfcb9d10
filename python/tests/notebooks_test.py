# SPDX-License-Identifier: Apache-2.0
"""The notebooks run from top to bottom, and print what they show.

HOTSET_UPDATE_NOTEBOOKS=1 writes what they print into them, with pictures if vl-convert is installed."""

import ast
import contextlib
import io
import json
import os
import pathlib
import sys
import types

import pytest

FOLDER = pathlib.Path(os.environ.get("HOTSET_SOURCE_DIR", pathlib.Path(__file__).parents[2])) / "python" / "notebooks"
UPDATES = os.environ.get("HOTSET_UPDATE_NOTEBOOKS") == "1"


class Picture:
    """Stands for IPython.display.SVG, so that no Jupyter is needed."""

    def __init__(self, path):
        self.lines = pathlib.Path(path).read_text().splitlines(keepends=True)


def can_plot():
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        return False
    return True


def outputs_of(source, names, count):
    """Runs a cell. Returns its outputs as a notebook has them."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        if last:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    out = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        out.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        data = {"image/svg+xml": value.lines} if isinstance(value, Picture) else {"text/plain": [repr(value)]}
        out.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return out


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_a_notebook_runs_and_shows_what_it_prints(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    display = types.ModuleType("IPython.display")
    display.SVG = Picture
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    book = json.loads((FOLDER / name).read_text())
    names = {"__name__": "__main__"}
    for count, cell in enumerate((cell for cell in book["cells"] if cell["cell_type"] == "code"), 1):
        draws = "plot" in cell["metadata"].get("tags", [])
        if draws and not can_plot():
            continue
        found = outputs_of("".join(cell["source"]), names, count)
        if UPDATES:
            cell.update(outputs=found, execution_count=count)
        elif draws:  # its text depends on the version that draws
            assert [list(one["data"]) for one in found] == [["image/svg+xml"]]
        else:
            assert (cell["outputs"], cell["execution_count"]) == (found, count), cell["id"]
    if UPDATES:
        (FOLDER / name).write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n")


def test_there_are_notebooks_and_their_pictures_are_small():
    books = list(FOLDER.glob("*.ipynb"))
    assert len(books) == 3
    assert all(book.stat().st_size < 100_000 for book in books)
