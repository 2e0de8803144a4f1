"""A model name → a model that runs, and its tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gpt2cli.checkpoint import fit_weights, read_config, read_weights
from gpt2cli.errors import CheckpointError, DeviceError
from gpt2cli.model import DTYPES, GPT2, GPT2Config, weight_shapes
from gpt2cli.protocol import LanguageModel, TextTokenizer
from gpt2cli.tokenizer import END_OF_TEXT, Tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """A model with what belongs to it. bos_token_id: what `--bos` puts in front of a prompt."""

    model: LanguageModel
    tokenizer: TextTokenizer
    bos_token_id: int | None
    eos_token_ids: frozenset[int]


def load(folder: Path, name: str, *, backend: str, device: str, dtype: str) -> LoadedModel:
    """Read the model in `folder`. `name` is what records call it.

    Raises CheckpointError, TokenizerError or DeviceError, each with a message for the user.
    """
    config = read_config(folder)
    chosen = choose_device(device)
    model: LanguageModel
    tokenizer: TextTokenizer
    if backend == "transformers":
        from gpt2cli.transformers_backend import load_transformers

        model, tokenizer = load_transformers(folder, name, config, chosen, DTYPES[dtype])
    else:
        model, tokenizer = _load_native(folder, name, config, chosen, DTYPES[dtype])
    end_of_text = tokenizer.special_tokens.get(END_OF_TEXT, tokenizer.eos_token_id)
    bos = _token_ids(config, "bos_token_id", model.vocab_size)
    eos = _token_ids(config, "eos_token_id", model.vocab_size)
    if not eos and tokenizer.eos_token_id is not None:
        eos = [tokenizer.eos_token_id]
    return LoadedModel(model, tokenizer, bos[0] if bos else end_of_text, frozenset(eos))


def choose_device(device: str) -> torch.device:
    """auto | cpu | cuda | cuda:N | mps → the device. Raises DeviceError if it is not here."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    chosen = torch.device(device)
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise DeviceError(f"--device {device}: torch sees {torch.cuda.device_count()} CUDA devices; use --device cpu")
    if chosen.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("--device mps: torch sees no Apple GPU; use --device cpu")
    return chosen


def _load_native(
    folder: Path, name: str, config_json: Mapping[str, Any], device: torch.device, dtype: torch.dtype
) -> tuple[GPT2, Tokenizer]:
    config = GPT2Config.from_json(config_json)
    tokenizer = Tokenizer.from_folder(folder) or Tokenizer.gpt2()
    if tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, but the model only {config.vocab_size}; "
            "the tokenizer files (tokenizer.json, or vocab.json and merges.txt) must be this model's own"
        )
    weights = read_weights(folder)
    if config.n_layer > len(weights):  # before the names of all those tensors are made up
        raise CheckpointError(f"config.json: n_layer is {config.n_layer}, but {folder} holds {len(weights)} tensors")
    weights = fit_weights(weights, weight_shapes(config), tied=config.tie_word_embeddings)
    # Rows beyond the vocabulary pad the matrix to a round size; they are no tokens and must never be chosen.
    for matrix in ("wte.weight", "lm_head.weight"):
        if matrix in weights:
            weights[matrix] = weights[matrix][: tokenizer.vocab_size]
    weights = {n: tensor.to(device=device, dtype=dtype).contiguous() for n, tensor in weights.items()}
    return GPT2(name, replace(config, vocab_size=tokenizer.vocab_size), weights), tokenizer


def _token_ids(config: Mapping[str, Any], name: str, vocab_size: int) -> list[int]:
    """A field of config.json that holds one token id, a list, or null; ids outside the vocabulary are no tokens."""
    value = config.get(name)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(n) is int for n in ids):
        raise CheckpointError(f"config.json: {name} cannot be {value!r}")
    return [n for n in ids if 0 <= n < vocab_size]
