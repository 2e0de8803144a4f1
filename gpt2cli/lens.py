"""The logit lens: what the final norm and the unembedding read from the residual stream after each layer.

nostalgebraist 2020, "interpreting GPT: the logit lens". Every layer gets a norm of its own: the mean and variance
are those of the stream there, not of the last layer.
"""

import torch
from torch import Tensor

from gpt2cli.generation import last_hidden_state
from gpt2cli.inspection import Distribution, token_text
from gpt2cli.protocol import LanguageModel, TextTokenizer
from gpt2cli.records import Check, Lens, LensLayer
from gpt2cli.sampling import greedy
from gpt2cli.verify import largest_difference, tolerance


def read_lens(model: LanguageModel, tokenizer: TextTokenizer, token_ids: list[int], count: int) -> Lens:
    """All layers at the last position, with `count` candidates each.

    Raises Gpt2cliError where the model cannot show its layers.
    """
    logits = _layer_logits(model, token_ids)
    own = model.logits(last_hidden_state(model, token_ids, model.new_cache()))
    final = greedy(logits[-1].nan_to_num(nan=float("-inf")))
    layers = []
    for layer, row in enumerate(logits):
        distribution = Distribution(tokenizer, row)
        layers.append(LensLayer(layer, distribution.top(count, final), distribution.candidate(final, final)))
    figure, limit = largest_difference(logits[-1], own), tolerance(model, own)
    check = Check("last layer", "last layer and model differ by", figure, limit, figure <= limit)
    return Lens(
        position=len(token_ids) - 1,
        token=token_text(tokenizer, token_ids[-1]),
        shape=(len(token_ids), model.vocab_size),
        layers=tuple(layers),
        self_check=check,
    )


def _layer_logits(model: LanguageModel, token_ids: list[int]) -> Tensor:
    """[T] → [n_layer + 1, V]"""
    cache = model.new_cache()
    with torch.inference_mode():
        if token_ids[:-1]:
            last_hidden_state(model, token_ids[:-1], cache)
        return model.logits(model.layer_states(token_ids[-1:], cache))
