#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a Mixture-of-Experts GGUF file with random weights, for measuring: routing is skewed, the text is nonsense.

    random_moe_gguf.py OUT.gguf [--layers 12] [--experts 64] [--top-k 8] [--width 1024] [--expert-width 768] [--seed 1]

Experts are Q4_0, everything else F16 or F32; there is no vocabulary. The defaults are 972 MiB of experts. Beside OUT, OUT.tokens holds 128 int32 tokens.
"""

from __future__ import annotations

import argparse
from typing import BinaryIO

import numpy

from gguf_writer import GgufWriter

VOCABULARY = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out")
    for name, default in (("layers", 12), ("experts", 64), ("top-k", 8), ("width", 1024), ("expert-width", 768), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    make(parser.parse_args())


def make(o: argparse.Namespace) -> None:
    random = numpy.random.default_rng(o.seed)
    head_width = 128
    writer = GgufWriter(alignment=4096)
    writer.fact("general.architecture", "llama")
    writer.fact("general.name", "random-moe")
    writer.fact("general.file_type", 2)
    writer.fact("llama.block_count", o.layers)
    writer.fact("llama.context_length", 4096)
    writer.fact("llama.embedding_length", o.width)
    writer.fact("llama.feed_forward_length", o.expert_width)
    writer.fact("llama.attention.head_count", o.width // head_width)
    writer.fact("llama.attention.head_count_kv", o.width // head_width)
    writer.fact("llama.rope.dimension_count", head_width)
    writer.fact("llama.rope.freq_base", 10000.0)
    writer.fact("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.fact("llama.expert_count", o.experts)
    writer.fact("llama.expert_used_count", o.top_k)
    writer.fact("llama.vocab_size", VOCABULARY)
    writer.fact("tokenizer.ggml.model", "no_vocab")

    def dense(name: str, rows: int, columns: int, scale: float) -> None:
        writer.array(name, random.standard_normal((rows, columns), numpy.float32) * scale, "F16")

    def experts(name: str, rows: int, columns: int) -> None:
        scale = numpy.array(columns**-0.5 / 4.6 * 1.5, "<f2").tobytes()

        def write(file: BinaryIO) -> None:
            for _ in range(o.experts):
                blocks = numpy.empty((rows * columns // 32, 18), numpy.uint8)
                blocks[:, :2] = numpy.frombuffer(scale, numpy.uint8)
                blocks[:, 2:] = random.integers(0, 256, (len(blocks), 16), numpy.uint8)
                file.write(blocks.tobytes())

        writer.tensor(name, (o.experts, rows, columns), "Q4_0", write)

    dense("token_embd.weight", VOCABULARY, o.width, 1.0)
    writer.array("output_norm.weight", numpy.ones(o.width, numpy.float32), "F32")
    for layer in range(o.layers):
        block = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            writer.array(f"{block}{name}.weight", numpy.ones(o.width, numpy.float32), "F32")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            dense(f"{block}{name}.weight", o.width, o.width, o.width**-0.5)
        # Skewed routing, as in trained routers: some experts are requested far more often.
        favour = numpy.exp(0.6 * random.standard_normal((o.experts, 1), numpy.float32))
        router = random.standard_normal((o.experts, o.width), numpy.float32) * o.width**-0.5 * favour
        writer.array(f"{block}ffn_gate_inp.weight", router, "F32")
        experts(f"{block}ffn_gate_exps.weight", o.expert_width, o.width)
        experts(f"{block}ffn_up_exps.weight", o.expert_width, o.width)
        experts(f"{block}ffn_down_exps.weight", o.width, o.expert_width)
    writer.write(o.out)
    numpy.random.default_rng(o.seed + 1).integers(0, VOCABULARY, 128, numpy.int32).tofile(o.out + ".tokens")


if __name__ == "__main__":
    main()
