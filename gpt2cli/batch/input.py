"""A file of many prompts → its rows, one at a time, however long the file is. What is wrong with a row is an error."""

import codecs
import json
import os
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gpt2cli.errors import PromptError

# No prompt that a model can see is this long; the limit keeps memory bounded, whatever the input.
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_SEED = 2**63 - 1
POLL_SECONDS = 0.1


class RowError(PromptError):
    """A row that cannot be run. row_id: its id, where it has a good one."""

    def __init__(self, message: str, row_id: str | int | None = None) -> None:
        super().__init__(message)
        self.row_id = row_id


@dataclass(frozen=True)
class Line:
    """A line without its end. number: from 1. start, end: offsets in the input. too_long: its bytes were dropped."""

    number: int
    start: int
    end: int
    data: bytes
    too_long: bool


@dataclass(frozen=True)
class BatchRow:
    """One row of the input. settings: those of FIELDS that it brings along."""

    prompt: str | list[int]
    id: str | int | None = None
    settings: dict[str, Any] = field(default_factory=dict)


class LineReader:
    """The lines of a descriptor that are not blank."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._name = name
        self._buffer = bytearray()
        self._number = 0
        self._start = 0  # offset of the line that begins the buffer
        self._dropped = 0  # bytes of that line that are not kept, since it is too long
        self._ended = False

    def read(self, wait: Callable[[], bool] = lambda: True) -> Line | None:
        """The next line; None at the end of the input, or when there is none yet and `wait` says not to wait."""
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0 or self._ended:
                if end < 0 and not self._buffer and not self._dropped:
                    return None
                line = self._take(end if end >= 0 else len(self._buffer))
                if line.too_long or line.data.strip():
                    return line
                searched = 0
                continue
            searched = len(self._buffer)
            if searched > MAX_LINE_BYTES:
                self._dropped += searched
                self._buffer.clear()
                searched = 0
            if not self._has_more(wait) or (self._dropped and not wait()):  # a line that may never end
                return None
            self._fill()

    def _take(self, length: int) -> Line:
        data = bytes(self._buffer[:length])
        del self._buffer[: length + 1]
        too_long = self._dropped > 0 or length > MAX_LINE_BYTES
        start, end = self._start, self._start + self._dropped + length + 1
        self._number += 1
        self._start, self._dropped = end, 0
        if start == 0 and data.startswith(codecs.BOM_UTF8):
            data, start = data[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
        return Line(self._number, start, end, b"" if too_long else data, too_long)

    def _has_more(self, wait: Callable[[], bool]) -> bool:
        """Whether there is something to read, or the end; waits for it as long as `wait` says so."""
        try:
            while not select.select([self._descriptor], [], [], 0)[0]:
                if not wait():
                    return False
                select.select([self._descriptor], [], [], POLL_SECONDS)
        except (OSError, ValueError):  # not a descriptor that can be waited for
            pass
        return True

    def _fill(self) -> None:
        try:
            piece = os.read(self._descriptor, 1 << 18)
        except OSError as error:
            raise PromptError(f"cannot read {self._name}: {error.strerror}") from None
        self._buffer += piece
        self._ended = not piece


def parse_row(line: Line, *, plain: bool) -> BatchRow:
    """A line of JSON, or (plain) a prompt as it stands. Raises RowError, whose message says what to mend."""
    if line.too_long:
        raise RowError(f"the line is longer than {MAX_LINE_BYTES >> 20} MiB, too long for any prompt")
    text = _decode(line)
    if plain:
        return BatchRow(text)
    data = _parse_json(text)
    row_id = data.pop("id", None)
    if type(row_id) not in (str, int, type(None)) or not _is_text(row_id):
        raise RowError(f"id must be a text or a whole number, not {_shown(row_id)}")
    try:
        return BatchRow(_prompt(data), row_id, _settings(data))
    except RowError as error:
        raise RowError(str(error), row_id) from None


def _decode(line: Line) -> str:
    try:
        return line.data.decode().removesuffix("\r")
    except UnicodeDecodeError as error:
        raise RowError(
            f"not UTF-8: byte 0x{line.data[error.start]:02x} at offset {line.start + error.start} of the input; "
            "convert it first, for example with `iconv -f latin1 -t utf-8`"
        ) from None


def _parse_json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise RowError(f"not JSON: {error.msg}, at character {error.pos + 1}") from None
    except RecursionError:
        raise RowError("not a row: nested too deeply") from None
    except ValueError:  # Python's limit on the digits of a whole number
        raise RowError("not a row: it has a number of thousands of digits") from None
    if not isinstance(data, dict):
        raise RowError(f'not a JSON object such as {{"prompt": "Once upon a time"}} but {_shown(data)}')
    return data


def _refuse_constant(name: str) -> NoReturn:
    raise RowError(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RowError(f"the field {_shown(twice)} is there twice")
    return data


def _prompt(data: dict[str, Any]) -> str | list[int]:
    """Taken out of the row's fields."""
    if ("prompt" in data) == ("prompt_token_ids" in data):
        both = "both prompt and" if "prompt" in data else "neither prompt nor"
        raise RowError(f"the row has {both} prompt_token_ids; give one of them")
    if "prompt" in data:
        prompt = data.pop("prompt")
        if not isinstance(prompt, str):
            raise RowError(f"prompt must be a text, not {_shown(prompt)}")
        if not _is_text(prompt):
            raise RowError("prompt has half of a surrogate pair (\\ud800 to \\udfff), which is no character")
        return prompt
    token_ids = data.pop("prompt_token_ids")
    if not isinstance(token_ids, list):
        raise RowError(f"prompt_token_ids must be a list of whole numbers, not {_shown(token_ids)}")
    for token_id in token_ids:
        if type(token_id) is not int:
            raise RowError(f"prompt_token_ids must be whole numbers, not {_shown(token_id)}")
    return token_ids


