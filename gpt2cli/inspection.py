"""logits → what they say: ranks, probabilities, entropy, a logit taken apart. Pure; somebody else prints it."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from gpt2cli.protocol import LanguageModel, TextTokenizer
from gpt2cli.records import (
    Candidate,
    Row,
    SamplingOptions,
    ScaledRow,
    StepDetails,
    TemperatureRow,
    TokenGeometry,
    TokenText,
)
from gpt2cli.sampling import adjust_logits, cut_logits, greedy


def token_text(tokenizer: TextTokenizer, token_id: int) -> TokenText:
    token_bytes = tokenizer.token_bytes(token_id)
    return TokenText(token_id, token_bytes.decode(errors="replace"), token_bytes)


class Distribution:
    """One row of logits [V]: raw, and what `sampling` makes of it.

    sampling: None shows the raw row alone. seen_token_ids: those that a repetition penalty is about.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        logits: Tensor,
        sampling: SamplingOptions | None = None,
        seen_token_ids: Iterable[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self.logits = logits.double()
        self.probabilities = self.logits.softmax(0)  # raw: temperature 1, the whole vocabulary
        # Greedy decoding draws nothing, and without a penalty it takes the logits as they are.
        self._adjusted = self._cut = self._drawn = None
        if sampling and not (sampling.greedy and sampling.repetition_penalty == 1):
            self._adjusted = adjust_logits(self.logits, sampling, seen_token_ids)
        if sampling and not sampling.greedy and self._adjusted is not None:
            self._cut = cut_logits(self._adjusted, sampling)
            self._drawn = self._cut.softmax(0)

    @property
    def entropy(self) -> float:
        """−Σ p log p in nats, of the raw probabilities."""
        return float(torch.special.entr(self.probabilities).sum())

    @property
    def margin(self) -> float:
        """The largest logit less the second."""
        top = self.logits.topk(min(2, len(self.logits))).values
        return float(top[0] - top[-1])

    def top(self, count: int, chosen: int | None = None) -> tuple[Candidate, ...]:
        """The candidates of ranks 1 to `count`, at most V."""
        ids = top_token_ids(self.logits, count)
        return tuple(self._candidate(token_id, rank, chosen) for rank, token_id in enumerate(ids, start=1))

    def candidate(self, token_id: int, chosen: int | None = None) -> Candidate:
        return self._candidate(token_id, rank_of(self.logits, token_id), chosen)

    def details(self, chosen: int, count: int) -> StepDetails:
        return StepDetails(
            self.candidate(chosen, chosen),
            self.entropy,
            self.margin,
            self.top(count, chosen) if count else (),
        )

    def _candidate(self, token_id: int, rank: int, chosen: int | None) -> Candidate:
        return Candidate(
            rank=rank,
            token=token_text(self._tokenizer, token_id),
            logit=float(self.logits[token_id]),
            probability=float(self.probabilities[token_id]),
            adjusted_logit=None if self._adjusted is None else float(self._adjusted[token_id]),
            sampling_probability=None if self._drawn is None else float(self._drawn[token_id]),
            kept=self._cut is None or bool(self._cut[token_id] > float("-inf")),
            chosen=token_id == chosen,
        )


def top_token_ids(logits: Tensor, count: int) -> list[int]:
    """[V] → token ids by falling logit, `count` of them and at most V; those that tie by rising id; NaN last."""
    logits = logits.nan_to_num(nan=float("-inf"), posinf=float("inf"), neginf=float("-inf"))
    count = min(count, len(logits))
    # topk leaves open which of several tied tokens it takes, so it only gives the smallest logit that is in.
    ids = (logits >= logits.topk(count).values[-1]).nonzero()[:, 0]
    order = logits[ids].sort(descending=True, stable=True).indices
    return [int(n) for n in ids[order[:count]]]


def rank_of(logits: Tensor, token_id: int) -> int:
    """[V] → the token's rank, from 1; those that tie are ranked by rising id."""
    logit = logits[token_id]
    return 1 + int((logits > logit).sum()) + int((logits[:token_id] == logit).sum())


def read_row(
    model: LanguageModel,
    tokenizer: TextTokenizer,
    token_ids: list[int],
    hidden_state: Tensor,
    sampling: SamplingOptions | None,
    *,
    count: int,
    tokens: tuple[int, ...] = (),
) -> Row:
    """The last row of a text: its top `count` candidates, and the tokens asked for wherever they rank.

    hidden_state: [n_embd], final, at the last of `token_ids`.
    sampling: the choice to show beside the raw row; None for none.
    """
    distribution = Distribution(tokenizer, model.logits(hidden_state), sampling, token_ids)
    hidden = hidden_state.float().cpu()
    return Row(
        position=len(token_ids) - 1,
        token=token_text(tokenizer, token_ids[-1]),
        shape=(len(token_ids), model.vocab_size),
        hidden_norm=float(hidden.norm()),
        entropy=distribution.entropy,
        margin=distribution.margin,
        candidates=distribution.top(count),
        tokens=tuple(_geometry(model, distribution, hidden, token_id) for token_id in tokens),
    )


def scale_row(
    model: LanguageModel, tokenizer: TextTokenizer, token_ids: list[int], hidden_state: Tensor, scale: float, count: int
) -> ScaledRow:
    """The row that `scale` times the hidden state [n_embd] gives, with what its candidates were before."""
    row = read_row(model, tokenizer, token_ids, hidden_state * scale, None, count=count)
    before = Distribution(tokenizer, model.logits(hidden_state))
    return ScaledRow(scale, row, tuple(before.candidate(c.token.token_id) for c in row.candidates))


def compare_temperatures(
    model: LanguageModel,
    tokenizer: TextTokenizer,
    token_ids: list[int],
    hidden_state: Tensor,
    temperatures: Sequence[float],
    count: int,
) -> TemperatureRow:
    """softmax(logits / T) of the row of hidden_state [n_embd], for each T; 0 puts everything on the greedy token."""
    row = read_row(model, tokenizer, token_ids, hidden_state, None, count=count)
    logits = model.logits(hidden_state)
    under = [_probabilities(logits.double(), temperature) for temperature in temperatures]
    return TemperatureRow(
        row,
        tuple(temperatures),
        tuple(float(torch.special.entr(probabilities).sum()) for probabilities in under),
        tuple(tuple(float(p[c.token.token_id]) for p in under) for c in row.candidates),
    )


def _probabilities(logits: Tensor, temperature: float) -> Tensor:
    """[V] → [V]"""
    if temperature or logits.isnan().any():  # which leaves nothing to be greedy for, and no probabilities
        return (logits / (temperature or 1)).softmax(0)
    return torch.zeros_like(logits).index_fill(0, torch.tensor([greedy(logits)]), 1.0)


def _geometry(model: LanguageModel, distribution: Distribution, hidden: Tensor, token_id: int) -> TokenGeometry:
    """logit = h · w = ‖h‖ ‖w‖ cos(h, w)."""
    w = model.unembedding(token_id)
    hidden_norm, unembedding_norm = float(hidden.norm()), float(w.norm())
    product = hidden_norm * unembedding_norm
    cosine = float(hidden @ w) / product if product else 0.0
    return TokenGeometry(distribution.candidate(token_id), hidden_norm, unembedding_norm, cosine)
