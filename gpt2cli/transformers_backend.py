"""The same interface over transformers: any causal language model, and an independent check of the native one."""

import json
import logging
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from gpt2cli.checkpoint import has_tokenizer, read_weights
from gpt2cli.errors import CheckpointError, Gpt2cliError, TokenizerError
from gpt2cli.protocol import OutputLayer, TextTokenizer
from gpt2cli.tokenizer import BYTE_OF_CHARACTER, Tokenizer


class TransformersCache:
    """transformers' own cache, and how many tokens it holds."""

    def __init__(self, config: Any) -> None:
        self.states = DynamicCache(config=config)
        self.length = 0

    def shorten(self, length: int) -> None:
        """Keeps the first `length` tokens."""
        if length < self.length:
            self.states.crop(length - self.length)  # less than 0: how many to drop
        self.length = length

    def copy(self) -> "TransformersCache":
        """A cache of its own with the same tokens."""
        return deepcopy(self)


class TransformersModel:
    """A causal language model of the transformers library. `vocab_size` leaves out rows that only pad."""

    backend = "transformers"
    rows_stand_alone = False  # nothing is known of its products

    def __init__(self, name: str, model: Any, vocab_size: int) -> None:
        self.name = name
        self._model = model
        self._unembedding = model.get_output_embeddings()
        self.vocab_size = vocab_size
        config = model.config
        # A model without a limit of its own (ALiBi, recurrent) has neither field.
        self.context_length: int = getattr(config, "max_position_embeddings", None) or 2**31 - 1
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.device = str(model.device)

    def new_cache(self) -> TransformersCache:
        return TransformersCache(self._model.config)

    def hidden_states(self, token_ids: list[int], cache: TransformersCache | None = None) -> Tensor:
        """[T] → [T, n_embd]; the last of transformers' hidden states is already after the final norm."""
        ids = torch.tensor([token_ids], device=self._model.device)
        past = cache.states if cache else None
        output = self._model.base_model(ids, past_key_values=past, use_cache=cache is not None)
        if cache:
            cache.length += len(token_ids)
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def hidden_states_one_by_one(self, token_ids: list[int], cache: TransformersCache) -> Tensor:
        """[T] → [T, n_embd], in a pass for each."""
        return torch.cat([self.hidden_states([token_id], cache) for token_id in token_ids])

    def last_hidden_states(self, texts: Sequence[list[int]], caches: Sequence[TransformersCache]) -> Tensor:
        """B texts → [B, n_embd], one text after another: its caches hold texts of one length only."""
        return torch.stack([self.hidden_states(t, cache)[-1] for t, cache in zip(texts, caches, strict=True)])

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, n_embd] → [T, V] float32 on the CPU, by the model's own output layer."""
        logits: Tensor = self._unembedding(hidden_states)
        return logits[..., : self.vocab_size].float().cpu()

    def unembedding(self, token_id: int) -> Tensor:
        """[n_embd] float32 on the CPU."""
        if getattr(self._unembedding, "bias", None) is not None:
            raise Gpt2cliError(f"the unembedding of {self.name} has a bias, so a logit is no plain dot product")
        row: Tensor = self._unembedding.weight[token_id]
        return row.float().cpu()

    def layer_states(self, token_ids: list[int], cache: TransformersCache | None = None) -> Tensor:
        """[T] → [n_layer + 1, n_embd]. transformers applies the final norm to the last of its hidden states only."""
        outputs: dict[torch.nn.Module, Tensor] = {}

        def remember(module: torch.nn.Module, _: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                outputs[module] = output

        base = self._model.base_model
        # The final norm is the one, outside the stack of blocks, whose output is the model's.
        hooks = [
            module.register_forward_hook(remember)
            for name, module in base.named_modules()
            if "norm" in type(module).__name__.lower() and not any(part.isdigit() for part in name.split("."))
        ]
        try:
            ids = torch.tensor([token_ids], device=self._model.device)
            past = cache.states if cache else None
            output = base(ids, past_key_values=past, use_cache=cache is not None, output_hidden_states=True)
        finally:
            for hook in hooks:
                hook.remove()
        if cache:
            cache.length += len(token_ids)
        final, streams = output.last_hidden_state, output.hidden_states
        norm = next((m for m, made in outputs.items() if made.shape == final.shape and made.equal(final)), None)
        if norm is None or not streams or not streams[-1].equal(final):
            raise Gpt2cliError(
                f"{self.name} does not show its final norm to the transformers backend, so it has no lens"
            )
        return torch.stack([norm(stream[:, -1])[0] for stream in streams[:-1]] + [final[0, -1]])

    def output_layer(self) -> OutputLayer:
        embedding, unembedding = self._model.get_input_embeddings().weight, self._unembedding.weight
        bias = getattr(self._unembedding, "bias", None)
        return OutputLayer(embedding, unembedding, bias, sum(p.numel() for p in self._model.parameters()))

    def check_output_layer(self) -> None:
        """Raises CheckpointError if the model does more to its logits than one unembedding (softcapping, scaling)."""
        token_ids = [0, 1, 2]
        with torch.inference_mode():
            own = self._model(torch.tensor([token_ids], device=self._model.device)).logits[0]
            ours = self.logits(self.hidden_states(token_ids))
        if not torch.allclose(own[..., : self.vocab_size].float().cpu(), ours, rtol=1e-2, atol=1e-2, equal_nan=True):
            raise CheckpointError(
                f"{self.name} changes its logits after the unembedding (a softcap or a scale), "
                "which this program does not show"
            )


class TransformersTokenizer:
    """A fast tokenizer of the transformers library, with the bytes of each token."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer.backend_tokenizer
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._added: dict[str, int] = {str(t): n for n, t in tokenizer.added_tokens_decoder.items()}
        ids = range(max(tokenizer.get_vocab().values()) + 1)  # some vocabularies leave ids out
        self._tokens: list[str] = [token or "" for token in tokenizer.convert_ids_to_tokens(ids)]
        self._byte_level = '"ByteLevel"' in json.dumps(json.loads(self._tokenizer.to_str())["decoder"])
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self._special: dict[str, int] = dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))

    @property
    def vocab_size(self) -> int:
        return len(self._tokens)

    @property
    def special_tokens(self) -> dict[str, int]:
        return dict(self._special)

    def encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        self._tokenizer.encode_special_tokens = not special_tokens
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        token = self._tokens[token_id]
        if token in self._added:
            return token.encode()
        if self._byte_level and BYTE_OF_CHARACTER.keys() >= set(token):
            return bytes(BYTE_OF_CHARACTER[c] for c in token)
        byte = re.fullmatch(r"<0x([0-9A-F]{2})>", token)  # SentencePiece's byte fallback, and its visible space
        return bytes.fromhex(byte[1]) if byte else token.replace("\u2581", " ").encode()

    def decode(self, token_ids: Iterable[int]) -> str:
        return b"".join(self.token_bytes(n) for n in token_ids).decode(errors="replace")


def load_transformers(
    folder: Path, name: str, config: Mapping[str, Any], device: torch.device, dtype: torch.dtype
) -> tuple[TransformersModel, TextTokenizer]:
    """Raises CheckpointError or TokenizerError; nothing of the model is ever filled with random numbers."""
    _silence()
    if re.search(r'implementation\w*": [^,]*/', json.dumps(config)):
        raise CheckpointError(
            f"{folder}: config.json asks for code from the hub (attn_implementation); none is ever run"
        )
    read_weights(folder)  # names a damaged or missing file, and refuses pickles, before transformers sees the folder
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, where they are refused by name
        )
        tokenizer: TextTokenizer = Tokenizer.gpt2()
        if has_tokenizer(folder):
            own = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            if not own.is_fast:
                raise TokenizerError(f"{folder}: transformers has no fast tokenizer for this model")
            tokenizer = TransformersTokenizer(own)
    except Gpt2cliError:
        raise
    # Whatever transformers dislikes about a folder, of any type, is a fault of the folder.
    except Exception as error:
        raise CheckpointError(f"transformers cannot load {folder}: {error}") from None
    for what in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        if report.get(what):
            names = ", ".join(sorted(key if isinstance(key, str) else str(key[0]) for key in report[what])[:5])
            raise CheckpointError(f"the checkpoint in {folder} has {what.replace('_', ' ')}: {names}")
    rows = model.get_output_embeddings().weight.shape[0]
    if tokenizer.vocab_size > rows:
        raise CheckpointError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, but the model only {rows}; "
            "the tokenizer files must be this model's own"
        )
    wrapped = TransformersModel(name, model.to(device).eval().requires_grad_(False), tokenizer.vocab_size)
    wrapped.check_output_layer()
    return wrapped, tokenizer


def _silence() -> None:
    """transformers reports loading by bars and log lines of its own; this program says what matters itself."""
    transformers.logging.set_verbosity(logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module="transformers")
    warnings.filterwarnings("ignore", category=FutureWarning)  # of its models; Python names torch as their module
