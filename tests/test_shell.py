"""The shell contract, in processes of their own: exact bytes, exit codes, pipes that close, signals, environments."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import checkpoints
import pytest
from conftest import program, spawn

from gpt2cli.cli import _machine_is_idle

P5 = "The capital of France is"
NOISE = (b"Traceback", b"PanicException", b"Exception ignored", b"BrokenPipe", b"Warning")


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes ` world` for ever."""
    return checkpoints.scripted(tmp_path_factory.mktemp("endless"), [995] * 1000, 5, tail=995)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, gpt2_tokenizer) -> Path:
    """Writes what a terminal would obey."""
    text = " \x1b[31mred\r\x07\u202eevil\u200b ok\tTAB\nLF"
    return checkpoints.scripted(tmp_path_factory.mktemp("hostile"), gpt2_tokenizer.encode(text), 5)


def in_terminal(*arguments: str | Path, stdout: int | None = None, environment: dict[str, str] | None = None) -> str:
    """What a terminal of 80 columns receives (standard output too, unless it goes elsewhere)."""
    pid, terminal = pty.fork()
    if pid == 0:
        if stdout is not None:
            os.dup2(stdout, 1)
        command = [*program(), *map(str, arguments)]
        os.execvpe(command[0], command, os.environ | {"TERM": "xterm", "COLUMNS": "80"} | (environment or {}))
    received = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        received += data
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, received
    return received.decode().replace("\r\n", "\n")


