# SPDX-License-Identifier: Apache-2.0
"""vLLM's own front end, given what its engine would send: finished requests become a trace. No model runs, so that no device is needed."""

import json
import os
import subprocess
import sys

import numpy
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

import hotset  # noqa: E402

# In a process of its own, for the plug-in changes vLLM's classes; by the entry point where the package is installed.
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
