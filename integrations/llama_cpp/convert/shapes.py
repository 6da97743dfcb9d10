#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a small model with random weights, F16, and an adapter (LoRA) for each Mixture-of-Experts shape.

    shapes.py FOLDER

Writes NAME.gguf, NAME-lora.gguf and the same model in three parts, NAME-parts-0000?-of-00003.gguf.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy

from gguf_writer import Fact, GgufWriter

HEAD, LATENT, RANK, VOCABULARY = 64, 32, 4, 256
SIGMOID = 2  # of llama.cpp, for expert_gating_func


@dataclass(frozen=True)
class Size:
    """Rows of 256 numbers have whole blocks in every type of llama.cpp."""

    layers: int = 2  # with experts
    experts: int = 16
    top_k: int = 4
    width: int = 256
    expert_width: int = 256


@dataclass(frozen=True)
class Shape:
    """Tensors and facts of an architecture, where they differ from Mixtral's."""

    architecture: str = "llama"
    facts: Mapping[str, Fact] = field(default_factory=dict)
    grouped: bool = True  # two heads of queries for each head of keys
    latent: bool = False  # DeepSeek's attention: queries, keys and values from short vectors
    attention_biases: tuple[str, ...] = ()
    query_norm: str = ""  # "head" or "all": width of the norms of queries and keys
    ffn_norm: str = "ffn_norm"
    biased_norms: bool = False
    sinks: bool = False
    dense_layers: int = 0  # at the begin
    stride: int = 1  # the last layer of so many has experts
    shared: bool = False  # a shared expert
    shared_gate: bool = False
    fused: bool = False  # gate and up in one tensor
    router_bias: bool = False
    selection_bias: bool = False
    expert_biases: bool = False
    scales: bool = False


_SIGMOID_FACTS: Mapping[str, Fact] = {
    "leading_dense_block_count": 1,
    "expert_shared_count": 1,
    "expert_weights_scale": 2.5,
    "expert_weights_norm": True,
    "expert_gating_func": SIGMOID,
}
_DEEPSEEK_FACTS: Mapping[str, Fact] = {
    **_SIGMOID_FACTS,
    "attention.q_lora_rank": LATENT,
    "attention.kv_lora_rank": LATENT,
    "rope.dimension_count": HEAD // 2,
    "expert_group_count": 4,
    "expert_group_used_count": 2,
}

_QWEN3: dict[str, Any] = {"architecture": "qwen3moe", "query_norm": "head"}
_DEEPSEEK: dict[str, Any] = {
    "architecture": "deepseek2",
    "facts": _DEEPSEEK_FACTS,
    "latent": True,
    "dense_layers": 1,
    "shared": True,
    "selection_bias": True,
}

SHAPES: Mapping[str, Shape] = {
    "mixtral": Shape(),
    "qwen3moe": Shape(**_QWEN3),
    "qwen3moe-scales": Shape(**_QWEN3, scales=True),
    "qwen2moe": Shape("qwen2moe", attention_biases=("q", "k", "v"), shared=True, shared_gate=True),
    "olmoe": Shape("olmoe", grouped=False, query_norm="all"),
    "gpt-oss": Shape(
        "gpt-oss",
        {"attention.sliding_window": 32},
        attention_biases=("q", "k", "v", "output"),
        ffn_norm="post_attention_norm",
        sinks=True,
        router_bias=True,
        expert_biases=True,
    ),
    "deepseek2": Shape(**_DEEPSEEK),
    "deepseek2-fused": Shape(**_DEEPSEEK, fused=True),
    # llama.cpp ends the program if a llama4 has fewer than four layers.
    "llama4": Shape("llama4", {"interleave_moe_layer_step": 2}, stride=2, shared=True),
    "granitemoe": Shape(
        "granitemoe",
        {"logit_scale": 1.0, "embedding_scale": 1.0, "residual_scale": 1.0, "attention.scale": 0.125},
    ),
    "phimoe": Shape("phimoe", attention_biases=("q", "k", "v", "output"), biased_norms=True),
    "hunyuan-fused": Shape("hy_v3", query_norm="head", shared=True, fused=True),
    "dots1": Shape(
        "dots1", _SIGMOID_FACTS, grouped=False, query_norm="head", dense_layers=1, shared=True, selection_bias=True
    ),
}


