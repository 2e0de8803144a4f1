"""token ids → hidden states → logits: GPT-2 in plain torch.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", and openai/gpt-2 src/model.py.
Shapes: T tokens of this call, P tokens before them in the cache, V = vocab_size, D = head_dim.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt2cli.errors import CheckpointError
from gpt2cli.projection import DTYPES, FEW, Projection, projection, round_columns
from gpt2cli.protocol import OutputLayer

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": torch.tanh,
}
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # layer, q, k, v: 3 × [n_head, T, D] → [n_head, T, D]


@dataclass(frozen=True)
class GPT2Config:
    """The shape of the model, under the names of Hugging Face's config.json (n_positions is context_length)."""

    vocab_size: int
    context_length: int
    n_embd: int
    n_layer: int
    n_head: int
    n_inner: int
    layer_norm_epsilon: float
    activation_function: str
    scale_attn_weights: bool
    scale_attn_by_inverse_layer_idx: bool
    reorder_and_upcast_attn: bool
    tie_word_embeddings: bool

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "GPT2Config":
        """Raises CheckpointError, naming the field, where a value is missing, wrong, or not supported."""
        kind = config.get("model_type", "gpt2")
        if kind != "gpt2":
            raise CheckpointError(
                f"config.json describes a {kind!r} model; the native backend runs GPT-2: add --backend transformers"
            )
        if config.get("add_cross_attention", False) is not False:
            raise CheckpointError("config.json: add_cross_attention is not supported")

        def value(name: str, default: Any, kinds: tuple[type, ...], check: Callable[[Any], bool]) -> Any:
            found = config.get(name, default)
            if found is None:
                raise CheckpointError(f"config.json: {name} is missing")
            if type(found) not in kinds or not check(found):
                raise CheckpointError(f"config.json: {name} cannot be {found!r}")
            return found

        def size(name: str, default: int | None = None) -> int:
            return int(value(name, default, (int,), lambda n: 0 < n < 2**31))

        def flag(name: str, default: bool) -> bool:
            return bool(value(name, default, (bool,), lambda _: True))

        n_embd, n_head = size("n_embd"), size("n_head")
        if n_embd % n_head:
            raise CheckpointError(f"config.json: n_embd {n_embd} is not a multiple of n_head {n_head}")
        inner = config.get("n_inner")
        return cls(
            vocab_size=size("vocab_size"),
            context_length=size("n_positions"),
            n_embd=n_embd,
            n_layer=size("n_layer"),
            n_head=n_head,
            n_inner=4 * n_embd if inner is None else size("n_inner"),
            layer_norm_epsilon=float(value("layer_norm_epsilon", 1e-5, (float, int), lambda e: 0 <= e < 1)),
            activation_function=value("activation_function", "gelu_new", (str,), lambda name: name in ACTIVATIONS),
            scale_attn_weights=flag("scale_attn_weights", True),
            scale_attn_by_inverse_layer_idx=flag("scale_attn_by_inverse_layer_idx", False),
            reorder_and_upcast_attn=flag("reorder_and_upcast_attn", False),
            tie_word_embeddings=flag("tie_word_embeddings", True),
        )


