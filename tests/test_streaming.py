"""Bytes to text in pieces: the result may not depend on where the pieces end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt2cli.streaming import StopMatcher, StreamDecoder, TextStream


def pieces(draw: st.DrawFn, whole: bytes | str) -> list:
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@st.composite
def split_bytes(draw: st.DrawFn) -> list[bytes]:
    text = st.text().map(str.encode)
    return pieces(draw, draw(st.lists(text | st.binary(max_size=6), max_size=6).map(b"".join)))


@given(split_bytes())
def test_decoding_in_pieces_equals_decoding_at_once(data: list[bytes]) -> None:
    decoder = StreamDecoder()
    assert "".join(map(decoder.feed, data)) + decoder.finish() == b"".join(data).decode(errors="replace")


@given(st.text())
def test_each_character_comes_with_its_last_byte(text: str) -> None:
    decoder = StreamDecoder()
    for character in text:
        *first, last = (bytes([b]) for b in character.encode())
        assert [decoder.feed(b) for b in first] == [""] * len(first)
        assert decoder.feed(last) == character


def test_a_bad_byte_is_shown_once_it_is_known_to_be_bad() -> None:
    decoder = StreamDecoder()
    assert [decoder.feed(b) for b in (b"\xff", b"a", b"\xe2\x82", b"b")] == ["\ufffd", "a", "", "\ufffdb"]


@st.composite
def split_text_and_stops(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    text = draw(st.text("abc", max_size=20))
    stops = draw(st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
    return pieces(draw, text), stops


def before_first(text: str, stops: list[str]) -> str:
    """The reference: everything before whichever stop text begins first."""
    return text[: min([text.find(s) for s in stops if s in text], default=len(text))]


@given(split_text_and_stops())
def test_a_stop_text_cuts_before_its_first_occurrence_however_the_text_is_split(case: tuple) -> None:
    texts, stops = case
    matcher = StopMatcher(stops)
    given_ = ""
    for text in texts:
        given_ += matcher.feed(text)
        if matcher.stopped:
            break
        # Nothing is held that cannot still be a part of a stop text.
        held = "".join(texts)[len(given_) :][: len(matcher._held)]
        assert held == "" or any(s.startswith(held[:n]) for s in stops for n in range(1, len(held) + 1))
    given_ += matcher.finish()
    assert given_ == before_first("".join(texts), stops)
    assert matcher.stopped == any(s in "".join(texts) for s in stops)


@pytest.mark.parametrize(
    ("stops", "expected", "stopped"),
    [
        (["beta gamma"], " alpha ", True),
        (["a g"], " alpha bet", True),
        (["pha"], " al", True),
        (["gamma", "beta"], " alpha ", True),
        (["beta delta"], " alpha beta gamma", False),
        (["gamma!"], " alpha beta gamma", False),
        ([" "], "", True),
    ],
)
def test_stop_texts_need_not_be_tokens(stops: list[str], expected: str, stopped: bool) -> None:
    stream = TextStream(stops)
    for token in (b" alpha", b" beta", b" gamma"):
        if not stream.stopped:
            stream.feed(token)
    stream.finish()
    assert (stream.text, stream.stopped) == (expected, stopped)


def test_text_that_cannot_be_part_of_a_stop_text_is_not_held() -> None:
    stream = TextStream(["xyz"])
    assert [stream.feed(b) for b in (b"ab", b"x", b"y", b"a", b"x")] == ["ab", "", "", "xya", ""]
    assert stream.finish() == "x"


def test_a_stop_text_may_span_the_bytes_of_a_character() -> None:
    stream = TextStream(["😀"])
    smile = "😀".encode()
    assert [stream.feed(smile[:2]), stream.feed(smile[2:] + b"a")] == ["", ""]
    assert stream.stopped
