"""generate --batch in processes of its own: kills, signals, pipes, full disks, terminals. No row is lost."""

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import checkpoints
import pytest
from conftest import program, spawn
from test_shell import catches, in_terminal


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes ` world` for ever."""
    return checkpoints.scripted(tmp_path_factory.mktemp("endless"), [995] * 1000, 5, tail=995)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """50 rows of 40 tokens, drawn."""
    path = tmp_path / "rows.jsonl"
    row: dict[str, Any] = {"prompt": "Hello", "max_new_tokens": 40, "temperature": 1}
    path.write_text("".join(json.dumps(row | {"id": n}) + "\n" for n in range(50)))
    return path


@contextmanager
def started(*arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    command = [*program(), "generate", *map(str, arguments)]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **streams | options) as process:
        yield process


def wait_for_lines(process: subprocess.Popen[bytes], path: Path, count: int) -> None:
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert process.poll() is None
        time.sleep(0.01)


def test_a_kill_costs_no_finished_row(endless: Path, rows: Path, tmp_path: Path) -> None:
    command = ["generate", "-m", endless, "--seed", "5", "--show-logits", "1", "--batch", rows, "--output"]
    undisturbed, output = tmp_path / "undisturbed.jsonl", tmp_path / "out.jsonl"
    assert spawn(*command, undisturbed, stdin=subprocess.DEVNULL).returncode == 0
    with started(*command[1:], output) as process:
        wait_for_lines(process, output, 9)
        process.kill()
    killed = output.read_bytes()
    whole = killed.splitlines(keepends=True)[: killed.count(b"\n")]
    assert [json.loads(line)["id"] for line in whole] == list(range(len(whole)))
    assert 9 <= len(whole) < 50
    output.write_bytes(killed + b'{"type": "resu')
    ran = spawn(*command, output, "--resume", stdin=subprocess.DEVNULL)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert output.read_bytes() == undisturbed.read_bytes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_whole_lines_to_go_on_from(
    endless: Path, rows: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    output = tmp_path / "out.jsonl"
    command = ["-m", endless, "--batch", rows, "--output", output]
    with started(*command) as process:
        wait_for_lines(process, output, 1)
        process.send_signal(number)
        out, errors = process.communicate()
    assert (process.returncode, out, errors) == (code, b"", b"")
    before = output.read_bytes()
    assert before.endswith(b"\n")
    assert before.count(b"\n") < 50
    assert spawn("generate", *command, "--resume", stdin=subprocess.DEVNULL).returncode == 0
    after = [json.loads(line) for line in output.read_bytes().splitlines()]
    assert output.read_bytes().startswith(before)
    assert [r["id"] for r in after] == list(range(50))
    assert len({r["seed"] for r in after}) == 1  # the seed that the first run drew


def test_a_row_is_answered_before_the_next_one_comes(endless: Path) -> None:
    with started("-m", endless, "-n", "3", "--batch", "-", stdin=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        for n in range(3):
            process.stdin.write(b'{"prompt": "Hello", "id": %d}\n' % n)
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert (answer["id"], answer["text"]) == (n, " world" * 3)
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_an_interrupt_while_waiting_for_input_ends_the_run(endless: Path) -> None:
    with started("-m", endless, "--batch", "-", stdin=subprocess.PIPE) as process:
        while not catches(process.pid, signal.SIGHUP):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130


def test_a_reader_that_goes_ends_the_batch_quietly(endless: Path, rows: Path) -> None:
    with started("-m", endless, "--batch", rows) as process:
        assert process.stdout
        assert process.stderr
        assert len(os.read(process.stdout.fileno(), 1)) == 1
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (141, b"")


def test_a_disk_that_fills_keeps_whole_lines(endless: Path, rows: Path, tmp_path: Path) -> None:
    output, limit = tmp_path / "out.jsonl", 20_000
    command = ["-m", endless, "--seed", "1", "--batch", rows, "--output", output]
    with started(*command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) as process:
        out, errors = process.communicate()
    message = f"gpt2cli: error: cannot write to {output}: File too large\n"
    assert (process.returncode, out, errors.decode()) == (1, b"", message)
    lines = output.read_bytes().splitlines(keepends=True)
    assert [json.loads(line)["id"] for line in lines] == list(range(len(lines)))
    assert lines[-1].endswith(b"\n")
    assert output.stat().st_size < limit < output.stat().st_size + len(lines[0]) + 2


def test_devices_are_outputs_too(endless: Path, rows: Path) -> None:
    full = spawn("generate", "-m", endless, "--batch", rows, "--output", "/dev/full", stdin=subprocess.DEVNULL)
    message = b"gpt2cli: error: cannot write to /dev/full: No space left on device\n"
    assert (full.returncode, full.stdout, full.stderr) == (1, b"", message)
    null = spawn(
        "generate", "-m", endless, "-n", "1", "--batch", rows, "--output", "/dev/null", stdin=subprocess.DEVNULL
    )
    assert (null.returncode, null.stdout, null.stderr) == (0, b"", b"")


def test_a_terminal_is_shown_how_far_it_is(endless: Path, rows: Path, tmp_path: Path) -> None:
    shown = in_terminal("generate", "-m", endless, "--batch", rows, "--output", tmp_path / "out.jsonl")
    assert "tokens/s" in shown
    assert "━" in shown
    assert shown.endswith("gpt2cli: 50 rows done\n")
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == 50
    quiet = in_terminal("generate", "-q", "-m", endless, "--batch", rows, "--output", tmp_path / "quiet.jsonl")
    assert quiet == ""
    records = in_terminal("generate", "-m", endless, "-n", "1", "--batch", rows)
    assert "━" not in records


def test_two_runs_never_write_to_one_file(endless: Path, rows: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    command = ["-m", endless, "--seed", "1", "--batch", rows, "--output", output, "--resume"]
    with started(*command) as first:
        wait_for_lines(first, output, 1)
        first.send_signal(signal.SIGSTOP)
        second = spawn("generate", *command, stdin=subprocess.DEVNULL)
        first.send_signal(signal.SIGCONT)
        first.communicate()
    message = f"gpt2cli: error: another run is writing to {output}; wait for its end, or name another --output\n"
    assert (first.returncode, second.returncode, second.stderr.decode()) == (0, 1, message)
    assert [json.loads(line)["id"] for line in output.read_bytes().splitlines()] == list(range(50))
