"""Tiny GPT-2 checkpoints in Hugging Face layout, whose output is known beforehand.

scripted(): greedy output is a token list fixed by absolute position.
flat():     every position has exactly the logits given (exact in float32).
random():   a seeded random GPT-2 of any shape, to compare implementations.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from gpt2cli.model import GPT2Config, weight_shapes
from gpt2cli.tokenizer import BYTE_OF_CHARACTER, Tokenizer

EOS = 50256
GPT2_VOCAB = 50257


def config_json(**fields: Any) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": GPT2_VOCAB,
        "n_positions": 1024,
        "n_embd": 64,
        "n_layer": 1,
        "n_head": 2,
        "bos_token_id": EOS,
        "eos_token_id": EOS,
        **fields,
    }


def write(folder: Path, config: dict[str, Any], weights: dict[str, Tensor], prefix: str = "transformer.") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    named = {(n if n.startswith("lm_head") else prefix + n): t.contiguous() for n, t in weights.items()}
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def blank(config: dict[str, Any]) -> dict[str, Tensor]:
    """Zero weights and unit norms: blocks that add nothing to the residual stream."""
    shapes = weight_shapes(GPT2Config.from_json(config))
    ones = {n for n in shapes if n.split(".")[-2].startswith("ln") and n.endswith("weight")}
    return {n: torch.ones(s) if n in ones else torch.zeros(s) for n, s in shapes.items()}


def scripted(
    folder: Path,
    tokens: list[int],
    prompt_tokens: int,
    *,
    tail: int = EOS,
    context_length: int = 1024,
    nan_at: int | None = None,
) -> Path:
    """After a prompt of `prompt_tokens`, greedy decoding (and sampling) gives `tokens`, then `tail` for ever."""
    config = config_json(n_positions=context_length)
    weights = blank(config)
    rows = torch.randn(GPT2_VOCAB, 64, generator=torch.Generator().manual_seed(0))
    rows -= rows.mean(1, keepdim=True)
    rows /= rows.norm(dim=1, keepdim=True)
    first = prompt_tokens - 1
    wanted = [tokens[q - first] if 0 <= q - first < len(tokens) else tail for q in range(context_length)]
    weights["wte.weight"] = rows
    weights["wpe.weight"] = 50 * rows[wanted]
    weights["ln_f.weight"] = torch.full((64,), 8.0)
    if nan_at is not None:
        weights["wpe.weight"][nan_at] = float("nan")
    return write(folder, config, weights)


def ruler(folder: Path, context_length: int = 1024) -> Path:
    """Position q always predicts token 1000 + q, so the output reads off the positions that the model used."""
    return scripted(folder, list(range(1000, 1000 + context_length)), 1, context_length=context_length)


def flat(folder: Path, logits: dict[int, float], floor: float = -30.0, **fields: Any) -> Path:
    config = config_json(n_embd=2, n_head=1, **fields)
    weights = blank(config)
    weights["ln_f.weight"].zero_()
    weights["ln_f.bias"] = torch.tensor([1.0, 0.0])
    weights["wte.weight"][:, 0] = floor
    for token_id, logit in logits.items():
        weights["wte.weight"][token_id, 0] = logit
    return write(folder, config, weights)


def random(folder: Path, *, seed: int = 0, scale: float = 0.3, **fields: Any) -> Path:
    config = config_json(**fields)
    rng = torch.Generator().manual_seed(seed)
    shapes = weight_shapes(GPT2Config.from_json(config))
    weights = {n: torch.randn(s, generator=rng) * scale for n, s in shapes.items()}
    weights |= {n: t + 1 for n, t in weights.items() if ".ln_" in f".{n}" and n.endswith("weight")}
    if config.get("tie_word_embeddings") is False:
        weights["lm_head.weight"] = torch.randn(shapes["wte.weight"], generator=rng) * scale
    return write(folder, config, weights)


def gpt2_files(folder: Path) -> Path:
    """GPT-2's own vocab.json and merges.txt, rebuilt from the ranks that the program ships.

    Which two parts a token was merged from is what merging its bytes by the earlier ranks alone leaves.
    """
    tokenizer = Tokenizer.gpt2()
    tokens = [tokenizer.token_bytes(n) for n in range(GPT2_VOCAB - 1)]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    spelling = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
    spelled = ["".join(spelling[byte] for byte in token) for token in tokens]
    merges = []
    for rank, token in enumerate(tokens[256:], start=256):
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            _, first = min((ranks.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1))
            parts[first : first + 2] = [parts[first] + parts[first + 1]]
        merges.append(" ".join(spelled[ranks[part]] for part in parts))
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {token: token_id for token_id, token in enumerate([*spelled, "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    return folder


BYTE_VOCAB = 257  # every byte, then <|endoftext|>


def byte_vocabulary(folder: Path) -> Path:
    """A tokenizer without merges, so that small models have small embeddings: each byte of a text is a token."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {token: token_id for token_id, token in enumerate([*BYTE_OF_CHARACTER, "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return folder


def tiny(folder: Path, **fields: Any) -> Path:
    """A random model of a few kilobytes with a byte vocabulary."""
    small = {"vocab_size": BYTE_VOCAB, "n_positions": 32, "n_embd": 8, "n_layer": 2, "n_head": 2}
    ends = {"bos_token_id": BYTE_VOCAB - 1, "eos_token_id": BYTE_VOCAB - 1}
    return byte_vocabulary(random(folder, **(small | ends | fields)))


def cache(hub_cache: Path, repo_id: str, folder: Path) -> Path:
    """Put a folder's files into a Hugging Face cache, as the hub's client lays it out. Returns the snapshot."""
    repo = hub_cache / f"models--{repo_id.replace('/', '--')}"
    snapshot = repo / "snapshots" / ("0123456789abcdef" * 3)[:40]
    (repo / "refs").mkdir(parents=True, exist_ok=True)
    (repo / "refs" / "main").write_text(snapshot.name)
    (repo / "blobs").mkdir(exist_ok=True)
    snapshot.mkdir(parents=True)
    for path in folder.iterdir():
        blob = repo / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        blob.write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    return snapshot
