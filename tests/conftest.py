"""How tests run the program: the real command line, in this process or in one of its own."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import checkpoints
import jsonschema
import pytest

from gpt2cli.cli import run
from gpt2cli.tokenizer import Tokenizer

ROOT = Path(__file__).parent.parent
SCHEMA = jsonschema.Draft202012Validator(json.loads((files("gpt2cli") / "data" / "schema.json").read_text()))
# No test may reach a network, or depend on what the person who runs it has set or cached.
for name in [n for n in os.environ if n.startswith(("GPT2CLI_", "HF_")) or n in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")]:
    if name not in ("HF_HOME", "HF_HUB_CACHE"):
        del os.environ[name]
os.environ["HF_HUB_OFFLINE"] = "1"
# The models of the tests are tiny; threads would only get in the way of the tests that run beside.
os.environ["OMP_NUM_THREADS"] = "1"


@dataclass(frozen=True)
class Ran:
    """What a run of the program left behind. Failing comparisons show both streams."""

    code: int
    out: str
    err: str

    def ok(self) -> "Ran":
        """The run, which must have succeeded without a word on standard error."""
        assert (self.code, self.err) == (0, ""), self
        return self

    @property
    def json(self) -> Any:
        (record,) = self.jsonl
        return record

    @property
    def jsonl(self) -> list[Any]:
        return [parse(line) for line in self.ok().out.splitlines()]


def parse(line: str) -> Any:
    """One line of JSON output, which must fit the schema, and be JSON: no NaN, no Infinity."""
    record = json.loads(line, parse_constant=_no_constant)
    SCHEMA.validate(record)
    return record


def refused(ran: Ran, *said: str) -> None:
    """Exit code 1, nothing on standard output, and one line that holds each of `said`."""
    assert (ran.code, ran.out) == (1, ""), ran
    assert ran.err.startswith("gpt2cli: error: "), ran
    assert ran.err.count("\n") == 1, ran
    assert ran.err.endswith("\n"), ran
    for part in said:
        assert part in ran.err, ran
    for word in ("Traceback", "GPT2CLI_DEBUG", "\x00"):
        assert word not in ran.err, ran


def need_lone_rows(maker: Any) -> None:
    """Skips where a model or a projection says that its rows depend on each other."""
    if not maker.rows_stand_alone:
        pytest.skip("this processor's product of matrices adds up by the number of rows")


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run the program in this process: cli("generate", "-n", "3", stdin=b"text"). No terminal, no silent pipe."""

    def run_cli(*arguments: str | Path, stdin: bytes = b"") -> Ran:
        read_end, write_end = os.pipe()
        with os.fdopen(read_end) as reader:
            writer = threading.Thread(target=_write_and_close, args=(write_end, stdin))
            writer.start()
            monkeypatch.setattr(sys, "stdin", reader)
            capfdbinary.readouterr()
            code = run([str(a) for a in arguments])
            writer.join()
        captured = capfdbinary.readouterr()
        return Ran(code, captured.out.decode(), captured.err.decode())

    return run_cli


def _write_and_close(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def spawn(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the program as a process of its own, as a shell would."""
    return subprocess.run([*program(), *map(str, arguments)], capture_output=True, timeout=300, **options)


def program() -> list[str]:
    return [sys.executable, "-m", "gpt2cli"]


@pytest.fixture(scope="session")
def gpt2_tokenizer() -> Tokenizer:
    return Tokenizer.gpt2()


@pytest.fixture(scope="session")
def gpt2_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with GPT-2's own vocab.json and merges.txt."""
    return checkpoints.gpt2_files(tmp_path_factory.mktemp("gpt2"))
