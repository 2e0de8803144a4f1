"""A signal asks a running generation to end well: what was made stays, whole, and is reported."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


class Interrupts:
    """Which signal came, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells count: 130 for an interrupt from the keyboard."""
        return 128 + (self.signal or 0)


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
