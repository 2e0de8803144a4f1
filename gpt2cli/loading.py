"""A model name → a model that runs, and its tokenizer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpt2cli.batch.engine import Request
from gpt2cli.batch.samples import Samples
from gpt2cli.checkpoint import StoredWeights, fit_weights, read_config, read_weights
from gpt2cli.errors import CheckpointError, DeviceError, PromptError
from gpt2cli.generation import generate, last_hidden_state
from gpt2cli.inspection import read_row
from gpt2cli.model import GPT2, GPT2Config, weight_shapes
from gpt2cli.projection import DTYPES, can_round
from gpt2cli.protocol import LanguageModel, TextTokenizer
from gpt2cli.records import Completion, GenerationOptions, Row, SamplingOptions, Step
from gpt2cli.sampling import sample_rng
from gpt2cli.tokenizer import END_OF_TEXT, Tokenizer

Prompt = str | Sequence[int]


@dataclass(frozen=True)
class LoadedModel:
    """A model with what belongs to it, ready to use: `gpt2cli.load` gives one.

    A prompt is a text or its token ids. bos_token_id: what `bos` puts in front of a prompt.
    """

    model: LanguageModel
    tokenizer: TextTokenizer
    bos_token_id: int | None
    eos_token_ids: frozenset[int]

    def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions | None = None,
        options: GenerationOptions | None = None,
        *,
        seed: int = 0,
        sample: int = 0,
        should_stop: Callable[[], bool] = lambda: False,
        on_prompt: Callable[[int], None] = lambda tokens: None,
    ) -> Iterator[Step | Completion]:
        """Continue a prompt: one Step for each new token as it is chosen, then the Completion.

        sampling: None is greedy. should_stop, on_prompt: as in `generation.generate`.
        Raises PromptError for a prompt that this model cannot run, LogitsError where there is no token to choose.
        """
        return generate(
            self.model,
            self.tokenizer,
            self.prompt_token_ids(prompt),
            sampling or SamplingOptions(),
            self.with_eos(options or GenerationOptions()),
            rng=sample_rng(seed, sample),
            sample=sample,
            should_stop=should_stop,
            on_prompt=on_prompt,
        )

    def samples(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        options: GenerationOptions | None = None,
        *,
        count: int,
        seed: int = 0,
        should_stop: Callable[[], bool] = lambda: False,
        on_prompt: Callable[[int], None] = lambda tokens: None,
    ) -> Iterator[Iterator[Step | Completion]]:
        """What `generate` makes of each sample from 0 to count - 1; read one to its end before the next.

        They share the passes of the model where that changes nothing in them, and then take far less time.
        """
        options = self.with_eos(options or GenerationOptions())
        token_ids = self.prompt_token_ids(prompt)
        # Only a few rows stand alone in every type, and a context that slides is run again as one of many.
        slides = len(token_ids) + options.max_new_tokens > self.model.context_length
        shared = self.model.rows_stand_alone and not (slides and options.context_overflow == "slide")
        if count > 1 and shared:
            request = Request(token_ids, sampling, options, seed)
            samples = Samples(self.model, self.tokenizer, request, count, should_stop=should_stop, on_prompt=on_prompt)
            return iter(samples)
        return (
            self.generate(
                token_ids, sampling, options, seed=seed, sample=n, should_stop=should_stop, on_prompt=on_prompt
            )
            for n in range(count)
        )

    def inspect(
        self,
        prompt: Prompt,
        sampling: SamplingOptions | None = None,
        *,
        count: int = 10,
        tokens: tuple[int, ...] = (),
    ) -> Row:
        """The last row of a prompt: its top `count` candidates, and `tokens` wherever they rank.

        sampling: the choice to show beside the raw row; None for none.
        """
        token_ids = self.prompt_token_ids(prompt)
        hidden_state = last_hidden_state(self.model, token_ids, self.model.new_cache())
        return read_row(self.model, self.tokenizer, token_ids, hidden_state, sampling, count=count, tokens=tokens)

    def prompt_token_ids(
        self,
        prompt: Prompt,
        *,
        special_tokens: bool = False,
        bos: bool = False,
        truncate: bool = False,
        any_length: bool = False,
    ) -> list[int]:
        """The prompt's token ids, at least one and, unless any_length, at most the context length.

        An empty prompt becomes `<|endoftext|>` alone. Raises PromptError where it is too long and not to be
        truncated, or has ids outside the vocabulary.
        """
        encode = self.tokenizer.encode
        token_ids = encode(prompt, special_tokens=special_tokens) if isinstance(prompt, str) else list(prompt)
        outside = next((n for n in token_ids if not 0 <= n < self.model.vocab_size), None)
        if outside is not None:
            raise PromptError(f"token id {outside} is outside the vocabulary, 0 to {self.model.vocab_size - 1}")
        begin = [] if self.bos_token_id is None else [self.bos_token_id]
        if (bos or not token_ids) and not begin:
            raise PromptError("this model has no <|endoftext|> to begin with; give a prompt, without --bos")
        front = begin if (bos and token_ids[:1] != begin) or not token_ids else []
        limit = len(token_ids) if any_length else self.model.context_length - len(front)
        if len(token_ids) > limit and not truncate:
            raise PromptError(
                f"the prompt has {len(front) + len(token_ids)} tokens, more than the {self.model.context_length} that "
                f"{self.model.name} can see; shorten it, or add --truncate-prompt to keep its end"
            )
        return front + token_ids[max(0, len(token_ids) - limit) :]

    def with_eos(self, options: GenerationOptions) -> GenerationOptions:
        """The options, with this model's own tokens for end of text where they leave them open."""
        return replace(options, eos_token_ids=self.eos_token_ids) if options.eos_token_ids is None else options


