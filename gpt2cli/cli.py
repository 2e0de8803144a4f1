"""The click group; turns errors into messages and exit codes. Imports nothing heavy."""

import os
import sys
import traceback
from collections.abc import Sequence

import click

from gpt2cli import __version__
from gpt2cli.commands.generate import generate
from gpt2cli.commands.inspect_logits import inspect_logits
from gpt2cli.commands.models import models
from gpt2cli.errors import Gpt2cliError
from gpt2cli.interrupts import Interrupted, raising
from gpt2cli.output import visible, write_error

FAILURE, USAGE, READER_GONE = 1, 2, 141


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gpt2cli")
def cli() -> None:
    """Text generation with GPT-2 that shows its work.

    A model gives every token of its vocabulary a score (a logit) for coming next. `generate` chooses one,
    appends it, and goes on; `inspect-logits` shows the scores.
    """


cli.add_command(generate)
cli.add_command(inspect_logits)
cli.add_command(models)


def main(arguments: Sequence[str] | None = None) -> None:
    """The program. Always ends in SystemExit with one of the documented exit codes."""
    # Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if _machine_is_idle():
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    _occupy_closed_streams()
    if not os.environ.get("GPT2CLI_DEBUG"):
        sys.unraisablehook = lambda unraisable: None  # where a signal finds an object half made, its end fails too
    try:
        with raising():
            code = run(arguments)
    except Interrupted as interrupted:
        code = interrupted.exit_code
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        # Already reported. Python would fail once more, in words of its own, when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _machine_is_idle() -> bool:
    """Whether the threads of OpenMP may spin for a fraction of a millisecond before they sleep.

    A token takes many small products, each done by all threads; to wake them costs as much as a small product. But
    where another process wants a core, a thread that spins keeps it from work, the work of its own process included.
    """
    try:
        with open("/proc/loadavg") as file:
            runnable = file.read().split()[3].partition("/")[0]
    except OSError:  # not Linux
        return False
    return runnable == "1"  # this process


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; every error ends here, as a message."""
    try:
        code = cli.main(arguments, prog_name="gpt2cli", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        _report_usage(error)
        return USAGE
    except SystemExit as exit_:  # click's own answer to a closed pipe is 1; a shell completion ends with 0
        return READER_GONE if exit_.code == 1 else 0
    except Gpt2cliError as error:
        return _fail(str(error), error)
    except OSError as error:
        return _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", error)
    except Exception as error:
        return _fail(f"unexpected {type(error).__name__}: {error} (GPT2CLI_DEBUG=1 shows where)", error)


def _occupy_closed_streams() -> None:
    """A file that is opened later must not become descriptor 2, where libraries print whatever Python thinks of it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _fail(message: str, error: Exception) -> int:
    if os.environ.get("GPT2CLI_DEBUG"):
        write_error("".join(traceback.format_exception(error)))
    write_error(f"gpt2cli: error: {visible(' '.join(message.splitlines()))}\n")
    return FAILURE


def _report_usage(error: click.ClickException) -> None:
    context = getattr(error, "ctx", None)
    hint = f"; see `{context.command_path} --help`" if context else ""
    write_error(f"gpt2cli: error: {visible(' '.join(error.format_message().splitlines()))}{hint}\n")
