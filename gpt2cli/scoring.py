"""A given text → every row of it: what the model thought of each token that came. One slice of rows at a time."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gpt2cli.inspection import token_text, top_token_ids
from gpt2cli.protocol import LanguageModel, TextTokenizer
from gpt2cli.records import Candidate, ScoredRow, Target

# The whole [T, V] of 1,000 tokens takes 200 MB, and its softmax in float64 twice that; a slice 3 MB and 6 MB.
SLICE = 16
# Small enough that the activations of a piece weigh little beside the cache.
PIECE = 128


@dataclass(frozen=True)
class Window:
    """Tokens `start` to `end` are run at once; the rows from `first` on count, those before only give context."""

    start: int
    first: int
    end: int


@dataclass(frozen=True)
class HiddenSlice:
    """Final hidden states [n, n_embd] of the rows from `position` on, in a window that begins at `start`."""

    position: int
    start: int
    states: Tensor


def windows(seq_len: int, context_length: int, stride: int) -> Iterator[Window]:
    """Overlapping windows over a text, so that each row is in exactly one window's `first` to `end`.

    stride: 1 to context_length; every row but the first window's sees at least context_length − stride tokens
    before it.
    """
    start = first = 0
    while first < seq_len:
        end = min(start + context_length, seq_len)
        yield Window(start, first, end)
        start, first = start + stride, end


def hidden_slices(model: LanguageModel, token_ids: list[int], stride: int) -> Iterator[HiddenSlice]:
    """[T] token ids → the final hidden states of all T rows, in order."""
    for window in windows(len(token_ids), model.context_length, stride):
        states = _window_states(model, token_ids[window.start : window.end], window.first - window.start)
        for n, part in enumerate(torch.split(states, SLICE)):
            yield HiddenSlice(window.first + n * SLICE, window.start, part)


def score(
    model: LanguageModel, tokenizer: TextTokenizer, token_ids: list[int], *, count: int, stride: int
) -> Iterator[ScoredRow]:
    """Every row of a text with its `count` top candidates, and the token that came next as its target."""
    for part in hidden_slices(model, token_ids, stride):
        logits = model.logits(part.states).double()
        # Whole slices at once: a row alone is so little work that handing it to threads costs more than doing it.
        log_total = logits.logsumexp(1)
        came = token_ids[part.position + 1 : part.position + 1 + len(logits)]
        targets = [*_targets(tokenizer, logits, log_total, came), None]  # None is only read at the end of the text
        for n, candidates in enumerate(_top(tokenizer, logits, log_total, count)):
            position = part.position + n
            token = token_text(tokenizer, token_ids[position])
            yield ScoredRow(position, token, position - part.start + 1, candidates, targets[n])


def _top(tokenizer: TextTokenizer, logits: Tensor, log_total: Tensor, count: int) -> Iterator[tuple[Candidate, ...]]:
    """[n, V] logits and the [n] logarithms of their softmax's denominators → `count` candidates of each row."""
    values, ids = logits.topk(min(count, logits.shape[1]), dim=1)
    # topk leaves open which of several tied tokens it takes, and in which order.
    unique = ((logits >= values[:, -1:]).sum(1) == values.shape[1]) & (values.diff(dim=1) < 0).all(1)
    for n, row in enumerate(logits):
        token_ids = ids[n].tolist() if unique[n] else top_token_ids(row, count)
        picked = row[token_ids]
        probabilities = (picked - log_total[n]).exp().tolist()
        yield tuple(
            _candidate(tokenizer, token_id, rank, logit, probability)
            for rank, (token_id, logit, probability) in enumerate(
                zip(token_ids, picked.tolist(), probabilities, strict=True), start=1
            )
        )


def _targets(tokenizer: TextTokenizer, logits: Tensor, log_total: Tensor, token_ids: list[int]) -> Iterator[Target]:
    """[n, V] logits, [n] denominators and the tokens that came → each token's score in its row."""
    ids = torch.tensor(token_ids, dtype=torch.long)[:, None]
    logits = logits[: len(token_ids)]
    own = logits.gather(1, ids)
    before = (logits > own) | ((logits == own) & (torch.arange(logits.shape[1]) < ids))  # ties go to the lower id
    ranks = (1 + before.sum(1)).tolist()
    surprisals = (log_total[: len(token_ids)] - own[:, 0]).tolist()
    for token_id, rank, logit, surprisal in zip(token_ids, ranks, own[:, 0].tolist(), surprisals, strict=True):
        yield Target(_candidate(tokenizer, token_id, rank, logit, math.exp(-surprisal)), surprisal)


def _candidate(tokenizer: TextTokenizer, token_id: int, rank: int, logit: float, probability: float) -> Candidate:
    return Candidate(rank, token_text(tokenizer, token_id), logit, probability, None, None, kept=True)


class Losses:
    """The mean loss of the rows that pass through."""

    def __init__(self) -> None:
        self.scored_tokens = 0
        self._total = 0.0

    def watch(self, rows: Iterable[ScoredRow]) -> Iterator[ScoredRow]:
        for row in rows:
            if row.target is not None:
                self.scored_tokens += 1
                self._total += row.target.surprisal
            yield row

    @property
    def mean_loss(self) -> float | None:
        """In nats; None where nothing was scored."""
        return self._total / self.scored_tokens if self.scored_tokens else None

    @property
    def perplexity(self) -> float | None:
        """exp(mean loss)."""
        if self.mean_loss is None:
            return None
        try:
            return math.exp(self.mean_loss)
        except OverflowError:
            return math.inf


def _window_states(model: LanguageModel, token_ids: list[int], first: int) -> Tensor:
    """[T] token ids → [T − first, n_embd]: final hidden states from row `first` on."""
    cache = model.new_cache()
    with torch.inference_mode():
        states = [model.hidden_states(token_ids[n : n + PIECE], cache) for n in range(0, len(token_ids), PIECE)]
        return torch.cat(states)[first:]
