"""The output layer, checked on one model and one text. Each check compares two ways to the same numbers."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt2cli.errors import Gpt2cliError
from gpt2cli.generation import last_hidden_state
from gpt2cli.protocol import LanguageModel, TextTokenizer
from gpt2cli.records import Check
from gpt2cli.sampling import greedy
from gpt2cli.scoring import SLICE, Losses, hidden_slices, score

TEMPERATURES = (0.5, 1.0, 2.0)
STEPS = 64  # that the check of the cache takes one by one
COLUMNS = 4096  # of the unembedding that are float64 at a time


def verify(
    model: LanguageModel,
    tokenizer: TextTokenizer,
    token_ids: list[int],
    load_other: Callable[[], LanguageModel],
) -> Iterator[Check]:
    """The eight checks, as they are made.

    token_ids: at most model.context_length.
    load_other: gives the same checkpoint on the other backend; raises Gpt2cliError where that cannot run it.
    """
    with torch.inference_mode():
        states = torch.cat([part.states for part in hidden_slices(model, token_ids, model.context_length)])
    limit = tolerance(model, model.logits(states[-1]))
    checks: list[Callable[[], Check]] = [
        lambda: _tied(model),
        lambda: _dot_products(model, states, limit),
        lambda: _doubling(model, states),
        lambda: _softmax_order(model, states),
        lambda: _causality(model, token_ids, states, limit),
        lambda: _cache(model, token_ids, states, limit),
        lambda: _loss(model, tokenizer, token_ids, states),
        lambda: _backends(model, token_ids, states, limit, load_other),
    ]
    for check in checks:
        # inference_mode must not reach across the yield, where it would leak into the caller.
        with torch.inference_mode():
            made = check()
        yield made


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Of two tensors of one shape. What is not a number is infinitely far from everything."""
    a, b = a.double().cpu(), b.double().cpu()
    return float(torch.where(a == b, 0.0, (a - b).abs()).nan_to_num(nan=float("inf")).max())


def tolerance(model: LanguageModel, values: Tensor) -> float:
    """What rounding alone may change logits or hidden states by: units in the last place of the largest.

    float32 gets more of them, as its sums add up more roundings than there are bits to lose in the short types.
    int8 counts as bfloat16, which has as many bits.
    """
    dtype = getattr(torch, model.dtype)
    kind = torch.finfo(dtype if dtype.is_floating_point else torch.bfloat16)
    largest = values.float().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max()
    return (256 if kind.bits == 32 else 16) * kind.eps * max(1.0, float(largest))


def _tied(model: LanguageModel) -> Check:
    ends = model.output_layer()
    n, rows = ends.unembedding.shape[1], ends.unembedding.shape[0]
    share = ends.unembedding.numel() / ends.parameters
    one = ends.embedding.data_ptr() == ends.unembedding.data_ptr() and ends.embedding.shape == ends.unembedding.shape
    twice = not one and ends.embedding.equal(ends.unembedding)
    bias = "no bias" if ends.bias is None else "a bias"
    kind = "tied: one tensor at both ends" if one else "not tied: a matrix of its own"
    if twice:
        kind = "not one tensor: the same numbers are stored twice"
    detail = f"{kind}, [{rows}, {n}], {bias}; {ends.unembedding.numel():,} of {ends.parameters:,} parameters"
    passed = not twice and ends.bias is None and rows >= model.vocab_size
    return Check("unembedding: share of all parameters", detail, share, None, passed)


def _dot_products(model: LanguageModel, states: Tensor, limit: float) -> Check:
    matrix = model.output_layer().unembedding[: model.vocab_size]
    figure = 0.0
    for part in torch.split(states, SLICE):
        logits, h = model.logits(part), part.cpu().double()
        for n in range(0, len(matrix), COLUMNS):
            product = h @ matrix[n : n + COLUMNS].cpu().double().T
            figure = max(figure, largest_difference(logits[:, n : n + COLUMNS], product))
    detail = f"logits = h @ W.T in float64, at all {len(states)} positions"
    return _differs("logits and dot products", detail, figure, limit)


def _doubling(model: LanguageModel, states: Tensor) -> Check:
    changed = 0
    for part in torch.split(states, SLICE):
        for once, twice in zip(model.logits(part), model.logits(2 * part), strict=True):
            changed += greedy(once) != greedy(twice) if _orderly(once, twice) else 1
    before, after = (float(model.logits(k * states[-1]).double().softmax(0).max()) for k in (1, 2))
    detail = f"doubling h leaves the argmax; the last row's top probability goes from {before:.6f} to {after:.6f}"
    return Check("argmax changed by doubling h", detail, float(changed), 0.0, changed == 0)


