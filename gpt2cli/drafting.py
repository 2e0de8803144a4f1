"""Rows of logits from drafts: several tokens in one pass of the model, which reads its weights only once for them.

A row is the model's word on what follows the tokens before it, whether they are drafted or chosen. So as long as the
tokens chosen are those of the draft, the rows are those that the model would give step by step; the draft decides
nothing but which of them are made in advance.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gpt2cli.lookup import Lookup
from gpt2cli.protocol import Cache, LanguageModel


class DraftedRows:
    """The rows of one text, one after another, of a model whose rows stand alone."""

    def __init__(self, model: LanguageModel, cache: Cache) -> None:
        """cache: of the text without its last token, before each call of next_row; drafts come and go in it."""
        self._model = model
        self._cache = cache
        self._lookup = Lookup()
        self._ahead: list[tuple[int, Tensor]] = []  # tokens that the model has run, and the row after each of them

    def next_row(self, token_ids: Sequence[int], room: int) -> Tensor:
        """[V], the row of the last of token_ids, the text as the model sees it, one token longer at each call.

        room: how many tokens can follow.
        """
        if not self._ahead or self._ahead[0][0] != token_ids[-1]:
            self._run(token_ids, room)
        _, row = self._ahead.pop(0)
        return row

    def _run(self, token_ids: Sequence[int], room: int) -> None:
        """One pass over the last token and a draft, in place of those that were not chosen."""
        self._cache.shorten(len(token_ids) - 1)
        tokens = [token_ids[-1], *self._lookup.draft(token_ids, room - 1)]
        with torch.inference_mode():
            rows = self._model.logits(self._model.hidden_states_one_by_one(tokens, self._cache))
        self._ahead = list(zip(tokens, rows, strict=True))
