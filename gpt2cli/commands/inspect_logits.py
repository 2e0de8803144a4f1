"""gpt2cli inspect-logits: what the output layer says about a text."""

import sys
from typing import TYPE_CHECKING, Literal

import click

from gpt2cli.commands.session import Session, open_session
from gpt2cli.options import (
    ModelChoice,
    Talk,
    model_options,
    prompt_options,
    sampling_options,
    seed_option,
    talk_options,
)
from gpt2cli.output import is_terminal, note, progress, render, terminal_width, write
from gpt2cli.prompt import PromptSource
from gpt2cli.records import GenerationOptions, SamplingOptions, Step

if TYPE_CHECKING:
    from gpt2cli.protocol import TextTokenizer

Format = Literal["auto", "table", "json", "jsonl", "csv", "tsv"]


@click.command(name="inspect-logits", short_help="Show what the output layer says about a text.")
@prompt_options
@click.option("--rows", type=click.IntRange(min=1), default=10, show_default=True, metavar="K", help="Top candidates.")
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="TEXT|ID",
    help="Show this token too, wherever it ranks, with its dot product taken apart; repeatable.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Generate N tokens by the sampling options and show the row of each, with the choice marked.",
)
@sampling_options
@seed_option
@model_options
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["auto", "table", "json", "jsonl", "csv", "tsv"]),
    help="auto: a table on a terminal, tsv in a pipe.  [default: auto]",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@talk_options
def inspect_logits(
    source: PromptSource,
    choice: ModelChoice,
    sampling: SamplingOptions,
    talk: Talk,
    *,
    rows: int,
    tokens: tuple[str, ...],
    steps: int | None,
    seed: int | None,
    output_format: Format | None,
    as_json: bool,
) -> None:
    """Show what the output layer says comes next: the logits of the last position, and what becomes of them.

    A logit is a token's score: the dot product of the text's final hidden state with that token's vector. Softmax
    turns all logits into probabilities. A temperature divides the logits first: below 1 it makes the likely
    likelier, above 1 it evens them out. top-k and top-p cut the tail before a token is drawn.
    """
    style = _format(output_format, as_json)
    if steps and tokens:
        raise click.UsageError("--steps and --token are two views; ask for one at a time")
    if seed is not None and (steps is None or sampling.greedy):
        raise click.UsageError("--seed is for draws; add --steps N and a sampling option such as --temperature 1")
    session = open_session(source, choice, talk)
    if steps:
        _show_steps(session, sampling, steps, rows, seed, style, talk)
    else:
        _show_last_row(session, sampling, rows, tokens, style, talk)


def _show_last_row(
    session: Session, sampling: SamplingOptions, rows: int, tokens: tuple[str, ...], style: Format, talk: Talk
) -> None:
    from gpt2cli.render import row_view
    from gpt2cli.serialize import json_line, row_json, row_records, separated

    loaded, token_ids = session.loaded, session.prompt_token_ids
    wanted = tuple(_token_id(loaded.tokenizer, token) for token in tokens)
    with progress(f"reading {len(token_ids)} tokens", talk):
        row = loaded.inspect(token_ids, sampling, count=rows, tokens=wanted)
    if style == "table":
        write(render(row_view(loaded.model.name, row, terminal_width(sys.stdout)), talk, sys.stdout))
    elif style in ("json", "jsonl"):
        write(json_line(row_json(loaded.model.name, token_ids, row)))
    else:
        write(separated(row_records(row), style))


def _show_steps(
    session: Session, sampling: SamplingOptions, steps: int, rows: int, seed: int | None, style: Format, talk: Talk
) -> None:
    import secrets

    from gpt2cli.render import step_view
    from gpt2cli.serialize import json_line, separated, step_json, step_records, steps_json

    if not sampling.greedy and seed is None:
        seed = secrets.randbelow(2**31)
        note(f"seed {seed}; the same steps again with --seed {seed}", talk)
    loaded = session.loaded
    options = GenerationOptions(max_new_tokens=steps, details=True, candidates=rows)
    made: list[Step] = []
    for event in loaded.generate(session.prompt_token_ids, sampling, options, seed=seed or 0):
        if not isinstance(event, Step):
            break
        if style == "table":
            write(render(step_view(event, terminal_width(sys.stdout)), talk, sys.stdout) + "\n")
        elif style == "jsonl":
            write(json_line(step_json(event)))
        elif style == "json":
            made.append(event)
        else:
            write(separated(step_records(event), style, header=event.step == 0))
    if style == "json":
        write(json_line(steps_json(loaded.model.name, session.prompt_token_ids, sampling, seed, made)))


def _token_id(tokenizer: "TextTokenizer", token: str) -> int:
    """A token by its id, or by its text, which must be one token (with its leading space, if it has one)."""
    if token.isascii() and token.isdigit():
        if int(token) < tokenizer.vocab_size:
            return int(token)
        raise click.UsageError(f"--token {token}: token ids go from 0 to {tokenizer.vocab_size - 1}")
    token_ids = tokenizer.encode(token, special_tokens=True)
    if len(token_ids) == 1:
        return token_ids[0]
    pieces = ", ".join(f"{tokenizer.decode([n])!r} ({n})" for n in token_ids[:8])
    raise click.UsageError(f"--token {token!r} is not one token but {len(token_ids)}: {pieces}; name one by its id")


def _format(output_format: Format | None, as_json: bool) -> Format:
    if as_json and output_format not in (None, "json"):
        raise click.UsageError(f"--json is short for --format json and contradicts --format {output_format}")
    if as_json:
        return "json"
    if output_format in (None, "auto"):
        return "table" if is_terminal(sys.stdout) else "tsv"
    return output_format
