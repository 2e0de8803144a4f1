"""The options that choose a view of inspect-logits, and which other options each view reads."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gpt2cli.options import Utf8Text, option_group
from gpt2cli.records import SamplingOptions

LAST_ROW = "the last row"
# Of the options that not every view reads, those that each does.
READS = {
    LAST_ROW: {"rows", "save", *SamplingOptions.NAMES},
    "--token": {"rows", "save", *SamplingOptions.NAMES},
    "--steps": {"rows", "seed", *SamplingOptions.NAMES},
    "--all": {"rows", "stride", "save"},
    "--heat": {"stride", "save"},
    "--compare-temperatures": {"rows", "save"},
    "--scale": {"rows", "save"},
    "--lens": {"rows", "save"},
    "--verify": {"save"},
}


@dataclass(frozen=True)
class ViewChoice:
    """What is asked about the text. rows: top candidates of a row, None for the view's own number."""

    every: bool
    heat: bool
    steps: int | None
    tokens: tuple[str, ...]
    temperatures: tuple[float, ...] | None
    scale: float | None
    lens: bool
    verify: bool
    rows: int | None
    stride: int | None

    @property
    def name(self) -> str:
        """The view, by its option. Raises UsageError where several are asked for."""
        asked = {
            "--all": self.every,
            "--heat": self.heat,
            "--steps": self.steps is not None,
            "--token": bool(self.tokens),
            "--compare-temperatures": self.temperatures is not None,
            "--scale": self.scale is not None,
            "--lens": self.lens,
            "--verify": self.verify,
        }
        names = [name for name, given in asked.items() if given]
        if len(names) > 1:
            raise click.UsageError(f"{' and '.join(names)} are {len(names)} views; ask for one at a time")
        return names[0] if names else LAST_ROW

    @property
    def count(self) -> int:
        return self.rows or (1 if self.every or self.heat else 10)


def refuse_unread(view: str, ctx: click.Context) -> None:
    """Raises UsageError for an option on the command line that the view would ignore."""
    for name in sorted(set().union(*READS.values()) - READS[view]):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            readers = ", ".join(reader for reader, names in READS.items() if name in names)
            raise click.UsageError(f"{option} changes nothing in {view}; leave it out (it is for {readers})")


class Temperatures(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    name = "temperatures"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Each in the range of --temperature; one that is given twice counts once."""
        try:
            found = [float(part) or 0.0 for part in value.split(",")]  # -0.0 is 0
            return tuple(dict.fromkeys(SamplingOptions(temperature=t).temperature for t in found))
        except ValueError as error:
            self.fail(f"{value!r} is not a list such as 0.5,1,2: {error}", param, ctx)


class OutputFile(click.ParamType):  # type: ignore[type-arg]
    """A file to be written, whose kind its name tells."""

    name = "file"

    def __init__(self, *suffixes: str) -> None:
        self._suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.suffix.lower() not in self._suffixes:
            self.fail(f"{value!r} must end in {' or '.join(self._suffixes)}", param, ctx)
        return path


def _finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number to multiply with", ctx, param)
    return value


view_options = option_group(
    "asked",
    ViewChoice,
    [
        click.option(
            "--all", "every", is_flag=True, help="View: every row, and the score of the token that really came next."
        ),
        click.option("--heat", is_flag=True, help="View: the text itself, each token coloured by its probability."),
        click.option(
            "--steps",
            type=click.IntRange(min=1),
            metavar="N",
            help="View: generate N tokens by the sampling options; the row of each, with the choice marked.",
        ),
        click.option(
            "--token",
            "tokens",
            type=Utf8Text(),
            multiple=True,
            metavar="TEXT|ID",
            help="View: the last row and this token, wherever it ranks, with its dot product taken apart; repeatable.",
        ),
        click.option(
            "--compare-temperatures",
            "temperatures",
            type=Temperatures(),
            metavar="T,T,…",
            help="View: the last row under several temperatures, side by side, as in 0.5,1,2.",
        ),
        click.option(
            "--scale",
            type=float,
            callback=_finite,
            metavar="FLOAT",
            help="View: the last row with its hidden state multiplied by this: same direction, other length.",
        ),
        click.option("--lens", is_flag=True, help="View: what each layer would choose (the logit lens)."),
        click.option(
            "--verify", is_flag=True, help="View: eight checks of the output layer; exit code 1 if one fails."
        ),
        click.option(
            "--rows",
            type=click.IntRange(min=1),
            metavar="K",
            help="Top candidates of a row.  [default: 10; 1 with --all]",
        ),
        click.option(
            "--stride",
            type=click.IntRange(min=1),
            metavar="N",
            help="A text longer than the context is read in overlapping windows, each N tokens after the one before.  "
            "[default: half the context]",
        ),
    ],
)
