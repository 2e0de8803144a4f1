"""Files that are written whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gpt2cli.errors import FileError


def check_writable(path: Path) -> None:
    """Raises FileError for a place where no file can be made, before any work is done for it."""
    if path.exists() and not path.is_file():
        raise FileError(f"cannot write {str(path)!r}: it is there and not a file")
    if not path.parent.is_dir():
        raise FileError(f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only when it is whole: a crash leaves the old one, or none."""
    check_writable(path)
    path = Path(os.path.realpath(path))  # a link stays a link
    beside = path.with_name(f".gpt2cli-{secrets.token_hex(8)}")
    try:
        with open(beside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # some disks only now say that they are full
        if path.exists():
            shutil.copymode(path, beside)
        os.replace(beside, path)
    except OSError as error:
        raise FileError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)
