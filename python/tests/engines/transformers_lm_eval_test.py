# SPDX-License-Identifier: Apache-2.0
"""lm-eval (EleutherAI's harness) over a paged model: a local task, a tiny random model."""

import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed")
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip(f"transformers is {transformers.__version__}, 5 or later is needed", allow_module_level=True)

import hotset.transformers as ht  # noqa: E402
import tiny_families as tiny  # noqa: E402

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 +-=?:\n"
GENERATED = """
task: sums
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
CHOSEN = """
task: choices
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: ["{{answer}}", "{{other}}"]
doc_to_target: 0
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


def tokenizer():
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    words = ["<pad>", "<eos>", *LETTERS]
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory):
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    folder = tmp_path_factory.mktemp("tasks")
    rows = [dict(question=f"{a} + {b} =", answer=f" {a + b}", other=f" {a - b}") for a in range(4) for b in range(3)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = dict(data_files=dict(test=str(folder / "sums.jsonl")), cache_dir=str(folder / "cache"))
    for name, text in (("sums", GENERATED), ("choices", CHOSEN)):
        (folder / f"{name}.yaml").write_text(f"{text}dataset_path: json\ntest_split: test\ndataset_kwargs: {json.dumps(data)}\n")
    tasks = TaskManager(include_path=str(folder), include_defaults=False)

    def run(model):
        """The answers to each task's questions, and its metrics."""
        under_test = HFLM(pretrained=model, tokenizer=tokenizer(), batch_size=4, max_length=64)
        found = lm_eval.simple_evaluate(under_test, tasks=["sums", "choices"], task_manager=tasks, bootstrap_iters=0)
        answers = {name: [one["resps"] for one in found["samples"][name]] for name in ("sums", "choices")}
        return answers, found["results"]

    return run


def test_a_paged_model_has_the_answers_of_the_model(evaluate):
    model = tiny.build(tiny.families()["OlmoeConfig"])
    plain, metrics = evaluate(model)
    assert [len(plain[name]) for name in ("sums", "choices")] == [12, 12]
    with ht.page(model, slots=6) as paged:
        assert evaluate(model) == (plain, metrics)
        assert paged.exact and paged.stats()["evictions"] > 0
    with ht.page(model, slots=6, miss="drop:keep=1") as paged:
        other, _ = evaluate(model)
        assert not paged.exact and paged.stats()["dropped"] > 0
    assert other["choices"] != plain["choices"]
    with ht.page(model, slots=6, routing="cache_aware:lambda=0"):
        assert evaluate(model) == (plain, metrics)
    budget = dict(routing="budget_top_k", pre_eviction="active_evict", eviction="importance", scope="per_layer")
    for ask in (dict(slots=12, routing="cache_aware:lambda=5", eviction="lru"), dict(slots=3, **budget)):
        with ht.page(model, **ask) as paged:
            other, _ = evaluate(model)
            assert not paged.exact and paged.stats()["rerouted"] > 0
        assert other["choices"] != plain["choices"]
    assert evaluate(model) == (plain, metrics), "detached"
