"""gpt2cli inspect-logits: what the output layer says about a text."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from gpt2cli.commands.session import Session, draw_seed, load_model, open_session
from gpt2cli.commands.view_options import OutputFile, ViewChoice, refuse_unread, view_options
from gpt2cli.files import check_writable, replacing
from gpt2cli.options import (
    ModelChoice,
    Talk,
    model_options,
    named_format,
    prompt_options,
    sampling_options,
    seed_option,
    talk_options,
)
from gpt2cli.output import (
    color_system,
    is_terminal,
    note,
    progress,
    render,
    terminal_width,
    use_color,
    write,
    write_text,
)
from gpt2cli.prompt import PromptSource
from gpt2cli.records import SamplingOptions

if TYPE_CHECKING:
    from gpt2cli.commands.views import View

Format = Literal["auto", "table", "json", "jsonl", "csv", "tsv"]


@click.command(name="inspect-logits", short_help="Show what the output layer says about a text.")
@prompt_options
@view_options
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
@click.option("--export", type=OutputFile(".html", ".svg"), metavar="FILE.html|.svg", help="The table as a file, too.")
@click.option(
    "--save",
    type=OutputFile(".npz", ".safetensors"),
    metavar="FILE.npz|.safetensors",
    help="Save the logits of every row [T, V], the token ids and the hidden states.",
)
@talk_options
@click.pass_context
def inspect_logits(
    ctx: click.Context,
    source: PromptSource,
    asked: ViewChoice,
    sampling: SamplingOptions,
    choice: ModelChoice,
    talk: Talk,
    *,
    seed: int | None,
    output_format: Format | None,
    as_json: bool,
    export: Path | None,
    save: Path | None,
) -> None:
    """Show what the output layer says comes next: the logits of the last position, and what becomes of them.

    A logit is a token's score for coming next: the dot product of the text's final hidden state with that token's
    vector. It can be any number; only the differences between logits matter.

    A probability is a logit's share: softmax raises e to every logit and divides by the sum, so that all are
    positive and add up to 1.

    A temperature divides the logits before the softmax: below 1 the likely become likelier, above 1 all become more
    alike; 0 takes the largest logit without a draw (greedy).

    top-k keeps the k largest logits, top-p the fewest tokens whose probabilities reach p; the draw is among those.

    One view at a time; without one, the last row is shown.
    """
    style: Format | None = named_format(output_format, as_json)
    if style is None or style == "auto":
        style = "table" if is_terminal(sys.stdout) else "tsv"
    if seed is not None and (asked.steps is None or sampling.greedy):
        raise click.UsageError("--seed is for draws; add --steps N and a sampling option such as --temperature 1")
    refuse_unread(asked.name, ctx)
    for path in (export, save):
        if path is not None:
            check_writable(path)
    session = open_session(source, choice, talk, any_length=asked.every or asked.heat)
    if asked.steps is not None and not sampling.greedy and seed is None:
        seed = draw_seed("steps", talk)

    with progress(f"reading {len(session.prompt_token_ids)} tokens", talk):
        view = _view(session, asked, sampling, choice, seed, talk, keep=export is not None)
        pieces = _pieces(view, style, talk)
        first = next(pieces, "")
    # Only a table holds what a terminal is to obey: its colours.
    put = write if style == "table" else write_text
    put(first)
    for piece in pieces:
        put(piece)
    if export is not None:
        _export(view, export, talk)
    if save is not None:
        _save(session, asked, save, talk)
    if view.failed():
        raise click.exceptions.Exit(1)


def _view(
    session: Session,
    asked: ViewChoice,
    sampling: SamplingOptions,
    choice: ModelChoice,
    seed: int | None,
    talk: Talk,
    *,
    keep: bool,
) -> "View":
    from gpt2cli.commands import views

    if asked.every or asked.heat:
        return views.every_row(session, asked.stride, asked.count, heat=asked.heat, keep=keep)
    if asked.steps is not None:
        return views.steps(session, sampling, seed, asked.steps, asked.count, keep=keep)
    if asked.temperatures is not None:
        return views.temperatures(session, asked.temperatures, asked.count)
    if asked.scale is not None:
        return views.scale(session, asked.scale, asked.count)
    if asked.lens:
        return views.lens(session, asked.count)
    if asked.verify:
        other = replace(
            choice,
            backend="native" if choice.backend == "transformers" else "transformers",
            dtype="float32" if choice.dtype == "int8" else choice.dtype,  # transformers has no int8
        )
        return views.checks(session, lambda: load_model(other, replace(talk, quiet=True)).model, keep=keep)
    return views.row(session, sampling, asked.count, asked.tokens)


def _pieces(view: "View", style: Format, talk: Talk) -> Iterator[str]:
    """The view as text, one part after another as they are made."""
    from gpt2cli.serialize import json_line, separated

    if style == "table":
        from gpt2cli.commands.views import Canvas

        shades = use_color(talk, sys.stdout) and color_system() != "standard"
        for renderable in view.table(Canvas(terminal_width(sys.stdout), shades)):
            yield render(renderable, talk, sys.stdout)
    elif style == "json":
        yield json_line(view.json())
    elif style == "jsonl":
        yield from map(json_line, view.lines())
    else:
        for n, record in enumerate(view.records()):
            yield separated([record], style, header=n == 0)


def _export(view: "View", path: Path, talk: Talk) -> None:
    from rich.console import Group

    from gpt2cli.commands.views import Canvas
    from gpt2cli.export import EXPORT_WIDTH, export

    whole = Group(*view.table(Canvas(EXPORT_WIDTH, shades=True)))
    with replacing(path) as file:
        file.write(export(whole, "svg" if path.suffix.lower() == ".svg" else "html").encode())
    note(f"wrote {path}", talk)


def _save(session: Session, asked: ViewChoice, path: Path, talk: Talk) -> None:
    from gpt2cli.commands.views import stride_of
    from gpt2cli.saving import save_logits

    model, token_ids = session.loaded.model, session.prompt_token_ids
    with progress(f"saving logits [{len(token_ids)}, {model.vocab_size}]", talk):
        save_logits(path, model, token_ids, stride_of(model, asked.stride))
    note(f"saved logits [{len(token_ids)}, {model.vocab_size}] to {path}", talk)
