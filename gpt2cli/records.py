"""The records that cross files. They hold plain numbers and text, no tensors; JSON keeps to their names."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

FinishReason = Literal["length", "eos", "stop", "context", "interrupted"]

# Factors in this range keep every float32 logit finite in float64, penalty and temperature together.
TINY, HUGE = 1e-100, 1e100


@dataclass(frozen=True)
class SamplingOptions:
    """How a token is chosen from a row of logits. Raises ValueError where a setting is out of range.

    temperature: the logits are divided by it; exactly 0 means greedy.
    top_k: keep the k largest logits and all that tie with the k-th; 0 is off.
    top_p: keep the smallest set of largest probabilities that reaches p, at least one; 1 is off.
    min_p: keep tokens with at least this fraction of the top probability; 0 is off.
    repetition_penalty: divides positive and multiplies negative logits of tokens already seen; 1 is off.
    """

    NAMES: ClassVar = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature != 0 and not TINY <= self.temperature <= HUGE:
            raise ValueError(f"temperature must be 0 (greedy) or from {TINY} to {HUGE}, not {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top-k must be 0 (off) or a positive whole number, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top-p must be above 0 and at most 1, not {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min-p must be from 0 to 1, not {self.min_p}")
        if not TINY <= self.repetition_penalty <= HUGE:
            raise ValueError(
                f"repetition-penalty must be from {TINY} to {HUGE} (1 is off), not {self.repetition_penalty}"
            )

    @classmethod
    def of(
        cls,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float = 1.0,
    ) -> "SamplingOptions":
        """Greedy unless something asks for a draw; temperature 0 is greedy whatever else is given."""
        asks_for_a_draw = bool(temperature or top_k or top_p is not None or min_p is not None)
        default = 1.0 if asks_for_a_draw else 0.0
        return cls(
            temperature=default if temperature is None else temperature or 0.0,  # -0.0 is 0
            top_k=top_k or 0,
            top_p=1.0 if top_p is None else top_p,
            min_p=min_p or 0.0,
            repetition_penalty=repetition_penalty,
        )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True)
class GenerationOptions:
    """When a completion ends, and what is recorded of its steps.

    max_new_tokens: how many tokens at most; the prompt does not count.
    stop: the completion ends before the first occurrence of any of these texts.
    eos_token_ids: the completion ends at any of these tokens; empty to go on after end of text, None for the model's.
    context_overflow: what happens at the context length; slide drops the older half of the tokens.
    details: fill in the logit, probability, rank, entropy and margin of each step.
    candidates: how many top candidates each step records; 0 for none.
    lookup: may run tokens ahead that are copied from the text so far; changes the speed alone.
    """

    max_new_tokens: int = 64
    stop: tuple[str, ...] = ()
    eos_token_ids: frozenset[int] | None = None
    context_overflow: Literal["slide", "stop"] = "slide"
    details: bool = False
    candidates: int = 0
    lookup: bool = True


@dataclass(frozen=True)
class TokenText:
    """A token as people read it. `bytes` is the truth; `text` has U+FFFD where they are not whole characters."""

    token_id: int
    text: str
    bytes: bytes


@dataclass(frozen=True)
class Candidate:
    """One vocabulary token in a row of logits.

    logit, probability: raw, before temperature and cuts; softmax over the whole vocabulary.
    adjusted_logit: after repetition penalty and temperature; None where greedy decoding used the raw logit.
    sampling_probability: what the draw used; 0 for a token that was cut, None for greedy.
    """

    rank: int
    token: TokenText
    logit: float
    probability: float
    adjusted_logit: float | None
    sampling_probability: float | None
    kept: bool
    chosen: bool = False


@dataclass(frozen=True)
class StepDetails:
    """What the row said about the chosen token, and about itself (entropy in nats, margin in logits)."""

    choice: Candidate
    entropy: float
    margin: float
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Step:
    """One turn of the loop.

    position: of the row that made the choice.
    delta: the text that became certain with this step, for streaming.
    """

    sample: int
    step: int
    position: int
    token: TokenText
    delta: str
    details: StepDetails | None


@dataclass(frozen=True)
class Completion:
    """How one sample ended. `delta`: text that was held back until the end was known."""

    sample: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    delta: str


@dataclass(frozen=True)
class TokenGeometry:
    """A logit taken apart: ‖h‖ · ‖w‖ · cosine."""

    candidate: Candidate
    hidden_norm: float
    unembedding_norm: float
    cosine: float


@dataclass(frozen=True)
class Row:
    """What the output layer said at one position.

    position, token: of the input token there.
    hidden_norm: length of the final hidden state.
    """

    position: int
    token: TokenText
    shape: tuple[int, int]
    hidden_norm: float
    entropy: float
    margin: float
    candidates: tuple[Candidate, ...]
    tokens: tuple[TokenGeometry, ...] = field(default=())


@dataclass(frozen=True)
class Target:
    """The token that really came next, in the row before it. surprisal: −log p, in nats."""

    candidate: Candidate
    surprisal: float


@dataclass(frozen=True)
class ScoredRow:
    """One row of a given text.

    context: how many tokens the model saw for it, this one included.
    target: None at the end of the text, where nothing came next.
    """

    position: int
    token: TokenText
    context: int
    candidates: tuple[Candidate, ...]
    target: Target | None


@dataclass(frozen=True)
class ScaledRow:
    """A row whose hidden state was multiplied by `scale`; `unscaled` holds the same tokens as it was before."""

    scale: float
    row: Row
    unscaled: tuple[Candidate, ...]


@dataclass(frozen=True)
class TemperatureRow:
    """A row under several temperatures.

    entropies: in nats, one for each temperature.
    probabilities: for each candidate, one for each temperature.
    """

    row: Row
    temperatures: tuple[float, ...]
    entropies: tuple[float, ...]
    probabilities: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Check:
    """Something that must hold for this model and this text.

    figure: what was measured, at most `tolerance` if it holds; None where there was nothing to measure.
    passed: None where the check cannot be made; `detail` says why.
    """

    name: str
    detail: str
    figure: float | None
    tolerance: float | None
    passed: bool | None


@dataclass(frozen=True)
class LensLayer:
    """What the final norm and the unembedding read from the residual stream after a layer; 0 is the embedding.

    final_choice: the token that the last layer ranks first, as this layer sees it.
    """

    layer: int
    candidates: tuple[Candidate, ...]
    final_choice: Candidate


@dataclass(frozen=True)
class Lens:
    """All layers at one position. self_check: the last of them is the model's own row."""

    position: int
    token: TokenText
    shape: tuple[int, int]
    layers: tuple[LensLayer, ...]
    self_check: Check
