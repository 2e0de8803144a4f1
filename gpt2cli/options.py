"""The click options that commands share. Each group arrives in the command as one frozen record."""

import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import click

from gpt2cli.prompt import PromptSource
from gpt2cli.records import SamplingOptions

Command = Callable[..., Any]
Format = TypeVar("Format", bound=str)  # one of the formats of a command
DEFAULT_MODEL = "tinystories"
MAX_THREADS = 1024  # the pool that runs them takes any number, and crashes on very large ones


@dataclass(frozen=True)
class ModelChoice:
    """Which model runs, and on what."""

    name: str
    device: str
    dtype: str
    backend: str
    threads: int | None


@dataclass(frozen=True)
class Talk:
    """What is said beside the product. color: auto, always or never."""

    quiet: bool
    color: str


@dataclass(frozen=True)
class BatchFiles:
    """Many prompts from a file, and where their records go."""

    batch: str | None
    output: str | None
    batch_size: int
    resume: bool
    strict: bool


class Utf8Text(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """Text by its bytes, which are UTF-8 whatever the locale says, as those of a prompt are."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return os.fsencode(value).decode()
        except UnicodeDecodeError:
            self.fail(f"{value!r} is not UTF-8", param, ctx)


class Device(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    name = "device"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in ("auto", "cpu", "cuda", "mps") or re.fullmatch("cuda:(0|[1-9][0-9]?)", value):
            return value
        self.fail(f"{value!r} is not one of auto, cpu, cuda, cuda:N, mps", param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "auto|cpu|cuda|cuda:N|mps"


def option_group(
    name: str, build: Callable[..., Any], options: Sequence[Callable[[Command], Command]]
) -> Callable[[Command], Command]:
    """A decorator that adds `options` to a command and hands their values to it as one record called `name`."""

    def add_options(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    keys = [parameter.name for parameter in add_options(lambda: None).__click_params__]  # type: ignore[attr-defined]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_record(**values: Any) -> Any:
            record = build(**{key: values.pop(key) for key in keys})
            return command(**values, **{name: record})

        return add_options(with_record)

    return decorate


prompt_options = option_group(
    "source",
    PromptSource,
    [
        click.argument("argument", metavar="[PROMPT]", required=False),
        click.option("-f", "--file", metavar="PATH", help="Read prompt text from a file; - is standard input."),
        click.option("--keep-newline", is_flag=True, help="Keep the final newline of a file or of standard input."),
        click.option(
            "--truncate-prompt",
            "truncate",
            is_flag=True,
            help="Keep only the end of a prompt that is longer than the model's context (otherwise an error).",
        ),
        click.option(
            "--special-tokens",
            is_flag=True,
            help="Let the text <|endoftext|> in the prompt mean the special token (otherwise it is ordinary text).",
        ),
        click.option("--bos", is_flag=True, help="Put <|endoftext|> in front of the prompt."),
    ],
)


def _few(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value is not None and value > MAX_THREADS:
        raise click.BadParameter(f"{value} is more than {MAX_THREADS}", ctx, param)
    return value


model_options = option_group(
    "choice",
    ModelChoice,
    [
        click.option(
            "-m",
            "--model",
            "name",
            metavar="NAME",
            envvar="GPT2CLI_MODEL",
            show_envvar=True,
            default=DEFAULT_MODEL,
            show_default=True,
            help="The bundled model, a folder, or a hub id such as gpt2; see `gpt2cli models`.",
        ),
        click.option(
            "--device", type=Device(), envvar="GPT2CLI_DEVICE", show_envvar=True, default="auto", show_default=True
        ),
        click.option(
            "--dtype",
            type=click.Choice(["float32", "float16", "bfloat16", "int8"]),
            envvar="GPT2CLI_DTYPE",
            show_envvar=True,
            default="float32",
            show_default=True,
            help="The type of the weights and of the arithmetic. int8, on a CPU, rounds the weights alone.",
        ),
        click.option(
            "--backend",
            type=click.Choice(["native", "transformers"]),
            default="native",
            show_default=True,
            help="native: GPT-2 in plain torch. transformers: that library, for any causal language model.",
        ),
        click.option("--threads", type=click.IntRange(min=1), callback=_few, metavar="N", help="CPU threads."),
    ],
)


def _sampling(**settings: Any) -> SamplingOptions:
    try:
        return SamplingOptions.of(**settings)
    except ValueError as error:
        raise click.UsageError(f"--{error}") from None


sampling_options = option_group(
    "sampling",
    _sampling,
    [
        click.option(
            "-t",
            "--temperature",
            type=float,
            metavar="FLOAT",
            help="Divide the logits by this: below 1 sharpens, above 1 flattens. Exactly 0 means greedy.",
        ),
        click.option(
            "-k",
            "--top-k",
            type=int,
            metavar="INT",
            help="Keep the k largest logits, and all that tie with the k-th. 0 is off.",
        ),
        click.option(
            "-p",
            "--top-p",
            type=float,
            metavar="FLOAT",
            help="Keep the smallest set of largest probabilities that reaches p, at least one token.",
        ),
        click.option(
            "--min-p",
            type=float,
            metavar="FLOAT",
            help="Keep tokens with at least this fraction of the top probability.",
        ),
        click.option(
            "--repetition-penalty",
            type=float,
            default=1.0,
            metavar="FLOAT",
            help="Divide positive and multiply negative logits of tokens already seen. 1 is off.",
        ),
    ],
)


def named_format(output_format: Format | None, as_json: bool) -> Format | None:
    """The format that was asked for; None for the command's own. Raises UsageError where --json contradicts it."""
    if as_json and output_format not in (None, "json"):
        raise click.UsageError(f"--json is short for --format json and contradicts --format {output_format}")
    return cast(Format, "json") if as_json else output_format


seed_option = click.option(
    "-s",
    "--seed",
    type=click.IntRange(min=0, max=2**63 - 1),
    metavar="INT",
    help="Makes sampling repeatable; without one, a seed is drawn and reported.",
)

batch_options = option_group(
    "files",
    BatchFiles,
    [
        click.option(
            "--batch",
            metavar="FILE",
            help="Continue many prompts: JSON Lines with prompt or prompt_token_ids, and optionally id and sampling "
            "options (max_new_tokens, temperature, seed, …); or, from a .txt file, one prompt a line. "
            "- is standard input.",
        ),
        click.option(
            "--output",
            metavar="FILE",
            help="Where --batch writes a result a line, in the input's order.  [default: -]",
        ),
        click.option(
            "--batch-size",
            type=click.IntRange(min=1),
            default=8,
            show_default=True,
            metavar="INT",
            help="How many texts of a --batch are made at once. It changes speed and memory, never a text.",
        ),
        click.option(
            "--resume",
            is_flag=True,
            help="Go on where an earlier --batch left its --output; same input, same options.",
        ),
        click.option(
            "--strict",
            is_flag=True,
            help="Stop a --batch at the first bad row (otherwise its record says what is bad).",
        ),
    ],
)

talk_options = option_group(
    "talk",
    Talk,
    [
        click.option("-q", "--quiet", is_flag=True, help="Say nothing on standard error but errors."),
        click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True),
    ],
)
