"""The autoregressive loop: run the model, keep the last row's logits, choose a token, append it, go on."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

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
    prompt_token_ids: list[int],
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
    window = list(prompt_token_ids)  # the tokens that the model sees
    seen = list(prompt_token_ids)  # all tokens of the text, for the repetition penalty
    pending = window  # those of the window that it has not run yet
    cache = model.new_cache()
    token_ids: list[int] = []
    text = TextStream(options.stop)
    reason: FinishReason = "length"

    for step in range(options.max_new_tokens):
        if should_stop():
            reason = "interrupted"
            break
        if cache.length + len(pending) > model.context_length:
            if options.context_overflow == "stop":
                reason = "context"
                break
            window = pending = window[max(1, model.context_length // 2) :]
            cache = model.new_cache()

        logits = model.logits(last_hidden_state(model, pending, cache, on_prompt))  # the last row alone
        position = cache.length - 1
        check_logits(logits, position)
        token_id = choose_token(logits, sampling, seen, rng)

        eos = token_id in options.eos_token_ids
        details = None
        if options.details:
            details = Distribution(tokenizer, logits, sampling, seen).details(token_id, options.candidates)
        delta = "" if eos else text.feed(tokenizer.token_bytes(token_id))
        yield Step(sample, step, position, token_text(tokenizer, token_id), delta, details)

        if eos:
            reason = "eos"
            break
        token_ids.append(token_id)
        seen.append(token_id)
        window.append(token_id)
        pending = [token_id]
        if text.stopped:
            reason = "stop"
            break

    rest = text.finish()
    if text.stopped:
        reason = "stop"
    yield Completion(sample, text.text, tuple(token_ids), reason, rest)


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