def catches(pid: int, number: signal.Signals) -> bool:
    caught = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def cpu_time(pid: int) -> float:
    """Seconds that a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def without_styles(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LANG": "C", "LC_ALL": "C"},
        {"PYTHONIOENCODING": "cp1252"},
        {"PYTHONUNBUFFERED": "1"},
        {"FORCE_COLOR": "1"},
        {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "40"},
    ],
    ids=str,
)
def test_the_bytes_in_a_pipe_are_exact_in_any_environment(
    tmp_path: Path, gpt2_tokenizer, environment: dict[str, str]
) -> None:
    text = " 日本語 \x1b[0m😀 é\r\n [b]"
    model = checkpoints.scripted(tmp_path, gpt2_tokenizer.encode(text), 5)
    ran = spawn("generate", "-m", model, P5, env=os.environ | environment, stdin=subprocess.DEVNULL)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, text.encode() + b"\n", b"")


def test_without_a_home_and_in_a_directory_that_cannot_be_written(endless: Path, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "HF_HOME")}
    tmp_path.chmod(0o555)
    ran = spawn("generate", "-m", endless, "-n", "2", P5, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b" world world\n", b"")


def test_text_streams_as_it_is_made(tmp_path: Path) -> None:
    model = checkpoints.scripted(tmp_path, [64] * 200, 5)
    with subprocess.Popen(
        [*program(), "generate", "-m", model, "-n", "200", P5], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        chunks = iter(lambda: os.read(process.stdout.fileno(), 65536), b"")  # type: ignore[union-attr]
        received = list(chunks)
    assert b"".join(received) == b"a" * 200 + b"\n"
    assert len(received) >= 20


def test_every_chunk_is_whole_characters(tmp_path: Path, gpt2_tokenizer) -> None:
    text = " 😀 日本語 👨‍👩‍👧 “ok” é"
    model = checkpoints.scripted(tmp_path, gpt2_tokenizer.encode(text), 5)
    with subprocess.Popen(
        [*program(), "generate", "-m", model, P5], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        received = list(iter(lambda: os.read(process.stdout.fileno(), 65536), b""))  # type: ignore[union-attr]
    assert "".join(chunk.decode("utf-8", "strict") for chunk in received) == text + "\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [["generate", "-n", "900"], ["generate", "-n", "900", "--format", "jsonl"], ["inspect-logits", "--rows", "50257"]],
)
def test_a_reader_that_goes_ends_the_program_quietly(endless: Path, arguments: list[str], unbuffered: str) -> None:
    command = [*program(), *arguments, "-m", str(endless), P5]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    ) as process:
        assert len(os.read(process.stdout.fileno(), 1)) == 1  # type: ignore[union-attr]
        process.stdout.close()  # type: ignore[union-attr]
        errors = process.stderr.read()  # type: ignore[union-attr]
    assert (process.returncode, errors) == (141, b"")


@pytest.mark.parametrize("arguments", [["generate", "-n", "2", P5], ["inspect-logits", P5], ["--help"], ["models"]])
def test_a_full_disk_is_an_error_in_one_line(endless: Path, arguments: list[str]) -> None:
    model = [] if arguments in (["--help"], ["models"]) else ["-m", endless]
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [*program(), *arguments, *model], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE
        )
    assert ran.returncode == 1
    assert b"No space left on device" in ran.stderr
    assert ran.stderr.count(b"\n") == 1


def test_a_closed_standard_output_is_an_error_in_one_line(endless: Path) -> None:
    command = " ".join([*program(), "generate", "-n", "2", "-m", str(endless), "x", ">&-"])
    ran = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert (ran.returncode, ran.stderr) == (1, b"gpt2cli: error: standard output is closed\n")


def test_threads_do_not_wait_awake_beside_another_process() -> None:
    busy = "print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert not _machine_is_idle()
        other.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("style", ["text", "json", "jsonl"])
def test_a_signal_ends_the_text_well(endless: Path, number: signal.Signals, code: int, style: str) -> None:
    # The first samples in json show that it generates, and fit into the pipe; one of the next is interrupted.
    length = ["-n", "200", "-t", "1", "--num-samples", "1000000"] if style == "json" else ["-n", "1000000"]
    command = [*program(), "generate", "-m", str(endless), *length, "--format", style, P5]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out = os.read(process.stdout.fileno(), 65536)  # type: ignore[union-attr]
        begun = cpu_time(process.pid)
        while cpu_time(process.pid) < begun + 0.03:
            time.sleep(0.01)
        process.send_signal(number)
        rest, errors = process.communicate()
    out += rest
    assert (process.returncode, errors) == (code, b"")
    if style == "text":
        assert re.fullmatch(rb"( world)+\n", out)
    else:
        *others, last = [json.loads(line) for line in out.splitlines()]
        assert last["finish_reason"] == "interrupted"
        assert last["text"] == " world" * len(last["token_ids"])
        if style == "json":
            assert {other["finish_reason"] for other in others} == {"length"}
        else:
            assert len(others) == len(last["token_ids"])


def test_a_terminal_is_shown_what_it_would_obey(hostile: Path) -> None:
    shown = in_terminal("generate", "-q", "-m", hostile, P5)
    assert shown == " \\x1b[31mred\\r\\x07\\u202eevil\\u200b ok\tTAB\nLF\n"
    echoed = in_terminal("generate", "-q", "-m", hostile, "-n", "0", "--echo", "\x1b[2J\rprompt")
    assert echoed == "\\x1b[2J\\rprompt\n"


def test_tables_and_errors_on_a_terminal_show_it_too(hostile: Path) -> None:
    for arguments in (["inspect-logits", "--steps", "12"], ["generate", "--show-logits", "3"]):
        shown = in_terminal(*arguments, "-m", hostile, P5, environment={"TERM": "dumb"})
        assert not set(shown) & set("\x1b\r\x07\u202e\u200b")
        assert "\\x1b" in shown
    ran = spawn("generate", "-m", "[/]\x1b[31m", "x", stdin=subprocess.DEVNULL)
    assert ran.stderr.startswith(b"gpt2cli: error: ")
    assert b"[/]" in ran.stderr
    assert b"\x1b" not in ran.stderr


@pytest.mark.parametrize(
    ("option", "environment", "colored"),
    [
        ([], {}, True),
        ([], {"NO_COLOR": "1"}, False),
        ([], {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ([], {"TERM": "dumb"}, False),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
    ],
)
def test_color(endless: Path, option: list[str], environment: dict[str, str], colored: bool) -> None:
    shown = in_terminal("inspect-logits", "-q", "-m", endless, *option, P5, environment=environment)
    assert ("\x1b[1m" in shown) == colored
    assert "rank" in shown


def test_color_does_not_touch_data_nor_what_counts_as_a_terminal(endless: Path) -> None:
    for style in ("auto", "tsv", "csv", "json"):
        run = ("inspect-logits", "-m", endless, "--format", style, P5)
        plain = spawn(*run, stdin=subprocess.DEVNULL)
        colored = spawn(*run, "--color", "always", stdin=subprocess.DEVNULL, env=os.environ | {"FORCE_COLOR": "1"})
        assert plain.stdout == colored.stdout
        assert plain.stdout.startswith(b"{" if style == "json" else b"rank")


def test_what_a_person_at_a_terminal_is_told(endless: Path, tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as out:
        told = in_terminal("generate", "-n", "2", "-t", "1", "a prompt ", stdout=out.fileno())
    told = without_styles(told)
    assert "model tinystories" in told
    assert "-m gpt2" in told
    assert "ends in a space" in told
    assert re.search(r"seed (\d+); the same text again with --seed \1", told)
    assert (
        in_terminal("generate", "-q", "-n", "2", "-t", "1", "a prompt ", stdout=os.open(os.devnull, os.O_WRONLY)) == ""
    )


def test_a_slid_context_is_told_once(tmp_path: Path) -> None:
    model = checkpoints.ruler(tmp_path, context_length=8)
    told = in_terminal("generate", "-m", model, "-n", "30", "a", stdout=os.open(os.devnull, os.O_WRONLY))
    assert told.count("no longer seen") == 1


def test_tables_and_text_do_not_mix_on_one_terminal(endless: Path) -> None:
    shown = without_styles(in_terminal("generate", "--color=never", "-m", endless, "-n", "2", "--show-logits", "2", P5))
    assert shown.rstrip().endswith(" world world")
    assert shown.index("step 1") < shown.index(" world world")


# What loads


@pytest.mark.parametrize(
    "arguments", [["--help"], ["generate", "-h"], ["inspect-logits", "--help"], ["--version"], ["generate", "-t", "x"]]
)
def test_help_and_usage_errors_load_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom gpt2cli.cli import run\nrun(sys.argv[1:])\n"
        "heavy = {'torch', 'transformers', 'tiktoken', 'numpy', 'rich', 'huggingface_hub', 'safetensors'}\n"
        "print('loaded', sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert ran.stdout.endswith("loaded []\n"), ran


def test_generating_natively_does_not_load_transformers(endless: Path) -> None:
    code = (
        "import sys\nfrom gpt2cli.cli import run\nassert run(sys.argv[1:]) == 0\n"
        "print(sorted({'transformers', 'numpy.f2py', 'huggingface_hub', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "generate", "-m", endless, "-n", "1", P5],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert ran.stdout == " world\n[]\n", ran


def test_python_m_is_the_same_program() -> None:
    assert spawn("--version").stdout.startswith(b"gpt2cli, version ")
    assert spawn("-h").stdout == spawn("--help").stdout