def load_folder(folder: Path, name: str, *, backend: str, device: str, dtype: str) -> LoadedModel:
    """Read the model in `folder`. `name` is what records call it.

    Raises CheckpointError, TokenizerError or DeviceError, each with a message for the user.
    """
    config = read_config(folder)
    chosen = choose_device(device, dtype)
    if dtype == "int8" and backend == "transformers":
        raise DeviceError("--dtype int8 is the native backend's own; use float32, or leave out --backend transformers")
    model: LanguageModel
    tokenizer: TextTokenizer
    if backend == "transformers":
        from gpt2cli.transformers_backend import load_transformers

        model, tokenizer = load_transformers(folder, name, config, chosen, DTYPES[dtype])
    else:
        model, tokenizer = _load_native(folder, name, config, chosen, dtype)
    end_of_text = tokenizer.special_tokens.get(END_OF_TEXT, tokenizer.eos_token_id)
    bos = _token_ids(config, "bos_token_id", model.vocab_size)
    eos = _token_ids(config, "eos_token_id", model.vocab_size)
    if not eos and tokenizer.eos_token_id is not None:
        eos = [tokenizer.eos_token_id]
    return LoadedModel(model, tokenizer, bos[0] if bos else end_of_text, frozenset(eos))


def choose_device(device: str, dtype: str) -> torch.device:
    """auto | cpu | cuda | cuda:N | mps → the device. Raises DeviceError if it is not here, or has no such dtype."""
    if dtype == "int8":
        if device not in ("auto", "cpu"):
            raise DeviceError(f"--dtype int8 runs on the CPU alone, not on {device}; use float16, or --device cpu")
        if not can_round():
            raise DeviceError("--dtype int8 needs oneDNN, which this build of torch lacks; use float16 or float32")
        return torch.device("cpu")
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
    folder: Path, name: str, config_json: Mapping[str, Any], device: torch.device, dtype: str
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
    fitting = fit_weights(weights, weight_shapes(config), tied=config.tie_word_embeddings)

    def prepare(tensor_name: str, tensor: Tensor) -> Tensor:
        if tensor_name in ("wte.weight", "lm_head.weight"):
            # Rows beyond the vocabulary pad the matrix to a round size; they are no tokens and must never be chosen.
            tensor = tensor[: tokenizer.vocab_size]
            if device.type == "cpu":
                return tensor  # mapped, not copied
        return tensor.to(device=device, dtype=DTYPES[dtype]).contiguous()

    stored: Mapping[str, Tensor] = StoredWeights(folder, list(fitting), prepare)
    if device.type != "cpu":
        stored = dict(stored)  # there each is a copy, and one must serve at both ends
    config = replace(config, vocab_size=tokenizer.vocab_size)
    return GPT2(name, config, stored, dtype=dtype), tokenizer


def _token_ids(config: Mapping[str, Any], name: str, vocab_size: int) -> list[int]:
    """A field of config.json that holds one token id, a list, or null; ids outside the vocabulary are no tokens."""
    value = config.get(name)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(n) is int for n in ids):
        raise CheckpointError(f"config.json: {name} cannot be {value!r}")
    return [n for n in ids if 0 <= n < vocab_size]
