# SPDX-License-Identifier: Apache-2.0
"""vLLM's own front end with its engine's output: finished requests become a trace. And vLLM's own
layers of experts, paged. No model runs, so no device is needed."""

import json
import os
import socket
import subprocess
import sys

import numpy
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

import hotset  # noqa: E402

# In a separate process, because the plug-in changes vLLM's classes; by the entry point if the
# package is installed.
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
    environment = {**os.environ, "HOTSET_VLLM_RECORD": str(folder), "HOTSET_VLLM_EXPERTS": "8", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SERVER, json.dumps([prompt, decode])], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (path,) = folder.glob("*.trace")
    trace = hotset.Trace.load(path)
    assert trace.experts == 8
    assert trace.ids.tolist() == 3 * [*prompt, *decode]
    assert trace.sequences.tolist() == numpy.repeat([0, 1, 2], 4).tolist()


# vLLM's own layers of routed experts, loaded by its own loaders. Its kernels, which need devices,
# are replaced by one in plain torch with the same arguments (a map of experts to places, -1 for
# absent ones).
LAYERS = """
import os, sys
import torch
import vllm.config
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.layers.fused_moe.layer import FusedMoEFactory
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

LAYERS, EXPERTS, TOP_K, HIDDEN, INNER = 3, 16, 2, 8, 4
calls = []


class Kernel(UnquantizedFusedMoEMethod):
    is_monolithic = False
    unquantized_backend = UnquantizedMoeBackend.TRITON

    def __init__(self, moe):
        torch.nn.Module.__init__(self)
        FusedMoEMethodBase.__init__(self, moe)

    def maybe_roundup_sizes(self, hidden, inner, *_):
        return hidden, inner

    def process_weights_after_loading(self, layer):
        pass

    def apply(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input):
        calls.append(shared_experts)
        places = layer.expert_map
        out = torch.zeros_like(x)
        for token in range(len(x)):
            for rank in range(topk_ids.shape[1]):
                expert = int(topk_ids[token, rank])
                place = expert if places is None else int(places[expert])
                if place < 0:
                    continue
                gate, up = (layer.w13_weight[place] @ x[token] + layer.w13_bias[place]).chunk(2)
                down = layer.w2_weight[place] @ (torch.nn.functional.silu(gate) * up) + layer.w2_bias[place]
                out[token] += topk_weights[token, rank] * down
        return out


class Kernels(QuantizationConfig):
    get_supported_act_dtypes = get_min_capability = get_config_filenames = from_config = None

    def get_name(self):
        return "plain torch"

    def get_quant_method(self, layer, prefix):
        return Kernel(layer.moe_config)


Kernels.__abstractmethods__ = frozenset()


def layers(prefix, mode):
    config.compilation_config.cudagraph_mode = mode
    made = []
    for number in range(LAYERS):
        runner = FusedMoEFactory(EXPERTS, TOP_K, HIDDEN, INNER, params_dtype=torch.float32, quant_config=Kernels(), has_bias=True,
                                 prefix=f"{prefix}.{number}.experts")
        experts = runner.routed_experts
        torch.manual_seed(number)
        weights = []
        for e in range(EXPERTS):
            weights += [(f"{e}.gate_proj.weight", torch.randn(INNER, HIDDEN)), (f"{e}.up_proj.weight", torch.randn(INNER, HIDDEN)),
                        (f"{e}.down_proj.weight", torch.randn(HIDDEN, INNER))]
        loaded = set(runner.load_weights(iter(weights)))
        assert len(loaded) == 2, loaded
        experts.w13_bias.data.copy_(torch.randn(EXPERTS, 2 * INNER))
        experts.w2_bias.data.copy_(torch.randn(EXPERTS, HIDDEN))
        experts.quant_method.process_weights_after_loading(experts)
        made.append((runner, experts))
    return made


config = vllm.config.VllmConfig(device_config=vllm.config.DeviceConfig(device="cpu"))
with set_current_vllm_config(config):
    parallel_state.init_distributed_environment(1, 0, "tcp://127.0.0.1:" + sys.argv[1], 0, "gloo")
    parallel_state.initialize_model_parallel(1, 1, backend="gloo")
    none = vllm.config.CUDAGraphMode.NONE
    plain = layers("plain", none)
    assert type(plain[0][1]).__name__ == "RoutedExperts"
    one = 4 * (3 * INNER * HIDDEN + 2 * INNER + HIDDEN)
    os.environ["HOTSET_VLLM_BUDGET"] = str(int(sys.argv[2]) * one)
    import hotset.vllm
    from hotset import InvalidArgument, Error
    hotset.vllm.register()
    hotset.vllm.register()
    try:
        layers("graphs", vllm.config.CUDAGraphMode.FULL)
        raise SystemExit("CUDA graphs were not refused")
    except InvalidArgument as bad:
        assert "graphs.0.experts" in str(bad) and "--enforce-eager" in str(bad), bad
    Kernel.unquantized_backend = UnquantizedMoeBackend.FLASHINFER_CUTLASS
    try:
        layers("others", none)
        raise SystemExit("kernels without a map were not refused")
    except InvalidArgument as bad:
        assert "--moe-backend triton" in str(bad), bad
    Kernel.unquantized_backend = UnquantizedMoeBackend.TRITON
    paged = layers("paged", none)
    from hotset import _vllm_paging
    assert type(paged[0][1]) is _vllm_paging.PagedRoutedExperts

    torch.manual_seed(7)
    most, close = 0, True
    with torch.no_grad():
        for step in range(40):
            tokens = [1, 3, 40, 1][step % 4]
            for (_, before), (_, after) in zip(plain, paged):
                x = torch.randn(tokens, HIDDEN)
                ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(tokens)]).to(torch.int32)
                weights = torch.rand(tokens, TOP_K)
                expected = before.forward_modular(x, weights, ids)
                calls.clear()
                # Like vLLM's trial pass, which makes the bank.
                with torch.inference_mode(step == 0):
                    found = after.forward_modular(x, weights, ids, shared_experts="shared", shared_experts_input=x)
                assert calls == ["shared"] + [None] * (len(calls) - 1), calls
                most = max(most, len(calls))
                if len(calls) == 1:
                    assert torch.equal(found, expected)
                else:
                    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    stats = _vllm_paging.paging.stats()
    bank = paged[0][1].w2_weight
    assert len(bank) == min(int(sys.argv[2]), LAYERS * EXPERTS), bank.shape
    assert stats["bytes"] == len(bank) * one, stats
    assert all(p[1].w2_weight.data_ptr() == bank.data_ptr() for p in paged)
    for (_, before), (_, after) in zip(plain, paged):
        whole, saved = before.state_dict(), after.state_dict()
        assert whole.keys() == saved.keys() and all(torch.equal(whole[n], saved[n]) for n in whole), saved
    bank_before = {n: b.clone() for n, b in _vllm_paging.paging.bank.items()}
    for refused, words in (
        (lambda: after.load_state_dict(saved), "cannot be loaded again"),
        (lambda: after.load_state_dict(saved, strict=False, assign=True), "cannot be loaded again"),
        (lambda: after.to(torch.float64), "cannot change its device or type"),
        (lambda: after.forward_modular(*(t.to("meta") for t in (x, weights, ids))), "ids on meta, slots on cpu"),
    ):
        try:
            refused()
            raise SystemExit(words + ": not refused")
        except Error as bad:
            assert words in str(bad), bad
    assert all(torch.equal(b, bank_before[n]) for n, b in _vllm_paging.paging.bank.items())
    try:
        paged[0][0].routed_experts.w2_weight.weight_loader(param=None, loaded_weight=None, weight_name="", shard_id="w2", expert_id=0)
        raise SystemExit("weights were loaded into the bank")
    except Error as bad:
        assert "cannot be loaded again" in str(bad), bad
    print(most, stats["misses"], stats["hits"])
"""


@pytest.mark.parametrize("slots", [4, 12, 30, 1000])
def test_paged_layers_compute_what_vllms_own_compute(tmp_path, slots):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LAYERS, str(port), str(slots)], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-4000:]
    most, misses, hits = map(int, done.stdout.split()[-3:])
    assert (most > 1) == (slots < 16), "groups of experts where, and only where, a pass names more than there are slots"
    assert misses >= 3 * 16 and hits > 0
    if slots == 1000:
        assert misses == 3 * 16
