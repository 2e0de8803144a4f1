"""token bytes → text that can be shown: whole characters, and never a part of a stop text."""

import codecs
from collections.abc import Sequence


class StreamDecoder:
    """UTF-8 in pieces. A character is given as soon as its last byte is known, U+FFFD once a byte is known bad."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def finish(self) -> str:
        """U+FFFD if a character was begun and never completed, else nothing."""
        return self._decoder.decode(b"", final=True)


class StopMatcher:
    """Text in pieces, cut before the first occurrence of a stop text; what cannot be part of one is given at once.

    The first occurrence is the one that begins first, so the result does not depend on how the text is split.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = stop
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        if self.stopped:
            return ""
        self._held += text
        match, pending = self._first_match(), self._first_pending()
        # A match is final only if no longer stop text that began before it can still be completed.
        self.stopped = match <= pending and match < len(self._held)
        return self._release(min(match, pending))

    def finish(self) -> str:
        """What is held, up to a match if there is one."""
        match = self._first_match()
        self.stopped = self.stopped or match < len(self._held)
        return self._release(match)

    def _release(self, end: int) -> str:
        text, self._held = self._held[:end], "" if self.stopped else self._held[end:]
        return text

    def _first_match(self) -> int:
        return min((i for s in self._stop if (i := self._held.find(s)) >= 0), default=len(self._held))

    def _first_pending(self) -> int:
        """Where the held text's longest ending begins that could still grow into a stop text."""
        longest = max((len(s) for s in self._stop), default=0)
        first = max(0, len(self._held) - longest + 1)
        while first < len(self._held) and not any(s.startswith(self._held[first:]) for s in self._stop):
            first += 1
        return first


class TextStream:
    """The completion as text: bytes through the decoder, then through the matcher."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._decoder = StreamDecoder()
        self._matcher = StopMatcher(stop)
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """All that was given so far."""
        return "".join(self._parts)

    @property
    def stopped(self) -> bool:
        return self._matcher.stopped

    def feed(self, data: bytes) -> str:
        return self._give(self._matcher.feed(self._decoder.feed(data)))

    def finish(self) -> str:
        rest = self._matcher.feed(self._decoder.finish())
        return self._give(rest + self._matcher.finish())

    def _give(self, text: str) -> str:
        self._parts.append(text)
        return text