class ModelMaker:
    """Draws a model's tensors, in the order of the file."""

    def __init__(self, shape: Shape, size: Size, seed: int) -> None:
        self._shape, self._size = shape, size
        self._random = numpy.random.default_rng(seed)
        self._heads = size.width // HEAD
        self._kv_heads = self._heads // 2 if shape.grouped and not shape.latent else self._heads
        self.writer = GgufWriter()
        self._facts()
        self._matrix("token_embd", VOCABULARY, size.width, scale=1.0)
        self._norm("output_norm")
        self._matrix("output", VOCABULARY, size.width)
        if shape.biased_norms:
            self._vector("output.bias", VOCABULARY)
        for layer in range(layers_of(shape, size)):
            self._layer(f"blk.{layer}.", dense=not has_experts(shape, size, layer))

    def _facts(self) -> None:
        shape, size = self._shape, self._size
        facts: dict[str, Fact] = {
            "block_count": layers_of(shape, size),
            "context_length": 4096,
            "embedding_length": size.width,
            "feed_forward_length": size.expert_width,
            "expert_feed_forward_length": size.expert_width,
            "attention.head_count": self._heads,
            "attention.head_count_kv": self._kv_heads,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": HEAD,
            "rope.freq_base": 10000.0,
            "vocab_size": VOCABULARY,
        }
        if size.experts:
            facts.update({"expert_count": size.experts, "expert_used_count": size.top_k})
        if shape.shared_gate:
            facts["expert_shared_feed_forward_length"] = size.expert_width
        self.writer.fact("general.architecture", shape.architecture)
        self.writer.fact("general.file_type", 1)
        self.writer.fact("tokenizer.ggml.model", "no_vocab")
        for key, value in {**facts, **shape.facts}.items():
            self.writer.fact(f"{shape.architecture}.{key}", value)

    def _draw(self, *shape: int) -> numpy.ndarray:
        return self._random.standard_normal(shape, numpy.float32)

    def _matrix(self, name: str, *shape: int, scale: float = 0.0) -> None:
        self.writer.array(f"{name}.weight", self._draw(*shape) * (scale or shape[-1] ** -0.5), "F16")

    def _vector(self, name: str, *shape: int, mean: float = 0.0) -> None:
        self.writer.array(name, mean + 0.1 * self._draw(*shape), "F32")

    def _norm(self, name: str, width: int = 0) -> None:
        self._vector(f"{name}.weight", width or self._size.width, mean=1)
        if self._shape.biased_norms:
            self._vector(f"{name}.bias", width or self._size.width)

    def _layer(self, block: str, dense: bool) -> None:
        self._norm(f"{block}attn_norm")
        self._norm(f"{block}{self._shape.ffn_norm}")
        if self._shape.latent:
            self._latent_attention(block)
        else:
            self._attention(block)
        if dense:
            self._feed_forward(block, "")
        else:
            self._router(block)
            self._experts(block)

    def _attention(self, block: str) -> None:
        shape, width = self._shape, self._size.width
        rows, kv_rows = self._heads * HEAD, self._kv_heads * HEAD
        for part, out, into in (("q", rows, width), ("k", kv_rows, width), ("v", kv_rows, width), ("output", width, rows)):
            self._matrix(f"{block}attn_{part}", out, into)
            if part in shape.attention_biases:
                self._vector(f"{block}attn_{part}.bias", out)
        if shape.query_norm:
            for part in ("q", "k"):
                self._norm(f"{block}attn_{part}_norm", HEAD if shape.query_norm == "head" else rows)
        if shape.sinks:
            self._vector(f"{block}attn_sinks.weight", self._heads)

    def _latent_attention(self, block: str) -> None:
        width, rows, turned = self._size.width, self._heads * HEAD, HEAD // 2
        self._matrix(f"{block}attn_q_a", LATENT, width)
        self._norm(f"{block}attn_q_a_norm", LATENT)
        self._matrix(f"{block}attn_q_b", rows, LATENT)
        self._matrix(f"{block}attn_kv_a_mqa", LATENT + turned, width)
        self._norm(f"{block}attn_kv_a_norm", LATENT)
        self._matrix(f"{block}attn_kv_b", self._heads * (HEAD - turned + HEAD), LATENT)
        self._matrix(f"{block}attn_output", width, rows)

    def _feed_forward(self, block: str, kind: str) -> None:
        width, inner = self._size.width, self._size.expert_width
        for part, rows, columns in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            self._matrix(f"{block}ffn_{part}{kind}", rows, columns)

    def _router(self, block: str) -> None:
        experts, width = self._size.experts, self._size.width
        # Skewed routing: some experts are routed to far more often than others.
        favour = numpy.exp(0.6 * self._draw(experts, 1))
        self.writer.array(f"{block}ffn_gate_inp.weight", self._draw(experts, width) * width**-0.5 * favour, "F32")
        if self._shape.router_bias:
            self._vector(f"{block}ffn_gate_inp.bias", experts)
        if self._shape.selection_bias:
            self._vector(f"{block}exp_probs_b.bias", experts)

    def _experts(self, block: str) -> None:
        shape = self._shape
        for part, (rows, columns) in expert_parts(shape, self._size).items():
            name = f"{block}ffn_{part}_exps"
            self._matrix(name, self._size.experts, rows, columns)
            if shape.scales:
                self._vector(f"{name}.scale", self._size.experts, mean=1)
            if shape.expert_biases:
                self._vector(f"{name}.bias", self._size.experts, rows)
        if shape.shared_gate:
            self._vector(f"{block}ffn_gate_inp_shexp.weight", self._size.width)
        if shape.shared:
            self._feed_forward(block, "_shexp")


