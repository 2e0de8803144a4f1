"""argument, file, standard input → prompt text."""

import codecs
import os
import select
import sys
from collections.abc import Callable
from dataclasses import dataclass

from gpt2cli.errors import PromptError

STANDARD_INPUT = "-"
SILENCE = 2.0  # seconds of an open but silent standard input before a note says that it is being read
# No context is this long; the limit ends the reading of a standard input that never ends.
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class PromptSource:
    """Where the prompt comes from, and how it becomes tokens (the options of the same names)."""

    argument: str | None
    file: str | None
    keep_newline: bool
    truncate: bool
    special_tokens: bool
    bos: bool


def has_source(source: PromptSource) -> bool:
    """Whether there is any prompt: without an argument or a file, standard input must be more than a terminal."""
    return source.argument is not None or source.file is not None or _stdin_is_piped()


def read_prompt(source: PromptSource, note: Callable[[str], None]) -> str:
    """The text of all sources in the order file, standard input, argument, with one newline between.

    Sources without any text are left out. Raises PromptError for what cannot be read or is not UTF-8.
    """
    texts = []
    if source.file is not None and source.file != STANDARD_INPUT:
        texts.append(_decode(_read_file(source.file), source.file, source.keep_newline))
    named = STANDARD_INPUT in (source.argument, source.file)
    if named or _stdin_is_piped():
        elsewhere = source.file is not None or source.argument is not None  # a prompt that could do without it
        if not named and elsewhere and not _stdin_speaks():
            note("reading standard input, which is open but silent; add </dev/null to go on without it")
        texts.append(_decode(_read_stdin(), "standard input", source.keep_newline))
    if source.argument is not None and source.argument != STANDARD_INPUT:
        texts.append(_decode(os.fsencode(source.argument), "the prompt argument", keep_newline=True))
    return "\n".join(text for text in texts if text)


def _stdin_is_piped() -> bool:
    return sys.stdin is not None and not sys.stdin.isatty()


def _stdin_speaks() -> bool:
    """Whether standard input has something to read, or has ended, within SILENCE seconds."""
    try:
        return bool(select.select([sys.stdin], [], [], SILENCE)[0])
    except (OSError, ValueError):  # not a descriptor that can be waited for
        return True


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise PromptError("standard input is closed; give the prompt as an argument or with --file")
    return _read_all(sys.stdin.fileno(), "standard input")


def _read_file(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (OSError, ValueError) as error:
        raise PromptError(f"cannot read the prompt file {path!r}: {_reason(error)}") from None
    try:
        return _read_all(descriptor, path)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, name: str) -> bytes:
    data = bytearray()
    try:
        while piece := os.read(descriptor, 1 << 20):
            data += piece
            if len(data) > MAX_BYTES:
                raise PromptError(f"{name} is longer than {MAX_BYTES >> 20} MiB, too long for any prompt")
    except OSError as error:
        raise PromptError(f"cannot read {name}: {_reason(error)}") from None
    return bytes(data)


def _decode(data: bytes, name: str, keep_newline: bool) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{name} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}; "
            "convert it first, for example with `iconv -f latin1 -t utf-8`"
        ) from None
    text = text.removeprefix(codecs.BOM_UTF8.decode("utf-8"))
    if not keep_newline and text.endswith("\n"):
        text = text[:-1].removesuffix("\r")
    return text


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
