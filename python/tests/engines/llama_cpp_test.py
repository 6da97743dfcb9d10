# SPDX-License-Identifier: Apache-2.0
"""hotset.llama_cpp with a real llama-cpp-python. `make engines` runs it.

HOTSET_LLAMA_MODELS: a folder with tiny-F16.gguf, tiny-Q4_0.gguf and models/dense.gguf; serve_check.sh makes them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import llama_cpp
import pytest

import hotset
from hotset.llama_cpp import _library, page, paged, paging_of

MODELS = pathlib.Path(os.environ["HOTSET_LLAMA_MODELS"])
LOG = MODELS / "server.log"
PROMPT = "def main(self, name):\n    "
TURNS = ("import os", "class Test", "return self")


def made(name: str = "tiny-F16.gguf", **options: Any) -> llama_cpp.Llama:
    options = {"n_ctx": 512, "n_threads": 1, "n_threads_batch": 1, "verbose": False, **options}
    return llama_cpp.Llama(str(MODELS / name), **options)


def text_of(llm: llama_cpp.Llama, prompt: str = PROMPT) -> str:
    return str(llm(prompt, max_tokens=40, temperature=0)["choices"][0]["text"])


def chat_of(llm: llama_cpp.Llama) -> list[str]:
    messages: list[Any] = []
    for turn in TURNS:
        messages.append({"role": "user", "content": turn})
        answer = llm.create_chat_completion(messages, max_tokens=20, temperature=0)
        messages.append(answer["choices"][0]["message"])
    return [message["content"] for message in messages]


@pytest.fixture(scope="module")
def plain_text() -> str:
    with contextlib.closing(made()) as llm:
        return text_of(llm)


@pytest.fixture(scope="module")
def plain_chat() -> list[str]:
    with contextlib.closing(made()) as llm:
        return chat_of(llm)


@pytest.mark.parametrize("source", ["auto", "mapped", "read"])
def test_a_paged_llama_gives_the_same_text(plain_text: str, source: str, capfd: Any) -> None:
    with paged(budget="30%", source=source):
        llm = made()
    with contextlib.closing(llm):
        assert text_of(llm) == plain_text
        stats = paging_of(llm).stats()
        assert stats["experts"] == 32 and stats["layers"] == 12 and 4 <= stats["slots"] < 12
        assert 0 < stats["hits"] < stats["accesses"] and stats["bytes_filled"] > 0
        assert paging_of(llm).describe() in capfd.readouterr().err


def test_chats_with_a_reused_prefix_give_the_same_text(plain_chat: list[str]) -> None:
    with paged(budget="30%"):
        llm = made()
    with contextlib.closing(llm):
        assert chat_of(llm) == plain_chat


def test_a_llama_made_after_the_block_is_not_paged(plain_text: str) -> None:
    with paged(budget="30%"):
        pass
    with contextlib.closing(made()) as llm:
        assert paging_of(llm) is None


@pytest.mark.parametrize("name", ["tiny-F16.gguf", "tiny-Q4_0.gguf"])
def test_an_existing_llama_is_paged(name: str) -> None:
    """Q4_0 is repacked when the object is made, and computes otherwise: all experts in slots are the reference."""
    options = {"n_ctx": 256, "type_k": 0, "type_v": 0}  # caches in F32
    with paged(budget="100%"):
        reference = made(name, **options)
    with contextlib.closing(reference), contextlib.closing(made(name, **options)) as llm:
        expected = text_of(reference)
        assert text_of(llm)
        cache = llama_cpp.LlamaRAMCache()
        llm.set_cache(cache)
        paging = page(llm, budget="30%")
        assert paging_of(llm) is paging
        assert llm.n_ctx() == 256 and llm.cache is cache
        assert llm.context_params.type_k == 0 and llm.n_tokens == 0
        assert text_of(llm) == expected
        assert paging.stats()["hits"] > 0
        with pytest.raises(hotset.InvalidConfig, match="is paged already"):
            page(llm, budget="30%")


def test_detach_leaves_a_llama_that_runs(plain_text: str) -> None:
    with contextlib.closing(made()) as llm:
        with page(llm, budget="30%") as paging:
            assert text_of(llm) == plain_text
        llm.reset()
        assert text_of(llm) == plain_text
        with pytest.raises(hotset.Error, match="was detached"):
            paging.stats()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"budget": "lots"}, "budget"),
        ({"budget": "150%"}, "budget"),
        ({"budget": "1KiB"}, "accepted: 4..32"),
        ({"eviction": "lur"}, "unknown eviction policy"),
        ({"prefetch": "all"}, "unknown prefetch policy"),
        ({"source": "disk"}, "accepted: auto, mapped, read, direct, uring"),
        ({"threads": 0}, "accepted: 1..256"),
    ],
)
def test_refused_options_leave_a_llama_that_runs(plain_text: str, options: dict[str, Any], words: str) -> None:
    with contextlib.closing(made()) as llm:
        with pytest.raises(ValueError, match=words):
            page(llm, **options)
        assert paging_of(llm) is None and text_of(llm) == plain_text
    with pytest.raises(ValueError, match=words), paged(**options):
        made()


def test_models_that_are_not_paged(capfd: Any) -> None:
    with paged(budget="30%"):
        with contextlib.closing(made("tiny-F16.gguf", embedding=True)) as llm:
            assert paging_of(llm) is None
            assert "runs without paging: the context computes embeddings" in capfd.readouterr().err
        with contextlib.closing(made("models/dense.gguf")) as llm:
            assert paging_of(llm) is None
            assert "dense.gguf runs without paging: the model has no experts" in capfd.readouterr().err
    with contextlib.closing(made("models/dense.gguf")) as llm:
        with pytest.raises(hotset.InvalidArgument, match="accepted: a Mixture-of-Experts model"):
            page(llm, budget="30%")
    with pytest.raises(ValueError, match="does not exist"), paged():
        made("absent.gguf")


def test_a_copy_that_fails_raises(tmp_path: pathlib.Path) -> None:
    """The file is cut while it is served: its reads then end early."""
    copy = tmp_path / "m.gguf"
    copy.write_bytes((MODELS / "tiny-F16.gguf").read_bytes())
    with paged(budget="30%", source="read"):
        llm = made(str(copy), use_mmap=False)
    with contextlib.closing(llm):
        text_of(llm)
        os.truncate(copy, 1 << 16)
        with pytest.raises(hotset.FillFailed, match="m.gguf"):
            text_of(llm, "class Other:\n    def test(self): return 17 * 4")


def test_another_llama_cpp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library, "_version", lambda function: "9.9.9")
    _library.library.cache_clear()
    with pytest.raises(
        hotset.InvalidConfig, match=r"runs llama.cpp 9.9.9, ggml 9.9.9, accepted: llama.cpp 0.*pip install"
    ):
        _library.library()
    monkeypatch.undo()
    monkeypatch.setenv("HOTSET_LLAMA_LIBRARY", "/absent.so")
    with pytest.raises(hotset.Error, match="/absent.so: no such library, accepted"):
        _library.library()


def test_structures_have_the_sizes_of_the_header() -> None:
    """The library writes statistics only into a structure that is large enough."""
    assert ctypes.sizeof(_library.Options) == 72
    assert ctypes.sizeof(_library.Stats) == 88


def test_the_library_takes_nothing_but_llama_cpp_from_the_process() -> None:
    """Symbols without a version come from the process; those of fmt and libarchive, from their libraries."""
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", _library._path()], capture_output=True, text=True, check=True
    )
    free = [line.split()[1] for line in symbols.stdout.splitlines() if line.split()[0] == "U" and "@" not in line]
    assert free and all(name.startswith(("llama_", "ggml_", "gguf_", "_ZN3fmt", "archive_")) for name in free), free


def test_the_preloaded_library_runs_in_any_program() -> None:
    path = subprocess.check_output([sys.executable, "-m", "hotset.llama_cpp.preload"], text=True).strip()
    environment = {**os.environ, "LD_PRELOAD": path, "HOTSET_LLAMA_STATS": "1"}
    ended = subprocess.run(["true"], env=environment, capture_output=True, text=True, check=True)
    assert ended.stderr == "hotset: no experts were paged in this process\n"


# The server, over HTTP.


@contextlib.contextmanager
def serving(module: str, *options: str) -> Iterator[str]:
    """Address of a server of tiny-F16.gguf."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", module, "--model", str(MODELS / "tiny-F16.gguf"), "--port", str(port), *options]
    command += ["--host", "127.0.0.1", "--n_ctx", "512", "--n_threads", "1", "--n_threads_batch", "1"]
    with open(LOG, "w") as log:
        process = subprocess.Popen([*command, "--verbose", "false"], stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(1200):
            assert process.poll() is None, LOG.read_text()
            with contextlib.suppress(urllib.error.URLError):
                urllib.request.urlopen(f"{address}/v1/models")
                break
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def post(address: str, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200
        return json.load(answer)


def answers(address: str) -> list[str]:
    """Of a completion, and of a chat of several turns."""
    completion = post(address, "/v1/completions", {"prompt": PROMPT, "max_tokens": 40, "temperature": 0})
    messages: list[Any] = []
    for turn in TURNS:
        messages.append({"role": "user", "content": turn})
        body = {"messages": messages, "max_tokens": 20, "temperature": 0}
        messages.append(post(address, "/v1/chat/completions", body)["choices"][0]["message"])
    return [completion["choices"][0]["text"], *(message["content"] for message in messages)]


def test_the_server_answers_as_llama_cpps_own() -> None:
    with serving("llama_cpp.server") as address:
        plain = answers(address)
    with serving("hotset.llama_cpp.server", "--hotset-budget", "30%", "--hotset-source=read") as address:
        assert answers(address) == plain
    assert "experts of each of 12 layers in slots" in LOG.read_text()


@pytest.mark.parametrize(
    "options, words",
    [
        (["--model", "tiny-F16.gguf", "--hotset-budget", "lots"], "budget"),
        (["--model", "tiny-F16.gguf", "--hotset-source", "disk"], "accepted: auto, mapped, read"),
        (["--model", "absent.gguf"], "does not exist"),
        (["--model", "tiny-F16.gguf", "--hotset-bugdet", "1GiB"], "unrecognized arguments: --hotset-bugdet"),
        (["--model", "tiny-F16.gguf", "--hotset-threads", "two"], "argument --hotset-threads: invalid int value"),
    ],
)
def test_the_server_ends_with_one_line_if_it_cannot_page(options: list[str], words: str) -> None:
    command = [sys.executable, "-m", "hotset.llama_cpp.server", "--verbose", "false", *options]
    ended = subprocess.run(command, cwd=MODELS, capture_output=True, text=True, timeout=120)
    assert ended.returncode != 0
    last = ended.stderr.strip().splitlines()[-1]
    assert words in last and "Traceback" not in ended.stderr, ended.stderr


def test_the_server_names_the_package_that_is_missing() -> None:
    program = "import sys; sys.modules['llama_cpp'] = None; from hotset.llama_cpp import server; server.main()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert ended.stderr.startswith("hotset.llama_cpp.server: ") and ended.stderr.count("\n") == 1
    assert "accepted: pip install 'hotset[llama]'" in ended.stderr


def test_help_lists_both_programs_options() -> None:
    command = [sys.executable, "-m", "hotset.llama_cpp.server", "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0
    assert "--hotset-budget" in ended.stdout and "--n_ctx" in ended.stdout