def weight_shapes(config: GPT2Config) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor that a checkpoint must hold, without the `transformer.` prefix.

    GPT-2 keeps its projections as [in, out], so that they apply as x @ weight + bias.
    """
    n, inner = config.n_embd, config.n_inner
    shapes: dict[str, tuple[int, ...]] = {
        "wte.weight": (config.vocab_size, n),
        "wpe.weight": (config.context_length, n),
        "ln_f.weight": (n,),
        "ln_f.bias": (n,),
    }
    for layer in range(config.n_layer):
        for name, n_in, n_out in (
            ("attn.c_attn", n, 3 * n),
            ("attn.c_proj", n, n),
            ("mlp.c_fc", n, inner),
            ("mlp.c_proj", inner, n),
        ):
            shapes[f"h.{layer}.{name}.weight"] = (n_in, n_out)
            shapes[f"h.{layer}.{name}.bias"] = (n_out,)
        for name in ("ln_1", "ln_2"):
            shapes[f"h.{layer}.{name}.weight"] = (n,)
            shapes[f"h.{layer}.{name}.bias"] = (n,)
    return shapes


class KeyValueCache:
    """Keys and values of all layers, in memory that is taken once and never moved: [n_layer, n_head, P, D]."""

    def __init__(self, config: GPT2Config, dtype: torch.dtype, device: torch.device) -> None:
        shape = (config.n_layer, config.n_head, config.context_length, config.n_embd // config.n_head)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0

    def copy(self) -> "KeyValueCache":
        """A cache of its own with the same tokens."""
        copied = copy(self)
        copied.keys, copied.values = torch.empty_like(self.keys), torch.empty_like(self.values)
        copied.keys[:, :, : self.length] = self.keys[:, :, : self.length]
        copied.values[:, :, : self.length] = self.values[:, :, : self.length]
        return copied

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """[n_head, T, D] new keys and values → [n_head, P + T, D] all of them, the new ones last."""
        end = self.length + k.shape[1]
        self.keys[layer, :, self.length : end] = k
        self.values[layer, :, self.length : end] = v
        return self.keys[layer, :, :end], self.values[layer, :, :end]

    def shorten(self, length: int) -> None:
        """Keeps the first `length` tokens."""
        self.length = length


class GPT2:
    """GPT-2 over a checkpoint's weights; `weights` has the names of `weight_shapes`.

    `lm_head.weight` among the weights is an untied unembedding; without it the token embedding serves at both ends.
    """

    backend = "native"

    def __init__(self, name: str, config: GPT2Config, weights: Mapping[str, Tensor], *, dtype: str) -> None:
        self.name = name
        self.config = config
        self.vocab_size = config.vocab_size
        self.context_length = config.context_length
        self.dtype = dtype
        self._unembedding = "lm_head.weight" if "lm_head.weight" in weights else "wte.weight"  # tied: one serves both
        # A projection may keep its weights in a form of its own, and the plain matrix is not held beside it. The
        # largest are made first, while there is room for both, and those of one size together, in the same room.
        self._unembed = projection(weights[self._unembedding].T, None, dtype)
        shapes = weight_shapes(config)
        names = [n.removesuffix(".weight") for n, shape in shapes.items() if n.startswith("h.") and len(shape) == 2]
        names.sort(key=lambda n: -math.prod(shapes[f"{n}.weight"]))
        self._projections: dict[str, Projection] = {
            n: projection(weights[f"{n}.weight"], weights[f"{n}.bias"], dtype) for n in names
        }
        self.weights = {n: weights[n] for n in weights if n.rpartition(".")[0] not in self._projections}
        self.parameters = sum(math.prod(shape) for shape in shapes.values())
        if self._unembedding != "wte.weight":
            self.parameters += self.weights[self._unembedding].numel()
        self.device = str(self.weights["wte.weight"].device)
        self.rows_stand_alone = all(p.rows_stand_alone for p in (self._unembed, *self._projections.values()))

    @property
    def token_embedding(self) -> Tensor:
        """[V, n_embd]: W_E. On the CPU it stays mapped as stored, and rows are converted as they are looked up."""
        return self.weights["wte.weight"].to(DTYPES[self.dtype])

    def new_cache(self) -> KeyValueCache:
        # Processors attend slowly in the short types.
        dtype = torch.float32 if self.device == "cpu" else DTYPES[self.dtype]
        return KeyValueCache(self.config, dtype, torch.device(self.device))

    def hidden_states(self, token_ids: list[int], cache: KeyValueCache | None = None) -> Tensor:
        """[T] → [T, n_embd]: the residual stream after the last block, through the final layer norm.

        With a cache, the tokens follow those it holds, and it holds them too afterwards.
        """
        return self.final_norm(self.residual_streams(token_ids, cache)[-1])

    def residual_streams(self, token_ids: list[int], cache: KeyValueCache | None = None) -> list[Tensor]:
        """[T] → n_layer + 1 tensors [T, n_embd]: the embedding, then the stream after each block. No final norm."""
        past = cache.length if cache else 0
        x = self._embed(token_ids, range(past, past + len(token_ids)))
        streams = list(self._through_blocks(x, partial(self._attend, cache)))
        if cache:
            cache.length += len(token_ids)
        return streams

    def final_norm(self, residual_stream: Tensor) -> Tensor:
        """[T, n_embd] → [T, n_embd]: fixes the length, so that direction decides."""
        return self._norm("ln_f", residual_stream)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, n_embd] → [T, V] float32 on the CPU: h @ W_E.T. No bias, no nonlinearity."""
        logits = self._unembed(hidden_states.reshape(-1, self.config.n_embd)).float().cpu()
        return logits.view(*hidden_states.shape[:-1], self.vocab_size)

    def unembedding(self, token_id: int) -> Tensor:
        """[n_embd] float32 on the CPU: the token's row of the unembedding matrix."""
        row = self.weights[self._unembedding][token_id].to(DTYPES[self.dtype]).float().cpu()
        if self.dtype == "int8":
            whole, scale = round_columns(row[:, None])
            row = (whole * scale)[:, 0]
        return row

    def layer_states(self, token_ids: list[int], cache: KeyValueCache | None = None) -> Tensor:
        """[T] → [n_layer + 1, n_embd]: what the final norm makes of the last token's stream after each block."""
        return self.final_norm(torch.stack([stream[-1] for stream in self.residual_streams(token_ids, cache)]))

    def output_layer(self) -> OutputLayer:
        embedding = unembedding = self.token_embedding
        if self._unembedding != "wte.weight":
            unembedding = self.weights[self._unembedding].to(DTYPES[self.dtype])
        return OutputLayer(embedding, unembedding, None, self.parameters)

    def last_hidden_states(self, texts: Sequence[list[int]], caches: Sequence[KeyValueCache]) -> Tensor:
        """Several texts in one pass, each after what its cache holds: B texts → [B, n_embd], of each its last token.

        Their tokens are packed one after another, without padding. All but attention treats each token by itself,
        so it can treat them all at once; attention goes text by text.
        """
        lengths = [len(text) for text in texts]
        positions = [c.length + n for c, length in zip(caches, lengths, strict=True) for n in range(length)]
        x = self._embed([token_id for text in texts for token_id in text], positions)
        *_, x = self._through_blocks(x, partial(self._attend_each, caches, lengths))
        for cache, length in zip(caches, lengths, strict=True):
            cache.length += length
        return self.final_norm(x[[end - 1 for end in accumulate(lengths)]])

    def hidden_states_one_by_one(self, token_ids: list[int], cache: KeyValueCache) -> Tensor:
        """[T] → [T, n_embd], T up to FEW: what `hidden_states` gives for one token after another, from one pass.

        To the last bit, where rows_stand_alone: all that could mix rows is done for each of them alone.
        """
        if len(token_ids) == 1:
            return self.hidden_states(token_ids, cache)
        x = self._embed(token_ids, range(cache.length, cache.length + len(token_ids)))
        *_, x = self._through_blocks(x, partial(self._attend_one_by_one, cache))
        cache.length += len(token_ids)
        return self.final_norm(x)

    def _embed(self, token_ids: Sequence[int], positions: Sequence[int]) -> Tensor:
        """[T] token ids and [T] positions → [T, n_embd]"""
        ids, places = torch.tensor([token_ids, positions], device=self.device)
        return self.weights["wte.weight"][ids].to(DTYPES[self.dtype]) + self.weights["wpe.weight"][places]

    def _through_blocks(self, x: Tensor, attend: Attend) -> Iterator[Tensor]:
        """[T, n_embd] → n_layer + 1 times [T, n_embd]: x itself, then the stream after each block."""
        yield x
        for layer in range(self.config.n_layer):
            x = self._block(layer, x, attend)
            yield x

    def _block(self, layer: int, x: Tensor, attend: Attend) -> Tensor:
        x = x + self._attention(layer, self._norm(f"h.{layer}.ln_1", x), attend)
        return x + self._mlp(layer, self._norm(f"h.{layer}.ln_2", x))

    def _attention(self, layer: int, x: Tensor, attend: Attend) -> Tensor:
        """[T, n_embd] → [T, n_embd]: what each token takes from those it attends to."""
        seq_len, n_head = x.shape[0], self.config.n_head
        qkv = self._project(f"h.{layer}.attn.c_attn", x)
        q, k, v = qkv.view(seq_len, 3, n_head, -1).permute(1, 2, 0, 3)  # 3 × [n_head, T, D]
        mixed = attend(layer, q, k, v)
        return self._project(f"h.{layer}.attn.c_proj", mixed.transpose(0, 1).reshape(seq_len, -1))

    def _attend(self, cache: KeyValueCache | None, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """3 × [n_head, T, D] → [n_head, T, D]: each token looks at itself and at those before it."""
        dtype, seq_len = q.dtype, q.shape[1]
        if cache:
            k, v = cache.append(layer, k, v)
        if self.config.reorder_and_upcast_attn or self.device == "cpu":
            q, k, v = q.float(), k.float(), v.float()
        past = k.shape[1] - seq_len
        visible = None  # the last token sees all
        if seq_len > 1:
            visible = torch.ones(seq_len, past + seq_len, dtype=torch.bool, device=q.device).tril(past)
        mixed = F.scaled_dot_product_attention(
            q[None], k[None], v[None], attn_mask=visible, scale=self._attention_scale(layer)
        )
        return mixed[0].to(dtype)

    def _attend_each(
        self, caches: Sequence[KeyValueCache], lengths: list[int], layer: int, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        """3 × [n_head, T, D] → [n_head, T, D], where T holds the tokens of several texts."""
        texts = zip(caches, *(torch.split(x, lengths, dim=1) for x in (q, k, v)), strict=True)
        return torch.cat([self._attend(cache, layer, *qkv) for cache, *qkv in texts], dim=1)

    def _attend_one_by_one(self, cache: KeyValueCache, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """3 × [n_head, T, D] → [n_head, T, D]: as `_attend`, which adds up in another order for several tokens."""
        k, v = cache.append(layer, k, v)
        past = k.shape[1] - q.shape[1]
        each = [(q[:, n : n + 1], k[:, : past + n + 1], v[:, : past + n + 1]) for n in range(q.shape[1])]
        return torch.cat([self._attend(None, layer, *qkv) for qkv in each], dim=1)

    def _attention_scale(self, layer: int) -> float:
        head_dim = self.config.n_embd // self.config.n_head
        scale = 1 / math.sqrt(head_dim) if self.config.scale_attn_weights else 1.0
        return scale / (layer + 1) if self.config.scale_attn_by_inverse_layer_idx else scale

    def _mlp(self, layer: int, x: Tensor) -> Tensor:
        """[T, n_embd] → [T, n_embd]: each token by itself, through n_inner numbers."""
        activation = ACTIVATIONS[self.config.activation_function]
        inner = self._project(f"h.{layer}.mlp.c_fc", x)
        if 1 < len(x) <= FEW:
            # Vector instructions leave the last few numbers of a stretch to others, which round differently. One by
            # one takes no longer, and each row is what it is alone.
            active = torch.cat([activation(row) for row in torch.split(inner, 1)])
        else:
            active = activation(inner)
        return self._project(f"h.{layer}.mlp.c_proj", active)

    def _project(self, name: str, x: Tensor) -> Tensor:
        """[T, in] → [T, out]"""
        return self._projections[name](x)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        """[T, n_embd] → [T, n_embd]: mean 0 and variance 1 over n_embd, then scaled and shifted."""
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, self.config.layer_norm_epsilon)
