"""gpt2cli generate: a prompt's continuation, as it is made."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import click

from gpt2cli.commands.batch import check_batch_options, generate_batch
from gpt2cli.commands.session import Session, draw_seed, open_session
from gpt2cli.interrupts import interruptible
from gpt2cli.options import (
    BatchFiles,
    ModelChoice,
    Talk,
    Utf8Text,
    batch_options,
    model_options,
    named_format,
    prompt_options,
    sampling_options,
    seed_option,
    talk_options,
)
from gpt2cli.output import is_terminal, note, progress, render, terminal_width, write, write_error, write_text
from gpt2cli.prompt import PromptSource
from gpt2cli.records import Completion, GenerationOptions, SamplingOptions, Step

if TYPE_CHECKING:
    from rich.status import Status

    from gpt2cli.serialize import Run

Format = Literal["text", "json", "jsonl"]


@click.command(short_help="Continue a text.")
@prompt_options
@click.option(
    "-n",
    "--max-new-tokens",
    type=click.IntRange(min=0),
    default=64,
    show_default=True,
    metavar="INT",
    help="How many tokens to make at most; the prompt does not count.",
)
@click.option(
    "--num-samples",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="INT",
    help="Independent samples.",
)
@click.option(
    "--stop",
    type=Utf8Text(),
    multiple=True,
    metavar="TEXT",
    help="End before the first occurrence in the completion; repeatable.",
)
@click.option("--ignore-eos", is_flag=True, help="Do not end at <|endoftext|>.")
@click.option(
    "--context-overflow",
    type=click.Choice(["slide", "stop"]),
    default="slide",
    show_default=True,
    help="At the context length: drop the older half of the tokens and go on, or stop.",
)
@click.option(
    "--no-lookup",
    is_flag=True,
    help="Run the model for each token, without drafts copied from the text so far; the result is the same.",
)
@sampling_options
@seed_option
@model_options
@batch_options
@click.option("--echo", is_flag=True, help="Print the prompt first.")
@click.option("--separator", type=Utf8Text(), metavar="TEXT", help="The line between several samples.  [default: ---]")
@click.option(
    "--show-logits",
    type=click.IntRange(min=0),
    default=0,
    metavar="K",
    help="Show the K top tokens of each step with logit and probability, on standard error (in JSON: as candidates).",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "jsonl"]),
    help="text streams; json is one object per sample; jsonl is one line per step, then a result.  [default: text]",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@talk_options
def generate(
    source: PromptSource,
    choice: ModelChoice,
    sampling: SamplingOptions,
    files: BatchFiles,
    talk: Talk,
    *,
    max_new_tokens: int,
    num_samples: int,
    stop: tuple[str, ...],
    ignore_eos: bool,
    context_overflow: Literal["slide", "stop"],
    no_lookup: bool,
    seed: int | None,
    echo: bool,
    separator: str | None,
    show_logits: int,
    output_format: Format | None,
    as_json: bool,
) -> None:
    """Continue a text, one token at a time.

    Each step runs the model and looks at its last row of logits: a score for every token of the vocabulary.
    By default the largest is taken (greedy). Any of --temperature, --top-k, --top-p and --min-p switches to
    sampling, at temperature 1 where none is given. The order is fixed: repetition penalty, temperature, top-k,
    top-p, min-p, softmax, draw.

    PROMPT, --file and piped standard input join in the order file, standard input, PROMPT, with a newline between.
    With --batch, each line of a file is a prompt, and gets the text that it would get alone.
    """
    context = click.get_current_context()
    check_batch_options(context, files)
    style: Format = named_format(output_format, as_json) or "text"
    _check(style if files.batch is None else "json", sampling, num_samples, stop, echo, separator, show_logits, talk)
    if files.batch is not None:
        generate_batch(context, files, choice, talk)
        return
    session = open_session(source, choice, talk)
    if not sampling.greedy and seed is None:
        seed = draw_seed("text", talk)
    options = GenerationOptions(
        max_new_tokens=max_new_tokens,
        stop=stop,
        eos_token_ids=frozenset() if ignore_eos else None,
        context_overflow=context_overflow,
        details=style == "jsonl" or show_logits > 0,
        candidates=show_logits,
        lookup=not no_lookup,
    )
    with interruptible() as interrupts:
        reading = Reading(len(session.prompt_token_ids), talk)
        samples = session.loaded.samples(
            session.prompt_token_ids,
            sampling,
            options,
            count=num_samples,
            seed=seed or 0,
            should_stop=interrupts,
            on_prompt=reading.on_prompt,
        )
        for sample, events in enumerate(samples):
            events = _told(events, reading, talk)
            if style == "text":
                if sample:
                    write((separator if separator is not None else "---") + "\n")
                if echo:
                    write_text(session.prompt)
                _print_text(events, show_logits > 0, talk, header=sample == 0)
            else:
                _print_json(events, _run(session, sampling, seed), style, show_logits > 0)
            if interrupts():
                break
    if interrupts():
        raise click.exceptions.Exit(interrupts.exit_code)


class Reading:
    """Tells a person who waits how much of the prompt has been run."""

    def __init__(self, tokens: int, talk: Talk) -> None:
        self._tokens = tokens
        self._talk = talk
        self._status: Status | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        with progress(f"reading the prompt, {self._tokens} tokens", self._talk) as self._status:
            yield

    def on_prompt(self, done: int) -> None:
        if self._status:
            self._status.update(f"reading the prompt, {done} of {self._tokens} tokens")


def _told(events: Iterator[Step | Completion], reading: Reading, talk: Talk) -> Iterator[Step | Completion]:
    """The steps of one sample and its end, with what a person waits for told on the way."""
    with reading.shown():
        event = next(events)
    position, told = -1, False
    while isinstance(event, Step):
        if event.position <= position and not told:
            note("the text is longer than the model's context; the older half of it is no longer seen", talk)
            told = True
        position = event.position
        yield event
        event = next(events)
    yield event


def _print_text(events: Iterator[Step | Completion], show_logits: bool, talk: Talk, *, header: bool) -> None:
    """The completion as it grows and one final newline; the table of each step on standard error."""
    # Where both streams share a terminal, tables would tear the text apart, so the text comes after them.
    hold = show_logits and is_terminal(sys.stdout) and is_terminal(sys.stderr)
    held = []
    for event in events:
        if show_logits and isinstance(event, Step):
            _print_step(event, talk, header=header and event.step == 0)
        if hold:
            held.append(event.delta)
        elif event.delta:
            write_text(event.delta)
    write_text("".join(held) + "\n")


def _print_step(step: Step, talk: Talk, *, header: bool) -> None:
    """A table for a terminal, TSV for a file."""
    if is_terminal(sys.stderr):
        from gpt2cli.render import step_view

        write_error(render(step_view(step, terminal_width(sys.stderr)), talk, sys.stderr) + "\n")
    else:
        from gpt2cli.serialize import separated
        from gpt2cli.serialize_views import step_records

        write_error(separated(step_records(step), "tsv", header=header))


def _print_json(events: Iterator[Step | Completion], run: "Run", style: Format, with_steps: bool) -> None:
    from gpt2cli.serialize import json_line, result_json, step_json

    steps: list[Step] = []
    for event in events:
        if isinstance(event, Completion):
            write(json_line(result_json(run, event, steps if with_steps else None)))
        elif style == "jsonl":
            write(json_line(step_json(event)))
        if isinstance(event, Step) and with_steps:
            steps.append(event)


def _run(session: Session, sampling: SamplingOptions, seed: int | None) -> "Run":
    from gpt2cli.serialize import Run

    model = session.loaded.model
    return Run(
        model=model.name,
        backend=model.backend,
        dtype=model.dtype,
        device=model.device,
        prompt=session.prompt,
        prompt_token_ids=session.prompt_token_ids,
        sampling=sampling,
        seed=seed,
    )


def _check(
    style: Format,
    sampling: SamplingOptions,
    num_samples: int,
    stop: tuple[str, ...],
    echo: bool,
    separator: str | None,
    show_logits: int,
    talk: Talk,
) -> None:
    """Options that would be ignored in silence are refused instead."""
    if sampling.greedy and num_samples > 1:
        raise click.UsageError(
            f"--num-samples {num_samples}: greedy decoding gives the same text every time; "
            "add --temperature (not 0), --top-k, --top-p or --min-p to sample"
        )
    if "" in stop:
        raise click.UsageError("--stop is empty, which would end every text before it begins; give it some text")
    if style != "text" and (echo or separator is not None):
        option = "--echo" if echo else "--separator"
        raise click.UsageError(f"{option} shapes text, not {style}, where prompt and samples are fields of the result")
    if style == "text" and show_logits and talk.quiet:
        raise click.UsageError("--show-logits writes to standard error, which --quiet silences; --json has both")
