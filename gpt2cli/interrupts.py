"""Signals end the program tidily; a running generation ends well: what was made stays, whole, and is reported."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


class Interrupted(BaseException):
    """A signal has come. Raised wherever the program is, so that files and the terminal are left in order."""

    def __init__(self, number: int) -> None:
        self.exit_code = exit_code(number)


class Interrupts:
    """Which signal came, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        return exit_code(self.signal or 0)


def exit_code(number: int) -> int:
    """128 + the signal's number, as shells count: 130 for an interrupt from the keyboard."""
    return 128 + number


@contextmanager
def raising() -> Iterator[None]:
    """Within it, signals raise Interrupted; after it, they end the process at once, as there is nothing to tidy."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    caught = [s for s in SIGNALS if signal.getsignal(s) is not signal.SIG_IGN]
    for s in caught:
        signal.signal(s, interrupt)
    try:
        yield
    finally:
        for s in caught:
            signal.signal(s, signal.SIG_DFL)


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Within it, the first signal only sets a flag; a second one ends the program as it always would.

    A signal that is ignored (nohup) stays ignored.
    """
    interrupts = Interrupts()
    before = {s: signal.getsignal(s) for s in SIGNALS}

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.signal = number
        signal.signal(number, before[signal.Signals(number)])

    for s in SIGNALS:
        if before[s] is not signal.SIG_IGN:
            signal.signal(s, note)
    try:
        yield interrupts
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
