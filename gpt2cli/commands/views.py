"""The views of inspect-logits: for each, one function from a session to what it says, in every format."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import click
from rich.console import Group, RenderableType
from rich.text import Text

from gpt2cli.commands.session import Session
from gpt2cli.generation import last_hidden_state
from gpt2cli.heat import heat_view
from gpt2cli.inspection import compare_temperatures, scale_row
from gpt2cli.lens import read_lens
from gpt2cli.records import Check, GenerationOptions, SamplingOptions, Step
from gpt2cli.render import (
    lens_view,
    loss_line,
    row_view,
    scaled_view,
    scored_view,
    step_view,
    temperature_view,
    verify_view,
)
from gpt2cli.scoring import Losses, score
from gpt2cli.serialize import JsonObject, step_json
from gpt2cli.serialize_views import (
    check_json,
    head_json,
    layer_records,
    lens_json,
    row_json,
    row_records,
    scaled_json,
    scaled_records,
    scored_record,
    scored_row_json,
    step_records,
    steps_json,
    temperature_records,
    temperatures_json,
)
from gpt2cli.verify import verify

if TYPE_CHECKING:
    from torch import Tensor

    from gpt2cli.protocol import LanguageModel, TextTokenizer

T = TypeVar("T")


@dataclass(frozen=True)
class Canvas:
    """What a view is drawn on. shades: whether it can show more than a few colours."""

    width: int
    shades: bool


@dataclass(frozen=True)
class View:
    """One answer in every format, each made when it is asked for, and as it goes where it comes in parts.

    table: one renderable after another. lines: of jsonl. records: of csv and tsv.
    failed: whether a check of the view's own failed; known once it has been written.
    """

    table: Callable[[Canvas], Iterable[RenderableType]]
    json: Callable[[], JsonObject]
    lines: Callable[[], Iterable[JsonObject]]
    records: Callable[[], Iterable[JsonObject]]
    failed: Callable[[], bool] = field(default=lambda: False)


def row(session: Session, sampling: SamplingOptions, count: int, tokens: tuple[str, ...]) -> View:
    """The last row."""
    model, tokenizer, token_ids = _parts(session)
    wanted = tuple(_token_id(tokenizer, token) for token in tokens)
    read = session.loaded.inspect(token_ids, sampling, count=count, tokens=wanted)
    data = row_json(head_json("row", model.name, token_ids), read)
    return _whole(data, lambda canvas: row_view(model.name, read, canvas.width), row_records(read))


def scale(session: Session, factor: float, count: int) -> View:
    """The last row, with its hidden state multiplied."""
    model, tokenizer, token_ids = _parts(session)
    scaled = scale_row(model, tokenizer, token_ids, _last(session), factor, count)
    data = scaled_json(head_json("row", model.name, token_ids), scaled)
    return _whole(data, lambda canvas: scaled_view(model.name, scaled, canvas.width), scaled_records(scaled))


def temperatures(session: Session, values: tuple[float, ...], count: int) -> View:
    """The last row under several temperatures."""
    model, tokenizer, token_ids = _parts(session)
    compared = compare_temperatures(model, tokenizer, token_ids, _last(session), values, count)
    data = temperatures_json(head_json("temperatures", model.name, token_ids), compared)
    return _whole(
        data, lambda canvas: temperature_view(model.name, compared, canvas.width), temperature_records(compared)
    )


def lens(session: Session, count: int) -> View:
    """Every layer at the last position."""
    model, tokenizer, token_ids = _parts(session)
    read = read_lens(model, tokenizer, token_ids, count)
    data = lens_json(head_json("lens", model.name, token_ids), read)
    return View(
        table=lambda canvas: [lens_view(model.name, read, canvas.width)],
        json=lambda: data,
        lines=lambda: [*({"type": "layer", **layer} for layer in data["layers"]), _without(data, "layers")],
        records=lambda: [record for layer in read.layers for record in layer_records(layer)],
        failed=lambda: not read.self_check.passed,
    )


def every_row(session: Session, stride: int | None, count: int, *, heat: bool, keep: bool) -> View:
    """Every row of the text and the token that came next: as a table, or as the text itself."""
    model, tokenizer, token_ids = _parts(session)
    step = stride_of(model, stride)
    shape = (len(token_ids), model.vocab_size)
    head = head_json("rows", model.name, token_ids) | {"shape": list(shape), "stride": step}
    losses = Losses()
    rows = _repeatable(lambda: losses.watch(score(model, tokenizer, token_ids, count=count, stride=step)), keep)

    def summary() -> JsonObject:
        return {
            "mean_loss": losses.mean_loss,
            "perplexity": losses.perplexity,
            "scored_tokens": losses.scored_tokens,
        }

    def table(canvas: Canvas) -> Iterator[RenderableType]:
        made = list(rows())
        loss = loss_line(losses.mean_loss, losses.perplexity, losses.scored_tokens)
        if heat:
            yield heat_view(model.name, made, loss, canvas.width, shades=canvas.shades)
        else:
            yield Group(scored_view(model.name, shape, made, canvas.width), loss)

    def lines() -> Iterator[JsonObject]:
        for made in rows():
            yield {"type": "scored_row", **scored_row_json(made)}
        yield head | summary()

    return View(
        table=table,
        json=lambda: head | {"rows": [scored_row_json(made) for made in rows()]} | summary(),
        lines=lines,
        records=lambda: (scored_record(made) for made in rows()),
    )


def steps(
    session: Session, sampling: SamplingOptions, seed: int | None, number: int, count: int, *, keep: bool
) -> View:
    """The row of each step of a generation, as it happens."""
    model, _, token_ids = _parts(session)
    options = GenerationOptions(max_new_tokens=number, details=True, candidates=count)

    def made() -> Iterator[Step]:
        for event in session.loaded.generate(token_ids, sampling, options, seed=seed or 0):
            if isinstance(event, Step):
                yield event

    every = _repeatable(made, keep)
    return View(
        table=lambda canvas: (Group(step_view(step, canvas.width), Text()) for step in every()),
        json=lambda: steps_json(head_json("steps", model.name, token_ids), sampling, seed, list(every())),
        lines=lambda: (step_json(step) for step in every()),
        records=lambda: (record for step in every() for record in step_records(step)),
    )


def checks(session: Session, load_other: Callable[[], "LanguageModel"], *, keep: bool) -> View:
    """The checks of the output layer."""
    model, tokenizer, token_ids = _parts(session)
    made: list[Check] = []

    def run() -> Iterator[Check]:
        for check in verify(model, tokenizer, token_ids, load_other):
            made.append(check)
            yield check

    every = _repeatable(run, keep)
    head = head_json("verify", model.name, token_ids)

    def failed() -> bool:
        return any(check.passed is False for check in made)

    def lines() -> Iterator[JsonObject]:
        for check in every():
            yield {"type": "check", **check_json(check)}
        yield head | {"passed": not failed()}

    return View(
        table=lambda canvas: [Group(*verify_view(model.name, list(every()), canvas.width))],
        json=lambda: head | {"checks": [check_json(check) for check in every()]} | {"passed": not failed()},
        lines=lines,
        records=lambda: (check_json(check) for check in every()),
        failed=failed,
    )


def _whole(data: JsonObject, table: Callable[[Canvas], RenderableType], records: list[JsonObject]) -> View:
    """A view that does not come in parts: its JSON is one line."""
    return View(table=lambda canvas: [table(canvas)], json=lambda: data, lines=lambda: [data], records=lambda: records)


def stride_of(model: "LanguageModel", stride: int | None) -> int:
    """How far the windows over a long text move on; half the context where it is not given."""
    if stride is None:
        return max(1, model.context_length // 2)
    if stride > model.context_length:
        raise click.UsageError(
            f"--stride {stride}: {model.name} sees {model.context_length} tokens; no token may be skipped"
        )
    return stride


def _repeatable(make: Callable[[], Iterator[T]], keep: bool) -> Callable[[], Iterable[T]]:
    """`make` itself, or, to be read more than once, what it made the first time."""
    if not keep:
        return make
    made: list[T] = []

    def again() -> list[T]:
        if not made:
            made.extend(make())
        return made

    return again


def _parts(session: Session) -> tuple["LanguageModel", "TextTokenizer", list[int]]:
    return session.loaded.model, session.loaded.tokenizer, session.prompt_token_ids


def _last(session: Session) -> "Tensor":
    model = session.loaded.model
    return last_hidden_state(model, session.prompt_token_ids, model.new_cache())


def _without(data: JsonObject, name: str) -> JsonObject:
    return {key: value for key, value in data.items() if key != name}


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
