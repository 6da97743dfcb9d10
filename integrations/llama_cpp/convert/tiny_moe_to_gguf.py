#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts examples/data/tiny-moe to a GGUF file that llama.cpp runs: architecture `llama` with experts. Tokens are bytes.

    tiny_moe_to_gguf.py FOLDER OUT.gguf [--type F32|F16|Q4_0] [--vocabulary bytes] [--parts N]

Without a vocabulary a program gives token numbers; with `bytes` it gives text, and a chat has a template.

Rows of queries and keys are permuted in each head, from halves that are rotated against each other to pairs. With Q4_0 the experts' matrices are
quantised whose rows have whole blocks (gate and up); the others stay F16.
"""

from __future__ import annotations

import argparse
import json
import os

import numpy

from gguf_writer import TYPES, GgufWriter

_DTYPES = {"F16": "<f2", "F32": "<f4"}


def read_safetensors(path: str) -> dict[str, numpy.ndarray]:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {
        name: numpy.memmap(path, _DTYPES[about["dtype"]], "r", 8 + length + about["data_offsets"][0], tuple(about["shape"]))
        for name, about in header.items()
    }


def rows_in_pairs(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def add_bytes(writer: GgufWriter) -> None:
    """The vocabulary of SentencePiece's byte tokens: token n is byte n. llama.cpp needs three control tokens, which
    take bytes 0 to 2. It writes a space as U+2581, so that is the text of token 32."""
    unknown, control, byte, normal = 2, 3, 6, 1
    texts, kinds = [b"<0x%02X>" % n for n in range(256)], [byte] * 256
    texts[:3], kinds[:3] = [b"<unk>", b"<s>", b"</s>"], [unknown, control, control]
    texts[ord(" ")], kinds[ord(" ")] = "\u2581".encode(), normal
    writer.fact("tokenizer.ggml.model", "llama")
    writer.fact("tokenizer.ggml.tokens", texts)
    writer.fact("tokenizer.ggml.scores", [0.0] * 256)
    writer.fact("tokenizer.ggml.token_type", kinds)
    for number, name in enumerate(("unknown", "bos", "eos")):
        writer.fact(f"tokenizer.ggml.{name}_token_id", number)
    for name in ("add_bos_token", "add_space_prefix"):
        writer.fact(f"tokenizer.ggml.{name}", False)
    writer.fact("tokenizer.chat_template", "{% for m in messages %}{{ m['content'] }}\n{% endfor %}")


def convert(folder: str, kind: str, vocabulary: str) -> GgufWriter:
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    weights = read_safetensors(os.path.join(folder, "model.safetensors"))
    layers, experts, heads = config["num_hidden_layers"], config["num_experts"], config["num_attention_heads"]
    head_width = weights["model.layers.0.self_attn.q_proj.weight"].shape[0] // heads
    plain = "F32" if kind == "F32" else "F16"

    writer = GgufWriter()
    writer.fact("general.architecture", "llama")
    writer.fact("general.name", "tiny-moe")
    writer.fact("general.file_type", 0 if kind == "F32" else 1)
    writer.fact("llama.block_count", layers)
    writer.fact("llama.context_length", config["max_position_embeddings"])
    writer.fact("llama.embedding_length", config["hidden_size"])
    writer.fact("llama.feed_forward_length", config["moe_intermediate_size"])
    writer.fact("llama.attention.head_count", heads)
    writer.fact("llama.attention.head_count_kv", config.get("num_key_value_heads", heads))
    writer.fact("llama.rope.dimension_count", head_width)
    writer.fact("llama.rope.freq_base", float(config["rope_theta"]))
    writer.fact("llama.attention.layer_norm_rms_epsilon", float(config["rms_norm_eps"]))
    writer.fact("llama.expert_count", experts)
    writer.fact("llama.expert_used_count", config["num_experts_per_tok"])
    writer.fact("llama.vocab_size", config["vocab_size"])
    if vocabulary == "bytes":
        add_bytes(writer)
    else:
        writer.fact("tokenizer.ggml.model", "no_vocab")

    writer.array("token_embd.weight", weights["model.embed_tokens.weight"], plain)
    writer.array("output_norm.weight", weights["model.norm.weight"], "F32")
    if "lm_head.weight" in weights:
        writer.array("output.weight", weights["lm_head.weight"], plain)
    for layer in range(layers):
        theirs, ours = f"model.layers.{layer}.", f"blk.{layer}."
        writer.array(ours + "attn_norm.weight", weights[theirs + "input_layernorm.weight"], "F32")
        writer.array(ours + "ffn_norm.weight", weights[theirs + "post_attention_layernorm.weight"], "F32")
        for name, turned in (("q", True), ("k", True), ("v", False)):
            matrix = weights[f"{theirs}self_attn.{name}_proj.weight"]
            writer.array(f"{ours}attn_{name}.weight", rows_in_pairs(matrix, heads) if turned else matrix, plain)
        writer.array(ours + "attn_output.weight", weights[theirs + "self_attn.o_proj.weight"], plain)
        writer.array(ours + "ffn_gate_inp.weight", weights[theirs + "mlp.gate.weight"], "F32")
        for name in ("gate", "up", "down"):
            stacked = numpy.stack([weights[f"{theirs}mlp.experts.{e}.{name}_proj.weight"] for e in range(experts)])
            whole_blocks = stacked.shape[-1] % TYPES[kind][1] == 0
            writer.array(f"{ours}ffn_{name}_exps.weight", stacked, kind if whole_blocks else plain)
    return writer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--type", choices=sorted(TYPES), default="F32")
    parser.add_argument("--vocabulary", choices=("none", "bytes"), default="none")
    parser.add_argument("--parts", type=int, metavar="N", help="OUT-00001-of-0000N.gguf and so on, in place of OUT.gguf")
    given = parser.parse_args()
    writer = convert(given.folder, given.type, given.vocabulary)
    if given.parts:
        writer.write_parts(given.out.removesuffix(".gguf"), given.parts)
    else:
        writer.write(given.out)


if __name__ == "__main__":
    main()
