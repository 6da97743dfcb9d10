# SPDX-License-Identifier: Apache-2.0
"""vLLM's own front end with its engine's output: finished requests become a trace. vLLM's own layers
of experts, and models with random weights, paged and unpaged. vLLM for the processor, so no device
is needed."""

import json
import os
import socket
import subprocess
import sys

import numpy
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

import hotset  # noqa: E402


def run(script, folder, *arguments, **variables):
    """The output of a script in a process of its own, because the plug-in changes vLLM's
    classes."""
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


# By the entry point if the package is installed.
SERVER = """
import importlib.metadata, json, sys
import numpy
from vllm.plugins import load_general_plugins
if importlib.metadata.entry_points(group="vllm.general_plugins", name="hotset"):
    load_general_plugins()
    load_general_plugins()
else:
    import hotset.vllm
    hotset.vllm.register()
import vllm.config
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor

vllm.config.VllmConfig(device_config=vllm.config.DeviceConfig(device="cpu"))
front = OutputProcessor(None, log_stats=False)
for n, kind in enumerate(RequestOutputKind):
    name = f"request {n}"
    params = SamplingParams(max_tokens=2, detokenize=False, output_kind=kind)
    request = EngineCoreRequest(name, [5, 6, 7], None, params, None, 0.0, None, None, None, external_req_id=name)
    front.add_request(request, None)
    chunks = json.loads(sys.argv[1])
    front.process_outputs([EngineCoreOutput(name, [8], routed_experts=numpy.array(chunks[0], numpy.uint8))])
    made = front.process_outputs([EngineCoreOutput(name, [9], finish_reason=FinishReason.LENGTH, routed_experts=numpy.array(chunks[1], numpy.uint8))])
    assert made.request_outputs[0].outputs[0].routed_experts.shape == (4, 2, 2)
print(vllm.__version__)
"""


def test_a_finished_request_of_the_front_end_is_recorded(tmp_path):
    prompt = [[[3, 1], [0, 2]], [[3, 2], [1, 0]], [[4, 5], [6, 7]]]
    decode = [[[7, 6], [5, 4]]]
    folder = tmp_path / "traces"
    run(SERVER, tmp_path, json.dumps([prompt, decode]), HOTSET_VLLM_RECORD=str(folder), HOTSET_VLLM_EXPERTS="8")
    (path,) = folder.glob("*.trace")
    trace = hotset.Trace.load(path)
    assert trace.experts == 8
    assert trace.ids.tolist() == 3 * [*prompt, *decode]
    assert trace.sequences.tolist() == numpy.repeat([0, 1, 2], 4).tolist()


