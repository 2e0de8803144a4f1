"""logits → adjusted logits → probabilities → token id. Pure functions of one row, in float64 on the CPU.

The order is fixed: repetition penalty, temperature, top-k, top-p, min-p, softmax, draw.
"""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

from gpt2cli.errors import LogitsError
from gpt2cli.records import SamplingOptions


def greedy(logits: Tensor) -> int:
    """[V] → the token id of the largest logit; of those that tie, the lowest id. Needs no softmax."""
    return int((logits == logits.max()).nonzero()[0])


def choose_token(logits: Tensor, options: SamplingOptions, seen_token_ids: Iterable[int], rng: torch.Generator) -> int:
    """[V] logits → the next token id. seen_token_ids: those that the repetition penalty is about."""
    adjusted = adjust_logits(logits, options, seen_token_ids)
    if options.greedy:
        return greedy(adjusted)
    return draw(cut_logits(adjusted, options).softmax(0), rng)


def adjust_logits(logits: Tensor, options: SamplingOptions, seen_token_ids: Iterable[int]) -> Tensor:
    """[V] → [V] float64: the repetition penalty, then the temperature (where it is not 0).

    The penalty divides positive logits of the tokens seen and multiplies negative ones: CTRL (Keskar et al.
    2019, arXiv 1909.05858, §4.1), in the form that lowers negative logits too.
    """
    adjusted = logits.double()
    if options.repetition_penalty != 1:
        seen = torch.tensor(sorted(set(seen_token_ids)), dtype=torch.long)
        values, penalty = adjusted[seen], options.repetition_penalty
        adjusted = adjusted.index_put((seen,), torch.where(values > 0, values / penalty, values * penalty))
    return adjusted if options.greedy else adjusted / options.temperature


def cut_logits(adjusted: Tensor, options: SamplingOptions) -> Tensor:
    """[V] → [V]: -inf where top-k, top-p or min-p cut a token. At least one is kept; softmax of it is the draw's."""
    if 0 < options.top_k < len(adjusted):
        adjusted = _cut(adjusted, keep=adjusted >= adjusted.topk(options.top_k).values[-1])
    if options.top_p < 1:
        adjusted = _cut(adjusted, keep=_nucleus(adjusted.softmax(0), options.top_p))
    if options.min_p > 0:
        probabilities = adjusted.softmax(0)
        adjusted = _cut(adjusted, keep=probabilities >= options.min_p * probabilities.max())
    return adjusted


def draw(probabilities: Tensor, rng: torch.Generator) -> int:
    """[V] → one token id, by the inverse of the cumulative distribution. Never one of probability 0."""
    cumulative = probabilities.cumsum(0)
    point = torch.rand((), dtype=torch.float64, generator=rng) * cumulative[-1]
    token_id = int(torch.searchsorted(cumulative, point, right=True))
    # The product above may round up to the whole sum; then the last token that can be drawn is meant.
    return min(token_id, int(probabilities.nonzero()[-1]))


def sample_rng(seed: int, sample: int) -> torch.Generator:
    """The randomness of one sample: a function of (seed, sample) alone, whatever the number of samples.

    torch's CPU generator keeps only 32 bits of its seed, so the pair is hashed: every bit of both counts.
    """
    digest = hashlib.sha256(f"{seed} {sample}".encode()).digest()
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest[:4], "big"))


def check_logits(logits: Tensor, position: int) -> None:
    """Raises LogitsError unless a token can be chosen from this row: no NaN, no +inf, not all -inf."""
    largest = float(logits.max())  # NaN if any is NaN
    if largest - largest != 0:
        raise LogitsError(
            f"the logits at position {position} are not numbers to choose from (the largest is {largest}): "
            "the checkpoint may be damaged, or --dtype too small for it; try --dtype float32"
        )


def _cut(adjusted: Tensor, keep: Tensor) -> Tensor:
    return adjusted.masked_fill(~keep, float("-inf"))


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """[V] → [V] bool: the smallest set of largest probabilities whose sum reaches top_p; ties to the lower id."""
    ordered, token_ids = probabilities.sort(descending=True, stable=True)
    before = ordered.cumsum(0).roll(1)
    before[0] = 0
    keep = torch.empty_like(probabilities, dtype=torch.bool)
    keep[token_ids] = before < top_p
    return keep
