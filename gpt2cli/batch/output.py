"""Records of many prompts → one file or standard output, in the order of the input, each line whole."""

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpt2cli.output import OutputError, write_all

# Records that have to wait for an earlier row. When they take more than this, no new row is begun.
MAX_WAITING_BYTES = 64 * 1024 * 1024


class BatchOutput:
    """Takes the records as they come and writes each as soon as all before it are written; `written` counts them."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._name = name
        self._waiting: dict[int, bytes] = {}
        self._waiting_bytes = 0
        self.written = 0
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)

    @property
    def is_behind(self) -> bool:
        return self._waiting_bytes > MAX_WAITING_BYTES

    def put(self, number: int, line: str) -> None:
        """The record of row `number`, counted from 0."""
        data = line.encode()
        self._waiting[number] = data
        self._waiting_bytes += len(data)
        while self.written in self._waiting:
            data = self._waiting.pop(self.written)
            self._waiting_bytes -= len(data)
            self._write(data)
            self.written += 1

    def finished(self) -> Iterator[tuple[int, Any]]:
        """For a file that is to be continued: the number and the record of each whole line in it.

        What follows the last whole line is the torn end of a run that was killed; it is cut off after that.
        Raises OutputError for a line that is no record.
        """
        if not self._is_file:
            return
        end = 0
        with open(self._descriptor, "rb", closefd=False) as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    raise self.refusal(self.written, "is no record of a batch") from None
                yield self.written, record
                self.written += 1
                end += len(line)
        os.ftruncate(self._descriptor, end)
        os.lseek(self._descriptor, end, os.SEEK_SET)

    def refusal(self, number: int, what: str) -> OutputError:
        return OutputError(
            f"cannot continue {self._name}: its line {number + 1} {what}; "
            "give --resume the same input and options as before, or another --output"
        )

    def _write(self, data: bytes) -> None:
        whole = os.lseek(self._descriptor, 0, os.SEEK_CUR) if self._is_file else 0
        try:
            write_all(self._descriptor, data, self._name)
        except OutputError:
            if self._is_file:
                os.ftruncate(self._descriptor, whole)  # a full disk may have taken a part of the line
            raise


def is_standard_output(path: str | None) -> bool:
    return path in (None, "-")


def check_output(path: str, source: str, *, resume: bool) -> None:
    """Raises OutputError for an output that could not be written to, before any work is done."""
    if not os.path.exists(path):
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise OutputError(f"cannot write to {path}: there is no such folder")
        return
    if os.path.exists(source) and os.path.samefile(path, source):
        raise OutputError(f"--output {path} is the input itself; name another file")
    if os.path.isfile(path) and not resume:
        raise OutputError(f"{path} is already there; add --resume to continue it, or name another --output")


@contextmanager
def open_output(path: str | None, *, resume: bool) -> Iterator[BatchOutput]:
    """A new file, or with `resume` one that may be there. Raises OutputError where it cannot be opened."""
    if path is None or is_standard_output(path):
        if sys.stdout is None:
            raise OutputError("standard output is closed")
        yield BatchOutput(sys.stdout.fileno(), "standard output")
        return
    is_device = os.path.exists(path) and not os.path.isfile(path)
    how = os.O_WRONLY if is_device else os.O_RDWR | os.O_CREAT | (0 if resume else os.O_EXCL)
    try:
        descriptor = os.open(path, how, 0o666)
    except (OSError, ValueError) as error:
        raise OutputError(f"cannot write to {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        _lock(descriptor, path)
        yield BatchOutput(descriptor, path)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: str) -> None:
    """Until it is closed, no other run may write to it: two would glue their lines together."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(f"another run is writing to {path}; wait for its end, or name another --output") from None
    except OSError:  # not on this file system
        return
