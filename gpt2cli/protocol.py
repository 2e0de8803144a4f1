"""What generation and inspection ask of a model and of a tokenizer. Any object that fits will do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


class Cache(Protocol):
    """The keys and values of the tokens that a model has seen so far."""

    @property
    def length(self) -> int:
        """Tokens held."""

    def shorten(self, length: int) -> None:
        """Keeps the first `length` tokens."""

    def copy(self) -> "Cache":
        """A cache of its own with the same tokens."""


@dataclass(frozen=True)
class OutputLayer:
    """Both ends of a model: [V, n_embd] each, and one tensor where they are tied. parameters: of the whole model."""

    embedding: Tensor
    unembedding: Tensor
    bias: Tensor | None
    parameters: int


class LanguageModel(Protocol):
    """token ids → hidden states → logits.

    rows_stand_alone: up to FEW (projection.py) rows of `logits`, and of a pass over single tokens, are each, to the
    last bit, what they are without the others.
    """

    name: str
    backend: str
    dtype: str
    device: str
    vocab_size: int
    context_length: int
    rows_stand_alone: bool

    def new_cache(self) -> Cache: ...

    def hidden_states(self, token_ids: list[int], cache: Any = None) -> Tensor:
        """[T] token ids → [T, n_embd] final hidden states, after the final norm.

        With a cache, of this model's own `new_cache`, the tokens follow those it holds, and it holds them too
        afterwards.
        """

    def hidden_states_one_by_one(self, token_ids: list[int], cache: Any) -> Tensor:
        """[T] → [T, n_embd]: what `hidden_states` gives for one token after another."""

    def last_hidden_states(self, texts: Sequence[list[int]], caches: Sequence[Any]) -> Tensor:
        """Several texts at once, each after what its own cache holds: B texts → [B, n_embd], of each its last token."""

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, n_embd] → [T, vocab_size] float32 on the CPU: one dot product per vocabulary token."""

    def unembedding(self, token_id: int) -> Tensor:
        """[n_embd] float32 on the CPU: the vector with which the token's logit is made."""

    def layer_states(self, token_ids: list[int], cache: Any = None) -> Tensor:
        """[T] token ids → [n_layer + 1, n_embd]: the last token's residual stream, from embedding to last block.

        Every one is after the final norm, so that `logits` reads it; the last is the final hidden state.
        Raises Gpt2cliError where the model does not say what its layers and its final norm are.
        """

    def output_layer(self) -> OutputLayer: ...


class TextTokenizer(Protocol):
    """text ↔ token ids."""

    eos_token_id: int | None

    @property
    def vocab_size(self) -> int: ...

    @property
    def special_tokens(self) -> dict[str, int]: ...

    def encode(self, text: str, *, special_tokens: bool = False) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def decode(self, token_ids: Iterable[int]) -> str: ...
