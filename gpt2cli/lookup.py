"""A text so far → a draft of what may come next, copied from where its last tokens occurred before.

Prompt lookup decoding: Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding; in transformers it is
`prompt_lookup_num_tokens`. Texts repeat themselves: names, phrases, quotations, lists, loops.
"""

from collections.abc import Sequence

NGRAM = 3  # so many tokens must have occurred before
# With the token before them they are 4 and 16 rows. 4 cost a pass hardly more than one; so that a guess that fails
# costs little, only drafts that have come true grow.
SHORTEST, LONGEST = 3, 15
LONGEST_PAUSE = 31


class Lookup:
    """Drafts for one text, as it grows.

    A draft that has come true is followed by one about twice as long, others by one half as long, and one that failed
    at its first token by a pause, about twice as long each time. So a text that does not repeat costs little.
    """

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}  # n-gram → the position after its last occurrence
        self._known = 0  # tokens of the text at the last draft
        self._draft: list[int] = []
        self._length = SHORTEST
        self._pause = self._wait = 0

    def draft(self, token_ids: Sequence[int], limit: int) -> list[int]:
        """What may follow token_ids: `limit` tokens at most, and often none.

        token_ids: at least those of the call before, followed by what really came next.
        """
        self._judge(token_ids[self._known :])
        for position in range(max(self._known, NGRAM), len(token_ids)):
            self._after[tuple(token_ids[position - NGRAM : position])] = position
        self._known = len(token_ids)
        start = self._after.get(tuple(token_ids[-NGRAM:]))
        self._draft = []
        if self._wait:
            self._wait -= 1
        elif start is not None:
            # What has come round once may come round again: past the end of the text the copy goes on from its start.
            period = len(token_ids) - start
            self._draft = [token_ids[start + n % period] for n in range(min(self._length, limit))]
        return list(self._draft)

    def _judge(self, came: Sequence[int]) -> None:
        """Fits length and pause to how much of the last draft has come true."""
        if not self._draft:
            return
        pairs = zip(self._draft, came, strict=False)
        agreed = next((n for n, (drafted, token_id) in enumerate(pairs) if drafted != token_id), len(self._draft))
        whole = agreed == len(self._draft)
        self._length = min(2 * self._length + 1, LONGEST) if whole else max(self._length // 2, SHORTEST)
        self._pause = 0 if agreed else min(2 * self._pause + 1, LONGEST_PAUSE)
        self._wait = self._pause