def layers_of(shape: Shape, size: Size) -> int:
    return shape.dense_layers + shape.stride * size.layers


def has_experts(shape: Shape, size: Size, layer: int) -> bool:
    return size.experts > 0 and layer >= shape.dense_layers and (layer - shape.dense_layers + 1) % shape.stride == 0


def expert_parts(shape: Shape, size: Size) -> dict[str, tuple[int, int]]:
    """Rows and columns of an expert's matrices."""
    inner = (size.expert_width, size.width)
    first = {"gate_up": (2 * size.expert_width, size.width)} if shape.fused else {"gate": inner, "up": inner}
    return {**first, "down": (size.width, size.expert_width)}


def make_model(name: str, size: Size = Size(), seed: int = 3) -> GgufWriter:
    return ModelMaker(SHAPES[name], size, seed).writer


def make_adapter(name: str, size: Size = Size(), of_experts: bool = True, of_attention: bool = True) -> GgufWriter:
    """An adapter on queries, on experts or on both."""
    shape = SHAPES[name]
    random = numpy.random.default_rng(9)
    writer = GgufWriter()
    writer.fact("general.type", "adapter")
    writer.fact("general.architecture", shape.architecture)
    writer.fact("adapter.type", "lora")
    writer.fact("adapter.lora.alpha", 8.0)

    def add(tensor: str, stack: tuple[int, ...], rows: int, columns: int) -> None:
        for part, extents in (("a", (RANK, columns)), ("b", (rows, RANK))):
            values = 0.2 * random.standard_normal(stack + extents, numpy.float32)
            writer.array(f"{tensor}.weight.lora_{part}", values, "F32")

    for layer in range(layers_of(shape, size)):
        if of_attention:
            add(f"blk.{layer}.attn_output", (), size.width, size.width // HEAD * HEAD)
        if of_experts and has_experts(shape, size, layer):
            for part, (rows, columns) in expert_parts(shape, size).items():
                add(f"blk.{layer}.ffn_{part}_exps", (size.experts,), rows, columns)
    return writer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    for name in SHAPES:
        model = make_model(name)
        model.write(os.path.join(folder, f"{name}.gguf"))
        model.write_parts(os.path.join(folder, f"{name}-parts"), 3)
        make_adapter(name).write(os.path.join(folder, f"{name}-lora.gguf"))


if __name__ == "__main__":
    main()
