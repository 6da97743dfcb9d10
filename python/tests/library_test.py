# SPDX-License-Identifier: Apache-2.0
"""hotset/_library.py matches hotset.h, and the loaded library: every struct, member, function and parameter."""

import ctypes
import os
import pathlib
import re
import subprocess
import sys

import pytest

from hotset import _library

HEADER = pathlib.Path(__file__).resolve().parents[2] / "include" / "hotset.h"
TEXT = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.DOTALL)
SCALARS = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "hotset_status": ctypes.c_int32,
    "hotset_key": _library.Key,
    "const char*": ctypes.c_char_p,
    "void": None,
}
STRUCTS = {
    c.__doc__: c for c in vars(_library).values() if isinstance(c, type) and issubclass(c, ctypes.Structure) and c is not ctypes.Structure
}
NOT_CALLED = {"hotset_serve", "hotset_describe"}  # Pager.serve is a loop in Python


def type_of(words):
    return ctypes.c_void_p if words.endswith("*") and words != "const char*" else SCALARS[words]


def member(declared):
    """(name, type) of "int32_t layer"."""
    if "(*" in declared:
        name = re.search(r"\(\*(\w+)\)", declared).group(1)
        function = getattr(_library, name.upper())
        result, parameters = re.fullmatch(r"(\w+) \(\*\w+\)\((.*)\)", declared).groups()
        arguments = [member(each.strip())[1] for each in parameters.split(",")]
        if name != "removed":  # removed's struct has a type of its own
            assert (function._restype_, list(function._argtypes_)) == (SCALARS[result], arguments)
        return name, function
    kind, name = re.fullmatch(r"(.*?)\s*(\w+)", declared).groups()
    return name, type_of(kind)


def declared_structs():
    found = re.findall(r"typedef struct (?:HOTSET_MAY_ALIAS )?\w+ \{(.*?)\} (\w+);", TEXT, re.DOTALL)
    found += [(body, name) for name, body in re.findall(r"\nstruct (\w+) \{(.*?)\};", TEXT, re.DOTALL)]
    return {name: [member(" ".join(m.split())) for m in body.split(";") if m.strip()] for body, name in found if name != "hotset_callbacks"}


def declared_functions():
    found = re.findall(r"HOTSET_API\s+([\w\s]+?\*?)\s*(hotset_\w+)\((.*?)\);", TEXT, re.DOTALL)
    return {
        name: (type_of(" ".join(out.split())), [member(" ".join(p.split()))[1] for p in parameters.split(",") if p.strip() != "void"])
        for out, name, parameters in found
    }


def test_structs_are_those_of_the_header():
    declared = declared_structs()
    assert len(declared) == 18
    assert {name: list(struct._fields_) for name, struct in STRUCTS.items()} == declared


def test_functions_are_those_of_the_header():
    declared = declared_functions()
    assert len(declared) == TEXT.count("HOTSET_API ") - TEXT.count("#define HOTSET_API ") > 40
    bound = {name: (getattr(_library.library, name).restype, list(getattr(_library.library, name).argtypes)) for name in _library.FUNCTIONS}
    assert bound == {name: types for name, types in declared.items() if name not in NOT_CALLED}


def test_numbers_are_those_of_the_header():
    numbers = {name: int(value) for name, value in re.findall(r"(HOTSET_\w+) = (\d+)", TEXT)}
    assert f"#define HOTSET_ABI_VERSION {_library.ABI_VERSION}\n" in TEXT
    for name in ("NO_VICTIM", "DOES_NOT_FIT", "POLICY_FAILED"):
        assert getattr(_library, name) == numbers["HOTSET_" + name]


@pytest.mark.parametrize(
    "struct, call",
    [
        (_library.PagerOptions, lambda of, _: ("pager_create", of, ctypes.byref(ctypes.c_void_p()))),
        (_library.PrefetcherOptions, lambda of, _: ("prefetcher_create", of, ctypes.byref(ctypes.c_void_p()))),
        (_library.CurveOptions, lambda of, _: ("curve_create", of, ctypes.byref(ctypes.c_void_p()))),
        (_library.RecorderOptions, lambda of, _: ("recorder_create", of, ctypes.byref(ctypes.c_void_p()))),
        (_library.View, lambda of, pager: ("plan", pager, of, None)),
        (_library.Decisions, lambda of, pager: ("plan_next", pager, of)),
        (_library.Stats, lambda of, pager: ("get_stats", pager, of)),
    ],
)
def test_sizes_are_those_of_the_loaded_library(struct, call):
    import hotset

    pager = hotset.Pager(1, 4, 2, slots=4)
    name, *arguments = call(ctypes.byref(struct(1)), pager._handle)
    with pytest.raises(hotset.InvalidArgument, match=rf"struct_size = 1, accepted: {ctypes.sizeof(struct)}\b"):
        _library.check(getattr(_library.library, "hotset_" + name)(*arguments))


def test_a_library_that_is_not_there_is_told():
    environment = {**os.environ, "HOTSET_LIBRARY": "/absent/libhotset.so"}
    done = subprocess.run([sys.executable, "-B", "-c", "import hotset"], env=environment, capture_output=True, text=True, check=False)
    assert "/absent/libhotset.so" in done.stderr and "accepted: a package that carries libhotset, or $HOTSET_LIBRARY" in done.stderr
