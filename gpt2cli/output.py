"""Bytes out: the product to standard output, all talk to standard error, and what a terminal may be sent."""

import errno
import os
import select
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TextIO

from gpt2cli.errors import Gpt2cliError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

    from gpt2cli.options import Talk


class OutputError(Gpt2cliError):
    """What is to be written cannot be, for another reason than a reader that has gone."""


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def write(text: str) -> None:
    """All of `text` to standard output, at once, as UTF-8 whatever the locale.

    Raises BrokenPipeError when the reader has gone, OutputError when it cannot be written.
    """
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    write_all(sys.stdout.fileno(), text.encode(), "standard output")


def write_text(text: str) -> None:
    """Text of a prompt or a model: as it is in a pipe or a file, made harmless on a terminal."""
    write(visible(text) if is_terminal(sys.stdout) else text)


def write_error(text: str) -> None:
    """To standard error, if there is one; losing talk must not end the program."""
    if sys.stderr is not None:
        try:
            write_all(sys.stderr.fileno(), text.encode(), "standard error")
        except (OSError, OutputError):
            return


def note(message: str, talk: "Talk") -> None:
    """Something worth knowing, for a person at a terminal who wants to hear it."""
    if is_terminal(sys.stderr) and not talk.quiet:
        write_error(f"gpt2cli: {visible(message)}\n")


def visible(text: str) -> str:
    """The text with every character that a terminal would obey, or not show, written as an escape.

    Line feed and tab stay; so do all printable characters.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else escape(c) for c in text)


def escape(character: str) -> str:
    """\\r, \\x1b, \\u202e: what Python would write."""
    return character.encode("unicode_escape").decode("ascii")


def use_color(talk: "Talk", stream: TextIO | None) -> bool:
    """The option beats NO_COLOR, which beats FORCE_COLOR, which beats what the stream is."""
    if talk.color != "auto":
        return talk.color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def color_system() -> Literal["standard", "256", "truecolor"]:
    """What the terminal says it can show."""
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256color" in os.environ.get("TERM", "") else "standard"


def terminal_width(stream: TextIO | None) -> int:
    """COLUMNS, or the width of the terminal behind the stream, or 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80 if stream else 80
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


def render(renderable: "RenderableType", talk: "Talk", stream: TextIO | None) -> str:
    """A rich renderable as text for the stream, wide enough that nothing is cut."""
    console = _console(use_color(talk, stream))
    unbounded = console.options.update_width(10_000)
    console.width = max(terminal_width(stream), console.measure(renderable, options=unbounded).minimum)
    with console.capture() as capture:
        console.print(renderable)
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())


@contextmanager
def progress(message: str, talk: "Talk") -> "Iterator[Status | None]":
    """A spinner on standard error while something takes its time; on a terminal only, and gone afterwards."""
    if talk.quiet or not is_terminal(sys.stderr) or os.environ.get("TERM") == "dumb":
        yield None
        return
    console = _console(use_color(talk, sys.stderr), file=sys.stderr)
    from rich.text import Text

    with console.status(Text(message)) as status:
        yield status


@contextmanager
def progress_bar(message: str, talk: "Talk", total: int | None) -> "Iterator[Callable[[int, str], None] | None]":
    """A bar on standard error with the time left; on a terminal only, and gone afterwards.

    Yields what is to be called with the part of `total` that is done and a message. total: None where nobody knows.
    """
    if talk.quiet or not is_terminal(sys.stderr) or os.environ.get("TERM") == "dumb":
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = _console(use_color(talk, sys.stderr), file=sys.stderr)
    message_column = TextColumn("{task.description}", markup=False)
    with Progress(message_column, BarColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(message, total=total)
        yield lambda done, text: bar.update(task, completed=done, description=text)


def _console(color: bool, file: TextIO | None = None) -> "Console":
    from rich.console import Console

    return Console(
        file=file,
        force_terminal=color or file is not None,
        color_system=color_system() if color else None,
        no_color=not color,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


def write_all(descriptor: int, data: bytes, name: str) -> None:
    """Raises BrokenPipeError when a reader has gone, OutputError when `name` cannot be written."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # the other end made the pipe non-blocking: wait until it takes more
            select.select([], [descriptor], [])
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise BrokenPipeError from None
            raise OutputError(f"cannot write to {name}: {error.strerror}") from None