def _softmax_order(model: LanguageModel, states: Tensor) -> Check:
    changed = 0
    for part in torch.split(states, SLICE):
        for row in model.logits(part):
            softmaxes = [(row.double() / t).softmax(0) for t in TEMPERATURES]
            changed += any(greedy(p) != greedy(row) for p in softmaxes) if _orderly(row, *softmaxes) else 1
    shown = ", ".join(f"{t:g}" for t in TEMPERATURES)
    detail = f"the largest logit is the largest probability, at temperatures {shown}"
    return Check("argmax changed by softmax", detail, float(changed), 0.0, changed == 0)


def _causality(model: LanguageModel, token_ids: list[int], states: Tensor, limit: float) -> Check:
    prefix = (len(token_ids) + 1) // 2
    alone = torch.cat([part.states for part in hidden_slices(model, token_ids[:prefix], model.context_length)])
    figure = _logits_differ(model, alone, states[:prefix])
    detail = f"the {prefix} rows of the first half alone, and as part of all {len(token_ids)} tokens"
    return _differs("rows of a prefix and of the text", detail, figure, limit)


def _cache(model: LanguageModel, token_ids: list[int], states: Tensor, limit: float) -> Check:
    first = max(0, len(token_ids) - STEPS)
    cache = model.new_cache()
    if first:
        last_hidden_state(model, token_ids[:first], cache)
    stepped = torch.cat([model.hidden_states([token_id], cache) for token_id in token_ids[first:]])
    whole = model.hidden_states(token_ids)[first:]
    figure = max(_logits_differ(model, stepped, whole), _logits_differ(model, states[first:], whole))
    detail = f"the last {len(token_ids) - first} tokens one by one with the cache, and all in one pass without"
    return _differs("logits with and without cache", detail, figure, limit)


def _loss(model: LanguageModel, tokenizer: TextTokenizer, token_ids: list[int], states: Tensor) -> Check:
    name = "cross-entropy and mean surprisal"
    if len(token_ids) < 2:
        return Check(name, "one token has no target; a longer text, or --bos, has", None, None, None)
    targets = torch.tensor(token_ids[1:])
    parts = zip(torch.split(states[:-1], SLICE), torch.split(targets, SLICE), strict=True)
    total = sum(float(F.cross_entropy(model.logits(h), t, reduction="sum")) for h, t in parts)
    losses = Losses()
    for _ in losses.watch(score(model, tokenizer, token_ids, count=1, stride=model.context_length)):
        pass
    shifted, mean = torch.tensor(total / len(targets)), torch.tensor(losses.mean_loss)
    detail = f"targets are the inputs shifted by one; the mean of −log p is {float(mean):.6f} nats"
    return _differs(name, detail, largest_difference(shifted, mean), 1e-4 * max(1.0, float(mean)))


def _backends(
    model: LanguageModel,
    token_ids: list[int],
    states: Tensor,
    limit: float,
    load_other: Callable[[], LanguageModel],
) -> Check:
    name = "native and transformers logits"
    try:
        other = load_other()
    except Gpt2cliError as error:
        return Check(name, f"there is only one backend for this model: {error}", None, None, None)
    if other.vocab_size != model.vocab_size:
        return Check(name, f"vocabularies of {model.vocab_size} and {other.vocab_size} tokens", None, None, False)
    theirs = torch.cat([part.states for part in hidden_slices(other, token_ids, model.context_length)])
    figure = max(largest_difference(model.logits(a), other.logits(b)) for a, b in _pairs(states, theirs))
    hidden = largest_difference(states, theirs)
    detail = f"at all {len(states)} positions; the hidden states, both after the final norm, differ by {hidden:.3g}"
    return Check(name, detail, figure, limit, figure <= limit and hidden <= tolerance(model, states))


def _differs(name: str, detail: str, figure: float, limit: float) -> Check:
    return Check(name, detail, figure, limit, figure <= limit)


def _logits_differ(model: LanguageModel, a: Tensor, b: Tensor) -> float:
    return max(largest_difference(model.logits(x), model.logits(y)) for x, y in _pairs(a, b))


def _pairs(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(a, SLICE), torch.split(b, SLICE), strict=True)


def _orderly(*rows: Tensor) -> bool:
    """Whether the rows are numbers that have an order."""
    return not any(bool(row.isnan().any()) for row in rows)
