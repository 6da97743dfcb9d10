# SPDX-License-Identifier: Apache-2.0
"""_hotset.pyi matches the extension: every name, parameter and default."""

import ast
import pathlib
import re

import pytest

import hotset
import hotset._hotset as extension

STUB = pathlib.Path(hotset.__file__).resolve().parent / "_hotset.pyi"


def public(names):
    return sorted(n for n in names if not n.startswith("_") or n == "__init__")


def parameters_of(node):
    """(name, default or None) without self; None precedes the keyword-only ones."""
    given = node.args
    positional = [a.arg for a in given.args if a.arg != "self"]
    defaults = [ast.literal_eval(d) for d in given.defaults]
    missing = len(positional) - len(defaults)
    out = [(n, None if i < missing else (defaults[i - missing],)) for i, n in enumerate(positional)]
    if given.kwonlyargs:
        out.append(None)
    out += [(a.arg, None if d is None else (ast.literal_eval(d),)) for a, d in zip(given.kwonlyargs, given.kw_defaults)]
    return out


def said_by(function):
    """Parameters in pybind11's own signature."""
    text = re.sub(r"<[^>]*>", "None", function.__doc__.split("\n")[0])
    inside = text[text.index("(") + 1 : text.rindex(") ->")]
    depth, parts, part = 0, [], ""
    for c in inside:
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    out = []
    for one in filter(None, (p.strip() for p in [*parts, part])):
        if one == "*":
            out.append(None)
            continue
        name = one.split(":")[0]
        default = (ast.literal_eval(one.rsplit(" = ", 1)[1]),) if " = " in one else None
        if name != "self":
            out.append((name, default))
    return out


def classes():
    return {n.name: n for n in ast.parse(STUB.read_text()).body if isinstance(n, ast.ClassDef)}


def test_the_module_has_these_names():
    tree = ast.parse(STUB.read_text())
    named = [n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
    named += [n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)]
    assert sorted(named) == public(vars(extension))


@pytest.mark.parametrize("name", sorted(classes()))
def test_a_class_has_these_members(name):
    held = getattr(extension, name)
    members = {n.name: n for n in classes()[name].body if isinstance(n, ast.FunctionDef)}
    # Visits are never constructed directly.
    own = [n for n in vars(held) if n != "__init__" or name != "Visit"]
    assert sorted(members) == public(own)
    for member, node in members.items():
        is_property = any(getattr(d, "id", "") == "property" for d in node.decorator_list)
        assert isinstance(vars(held)[member], property) == is_property, member
        if not is_property:
            assert parameters_of(node) == said_by(getattr(held, member)), member


def test_functions_have_these_parameters():
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            assert parameters_of(node) == said_by(getattr(extension, node.name)), node.name