# vLLM's own layers of routed experts, with its kernels for the processor.
LAYERS = """
import os, sys, types
import torch
import vllm.config
from vllm.config import CompilationMode, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
from vllm.model_executor.layers.fused_moe.layer import FusedMoEFactory
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

LAYERS, EXPERTS, TOP_K, HIDDEN, INNER = 3, 16, 2, 64, 32
calls = []
apply = UnquantizedFusedMoEMethod.apply


def counted(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input):
    calls.append((len(x), shared_experts))
    return apply(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input)


UnquantizedFusedMoEMethod.apply = counted


def layers(prefix, dtype=torch.float32, count=LAYERS, **options):
    made = []
    for number in range(count):
        torch.manual_seed(number)
        biases = torch.nn.Parameter(torch.rand(EXPERTS))  # the router's
        runner = FusedMoEFactory(EXPERTS, TOP_K, HIDDEN, INNER, **{**dict(params_dtype=dtype, has_bias=True, prefix=f"{prefix}.{number}.experts",
                                 e_score_correction_bias=biases), **options})
        experts = runner.routed_experts
        weights = []
        for e in range(EXPERTS):
            weights += [(f"{e}.gate_proj.weight", torch.randn(INNER, HIDDEN)), (f"{e}.up_proj.weight", torch.randn(INNER, HIDDEN)),
                        (f"{e}.down_proj.weight", torch.randn(HIDDEN, INNER))]
        loaded = set(runner.load_weights(iter(weights)))
        assert len(loaded) == 2, loaded
        experts.w13_bias.data.copy_(torch.randn(EXPERTS, 2 * INNER))
        experts.w2_bias.data.copy_(torch.randn(EXPERTS, HIDDEN))
        experts.quant_method.process_weights_after_loading(experts)
        made.append(experts)
    return made


def refused(words, call):
    try:
        call()
    except Error as bad:
        assert words in str(bad), bad
        return
    raise SystemExit(words + ": not refused")


def page(plain, dtype, slots):
    _vllm_paging.paging = paging = _vllm_paging.Paging(slots * LAYERS * one, "similar_steps")
    paged = layers(f"{dtype}.{slots}", dtype)
    torch.manual_seed(7)
    most = 0
    for step in range(40):
        tokens = [1, 3, 40, 1][step % 4]
        for before, after in zip(plain, paged):
            x = torch.randn(tokens, HIDDEN, dtype=dtype)
            ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(tokens)]).to(torch.int32)
            weights = torch.rand(tokens, TOP_K)
            some = torch.arange(TOP_K) < 1 if step % 3 == 0 else torch.ones(TOP_K, dtype=bool)
            expected = before.forward_modular(x, weights * some, ids)
            ids = torch.where(some, ids, -1)  # -1: no expert
            calls.clear()
            # Like vLLM's trial pass, which makes the slots.
            with torch.inference_mode(step == 0):
                found = after.forward_modular(x, weights, ids, shared_experts="shared", shared_experts_input=x)
            assert [shared for _, shared in calls] == ["shared"] + [None] * (len(calls) - 1), calls
            assert all(rows <= tokens for rows, _ in calls), calls
            most = max(most, len(calls))
            if len(calls) == 1 and step % 3:
                assert torch.equal(found, expected)
            else:
                rounding = 1e-5 if dtype == torch.float32 else 5e-2
                torch.testing.assert_close(found, expected, rtol=rounding, atol=rounding * expected.abs().max().item())
    # A token whose ids are all -1 gets zeros.
    assert not after.forward_modular(x[:1], weights[:1], torch.full_like(ids[:1], -1)).any()
    return paging, paged, most


plain_config = vllm.config.DeviceConfig(device="cpu")
config = vllm.config.VllmConfig(device_config=plain_config, compilation_config={"mode": CompilationMode.NONE})
with set_current_vllm_config(config), torch.no_grad():
    parallel_state.init_distributed_environment(1, 0, "tcp://127.0.0.1:" + sys.argv[1], 0, "gloo")
    parallel_state.initialize_model_parallel(1, 1, backend="gloo")
    plain = {dtype: layers(f"plain.{dtype}", dtype) for dtype in (torch.float32, torch.bfloat16)}
    assert type(plain[torch.float32][0]).__name__ == "RoutedExperts"
    os.environ["HOTSET_VLLM_BUDGET"] = "1"
    import hotset.vllm
    from hotset import Error
    hotset.vllm.register()
    hotset.vllm.register()
    from hotset import _vllm_paging

    for dtype in plain:
        one = (3 * INNER * HIDDEN + 2 * INNER + HIDDEN) * dtype.itemsize
        for slots in (2, 4, 12, 1000):
            paging, paged, most = page(plain[dtype], dtype, slots)
            stats = paging.stats()
            room = min(slots, EXPERTS)
            assert all(len(p.w2_weight) == room for p in paged)
            assert stats["bytes"] == LAYERS * room * one, stats
            assert (most > 1) == (room < EXPERTS), "groups if, and only if, a pass names more experts than there are slots"
            assert stats["misses"] >= LAYERS * EXPERTS and stats["hits"] > 0, stats
            if room == EXPERTS:
                assert stats["misses"] == LAYERS * EXPERTS, stats
            for before, after in zip(plain[dtype], paged):
                assert torch.equal(before.e_score_correction_bias, after.e_score_correction_bias), "the router's"
                whole, saved = before.state_dict(), after.state_dict()
                assert whole.keys() == saved.keys() and all(torch.equal(whole[n], saved[n]) for n in whole), saved

    after = paged[-1]
    bank = {n: b.clone() for n, b in after.bank.items()}
    meta = [torch.empty(1, n, device="meta") for n in (HIDDEN, TOP_K, TOP_K)]
    refused("cannot be loaded again", lambda: after.load_state_dict(saved))
    refused("cannot be loaded again", lambda: after.load_state_dict(saved, strict=False, assign=True))
    refused("cannot change its device or type", lambda: after.to(torch.float64))
    refused("ids on meta, slots on cpu", lambda: after.forward_modular(*meta))
    refused("cannot be loaded again", lambda: after.w2_bias.weight_loader(param=None, loaded_weight=None, weight_name="", shard_id="w2", expert_id=0))
    refused("a model that is made while another one runs", lambda: layers("second"))
    assert all(torch.equal(b, bank[n]) for n, b in after.bank.items())

    # Refused at the first pass.
    def first_pass(prefix, slots, change):
        _vllm_paging.paging = _vllm_paging.Paging(slots * one, "similar_steps")
        (layer,) = layers(prefix, count=1)
        change(layer)
        layer.forward_modular(torch.ones(1, HIDDEN), torch.ones(1, TOP_K), torch.zeros(1, TOP_K, dtype=torch.int32))

    one = (3 * INNER * HIDDEN + 2 * INNER + HIDDEN) * 4
    refused(f"HOTSET_VLLM_BUDGET: {one} bytes, accepted: {2 * one} or more", lambda: first_pass("small", 1, id))
    refused("w13_scale is [3]", lambda: first_pass("rows", 2, lambda e: e.register_parameter("w13_scale", torch.nn.Parameter(torch.ones(3)))))
    refused("keeps a tensor of its own (scale)",
            lambda: first_pass("own", 2, lambda e: setattr(e.quant_method.moe_kernel.fused_experts.quant_config._w1, "scale", torch.ones(EXPERTS))))

    # Refused before weights are loaded.
    class Other(CPUUnquantizedExperts):
        pass

    class OtherKernel(QuantizationConfig):
        get_supported_act_dtypes = get_min_capability = get_config_filenames = from_config = None

        def get_name(self):
            return "another kernel"

        def get_quant_method(self, layer, prefix):
            method = UnquantizedFusedMoEMethod(layer.moe_config)
            method.experts_cls = Other
            return method

    class OtherWeights(OtherKernel):
        def get_quant_method(self, layer, prefix):
            return type("OtherMethod", (UnquantizedFusedMoEMethod,), {})(layer.moe_config)

    OtherKernel.__abstractmethods__ = OtherWeights.__abstractmethods__ = frozenset()
    _vllm_paging.paging = _vllm_paging.Paging(one, "lru")
    compilation = config.compilation_config
    compilation.cudagraph_mode = vllm.config.CUDAGraphMode.FULL
    refused("graphs.0.experts: CUDA graphs", lambda: layers("graphs"))
    compilation.cudagraph_mode = vllm.config.CUDAGraphMode.NONE
    compilation.mode = CompilationMode.DYNAMO_TRACE_ONCE
    refused("a compiled model (DYNAMO_TRACE_ONCE), accepted: --enforce-eager", lambda: layers("compiled"))
    compilation.mode = CompilationMode.NONE
    refused("kernels of Other, accepted: CPUUnquantizedExperts", lambda: layers("kernel", quant_config=OtherKernel()))
    refused("weights of OtherMethod, accepted: those of UnquantizedFusedMoEMethod", lambda: layers("weights", quant_config=OtherWeights()))
    refused("experts of Own, accepted", lambda: layers("own.layer", routed_experts_cls=type("Own", (RoutedExperts,), {})))
    refused("data parallelism, accepted", lambda: layers("parallel", dp_size=2))
    layers("first", count=1)
    refused("experts of another shape than first.0.experts's", lambda: layers("shape", has_bias=False))
    find_spec = _vllm_paging.importlib.util.find_spec
    _vllm_paging.importlib.util.find_spec = lambda name: name == "zentorch" or find_spec(name)
    refused("zentorch is installed", lambda: layers("zen"))

    # A model without experts cannot be paged: it is served, with a warning.
    warnings = []
    _vllm_paging._log.warning = lambda *words: warnings.append(words)
    for experts in (None, 8, 0):
        model = experts is not None and types.SimpleNamespace(model="dense", get_num_experts=lambda: experts)
        _vllm_paging.warn_if_dense(types.SimpleNamespace(model_config=model or None))
        assert len(warnings) == (experts == 0), warnings

    # Page-locked memory needs a device, so a substitute stands for the call.
    torch.Tensor.is_pinned = lambda self: False
    torch.Tensor.pin_memory = lambda self: "page-locked"
    assert _vllm_paging._in_host_memory(torch.ones(1), torch.device("cuda")) == "page-locked"
    assert _vllm_paging._in_host_memory(torch.ones(1), torch.device("cpu")) == torch.ones(1)
    torch.Tensor.is_pinned = lambda self: True
    assert _vllm_paging._in_host_memory(torch.ones(1), torch.device("cuda")) == torch.ones(1)
"""


