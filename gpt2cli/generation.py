"""The autoregressive loop: run the model, keep the last row's logits, choose a token, append it, go on."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from gpt2cli.drafting import DraftedRows
from gpt2cli.inspection import Distribution, token_text
from gpt2cli.protocol import Cache, LanguageModel, TextTokenizer
from gpt2cli.records import Completion, FinishReason, GenerationOptions, SamplingOptions, Step
from gpt2cli.sampling import check_logits, choose_token
from gpt2cli.streaming import TextStream

# A long prompt runs in pieces, so that its attention matrix stays small and its progress can be shown.
PROMPT_CHUNK = 512


def generate(
    model: LanguageModel,
    tokenizer: TextTokenizer,
    prompt_token_ids: Sequence[int],
    sampling: SamplingOptions,
    options: GenerationOptions,
    *,
    rng: torch.Generator,
    sample: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    on_prompt: Callable[[int], None] = lambda tokens: None,
) -> Iterator[Step | Completion]:
    """Yields one Step per new token as it is chosen, then one Completion.

    prompt_token_ids: at least one, at most model.context_length.
    should_stop: asked before each token; the completion then ends as `interrupted`.
    on_prompt: told how many tokens of a prompt have been run.
    Raises LogitsError where a row has no token to choose.
    """
    text = Continuation(tokenizer, model.context_length, prompt_token_ids, sampling, options, rng=rng, sample=sample)
    lookup = options.lookup and model.rows_stand_alone
    while text.finish_reason is None:
        if should_stop():
            text.finish_reason = "interrupted"
            break
        if text.starts_afresh:
            cache = model.new_cache()
            drafted = DraftedRows(model, cache)
        if text.starts_afresh or not lookup:
            logits = model.logits(last_hidden_state(model, text.pending, cache, on_prompt))  # the last row alone
        else:
            logits = drafted.next_row(text.window, text.room)  # the same row, but often made a few steps before
        yield text.advance(logits)
    yield text.completion()


class Continuation:
    """A prompt and what has been generated from it, between one turn of the model and the next.

    window: the tokens that the model sees, the pending ones last.
    pending: the tokens that the model has yet to run before its last row of logits says what comes next.
    starts_afresh: they are to be run with an empty cache: the prompt, or what the sliding context kept.
    finish_reason: None until the text is complete; a caller who gives up may set it.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        context_length: int,
        prompt_token_ids: Sequence[int],
        sampling: SamplingOptions,
        options: GenerationOptions,
        *,
        rng: torch.Generator,
        sample: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._context_length = context_length
        self._sampling = sampling
        self._options = options
        self._rng = rng
        self._sample = sample
        self._steps = 0
        self._token_ids: list[int] = []
        self._seen = list(prompt_token_ids)  # all tokens of the text, for the repetition penalty
        self.window = list(prompt_token_ids)
        self._text = TextStream(options.stop)
        self.pending = self.window
        self.starts_afresh = True
        self.finish_reason: FinishReason | None = None if options.max_new_tokens else "length"

    @property
    def room(self) -> int:
        """How many tokens can follow, at most, before the text ends or its window is full."""
        return min(
            self._options.max_new_tokens - len(self._token_ids),
            self._context_length - len(self.window) + 1,
        )

    def advance(self, logits: Tensor) -> Step:
        """[V], the row of the last pending token → the token chosen from it, with which the text goes on or ends."""
        position = len(self.window) - 1
        check_logits(logits, position)
        token_id = choose_token(logits, self._sampling, self._seen, self._rng)
        details = None
        if self._options.details:
            distribution = Distribution(self._tokenizer, logits, self._sampling, self._seen)
            details = distribution.details(token_id, self._options.candidates)
        delta = self._append(token_id)
        self._steps += 1
        return Step(self._sample, self._steps - 1, position, token_text(self._tokenizer, token_id), delta, details)

    def completion(self) -> Completion:
        """The whole of a text that has a finish_reason."""
        rest = self._text.finish()
        reason = "stop" if self._text.stopped else self.finish_reason
        assert reason is not None
        return Completion(self._sample, self._text.text, tuple(self._token_ids), reason, rest)

    def _append(self, token_id: int) -> str:
        """The text that became certain with this token."""
        if token_id in (self._options.eos_token_ids or ()):
            self.finish_reason = "eos"
            return ""
        self._token_ids.append(token_id)
        self._seen.append(token_id)
        self.window.append(token_id)
        self.pending = [token_id]
        self.starts_afresh = False
        delta = self._text.feed(self._tokenizer.token_bytes(token_id))
        if self._text.stopped:
            self.finish_reason = "stop"
        elif len(self._token_ids) == self._options.max_new_tokens:
            self.finish_reason = "length"
        elif len(self.window) > self._context_length:
            self._overflow()
        return delta

    def _overflow(self) -> None:
        """The window has one token more than the model can see."""
        if self._options.context_overflow == "stop":
            self.finish_reason = "context"
            return
        self.window = self.pending = self.window[max(1, self._context_length // 2) :]
        self.starts_afresh = True


def last_hidden_state(
    model: LanguageModel,
    token_ids: list[int],
    cache: Cache,
    on_prompt: Callable[[int], None] = lambda tokens: None,
) -> Tensor:
    """[T] token ids, at least one → [n_embd]: the final hidden state of the last of them, and the cache filled."""
    # inference_mode must not reach across a `yield` of the caller, where it would leak into other code.
    with torch.inference_mode():
        for start in range(0, len(token_ids), PROMPT_CHUNK):
            hidden_states = model.hidden_states(token_ids[start : start + PROMPT_CHUNK], cache)
            on_prompt(min(start + PROMPT_CHUNK, len(token_ids)))
        return hidden_states[-1]
