"""Many texts at once: they enter as there is room, leave as they end, and share the passes of the model."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from gpt2cli.errors import LogitsError
from gpt2cli.generation import PROMPT_CHUNK, Continuation
from gpt2cli.protocol import Cache, LanguageModel, TextTokenizer
from gpt2cli.records import Completion, GenerationOptions, SamplingOptions, Step
from gpt2cli.sampling import sample_rng

Key = TypeVar("Key")
Event = Step | Completion | LogitsError  # what happens to a text; the last two end it


@dataclass(frozen=True)
class Request:
    """A text to be made; the same as one run of `generate` with these settings makes."""

    prompt_token_ids: list[int]
    sampling: SamplingOptions
    options: GenerationOptions
    seed: int
    sample: int = 0


class Batch(Generic[Key]):
    """Up to `size` texts in flight. None depends on the others: each has its own cache, state and randomness."""

    def __init__(self, model: LanguageModel, tokenizer: TextTokenizer, size: int) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._size = size
        self._texts: list[_Text[Key]] = []  # the oldest first
        self._events: list[tuple[Key, Event]] = []
        self.tokens_made = 0

    @property
    def is_full(self) -> bool:
        return len(self._texts) >= self._size

    @property
    def is_empty(self) -> bool:
        return not self._texts

    def add(self, key: Key, request: Request, prompt: tuple[Cache, Tensor] | None = None) -> None:
        """A text enters. key: comes with its events.

        prompt: if the model has run it already, a cache of it for this text alone, and its last row [V].
        """
        continuation = Continuation(
            self._tokenizer,
            self._model.context_length,
            request.prompt_token_ids,
            request.sampling,
            request.options,
            rng=sample_rng(request.seed, request.sample),
            sample=request.sample,
        )
        text = _Text(key, continuation)
        self._texts.append(text)
        if prompt and text.goes_on:
            text.cache, row = prompt
            self._advance(text, row)

    def interrupt(self) -> None:
        """All texts end where they are, with the next turn."""
        for text in self._texts:
            if text.goes_on:
                text.continuation.finish_reason = "interrupted"

    def turn(self) -> list[tuple[Key, Event]]:
        """One pass of the model: the steps that it made, and the ends of texts, which are then no longer in flight."""
        running = [text for text in self._texts if text.goes_on]
        if running:
            self._run(share_pass(running))
        for text in self._texts:
            if not text.goes_on:
                self._events.append((text.key, text.error or text.continuation.completion()))
        self._texts = [text for text in self._texts if text.goes_on]
        events, self._events = self._events, []
        return events

    def _run(self, texts: list["_Text[Key]"]) -> None:
        pieces = [text.next_piece for text in texts]
        for text in texts:
            if text.continuation.starts_afresh and text.run == 0:
                text.cache = self._model.new_cache()
        with torch.inference_mode():
            hidden_states = self._model.last_hidden_states(pieces, [text.cache for text in texts])
            for text, piece in zip(texts, pieces, strict=True):
                text.run += len(piece)
            ready = [n for n, text in enumerate(texts) if text.run == len(text.continuation.pending)]
            logits = self._model.logits(hidden_states[ready])
        for n, row in zip(ready, logits, strict=True):
            self._advance(texts[n], row)

    def _advance(self, text: "_Text[Key]", row: Tensor) -> None:
        text.run = 0
        try:
            self._events.append((text.key, text.continuation.advance(row)))
            self.tokens_made += 1
        except LogitsError as error:
            text.error = error


@dataclass
class _Text(Generic[Key]):
    """A text in flight. run: how many of its pending tokens the model has run."""

    key: Key
    continuation: Continuation
    cache: Any = None
    run: int = 0
    error: LogitsError | None = None

    @property
    def goes_on(self) -> bool:
        return self.error is None and self.continuation.finish_reason is None

    @property
    def next_piece(self) -> list[int]:
        """The tokens to run next: one, or a piece of a prompt, cut where it is cut when it runs alone."""
        return self.continuation.pending[self.run : self.run + PROMPT_CHUNK]


def share_pass(texts: Iterable[_Text[Key]]) -> list[_Text[Key]]:
    """The texts of the next pass: all that need one token, and prompts up to PROMPT_CHUNK tokens, at least one.

    So a pass stays short, prompts of a few tokens share one, and a long prompt holds nobody up for more than a piece.
    """
    chosen, prompt_tokens = [], 0
    for text in texts:
        length = len(text.next_piece)
        if length == 1 or not prompt_tokens or prompt_tokens + length <= PROMPT_CHUNK:
            chosen.append(text)
            prompt_tokens += length if length > 1 else 0
    return chosen