def _settings(data: dict[str, Any]) -> dict[str, Any]:
    """The fields that are options of the command; null is as good as left out."""
    settings = {}
    for name, value in data.items():
        if name not in FIELDS:
            near = name.replace("-", "_")
            hint = f"; write {near}" if near in FIELDS else f"; a row may have {', '.join(['id', *FIELDS])}"
            raise RowError(f"unknown field {_shown(name)}{hint}")
        if value is not None:
            wanted, check = FIELDS[name]
            if not check(value):
                raise RowError(f"{name} must be {wanted}, not {_shown(value)}")
            settings[name] = value
    if isinstance(settings.get("stop"), str):
        settings["stop"] = [settings["stop"]]
    return settings


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_stop(value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return all(isinstance(text, str) and text and _is_text(text) for text in texts)


def _is_text(value: Any) -> bool:
    """Whether it can be written as UTF-8; JSON can spell half a surrogate pair, which cannot."""
    try:
        str(value).encode()
    except ValueError:
        return False
    return True


# What a row may set for itself: its own wording of what the value must be, and the check of that.
FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "max_new_tokens": ("a whole number, at least 0", lambda value: type(value) is int and value >= 0),
    "temperature": ("a number", _is_number),
    "top_k": ("a whole number", lambda value: type(value) is int),
    "top_p": ("a number", _is_number),
    "min_p": ("a number", _is_number),
    "repetition_penalty": ("a number", _is_number),
    "seed": ("a whole number from 0 to 2**63 - 1", lambda value: type(value) is int and 0 <= value <= MAX_SEED),
    "stop": ("a text or a list of texts, none of them empty", _is_stop),
    "ignore_eos": ("true or false", lambda value: isinstance(value, bool)),
    "context_overflow": ("slide or stop", lambda value: value in ("slide", "stop")),
}


def _shown(value: Any) -> str:
    """A value as the row spells it, shortened."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
