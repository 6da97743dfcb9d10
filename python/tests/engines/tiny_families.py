# SPDX-License-Identifier: Apache-2.0
"""A tiny random model of every Mixture-of-Experts family that the installed transformers has."""

import glob
import importlib
import inspect
import os
import re

import torch
import transformers

EXPERTS, TOP_K, LAYERS = 8, 2, 3

# Values of whichever of these a configuration has.
SIZES = dict(
    vocab_size=96, unpadded_vocab_size=96, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=256, intermediate_size=48, moe_intermediate_size=24, head_dim=8,
    pad_token_id=0, bos_token_id=1, eos_token_id=None,
    n_group=1, topk_group=1, first_k_dense_replace=1, n_shared_experts=1, decoder_sparse_step=1,
    shared_expert_intermediate_size=24, shared_intermediate_size=24, moe_shared_expert_intermediate_size=24,
    kv_lora_rank=16, q_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, sliding_window=16,
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
    linear_head_dim=8, linear_num_heads=4,
    index_topk=8, index_n_heads=2, index_head_dim=16,
    mamba_d_state=8, mamba_d_head=8, mamba_n_heads=8, mamba_expand=2, mamba_dt_rank=4, mamba_n_groups=1, mamba_chunk_size=8,
    mamba_num_heads=8, mamba_head_dim=8, n_mamba_heads=8, n_groups=1, ssm_state_size=8,
    intermediate_size_mlp=48, vocab_size_per_layer_input=96, hidden_size_per_layer_input=8,
    num_global_key_value_heads=2, global_head_dim=8, num_dense_layers=1, first_k_dense=1,
    moe_layer_start_index=1, moe_layer_freq=1, lora_rank_decay=8, lora_rank_gate=8,
)  # fmt: skip
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")
TOP_KS = (
    "num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "top_k_experts", "moe_k", "num_selected_experts",
)  # fmt: skip
LATENT_ATTENTION = dict(num_key_value_heads=4)
# Values that a family needs besides SIZES, by its configuration.
SPECIFIC = {
    "DbrxConfig": dict(
        attn_config=dict(rope_theta=1e4, kv_n_heads=2, clip_qkv=8.0),
        ffn_config=dict(ffn_hidden_size=24, moe_num_experts=EXPERTS, moe_top_k=TOP_K),
    ),
    "DeepseekV3Config": dict(n_group=4, topk_group=2),
    "DeepseekOcr2TextConfig": dict(mlp_layer_types=["dense", "sparse", "sparse"]),
    "DogeConfig": dict(is_moe=True, num_experts=16),
    "Ernie4_5_VLMoeTextConfig": dict(
        moe_intermediate_size=[24, 24],
        rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[1, 1, 2]),
    ),
    "Gemma4TextConfig": dict(enable_moe_block=True, num_experts=EXPERTS, top_k_experts=TOP_K),
    "Glm4vMoeTextConfig": dict(head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[1, 2, 1])),
    "Glm5NextTextConfig": dict(index_topk=16, qk_rope_head_dim=0),
    "GraniteMoeHybridConfig": dict(layer_types=["mamba", "attention", "mamba"]),
    "HYV4VLTextConfig": dict(
        rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 1, 1]),
    ),
    "JambaConfig": dict(attn_layer_period=2, attn_layer_offset=1, use_mamba_kernels=False),
    "Lfm2MoeConfig": dict(layer_types=["conv", "full_attention", "full_attention"]),
    "LongcatFlashConfig": dict(num_layers=2, ffn_hidden_size=48, expert_ffn_hidden_size=24, zero_expert_num=4, qk_head_dim=16),
    "Mistral4Config": dict(head_dim=16),
    "Qwen3OmniMoeTalkerTextConfig": dict(shared_expert_intermediate_size=24),
    "Qwen4ExpTextConfig": dict(
        indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=8, indexer_budget=8, indexer_compress_ratio=2,
    ),
    "ZayaConfig": dict(num_experts_per_tok=1, router_hidden_size=16),
}
OTHER_MODALITY = re.compile("Vision|Audio|Encoder|Code2Wav|CodePredictor|VitPose")


