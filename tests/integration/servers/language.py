"""Servers of language models that are run for real, with a model whose next token is double the last one.

Its embeddings are one-hot, its layer adds nothing to them, and its head is a permutation: the answer is known
without another implementation to compare it with.
"""

import json
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from tests.integration.servers.real import Command, Setup

CALL_SECONDS: Final = 20
PRIME: Final = 61
"""Number of tokens that are doubled, modulo this. Others begin and end a sentence, or are the unknown."""
BEGIN, END, UNKNOWN = 61, 62, 63
WIDTH: Final = 64
"""Size of the vocabulary and of the hidden layer."""
CONTEXT: Final = 8192
FIRST: Final = 3


def doubled(count: int) -> list[int]:
    """The tokens that follow the first."""
    return [FIRST * 2**power % PRIME for power in range(1, count + 1)]


def while_busy(call: Callable[[], None], base: str, gauge: str) -> int:
    """Make a call; how many requests the server ran meanwhile, at most, by its own metrics."""
    over, most = threading.Event(), [1]

    def watch() -> None:
        while not over.is_set():
            try:
                with urllib.request.urlopen(f"{base}/metrics", timeout=CALL_SECONDS) as answer:
                    lines = answer.read().decode().splitlines()
            except (OSError, HTTPException):  # the server ends
                return
            most.extend(int(float(line.split()[-1])) for line in lines if line.startswith(gauge))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        call()
    finally:
        over.set()
    return max(most)


def _post(url: str, body: Any) -> Any:
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=CALL_SECONDS) as answer:
        return json.load(answer)


_HUGGINGFACE: Final = f"""
import sys, torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

width, prime = {WIDTH}, {PRIME}
config = LlamaConfig(
    vocab_size=width, hidden_size=width, intermediate_size=width, num_hidden_layers=1, num_attention_heads=2,
    max_position_embeddings={CONTEXT}, bos_token_id={BEGIN}, eos_token_id={END}, tie_word_embeddings=False,
    dtype="float32",
)
model = LlamaForCausalLM(config).float()
with torch.no_grad():
    for name, weight in model.named_parameters():
        weight.fill_(1.0 if "norm" in name else 0.0)
    model.model.embed_tokens.weight.copy_(torch.eye(width))
    for token in range(prime):
        model.lm_head.weight[2 * token % prime, token] = 4
model.save_pretrained(sys.argv[1])
words = [f"t{{token}}" for token in range(prime)] + ["<s>", "</s>", "<unk>"]
vocabulary = {{word: index for index, word in enumerate(words)}}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
).save_pretrained(sys.argv[1])
"""
_VLLM_TOKENS: Final = 48


def vllm(setup: Setup) -> Command:
    """vLLM's server for CPUs. Its image has the command of its own; one GiB is for the keys and values."""
    models = setup.directory / "models"
    subprocess.run([setup.programs / "python", "-c", _HUGGINGFACE, models], check=True)
    paths: dict[str, Path | str] = {"/mnt/models": models}
    arguments = [setup.here(each, paths) for each in setup.server["args"]]
    own = ["-m", "vllm.entrypoints.openai.api_server", "--host=127.0.0.1"]
    return Command(
        [str(setup.programs / "python"), *own, *arguments],
        {"PATH": f"{setup.programs}:/usr/bin:/bin", "VLLM_CPU_KVCACHE_SPACE": "1"},
    )


def call_vllm(base: str) -> int:
    """Tokens that are the right ones; the requests that were under way."""
    count = _VLLM_TOKENS
    asked = {"model": "churn", "prompt": [FIRST], "max_tokens": count}
    body = {**asked, "temperature": 0, "ignore_eos": True}

    def call() -> None:
        text = _post(f"{base}/v1/completions", body)["choices"][0]["text"]
        assert text.split() == [f"t{token}" for token in doubled(count)], text

    return while_busy(call, base, "vllm:num_requests_running")
