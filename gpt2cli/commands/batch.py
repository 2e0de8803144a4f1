"""gpt2cli generate --batch: many prompts, a record each, in the order of the input."""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gpt2cli.batch.input import LineReader
from gpt2cli.batch.output import check_output, is_standard_output, open_output
from gpt2cli.commands.session import load_model
from gpt2cli.errors import PromptError
from gpt2cli.interrupts import interruptible
from gpt2cli.options import BatchFiles, ModelChoice, Talk
from gpt2cli.output import is_terminal, note, progress_bar
from gpt2cli.prompt import STANDARD_INPUT

if TYPE_CHECKING:
    from gpt2cli.batch.run import BatchRun

# Options of the command that are about one prompt, or about the form of what is printed.
NOT_FOR_A_BATCH = {
    "argument": "PROMPT",
    "file": "--file",
    "keep_newline": "--keep-newline",
    "num_samples": "--num-samples",
    "echo": "--echo",
    "separator": "--separator",
}
ONLY_FOR_A_BATCH = {"output": "--output", "batch_size": "--batch-size", "resume": "--resume", "strict": "--strict"}


def check_batch_options(context: click.Context, files: BatchFiles) -> None:
    """Options that would be ignored in silence are refused instead."""
    wrong = ONLY_FOR_A_BATCH if files.batch is None else NOT_FOR_A_BATCH
    given = [option for name, option in wrong.items() if context.get_parameter_source(name) != ParameterSource.DEFAULT]
    if given and files.batch is None:
        raise click.UsageError(f"{given[0]} goes with --batch FILE")
    if given:
        raise click.UsageError(f"{given[0]} does not go with --batch, whose prompts and records are lines of files")
    if files.batch is not None and context.params["output_format"] in ("text", "jsonl"):
        style = context.params["output_format"]
        raise click.UsageError(f"--format {style} does not go with --batch, which writes one result a line (json)")
    if files.resume and is_standard_output(files.output):
        raise click.UsageError("--resume continues a file; name it with --output FILE")


def generate_batch(context: click.Context, files: BatchFiles, choice: ModelChoice, talk: Talk) -> None:
    """The command's own options, in `context`, are for all rows that do not bring others."""
    path = files.batch or ""
    to_file = not is_standard_output(files.output)
    if to_file:
        check_output(files.output or "", path, resume=files.resume)
    with _open_input(path) as (descriptor, size):
        loaded = load_model(choice, talk)
        from gpt2cli.batch.run import BatchError, BatchRun

        with open_output(files.output, resume=files.resume) as output:
            plain = path.lower().endswith(".txt")
            reader = LineReader(descriptor, "standard input" if path == "-" else path)
            run = BatchRun(loaded, reader, output, context.params, plain=plain, strict=files.strict)
            if files.resume:
                run.resume()
            # A bar on the terminal that also gets the records would tear them apart.
            quiet = talk.quiet or (not to_file and is_terminal(sys.stdout))
            with progress_bar("0 rows", Talk(quiet, talk.color), size) as show, interruptible() as interrupts:
                run.run(files.batch_size, interrupts, _progress(run, show) if show else lambda tokens: None)
    if interrupts():
        how = "; --resume goes on from there" if to_file else ""
        note(f"interrupted with {output.written} rows written{how}", talk)
        raise click.exceptions.Exit(interrupts.exit_code)
    if run.failed:
        raise BatchError(
            f"{run.failed} of {run.rows} rows failed; their records, of type error, say why"
            + (f": {files.output}" if to_file else "")
        )
    note(f"{run.rows} rows done", talk)


def _progress(run: "BatchRun", show: Callable[[int, str], None]) -> Callable[[int], None]:
    begun = time.monotonic()

    def on_turn(tokens_made: int) -> None:
        rate = tokens_made / (time.monotonic() - begun)
        show(run.bytes_done, f"{run.rows} rows, {rate:.0f} tokens/s")

    return on_turn


@contextmanager
def _open_input(path: str) -> Iterator[tuple[int, int | None]]:
    """Its descriptor, and its size where that is known."""
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise PromptError("standard input is closed; name a file: --batch prompts.jsonl")
        yield sys.stdin.fileno(), None
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (OSError, ValueError) as error:
        raise PromptError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise PromptError(f"cannot read {path!r}: it is a folder")
        yield descriptor, status.st_size if stat.S_ISREG(status.st_mode) else None
    finally:
        os.close(descriptor)