def families():
    """Model classes by the name of their configuration: of each text configuration with experts in its source."""
    found = {}
    for path in sorted(glob.glob(os.path.join(os.path.dirname(transformers.__file__), "models", "*", "modeling_*.py"))):
        with open(path, encoding="utf-8") as file:
            if not re.search(r"class \w*(Experts|MoE|Moe)\w*\(nn\.", file.read()):
                continue
        folder, name = path.split(os.sep)[-2:]
        module = importlib.import_module(f"transformers.models.{folder}.{name[:-3]}")
        for one in vars(module).values():
            if is_text_model(one, module):
                found.setdefault(one.config_class.__name__, []).append(one)
    return {config: max(classes, key=preference) for config, classes in found.items()}


def is_text_model(one, module):
    if not (inspect.isclass(one) and issubclass(one, transformers.PreTrainedModel)) or one.__module__ != module.__name__:
        return False
    config = one.config_class
    if config is None or one.__name__.endswith("PreTrainedModel") or OTHER_MODALITY.search(config.__name__):
        return False
    return not any("text" in part or "talker" in part for part in config.sub_configs)


def preference(model):
    """Models that generate before base models, and the first of several."""
    name = model.__name__
    return name.endswith("ForCausalLM"), name.endswith("ForConditionalGeneration"), name.endswith("TextModel"), name.endswith("Model")


def tiny_config(cls):
    default = cls()
    names = set(default.to_dict()) | set(default.attribute_map)
    values = {name: value for name, value in SIZES.items() if name in names}
    values.update({name: EXPERTS for name in EXPERT_COUNTS if name in names})
    values.update({name: TOP_K for name in TOP_KS if name in names})
    if "kv_lora_rank" in names:
        values.update(LATENT_ATTENTION)
    for name in ("layer_types", "mlp_layer_types", "layers_block_type"):
        kinds = getattr(default, name, None)
        if name in names and name not in default.attribute_map and isinstance(kinds, list):
            each = list(dict.fromkeys(kinds))
            # One layer of each kind; then attention in turn, and experts to the end.
            rest = each if name == "layer_types" else each[-1:]
            values[name] = (each + rest * LAYERS)[:LAYERS]
    return cls(**{**values, **SPECIFIC.get(cls.__name__, {})})


def build(model):
    """The model of a family, with random weights, in evaluation mode. Experts run one after another."""
    torch.manual_seed(7)
    built = model(tiny_config(model.config_class)).eval().float()
    with torch.no_grad():
        for weight in built.parameters():
            if weight.is_floating_point() and weight.ndim > 1:
                weight.normal_(0, 0.3)
        for name, bias in [*built.named_buffers(), *built.named_parameters()]:
            if name.endswith(("e_score_correction_bias", "expert_bias")):  # of the choice of experts
                bias.normal_(0, 0.1)
    built.set_experts_implementation("eager")
    return built


def to_bfloat16(model):
    """Converts as from_pretrained does: some weights of a family stay float32."""
    model.to(torch.bfloat16)
    for name, values in [*model.named_parameters(), *model.named_buffers()]:
        if any(part in name for part in model._keep_in_fp32_modules_strict or []):
            values.data = values.data.float()


PROMPTS = torch.tensor([[0, 0, 5, 9, 2, 44], [7, 8, 9, 10, 11, 12], [0, 3, 90, 3, 90, 4]])
MASK = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])
NEXT = torch.tensor([[[5], [6], [7]], [[90], [3], [3]], [[11], [44], [2]]])  # tokens decoded with the cache


def inputs(model, tokens):
    """The argument that takes the tokens. The talker of Qwen3-Omni takes embeddings only."""
    if type(model).__name__ == "Qwen3OmniMoeTalkerModel":
        return dict(inputs_embeds=model.get_input_embeddings()(tokens))
    return dict(input_ids=tokens)


def cache_of(output):
    return output.get("past_key_values", output.get("cache"))


def outputs(model):
    """Outputs of a padded batch of prompts, and of tokens decoded with its cache. A model without
    a cache runs each alone."""
    torch.manual_seed(0)
    out = []
    with torch.no_grad():
        got = model(**inputs(model, PROMPTS), attention_mask=MASK, use_cache=True)
        out.append(got[0].clone())
        mask = MASK
        for tokens in NEXT:
            cache = cache_of(got)
            if cache is None:
                got = model(**inputs(model, tokens))
            else:
                mask = torch.cat([mask, torch.ones_like(tokens)], 1)
                got = model(**inputs(model, tokens), attention_mask=mask, past_key_values=cache, use_cache=True)
            out.append(got[0].clone())
    return out


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))
