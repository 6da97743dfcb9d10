# SPDX-License-Identifier: Apache-2.0
"""The library hotset_llama, called by ctypes, beside the llama.cpp of llama-cpp-python."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
from typing import Any

import llama_cpp
import llama_cpp.llama_cpp as api

import hotset
from hotset._errors import Error, InvalidConfig

SOURCES = ("auto", "mapped", "read", "direct", "uring")
"""In the order of HOTSET_LLAMA_AUTO and so on."""


class Options(ctypes.Structure):
    """hotset_llama_options"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("model_path", ctypes.c_char_p),
        ("budget", ctypes.c_char_p),
        ("slots", ctypes.c_int32),
        ("source", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("eviction", ctypes.c_char_p),
        ("prefetch", ctypes.c_char_p),
        ("metrics", ctypes.c_char_p),
        ("timeline", ctypes.c_char_p),
    ]


class Stats(ctypes.Structure):
    """hotset_llama_stats"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("visits", ctypes.c_uint64),
        ("accesses", ctypes.c_uint64),
        ("hits", ctypes.c_uint64),
        ("bytes_filled", ctypes.c_uint64),
        ("prefetch_hits", ctypes.c_uint64),
        ("spared", ctypes.c_uint64),
        ("passed", ctypes.c_uint64),
        ("slot_bytes", ctypes.c_uint64),
        ("slots", ctypes.c_int32),
        ("spares", ctypes.c_int32),
        ("layers", ctypes.c_int32),
        ("experts", ctypes.c_int32),
    ]


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "create": (ctypes.c_void_p, [ctypes.POINTER(Options)]),
    "prepare": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
    "attach": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
    "check": (ctypes.c_int, [ctypes.c_void_p]),
    "error": (ctypes.c_char_p, [ctypes.c_void_p]),
    "describe": (ctypes.c_char_p, [ctypes.c_void_p]),
    "warning": (ctypes.c_char_p, [ctypes.c_void_p]),
    "get_stats": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(Stats)]),
    "destroy": (None, [ctypes.c_void_p]),
    "built_for": (ctypes.c_char_p, []),
}


def _path() -> str:
    name = "libhotset_llama.so." + ".".join(hotset.__version__.split(".")[:2])
    beside = os.path.join(os.path.dirname(os.path.dirname(__file__)), "lib", name)
    return os.environ.get("HOTSET_LLAMA_LIBRARY", beside)


def _requirement() -> str:
    """What the extra `llama` of this package requires."""
    try:
        required = importlib.metadata.requires("hotset") or []
    except importlib.metadata.PackageNotFoundError:
        required = []
    found = [one.split(";")[0].strip() for one in required if one.startswith("llama-cpp-python")]
    return found[0] if found else "hotset[llama]"


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Raises Error if there is no hotset_llama, InvalidConfig if llama_cpp has another llama.cpp than
    it was built for."""
    path = _path()
    if not os.path.exists(path):
        raise Error(
            f"{path}: no such library, accepted: a hotset that was built with llama.cpp's "
            "headers, or HOTSET_LLAMA_LIBRARY=<path of libhotset_llama.so>"
        )
    # hotset_llama takes llama.cpp's symbols from the process; llama_cpp hides them.
    llama = ctypes.CDLL(api._lib._name, mode=ctypes.RTLD_GLOBAL)
    out = ctypes.CDLL(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(out, f"hotset_llama_{name}")
        function.restype, function.argtypes = result, arguments
    running = f"llama.cpp {_version(llama.llama_version)}, ggml {_version(llama.ggml_version)}"
    built_for = out.hotset_llama_built_for().decode()
    if running != built_for:
        raise InvalidConfig(
            f"llama_cpp {llama_cpp.__version__} runs {running}, accepted: {built_for}, for which "
            f"this hotset was built (pip install '{_requirement()}')"
        )
    return out


def _version(function: Any) -> str:
    function.restype = ctypes.c_char_p
    return str(function().decode())