def test_paged_layers_compute_what_vllms_own_compute(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run(LAYERS, tmp_path, str(port))


# Models with random weights, generated from by vLLM.
MODELS = """
import json, os, sys
import torch, transformers
from safetensors.torch import load_file, save_file
from vllm import LLM, SamplingParams
from vllm.model_executor.layers.fused_moe.experts import cpu_moe

LAYERS, EXPERTS, TOP_K, SIZE = 3, 8, 2, 128


def write_model():
    torch.manual_seed(7)
    shape = transformers.Qwen3MoeConfig(
        vocab_size=256, hidden_size=SIZE, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        max_position_embeddings=256, intermediate_size=SIZE, moe_intermediate_size=SIZE, num_experts=EXPERTS, num_experts_per_tok=TOP_K,
        norm_topk_prob=True, tie_word_embeddings=False)
    model = transformers.AutoModelForCausalLM.from_config(shape)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.15)
    model.save_pretrained("float32")


def int8(weight):
    scale = weight.abs().amax(1, keepdim=True) / 127
    return {"weight": (weight / scale).round().to(torch.int8), "weight_scale": scale}


def int4(weight):
    groups = weight.view(len(weight), -1, 64)
    scale = groups.abs().amax(2, keepdim=True) / 7
    parts = ((groups / scale).round() + 8).long().view(len(weight), -1, 8)
    packed = (parts << (4 * torch.arange(8))).sum(2)
    packed = torch.where(packed >= 2**31, packed - 2**32, packed)
    return {"weight_packed": packed.int(), "weight_scale": scale.squeeze(2).bfloat16(), "weight_shape": torch.tensor(weight.shape)}


def fp8(weight):
    scale = weight.abs().amax() / 448
    return {"weight": (weight / scale).to(torch.float8_e4m3fn), "weight_scale_inv": scale.view(1, 1)}


def compressed(kind, weights, activations=None):
    group = {"targets": ["Linear"], "weights": {"type": "int", "symmetric": True, **weights}, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "format": kind, "quantization_status": "compressed",
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$"], "config_groups": {"experts": group}}


tokenwise = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
whole = ["lm_head"] + [f"model.layers.{n}.{m}" for n in range(LAYERS) for m in ("mlp.gate", *(f"self_attn.{p}_proj" for p in "qkvo"))]
QUANTIZED = {
    "int8": (int8, compressed("int-quantized", {"num_bits": 8, "strategy": "channel"}, tokenwise), cpu_moe.CPUExpertsInt8),
    "int4": (int4, compressed("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 64}), cpu_moe.CPUExpertsInt4),
    "fp8": (fp8, {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "modules_to_not_convert": whole},
            cpu_moe.CPUExpertsFp8),
}


def write_quantized(name):
    quantize, quantization, kernel = QUANTIZED[name]
    # vLLM asks for AMX. AVX-512 is enough for these kernels, and AVX-512 is more common.
    kernel._supports_current_device = staticmethod(lambda: True)
    held = {}
    for key, weight in load_file("float32/model.safetensors").items():
        if ".experts." in key:
            held.update((key.removesuffix("weight") + part, t.contiguous()) for part, t in quantize(weight).items())
        else:
            held[key] = weight.bfloat16()
    os.mkdir(name)
    save_file(held, f"{name}/model.safetensors")
    with open("float32/config.json") as file:
        config = json.load(file)
    with open(f"{name}/config.json", "w") as file:
        json.dump({**config, "dtype": "bfloat16", "quantization_config": quantization}, file)


sizes = {}  # of an expert, as the kernel packs it


def expert_bytes(model):
    layer = next(m for m in model.modules() if type(m).__name__ == "RoutedExperts")
    return sum(p[0].numel() * p.element_size() for p in layer.parameters(recurse=False))


# Tokens and logarithms of probabilities: of one short sequence, then of two, one with a long prompt.
def generate(name, **options):
    options = {"enforce_eager": True, "dtype": "float32" if name == "float32" else "bfloat16", **options}
    llm = LLM(model=name, skip_tokenizer_init=True, max_model_len=128, max_num_seqs=4, seed=0, **options)
    if name not in sizes:
        sizes[name] = llm.apply_model(expert_bytes)[0]
    out = []
    for prompts, length in (([[5]], 32), ([list(range(20, 60)), [5, 6, 7]], 16)):
        ask = SamplingParams(max_tokens=length, temperature=0, detokenize=False, ignore_eos=True, logprobs=4)
        for done in llm.generate([{"prompt_token_ids": p} for p in prompts], ask, use_tqdm=False):
            best = [{token: one.logprob for token, one in of.items()} for of in done.outputs[0].logprobs]
            out.append((list(done.outputs[0].token_ids), best))
    return out


write_model()
for name in QUANTIZED:
    write_quantized(name)
plain = {name: generate(name) for name in ("float32", *QUANTIZED)}
os.environ["HOTSET_VLLM_BUDGET"] = "1GiB"
import hotset.vllm
hotset.vllm.register()
from hotset import InvalidArgument, _vllm_paging

for name, slots in (("float32", EXPERTS), ("float32", EXPERTS // 2), ("float32", TOP_K), ("int8", 4), ("int4", 4), ("fp8", 4)):
    _vllm_paging.paging = _vllm_paging.Paging(slots * LAYERS * sizes[name], "similar_steps")
    paged = generate(name)
    stats = _vllm_paging.paging.stats()
    assert stats["bytes"] == slots * LAYERS * sizes[name], (stats, sizes)
    apart = max(abs(a[t] - b.get(t, a[t])) for x, y in zip(plain[name], paged) for a, b in zip(x[1][:1], y[1][:1]) for t in a)
    print(json.dumps({
        "model": name, "slots": slots, "evictions": stats["evictions"], "split_visits": stats["split_visits"],
        "short": paged[0] == plain[name][0], "long": paged == plain[name], "tokens": [x[0] for x in paged] == [x[0] for x in plain[name]],
        "distinct": min(len(set(x[0])) for x in paged), "apart": apart}))

# Last: vLLM keeps a part of the refused configuration.
del os.environ["TORCH_COMPILE_DISABLE"]
_vllm_paging.paging = _vllm_paging.Paging("1GiB", "lru")
try:
    generate("float32", enforce_eager=False)
    raise SystemExit("a compiled model was not refused")
except InvalidArgument as bad:
    assert "accepted: --enforce-eager" in str(bad), bad
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """What MODELS prints: one line for each model and number of slots."""
    done = run(
        MODELS,
        tmp_path_factory.mktemp("models"),
        HF_HUB_OFFLINE="1",
        TORCH_COMPILE_DISABLE="1",  # of the sampler, by a C++ compiler
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_LOGGING_LEVEL="ERROR",
    )
    lines = [json.loads(line) for line in done.splitlines() if line.startswith("{")]
    return {(line["model"], line["slots"]): line for line in lines}


@pytest.mark.parametrize(
    ("model", "slots"), [("float32", 8), ("float32", 4), ("float32", 2), ("int8", 4), ("int4", 4), ("fp8", 4)]
)
def test_a_paged_model_generates_what_it_generates_unpaged(generated, model, slots):
    seen = generated[model, slots]
    assert seen["short"], "the same tokens and probabilities, bit for bit: each pass fits in the slots"
    assert seen["distinct"] > 5, "the model generates more than one token over and over"
    if slots == 8:
        assert seen["long"] and seen["evictions"] == seen["split_visits"] == 0
        return
    assert seen["evictions"] > 0
    assert seen["split_visits"] > 0, "the long prompt is computed in groups"
    assert seen["apart"] < (1e-4 if model == "float32" else 0.1), "groups are summed in another order"
    if model == "float32":
        assert seen["tokens"]
