#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the small models and adapters with random weights that hotset-llama-tests reads.

    check_models.py FOLDER
"""

from __future__ import annotations

import argparse
import os
from typing import Callable

import numpy

from gguf_writer import GgufWriter

LAYERS, EXPERTS, TOP_K, WIDTH, HEADS, VOCABULARY = 4, 16, 4, 128, 2, 256
EXPERT_PARTS = ("gate", "up", "down")


def new_model(architecture: str, experts: int, expert_width: int) -> GgufWriter:
    writer = GgufWriter()
    writer.fact("general.architecture", architecture)
    writer.fact("tokenizer.ggml.model", "no_vocab")
    facts = {
        "block_count": LAYERS,
        "context_length": 4096,
        "embedding_length": WIDTH,
        "feed_forward_length": expert_width,
        "expert_feed_forward_length": expert_width,
        "attention.head_count": HEADS,
        "attention.head_count_kv": HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.sliding_window": 32,
        "rope.dimension_count": WIDTH // HEADS,
        "rope.freq_base": 10000.0,
        "vocab_size": VOCABULARY,
    }
    if experts:
        facts.update({"expert_count": experts, "expert_used_count": TOP_K})
    for key, value in facts.items():
        writer.fact(f"{architecture}.{key}", value)
    return writer


def write_model(
    path: str, seed: int, architecture: str = "llama", experts: int = EXPERTS, expert_width: int = WIDTH, scales: bool = False
) -> None:
    random = numpy.random.default_rng(seed)
    writer = new_model(architecture, experts, expert_width)
    has_biases = architecture == "gpt-oss"

    def matrix(name: str, *shape: int) -> None:
        writer.array(f"{name}.weight", random.standard_normal(shape, numpy.float32) * shape[-1] ** -0.5, "F16")

    def vector(name: str, *shape: int, mean: float = 0.0) -> None:
        writer.array(name, mean + 0.1 * random.standard_normal(shape, numpy.float32), "F32")

    writer.array("token_embd.weight", random.standard_normal((VOCABULARY, WIDTH), numpy.float32), "F16")
    vector("output_norm.weight", WIDTH, mean=1)
    matrix("output", VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for norm in ("attn_norm", "post_attention_norm" if has_biases else "ffn_norm"):
            vector(f"{block}{norm}.weight", WIDTH, mean=1)
        for part in ("q", "k", "v", "output"):
            matrix(f"{block}attn_{part}", WIDTH, WIDTH)
            if has_biases:
                vector(f"{block}attn_{part}.bias", WIDTH)
        shapes = {"gate": (expert_width, WIDTH), "up": (expert_width, WIDTH), "down": (WIDTH, expert_width)}
        if not experts:
            for part, shape in shapes.items():
                matrix(f"{block}ffn_{part}", *shape)
            continue
        # Skewed routing: some experts are routed to far more often than others.
        favour = numpy.exp(0.6 * random.standard_normal((experts, 1), numpy.float32))
        router = random.standard_normal((experts, WIDTH), numpy.float32) * WIDTH**-0.5 * favour
        writer.array(f"{block}ffn_gate_inp.weight", router, "F32")
        for part, shape in shapes.items():
            matrix(f"{block}ffn_{part}_exps", experts, *shape)
            if scales:
                vector(f"{block}ffn_{part}_exps.scale", experts, mean=1)
            if has_biases:
                vector(f"{block}ffn_{part}_exps.bias", experts, shape[0])
        if has_biases:
            vector(f"{block}attn_sinks.weight", HEADS)
            vector(f"{block}ffn_gate_inp.bias", experts)
    writer.write(path)


def write_adapter(path: str, of_experts: bool, rank: int = 4) -> None:
    random = numpy.random.default_rng(9)
    writer = GgufWriter()
    writer.fact("general.type", "adapter")
    writer.fact("general.architecture", "llama")
    writer.fact("adapter.type", "lora")
    writer.fact("adapter.lora.alpha", 8.0)
    names = [f"ffn_{part}_exps" for part in EXPERT_PARTS] if of_experts else ["attn_q"]
    stack = (EXPERTS,) if of_experts else ()
    for layer in range(LAYERS):
        for name in names:
            for part, shape in (("a", (rank, WIDTH)), ("b", (WIDTH, rank))):
                values = 0.2 * random.standard_normal(stack + shape, numpy.float32)
                writer.array(f"blk.{layer}.{name}.weight.lora_{part}", values, "F32")
    writer.write(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    files: dict[str, Callable[[str], None]] = {
        "moe": lambda path: write_model(path, 1),
        "other": lambda path: write_model(path, 2),
        "more-experts": lambda path: write_model(path, 1, experts=2 * EXPERTS),
        "wide": lambda path: write_model(path, 1, expert_width=2 * WIDTH),
        "dense": lambda path: write_model(path, 1, experts=0),
        "scales": lambda path: write_model(path, 1, scales=True),
        "biases": lambda path: write_model(path, 1, architecture="gpt-oss"),
        "lora-experts": lambda path: write_adapter(path, of_experts=True),
        "lora-attention": lambda path: write_adapter(path, of_experts=False),
    }
    for name, write in files.items():
        write(os.path.join(folder, name + ".gguf"))


if __name__ == "__main__":
    main()
